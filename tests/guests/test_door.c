/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Each function of loader.S alone. A call that is passed on must arrive with the registers of a direct call,
 * and a call that the library answers must return like any function.
 */

#include "door.h"

#include <check.h>
#include <stdbool.h>
#include <string.h>
#include <unwind.h>

#include "tests/suite.h"

struct door door_wanted, door_seen, door_kept;
door_fn *gp_real_dlsym, *gp_real_dlopen, *door_tried;

/* The functions of loader.S, under names that cannot be confused with those of the loader. */
door_fn gp_door_dlsym, gp_door_dlopen;

static const struct {
	door_fn *tried, **real;
} doors[] = {{gp_door_dlsym, &gp_real_dlsym}, {gp_door_dlopen, &gp_real_dlopen}};

enum { N_DOORS = sizeof(doors) / sizeof(doors[0]) };

static unsigned tested_door; /* number of the function under test */

static struct gp_route route;
static struct door asked;
static bool is_caller_found;

/* Walks the stack like an exception or a profiler. */
static _Unwind_Reason_Code look_for_caller(struct _Unwind_Context *context, void *caller)
{
	if (_Unwind_FindEnclosingFunction((void *)(_Unwind_GetIP(context) - 1)) == caller)
		is_caller_found = true;
	return is_caller_found ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* Overwrites the registers that it need not preserve. */
static inline __attribute__((always_inline)) struct gp_route answer(unsigned door, void *handle, const char *name)
{
	ck_assert_uint_eq(door, tested_door);
	asked.handle = (uintptr_t)handle;
	asked.name = (uintptr_t)name;
	asked.stack_pointer = (uintptr_t)__builtin_frame_address(0);
	_Unwind_Backtrace(look_for_caller, (void *)door_call);
#if defined(__x86_64__)
	__asm__ volatile("" ::: "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm15");
	__asm__ volatile("movq $-1, %%rdi; movq $-1, %%rsi; movq $-1, %%r11" ::: "rdi", "rsi", "r11");
#elif defined(__aarch64__)
	__asm__ volatile("mov x3, #-1; mov x8, #-1; mov x16, #-1; mov x17, #-1" ::: "x3", "x8", "x16", "x17");
#endif
	return route;
}

struct gp_route gp_dlsym_route(void *handle, const char *name)
{
	return answer(0, handle, name);
}

struct gp_route gp_dlopen_route(void *handle, const char *name)
{
	return answer(1, handle, name);
}

static void select_door(unsigned door)
{
	tested_door = door;
	gp_real_dlsym = gp_real_dlopen = NULL;
	*doors[door].real = door_real;
	door_tried = doors[door].tried;
}

static char name[] = "any";
static void *const handles[] = {NULL, (void *)-1l, name};

static void setup(void)
{
	memset(&door_wanted, 0, sizeof(door_wanted));
	memset(&door_seen, 0, sizeof(door_seen));
	memset(&door_kept, 0, sizeof(door_kept));
}

static void check_kept(const struct door *found)
{
	ck_assert_uint_ne(door_wanted.kept[0], 0);
	ck_assert_mem_eq(found->kept, door_wanted.kept, sizeof(found->kept));
}

START_TEST(a_call_that_is_passed_on_reaches_the_real_function_unchanged)
{
	select_door((unsigned)_i / 3);
	route = (struct gp_route){0, name};
	ck_assert_ptr_eq(door_call(handles[_i % 3], name), DOOR_ANSWER);
	ck_assert_uint_eq(asked.handle, (uintptr_t)handles[_i % 3]);
	ck_assert_uint_eq(asked.name, (uintptr_t)name);
	ck_assert_uint_eq(door_seen.stack_pointer, door_wanted.stack_pointer);
	ck_assert_uint_eq(door_seen.return_address, door_wanted.return_address);
	ck_assert_uint_eq(door_seen.handle, (uintptr_t)handles[_i % 3]);
	ck_assert_uint_eq(door_seen.name, (uintptr_t)name);
	check_kept(&door_seen);
	check_kept(&door_kept);
}
END_TEST

START_TEST(a_call_that_the_library_answers_does_not_reach_the_real_function)
{
	select_door((unsigned)_i / 3);
	route = (struct gp_route){1, handles[_i % 3]};
	ck_assert_ptr_eq(door_call(NULL, name), handles[_i % 3]);
	ck_assert_uint_eq(door_seen.return_address, 0);
	check_kept(&door_kept);
}
END_TEST

/* The stack is aligned at the call of the library, and an unwinder finds the caller. */
START_TEST(the_library_runs_on_an_aligned_stack_that_can_be_unwound)
{
	select_door((unsigned)_i);
	route = (struct gp_route){1, NULL};
	is_caller_found = false;
	door_call(NULL, name);
	ck_assert_uint_eq(asked.stack_pointer % 16, 0);
	ck_assert(is_caller_found);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("door");
	TCase *tc = tcase_create("door");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, a_call_that_is_passed_on_reaches_the_real_function_unchanged, 0, 3 * N_DOORS);
	tcase_add_loop_test(tc, a_call_that_the_library_answers_does_not_reach_the_real_function, 0, 3 * N_DOORS);
	tcase_add_loop_test(tc, the_library_runs_on_an_aligned_stack_that_can_be_unwound, 0, N_DOORS);
	return suite_run(suite);
}
