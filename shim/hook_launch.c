/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A launch with attributes. Its stream is looked at as any other launch's is (work.def); and its kernel may be
 * allowed to begin before the one in front of it in its stream is done (programmatic dependent launch), and then
 * not even a single stream works in order. A fence's record in between does not keep it back, an order does
 * (measured on an H200).
 */

#include "../pool/base.h"
#include "in_order.h"
#include "launch_abi.h"
#include "real.h"

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

static void look(const CUlaunchConfig *config, int flags)
{
	if (gp_likely(gp_in_order_is_past()) || !config)
		return;
	gp_in_order_see(config->hStream, flags);
	if (may_begin_early(config))
		gp_in_order_end("a kernel that may begin early");
}

CUresult hook_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	struct gp_work_lane *lane;
	CUresult r;

	look(config, CU_GET_PROC_ADDRESS_DEFAULT);
	lane = gp_submit_begin();
	r = gp_real.cuLaunchKernelEx(config, function, params, extra);
	gp_submit_end(lane);
	return r;
}

CUresult hook_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	struct gp_work_lane *lane;
	CUresult r;

	look(config, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
	lane = gp_submit_begin();
	r = gp_real.cuLaunchKernelEx_ptsz(config, function, params, extra);
	gp_submit_end(lane);
	return r;
}
