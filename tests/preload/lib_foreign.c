/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* An empty library. It is built under the names of real ones, of which the library under test recognises some. */
int lib_foreign = 1;
