/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* In two libraries: the first adds its own digit to what the next one says. */
__attribute__((visibility("default"))) int who(void);
