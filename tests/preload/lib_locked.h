/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Defined by the program. The plug-in's constructor calls it while the loader holds its lock. */
void locked_constructor(void);
