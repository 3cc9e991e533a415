/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Parses a whole number without a sign, at most max. Prints no message. */
bool stat_number_parse(const char *text, uint64_t max, uint64_t *ret_value);
