/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The simulated driver of an earlier version, without the functions that came later. Expands to a version script. */
{
global:
	cu*;
	simgpu_*;
local:
#if DRIVER_VERSION < 12050
	cuCtxRecordEvent;
	cuCtxWaitEvent;
	cuCtxCreate_v4;
#endif
#if DRIVER_VERSION < 12030
	cuStreamBeginCaptureToGraph*;
#endif
#if DRIVER_VERSION < 12000
	cuCtxGetId;
	cuGetProcAddress_v2;
	cuStreamGetId;
	cuStreamGetId_ptsz;
#endif
#if DRIVER_VERSION < 11030
	cuGetProcAddress;
#endif
	*;
};
