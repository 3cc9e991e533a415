/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "runtime.h"

static __thread cudaError_t last;

static const struct {
	cudaError_t code;
	const char *name;
} names[] = {
	{0, "cudaSuccess"},
	{1, "cudaErrorInvalidValue"},
	{2, "cudaErrorMemoryAllocation"},
	{3, "cudaErrorInitializationError"},
	{4, "cudaErrorCudartUnloading"},
	{34, "cudaErrorStubLibrary"},
	{35, "cudaErrorInsufficientDriver"},
	{100, "cudaErrorNoDevice"},
	{101, "cudaErrorInvalidDevice"},
	{201, "cudaErrorDeviceUninitialized"},
	{205, "cudaErrorMapBufferObjectFailed"},
	{400, "cudaErrorInvalidResourceHandle"},
	{401, "cudaErrorIllegalState"},
	{500, "cudaErrorSymbolNotFound"},
	{600, "cudaErrorNotReady"},
	{700, "cudaErrorIllegalAddress"},
	{702, "cudaErrorLaunchTimeout"},
	{709, "cudaErrorContextIsDestroyed"},
	{719, "cudaErrorLaunchFailure"},
	{800, "cudaErrorNotPermitted"},
	{801, "cudaErrorNotSupported"},
	{900, "cudaErrorStreamCaptureUnsupported"},
	{901, "cudaErrorStreamCaptureInvalidated"},
	{903, "cudaErrorStreamCaptureUnmatched"},
	{904, "cudaErrorStreamCaptureUnjoined"},
	{905, "cudaErrorStreamCaptureIsolation"},
	{906, "cudaErrorStreamCaptureImplicit"},
	{907, "cudaErrorCapturedEvent"},
	{908, "cudaErrorStreamCaptureWrongThread"},
};

cudaError_t rt_done(cudaError_t error)
{
	if (error)
		last = error;
	return error;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last;
}

/* Clears the last error. If the context has faulted, the next call returns the sticky error again. */
cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last;

	last = cudaSuccess;
	return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (names[i].code == error)
			return names[i].name;
	return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;

	if (!rt_enter_without_context() && rt_driver.cuGetErrorString)
		rt_driver.cuGetErrorString(error, &text);
	return text ? text : cudaGetErrorName(error);
}
