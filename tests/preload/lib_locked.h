/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The program's: called in the constructor, while the loader holds its lock. */
void locked_constructor(void);
