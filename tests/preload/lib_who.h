/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#define LIB_EXPORT __attribute__((visibility("default")))

/* In three libraries: each adds its own digit to what the next one says. */
LIB_EXPORT int who(void);

/* In one library each, so that the linker keeps all three; their digits. */
LIB_EXPORT int lib_1(void);
LIB_EXPORT int lib_2(void);
LIB_EXPORT int lib_3(void);
