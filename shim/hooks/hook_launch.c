/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * cuLaunchKernelEx, a launch with attributes. Its stream is noted like that of any other launch (submit.def). In
 * addition, an attribute may allow its kernel to begin before the previous kernel of the stream has finished
 * (programmatic dependent launch). Then even work in one stream may overlap. An event that a fence
 * records between two such kernels does not hold the second one back, but a GPU wait does (measured on an H200).
 */

#include "pool/base.h"
#include "shim/context/serial.h"
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
	if (gp_likely(gp_serial_is_over()) || !config)
		return;
	gp_serial_see(config->hStream, flags);
	if (may_begin_early(config))
		gp_serial_end("a kernel that may begin before earlier work has finished");
}

CUresult hook_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	struct gp_submission_lane *lane;
	CUresult r;

	note_launch(config, CU_GET_PROC_ADDRESS_DEFAULT);
	lane = gp_submit_begin();
	r = gp_real.cuLaunchKernelEx(config, function, params, extra);
	gp_submit_end(lane);
	return r;
}

CUresult hook_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	struct gp_submission_lane *lane;
	CUresult r;

	note_launch(config, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	lane = gp_submit_begin();
	r = gp_real.cuLaunchKernelEx_ptsz(config, function, params, extra);
	gp_submit_end(lane);
	return r;
}
