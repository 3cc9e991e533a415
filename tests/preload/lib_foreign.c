/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* An empty library, built under the names of real libraries. gpupool recognises some of these names. */
int lib_foreign = 1;
