/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Most programs are built without frame pointers, so a stack can only be read with the unwind tables that exceptions
 * need. The compiler's own library (libgcc_s) reads them: every C++ program has it, and the C library's backtrace()
 * uses it as well. It is loaded when stacks are switched on. After that a walk allocates nothing. To find the tables of
 * a frame, libgcc_s reads the loader's data: without a lock since glibc 2.35, and before that under a lock that is held
 * only briefly.
 *
 * The innermost frames belong to gpupool and to the CUDA runtime, if that is a shared library. They are left out, since
 * they are always the same and would use up the depth. The owner of a return address is looked up once and remembered.
 *
 * In a Python program, the stack has the C frames inside the interpreter's loop, followed by the Python frames. The
 * loop and the C frames outside of it are left out: they are the same in every such program. At least half of the depth
 * is for Python frames, if there are enough of them.
 */

#include "stack.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <unwind.h>

#include "common/compat.h"
#include "object.h"
#include "pool/base.h"
#include "python.h"
#include "shim/driver/dlsym.h"
#include "stack_cache.h"

typedef _Unwind_Reason_Code backtrace_fn(_Unwind_Trace_Fn, void *);
typedef _Unwind_Ptr ip_fn(struct _Unwind_Context *, int *);

typedef void *function_fn(void *pc);

typedef _Unwind_Word cfa_fn(struct _Unwind_Context *);
typedef _Unwind_Word register_fn(struct _Unwind_Context *, int);

enum { FRAME_POINTER = 6 }; /* number of x86-64's frame pointer in the unwind tables */

static ip_fn *get_ip;
static cfa_fn *get_cfa;
static register_fn *get_register;
static function_fn *function_of; /* returns the start of a function; NULL if the library lacks it */
static _Atomic(backtrace_fn *) backtrace_with;
static uintptr_t own_start, own_end;

/* The owner of a return address: the CUDA runtime or driver, the interpreter's loop, or any other code. */
enum owner { OTHER_CODE, RUNTIME, LOOP };

/* The owners that were looked up: each word is a return address, shifted left by 2, and its owner. */
enum { KNOWN_OWNERS = 4096, KNOWN_OWNERS_BITS = 12 };
static _Atomic uintptr_t known_owners[KNOWN_OWNERS];

/* Finds gpupool's own addresses. In tests that link gpupool into the program there are none: its frames are kept. */
static void find_own_code(void)
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

	if (!gp_real_dlsym_resolve())
		return -ENOENT;
	gp_python_find();
	if (atomic_load(&backtrace_with))
		return 0;
	library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return -ENOENT;
	found = (backtrace_fn *)gp_real_dlsym_call(library, "_Unwind_Backtrace");
	get_ip = (ip_fn *)gp_real_dlsym_call(library, "_Unwind_GetIPInfo");
	get_cfa = (cfa_fn *)gp_real_dlsym_call(library, "_Unwind_GetCFA");
	get_register = (register_fn *)gp_real_dlsym_call(library, "_Unwind_GetGR");
	function_of = (function_fn *)gp_real_dlsym_call(library, "_Unwind_FindEnclosingFunction");
	if (!found || !get_ip || !get_cfa || !get_register)
		return -ENOENT;
	find_own_code();
	(void)gp_stack_cache_init();
	atomic_store(&backtrace_with, found);
	return 0;
}

static enum owner find_owner(uintptr_t pc)
{
	uintptr_t loop = gp_python_loop();
	struct gp_object object;

	if (loop && function_of && (uintptr_t)function_of((void *)(pc - 1)) == loop)
		return LOOP;
	return gp_object_find(pc, &object) && gp_object_is_cuda(gp_object_name(&object)) ? RUNTIME : OTHER_CODE;
}

static enum owner owner_of(uintptr_t pc)
{
	_Atomic uintptr_t *known = &known_owners[(pc * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - KNOWN_OWNERS_BITS)];
	uintptr_t word = atomic_load_explicit(known, memory_order_relaxed);
	enum owner owner;

	_Static_assert(KNOWN_OWNERS == 1 << KNOWN_OWNERS_BITS, "the hash fits");
	if (gp_likely(word >> 2 == pc))
		return (enum owner)(word & 3);
	owner = find_owner(pc);
	atomic_store_explicit(known, pc << 2 | owner, memory_order_relaxed);
	return owner;
}

struct walk {
	uintptr_t *frames;
	unsigned n;
	bool has_begun;
	struct gp_stack_key key;
	struct gp_stack_seen seen;
};

/* Returns true if the walk goes on after this frame. *is_wanted: true if the stack includes the frame. */
static bool check_frame(const struct walk *walk, uintptr_t pc, bool *is_wanted)
{
	*is_wanted = false;
	if (!walk->n && ((pc >= own_start && pc < own_end) || owner_of(pc) == RUNTIME))
		return true;
	if (walk->key.ends_at_loop && owner_of(pc) == LOOP)
		return false;
	*is_wanted = true;
	return walk->n + 1 < walk->key.depth;
}

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *arg)
{
	struct walk *walk = arg;
	int is_before = 0;
	uintptr_t pc = (uintptr_t)get_ip(context, &is_before) + (is_before != 0);
	bool is_wanted, goes_on;

	if (!pc)
		return _URC_END_OF_STACK;
	/* The first frame is walk_up() itself. */
	if (!walk->has_begun) {
		walk->has_begun = true;
		return _URC_NO_REASON;
	}
	goes_on = check_frame(walk, pc, &is_wanted);
	if (is_wanted)
		walk->frames[walk->n++] = pc;
	walk->seen.is_lost |= is_before || !GP_HAS_STACK_CACHE;
	if (!walk->seen.is_lost)
		gp_stack_cache_see(&walk->seen, &walk->key, pc, (uintptr_t)get_cfa(context),
			(uintptr_t)get_register(context, FRAME_POINTER), is_wanted);
	return goes_on ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* This function must not be inlined: the walk begins at its frame. */
static __attribute__((noinline)) unsigned walk_up(
	backtrace_fn *backtrace, uintptr_t *frames, unsigned depth, bool ends_at_loop)
{
	struct walk walk; /* large, so it is not cleared as a whole */
	int n;

	walk.key = (struct gp_stack_key){
		.frame = (uintptr_t)__builtin_frame_address(0),
		.caller = (uintptr_t)__builtin_return_address(0),
		.depth = depth,
		.ends_at_loop = ends_at_loop,
	};
	n = gp_stack_cache_find(&walk.key, frames);
	if (gp_likely(n >= 0))
		return (unsigned)n;
	walk.frames = frames;
	walk.n = walk.seen.n = 0;
	walk.seen.end = 0;
	walk.has_begun = walk.seen.is_lost = false;
	(void)backtrace(note_frame, &walk);
	gp_stack_cache_keep(&walk.key, &walk.seen);
	return walk.n;
}

unsigned gp_stack_take(uintptr_t *frames, unsigned depth)
{
	backtrace_fn *backtrace = atomic_load_explicit(&backtrace_with, memory_order_acquire);
	uintptr_t python[GP_STACK_MAX];
	unsigned n_python, n;

	if (!backtrace || !depth)
		return 0;
	n_python = gp_python_take(python, depth);
	n = walk_up(backtrace, frames, depth - (unsigned)gp_min(n_python, depth / 2), n_python > 0);
	for (unsigned i = 0; i < n_python && n < depth; i++)
		frames[n++] = python[i];
	return n;
}
