/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Programs are built without frame pointers, so a stack can only be read with the tables that exceptions need, by who
 * knows best how: the compiler's own library, which every C++ program has and the C library's backtrace() uses as well.
 * It is loaded when stacks are switched on. From then on a walk allocates nothing; finding the tables of a frame takes
 * a lock-free look at the loader's data since glibc 2.35, and before that a lock that is held for moments only.
 *
 * The first frames are ours, and the CUDA runtime's where that is a library of its own: they are the same for everybody
 * and would use up the depth. What a return address belongs to is asked once and remembered.
 */

#include "stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unwind.h>

#include "../pool/base.h"
#include "compat.h"
#include "object.h"
#include "real.h"

typedef _Unwind_Reason_Code backtrace_fn(_Unwind_Trace_Fn, void *);
typedef _Unwind_Ptr ip_fn(struct _Unwind_Context *, int *);

static ip_fn *get_ip;
static _Atomic(backtrace_fn *) backtrace_with;
static uintptr_t own_start, own_end;

/* A word for each return address that was asked about: the address, and in its lowest bit the answer. */
enum { KNOWN = 512 };
static _Atomic uintptr_t known[KNOWN];

/* Where the library is a part of the program, its frames are shown as the program's own. */
static void find_own(void)
{
	struct gp_object self;

	if (gp_object_find((uintptr_t)&gp_stack_take, &self) && !self.is_program) {
		own_start = self.start;
		own_end = self.end;
	}
}

int gp_stack_prepare(void)
{
	backtrace_fn *found;
	void *library;

	if (atomic_load(&backtrace_with))
		return 0;
	library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library || !gp_real_dlsym_resolve())
		return -ENOENT;
	found = (backtrace_fn *)gp_real_dlsym_call(library, "_Unwind_Backtrace");
	get_ip = (ip_fn *)gp_real_dlsym_call(library, "_Unwind_GetIPInfo");
	if (!found || !get_ip)
		return -ENOENT;
	find_own();
	atomic_store(&backtrace_with, found);
	return 0;
}

static bool is_named_runtime(const char *name)
{
	return strncmp(name, "libcudart.so", strlen("libcudart.so")) == 0 ||
	       strncmp(name, "libcuda.so", strlen("libcuda.so")) == 0;
}

static bool is_runtime(uintptr_t pc)
{
	_Atomic uintptr_t *place = &known[(pc * UINT64_C(0x9e3779b97f4a7c15)) >> 55];
	uintptr_t word = atomic_load_explicit(place, memory_order_relaxed);
	struct gp_object object;
	bool is;

	_Static_assert(KNOWN == 1 << (64 - 55), "the hash fits");
	if (gp_likely(word >> 1 == pc))
		return word & 1;
	is = gp_object_find(pc, &object) && is_named_runtime(gp_object_name(&object));
	atomic_store_explicit(place, pc << 1 | is, memory_order_relaxed);
	return is;
}

struct walk {
	uintptr_t *frames;
	unsigned n, depth;
};

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *arg)
{
	struct walk *walk = arg;
	int is_before = 0;
	uintptr_t pc = (uintptr_t)get_ip(context, &is_before) + (is_before != 0);

	if (!pc)
		return _URC_END_OF_STACK;
	if (!walk->n && ((pc >= own_start && pc < own_end) || is_runtime(pc)))
		return _URC_NO_REASON;
	walk->frames[walk->n++] = pc;
	return walk->n < walk->depth ? _URC_NO_REASON : _URC_END_OF_STACK;
}

unsigned gp_stack_take(uintptr_t *frames, unsigned depth)
{
	struct walk walk = {.frames = frames, .depth = depth};
	backtrace_fn *backtrace = atomic_load_explicit(&backtrace_with, memory_order_acquire);

	if (backtrace && depth)
		(void)backtrace(note_frame, &walk);
	return walk.n;
}
