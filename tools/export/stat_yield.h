/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The broker (common/broker.h), in threads of the exporter: one serves the connections, another one asks. They share
 * nothing with the answers to Prometheus, so that neither waits for the other.
 *
 * Users and processes are told apart by what the kernel says of the other end of a connection. A client may be
 * hostile: connections, requests, questions and the time for each are bounded, and answers contain nothing but sums.
 */

#include "tools/text/stat_say.h"

struct stat_yield;

/* Checks that this process can be a broker. Returns STAT_OK, or the exit code after a message. */
enum stat_exit stat_yield_check(void);

/* Starts the broker in GP_BROKER_DIR. Returns STAT_OK, or the exit code after a message. */
enum stat_exit stat_yield_start(struct stat_yield **ret);

/* Ends the broker, and removes its socket. NULL does nothing. */
void stat_yield_stop(struct stat_yield *yield);
