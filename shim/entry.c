/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The exported functions, all alike: find the driver if need be, step aside if told to, keep errno, and call the
 * body. Generated, so that none can forget any of it. Those that submit work are but looked at, until all know that it
 * is out of order; and what a thread has at hand was found by one that did all that.
 */

#include <errno.h>

#include "../pool/base.h"
#include "caller.h"
#include "in_order.h"
#include "memory.h"
#include "real.h"
#include "state.h"
#include "unusual.h"

#define CALLER() ((uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0)))

#define EXPORTED(symbol, parameters)                                                                                   \
	__attribute__((visibility("default"))) CUresult symbol parameters;                                             \
	CUresult symbol parameters

#define BODY(symbol, arguments, body)                                                                                  \
	{                                                                                                              \
		int saved_errno = errno;                                                                               \
		CUresult r;                                                                                            \
                                                                                                                       \
		if (gp_unlikely(!gp_real_ready()))                                                                     \
			return CUDA_ERROR_NOT_INITIALIZED;                                                             \
		if (gp_unlikely(!gp_real.symbol))                                                                      \
			return CUDA_ERROR_NOT_FOUND;                                                                   \
		if (gp_unlikely(gp_is_unusual(GP_UNUSUAL_BYPASS) || !gp_state_is_enabled()))                           \
			r = gp_real.symbol arguments;                                                                  \
		else                                                                                                   \
			r = body;                                                                                      \
		errno = saved_errno;                                                                                   \
		return r;                                                                                              \
	}

#define ENTRY(symbol, parameters, arguments, body) EXPORTED(symbol, parameters) BODY(symbol, arguments, body)

#define HOOK(symbol, name, version, flags, parameters, arguments)                                                      \
	ENTRY(symbol, parameters, arguments, hook_##symbol arguments)
#define HOOK_ALLOC(symbol, name, version, flags, parameters, arguments)                                                \
	ENTRY(symbol, parameters, arguments, (gp_caller.address = CALLER(), hook_##symbol arguments))
#define AT_HAND(symbol, parameters, arguments, prepare)                                                                \
	static __attribute__((noinline)) CUresult long_##symbol parameters BODY(                                       \
		symbol, arguments, hook_##symbol arguments)                                                            \
	EXPORTED(symbol, parameters)                                                                                   \
	{                                                                                                              \
		int r;                                                                                                 \
                                                                                                                       \
		prepare;                                                                                               \
		r = at_hand_##symbol arguments;                                                                        \
		return gp_likely(r != -ENOENT) ? (CUresult)r : long_##symbol arguments;                                \
	}
#define HOOK_AT_HAND(symbol, name, version, flags, parameters, arguments)                                              \
	AT_HAND(symbol, parameters, arguments, (void)0)
#define HOOK_ALLOC_AT_HAND(symbol, name, version, flags, parameters, arguments)                                        \
	AT_HAND(symbol, parameters, arguments, gp_caller.address = CALLER())
#define WORK(symbol, name, version, flags, parameters, arguments, stream)                                              \
	static __attribute__((noinline)) CUresult see_##symbol parameters                                              \
	{                                                                                                              \
		struct gp_work_lane *lane;                                                                             \
		CUresult r;                                                                                            \
                                                                                                                       \
		if (!gp_real_ready())                                                                                  \
			return CUDA_ERROR_NOT_INITIALIZED;                                                             \
		if (!gp_real.symbol)                                                                                   \
			return CUDA_ERROR_NOT_FOUND;                                                                   \
		gp_in_order_see(stream, flags);                                                                        \
		lane = gp_submit_begin();                                                                              \
		r = gp_real.symbol arguments;                                                                          \
		gp_submit_end(lane);                                                                                   \
		return r;                                                                                              \
	}                                                                                                              \
	EXPORTED(symbol, parameters)                                                                                   \
	{                                                                                                              \
		struct gp_work_lane *lane;                                                                             \
		CUresult r;                                                                                            \
                                                                                                                       \
		if (gp_unlikely(!gp_in_order_is_past() || !gp_real_is_found() || !gp_real.symbol))                     \
			return see_##symbol arguments;                                                                 \
		lane = gp_submit_begin();                                                                              \
		r = gp_real.symbol arguments;                                                                          \
		gp_submit_end(lane);                                                                                   \
		return r;                                                                                              \
	}
#include "hooks.def"
