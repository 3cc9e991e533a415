/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the tests of the guests share, beyond play.h. */

#include "tests/preload/play.h"

/*
 * Runs the guest without and with the library, and asserts that nobody could tell the difference, neither by what is
 * said nor by what is left behind in its directory.
 */
void guests_same(const struct play *play);

/* Names of what the last program left in its directory, a space after each. */
const char *guests_left(void);

/* Of play_fact's: how many calls of the driver are few, where each of the guest's rounds would need one without us. */
void guests_check_pooled(void);

/* Ends the test program as one that was skipped. */
int guests_skip(const char *reason);
