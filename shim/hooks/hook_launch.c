/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * cuLaunchKernelEx, a launch with attributes. Its stream is noted like that of any other launch (submit.def). In
 * addition, an attribute may allow its kernel to begin before the previous kernel of the stream has finished
 * (programmatic dependent launch). Then even work in one stream may overlap. An event that a fence
 * records between two such kernels does not hold the second one back, but a GPU wait does (measured on an H200).
 *
 * If the pool lets streams reuse at once what was freed on them, the permission is taken away (context/stream.h).
 */

#include <stdlib.h>

#include "pool/base.h"
#include "shim/base/state.h"
#include "shim/context/capture.h"
#include "shim/context/serial.h"
#include "shim/context/stream_order.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/launch_abi.h"
#include "shim/driver/submit.h"

static bool may_begin_early(const CUlaunchConfig *config)
{
	for (unsigned i = 0; config->attrs && i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];

		if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
			return true;
		if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
			attribute->value.programmaticStreamSerializationAllowed)
			return true;
	}
	return false;
}

static void note_launch(const CUlaunchConfig *config, int flags)
{
	if (gp_likely(!gp_submit_is_stream_of_interest()) || !config)
		return;
	gp_serial_see(config->hStream, flags);
	gp_capture_see(config->hStream, flags);
	if (!may_begin_early(config))
		return;
	gp_serial_end("a kernel that may begin before earlier work has finished");
	gp_capture_see_fork(config->hStream, flags);
}

typedef CUresult launch_fn(const CUlaunchConfig *config, CUfunction function, void **params, void **extra);

static CUresult submit(
	launch_fn *driver, const CUlaunchConfig *config, CUfunction function, void **params, void **extra, int flags)
{
	struct gp_submission_lane *lane = gp_submit_begin();
	CUresult r;

	if (config)
		gp_stream_order_see(config->hStream, flags);
	r = driver(config, function, params, extra);
	gp_submit_end(lane);
	return r;
}

/* Launches behind all earlier work of the stream. An attribute that is about an event stays. */
static CUresult submit_in_order(
	launch_fn *driver, const CUlaunchConfig *config, CUfunction function, void **params, void **extra, int flags)
{
	CUlaunchAttribute *attrs = calloc(config->numAttrs, sizeof(*attrs));
	CUlaunchConfig ordered = *config;
	CUresult r;

	if (!attrs)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ordered.attrs = attrs;
	for (unsigned i = 0; i < config->numAttrs; i++) {
		attrs[i] = config->attrs[i];
		if (attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
			attrs[i].value.programmaticStreamSerializationAllowed = 0;
	}
	r = submit(driver, &ordered, function, params, extra, flags);
	free(attrs);
	return r;
}

static CUresult launch(
	launch_fn *driver, const CUlaunchConfig *config, CUfunction function, void **params, void **extra, int flags)
{
	if (gp_state.config.is_async_pooled && config && may_begin_early(config) && !gp_stream_is(GP_STREAM_EARLY))
		return submit_in_order(driver, config, function, params, extra, flags);
	return submit(driver, config, function, params, extra, flags);
}

CUresult hook_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	note_launch(config, CU_GET_PROC_ADDRESS_DEFAULT);
	return launch(gp_real.cuLaunchKernelEx, config, function, params, extra, CU_GET_PROC_ADDRESS_DEFAULT);
}

CUresult hook_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	note_launch(config, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	return launch(gp_real.cuLaunchKernelEx_ptsz, config, function, params, extra,
		CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
}
