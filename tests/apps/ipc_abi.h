/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The IPC type of cuda.h, for test programs and the simulated driver. */
typedef struct CUipcEventHandle_st {
	char reserved[64];
} CUipcEventHandle;
