/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Prints what the library's constructor got. */
__attribute__((visibility("default"))) void lib_early(void);
