/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Prints the results of the library's constructor, and frees its block. */
__attribute__((visibility("default"))) void lib_early(void);
