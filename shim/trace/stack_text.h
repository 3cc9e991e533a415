/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Formats stacks and amounts for log lines. addr2line turns the addresses into functions and lines. */

#include <stdint.h>

#include "common/size.h"

enum { GP_STACK_TEXT_MAX = 640 };

/*
 * Writes the stack of a call site as "solver+0x11a9 < libgrid.so+0x4020 < ...", with addresses within the files.
 * Returns the text.
 */
const char *gp_stack_text(char text[static GP_STACK_TEXT_MAX], uint32_t site);

/*
 * Writes the bytes that a retry round gained, like gp_amount_text. Less than any block stands for an unknown amount,
 * and is written as 0 B.
 */
const char *gp_yield_text(char text[static GP_AMOUNT_TEXT_MAX], uint64_t bytes);
