/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* As in cuda.h; for programs and the simulated driver alike. */
typedef struct CUipcEventHandle_st {
	char reserved[64];
} CUipcEventHandle;
