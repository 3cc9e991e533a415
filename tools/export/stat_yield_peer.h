/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Identifies a client of the broker: the user whose share it uses, and whether it has the device. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stat_yield_request.h"

#define STAT_YIELD_GPUS "/proc/driver/nvidia/gpus"

enum { STAT_YIELD_NVIDIA_MAJOR = 195 }; /* the device number of /dev/nvidia0 */

/*
 * Returns the number of the user whose share a process uses. A user may have thousands of ids in user namespaces, which
 * share one number with the user who made the namespace. Namespaces that root made, as for pods, are told apart by
 * their ids.
 */
uint64_t stat_yield_user_of(pid_t pid, uid_t uid);

/*
 * Returns NULL if the process has that device, or why it is not passed on. With the driver of NVIDIA, the process must
 * have opened the node of the device or, if the driver does not list the UUID, as of a MIG instance, that of any
 * device. Without that driver, the device must be on the counter page of the process. gpus: usually STAT_YIELD_GPUS.
 */
const char *stat_yield_peer_check(
	pid_t pid, uid_t uid, const unsigned char uuid[static STAT_YIELD_UUID], const char *gpus, unsigned major);
