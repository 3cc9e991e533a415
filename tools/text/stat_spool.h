/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Returns a path at which a file can be read more than once. "-" means the standard input. A pipe is copied to a file
 * that exists until the program ends. Returns NULL after a message.
 */
const char *stat_spool(const char *name);
