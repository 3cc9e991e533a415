/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The exported driver functions. Each one finds the driver if necessary, passes the call on if gpupool is off or
 * bypassed, preserves errno, and calls its body in a hook_*.c file. They are generated, so that none can miss a step.
 *
 * Functions that make the driver examine memory are visits (HOOK_VISITS, HOOK_PASSED, HOOK_NODE): while the process is
 * asleep they wake it first.
 *
 * While the process is deep asleep each call waits, also one that makes the host wait for the GPU (HOOK_WAITS).
 *
 * Functions that submit work (WORK) count the submission and call the driver. Until serial mode has ended, while a
 * stream captures, and once the program allocates in stream order, they also look at the stream.
 *
 * The FAST variants first try the thread's cache (hit_SYMBOL in hook_memory.h) without the other steps: the earlier
 * call that created this cache went through all of them.
 */

#include <errno.h>

#include "hook_memory.h"
#include "hook_peer.h"
#include "pool/base.h"
#include "shim/backend/deep.h"
#include "shim/base/slow_path.h"
#include "shim/context/serial.h"
#include "shim/context/stream_order.h"
#include "shim/driver/driver_table.h"
#include "shim/driver/submit.h"
#include "shim/process.h"
#include "shim/trace/module.h"

#define CALLER() ((uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0)))

#define EXPORTED(symbol, parameters)                                       \
	__attribute__((visibility("default"))) CUresult symbol parameters; \
	CUresult symbol parameters

/* Waits while the process is deep asleep. Returns true if the call goes to the driver as it is. */
__attribute__((cold)) static bool is_passed_on(void)
{
	if (!gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) && gp_process_is_on())
		gp_deep_await();
	return gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) || !gp_process_is_on();
}

/* The call of a process that is off, bypassed or deep asleep. It is out of the way: others save no registers for it. */
#define RARE(symbol, parameters, arguments, body)                                    \
	__attribute__((cold, noinline)) static CUresult rare_##symbol parameters     \
	{                                                                            \
		return is_passed_on() ? gp_real.symbol arguments : (CUresult)(body); \
	}

#define BODY(symbol, arguments, prepare, body)                                                                        \
	{                                                                                                             \
		int saved_errno = errno;                                                                              \
		CUresult r;                                                                                           \
                                                                                                                      \
		if (gp_unlikely(!gp_real_ready()))                                                                    \
			return CUDA_ERROR_NOT_INITIALIZED;                                                            \
		if (gp_unlikely(!gp_real.symbol))                                                                     \
			return CUDA_ERROR_NOT_FOUND;                                                                  \
		prepare;                                                                                              \
		if (gp_unlikely(gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_DEEP) || !gp_process_is_on())) \
			r = rare_##symbol arguments;                                                                  \
		else                                                                                                  \
			r = body;                                                                                     \
		errno = saved_errno;                                                                                  \
		return r;                                                                                             \
	}

/* Ends a visit. */
static CUresult visited(CUresult r)
{
	gp_submit_end_visit();
	return r;
}

#define ENTRY(symbol, parameters, arguments, prepare, body) \
	RARE(symbol, parameters, arguments, body)           \
	EXPORTED(symbol, parameters) BODY(symbol, arguments, prepare, body)

#define HOOK(symbol, name, version, flags, parameters, arguments) \
	ENTRY(symbol, parameters, arguments, (void)0, hook_##symbol arguments)
#define HOOK_ALLOC(symbol, name, version, flags, parameters, arguments) \
	ENTRY(symbol, parameters, arguments, gp_module.address = CALLER(), hook_##symbol arguments)
#define FAST(symbol, parameters, arguments, prepare)                                              \
	RARE(symbol, parameters, arguments, hook_##symbol arguments)                              \
	static __attribute__((noinline)) CUresult slow_##symbol parameters BODY(                  \
		symbol, arguments, (void)0, hook_##symbol arguments) EXPORTED(symbol, parameters) \
	{                                                                                         \
		int r;                                                                            \
                                                                                                  \
		prepare;                                                                          \
		r = hit_##symbol arguments;                                                       \
		return gp_likely(r != -ENOENT) ? (CUresult)r : slow_##symbol arguments;           \
	}
#define HOOK_FAST(symbol, name, version, flags, parameters, arguments) FAST(symbol, parameters, arguments, (void)0)
#define HOOK_ALLOC_FAST(symbol, name, version, flags, parameters, arguments) \
	FAST(symbol, parameters, arguments, gp_module.address = CALLER())
#define HOOK_VISITS(symbol, name, version, flags, parameters, arguments) \
	ENTRY(symbol, parameters, arguments, (void)0, (gp_submit_visit(), visited(hook_##symbol arguments)))
#define DIRECT(symbol, parameters, before, result)         \
	EXPORTED(symbol, parameters)                       \
	{                                                  \
		if (gp_unlikely(!gp_real_ready()))         \
			return CUDA_ERROR_NOT_INITIALIZED; \
		if (gp_unlikely(!gp_real.symbol))          \
			return CUDA_ERROR_NOT_FOUND;       \
		before;                                    \
		return result;                             \
	}
#define HOOK_PASSED(symbol, name, version, flags, parameters, arguments) \
	DIRECT(symbol, parameters, gp_submit_visit(), visited(gp_real.symbol arguments))
#define HOOK_NODE(symbol, name, version, flags, parameters, arguments, is_copy, ctx)                \
	__attribute__((cold, noinline)) static CUresult refused_##symbol parameters                 \
	{                                                                                           \
		if (!(is_copy) || !gp_peer_open_to_node(ctx))                                       \
			return CUDA_ERROR_INVALID_VALUE;                                            \
		gp_submit_visit();                                                                  \
		return visited(gp_real.symbol arguments);                                           \
	}                                                                                           \
	static CUresult pass_##symbol parameters                                                    \
	{                                                                                           \
		CUresult r = visited(gp_real.symbol arguments);                                     \
                                                                                                    \
		return gp_unlikely(r == CUDA_ERROR_INVALID_VALUE) ? refused_##symbol arguments : r; \
	}                                                                                           \
	DIRECT(symbol, parameters, gp_submit_visit(), pass_##symbol arguments)
#define HOOK_WAITS(symbol, name, version, flags, parameters, arguments) \
	DIRECT(symbol, parameters, if (gp_unlikely(gp_deep_is())) gp_deep_await(), gp_real.symbol arguments)
#define BEGINS(symbol, text) (!__builtin_strncmp(#symbol, text, sizeof(text) - 1))
/* A copy that the driver refuses on a device without access to the memory, unless it is memory of cuMemAlloc. */
#define NEEDS_ACCESS(symbol) \
	(BEGINS(symbol, "cuMemcpy") && !BEGINS(symbol, "cuMemcpyPeer") && !BEGINS(symbol, "cuMemcpy3DPeer"))
#define WORK(symbol, name, version, flags, parameters, arguments, stream)                                              \
	static __attribute__((noinline)) CUresult see_##symbol parameters                                              \
	{                                                                                                              \
		struct gp_submission_lane *lane;                                                                       \
		CUresult r;                                                                                            \
                                                                                                                       \
		if (!gp_real_ready())                                                                                  \
			return CUDA_ERROR_NOT_INITIALIZED;                                                             \
		if (!gp_real.symbol)                                                                                   \
			return CUDA_ERROR_NOT_FOUND;                                                                   \
		gp_serial_see(stream, flags);                                                                          \
		gp_capture_see(stream, flags);                                                                         \
		lane = gp_submit_begin();                                                                              \
		gp_stream_order_see(stream, flags);                                                                    \
		r = gp_real.symbol arguments;                                                                          \
		gp_submit_end(lane);                                                                                   \
		return r;                                                                                              \
	}                                                                                                              \
	__attribute__((cold, noinline, unused)) static CUresult refused_##symbol parameters                            \
	{                                                                                                              \
		CUresult r = CUDA_ERROR_INVALID_VALUE;                                                                 \
                                                                                                                       \
		if (gp_peer_open_to_copies(stream))                                                                    \
			r = see_##symbol arguments;                                                                    \
		/* Where the refusal has ended a capture, the program gets the refusal. */                             \
		return r == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ? CUDA_ERROR_INVALID_VALUE : r;                      \
	}                                                                                                              \
	EXPORTED(symbol, parameters)                                                                                   \
	{                                                                                                              \
		struct gp_submission_lane *lane = NULL;                                                                \
		CUresult r;                                                                                            \
                                                                                                                       \
		if (gp_likely(!gp_submit_is_stream_of_interest() && gp_real_is_found() && gp_real.symbol))             \
			lane = gp_submit_try_any();                                                                    \
		if (gp_likely(lane)) {                                                                                 \
			r = gp_real.symbol arguments;                                                                  \
			gp_submit_end(lane);                                                                           \
		} else {                                                                                               \
			r = see_##symbol arguments;                                                                    \
		}                                                                                                      \
		return NEEDS_ACCESS(symbol) && gp_unlikely(r == CUDA_ERROR_INVALID_VALUE) ? refused_##symbol arguments \
											  : r;                         \
	}
#include "shim/driver/hooks.def"
