/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The counters of the driver's pools in whose place gpupool serves allocations in stream order. account: that of a pool
 * that the program has made (pool/account.h), or GP_ACCOUNT_NONE for the device's default pool.
 */

#include "shim/context/device.h"

/*
 * Used bytes are those of the pool. All pools of the device share what gpupool has taken from the driver, so each of
 * them reports it as reserved, and they have one mark for it. All are 0 for a default pool until gpupool has served an
 * allocation in its place: that of a program that only calls cudaMalloc is empty.
 */
struct gp_driver_pool_usage {
	uint64_t used_bytes, used_high_bytes;
	uint64_t reserved_bytes, reserved_high_bytes;
};
struct gp_driver_pool_usage gp_driver_pool_usage(struct gp_device *device, unsigned account);

/* To be called before memory of an ended context goes back: the marks of the device's default pool do not fall. */
void gp_driver_pool_keep_highs(struct gp_device *device);

/* Restarts the high-water marks of used or of reserved bytes. */
void gp_driver_pool_restart_highs(
	struct gp_device *device, unsigned account, bool restarts_used, bool restarts_reserved);

/* Gives back cached memory of the device's pools, until that many bytes are on their way or no more is cached. */
void gp_driver_pool_trim(const struct gp_device *device, uint64_t want);
