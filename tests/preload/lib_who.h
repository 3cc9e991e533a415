/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#define LIB_EXPORT __attribute__((visibility("default")))

/* Exported by three libraries. Returns the library's digit plus ten times the result of the next library's function. */
LIB_EXPORT int who(void);

/* Each is exported by one library only, so that the linker keeps all three. Returns the library's digit. */
LIB_EXPORT int lib_1(void);
LIB_EXPORT int lib_2(void);
LIB_EXPORT int lib_3(void);
