/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Files are read more than once. What comes through a pipe, or as "-" from the standard input, is kept for that: the
 * path of a copy, which is there until the program ends, else the name itself. NULL after a message.
 */
const char *stat_spool(const char *name);
