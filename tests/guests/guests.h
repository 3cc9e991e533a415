/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Shared by the tests of the guests, beyond play.h. */

#include "tests/preload/play.h"

/*
 * Runs the guest without and with the library. Asserts that its output is the same, and that nothing is
 * left behind in its directory.
 */
void guests_same(const struct play *play);

/* Returns the names of the files that the last program left in its directory, each followed by a space. */
const char *guests_left(void);

/* Asserts that the driver got few calls. Without the pool each of the guest's rounds would need one. */
void guests_check_pooled(void);

/* Ends the test program and reports it as skipped. */
int guests_skip(const char *reason);
