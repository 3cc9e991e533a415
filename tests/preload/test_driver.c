/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The meaning of each driver error for a fence, and for the context that returned it. */

#include <check.h>
#include <errno.h>

#include "shim/context/driver_call.h"
#include "tests/suite.h"

static const struct {
	CUresult code;
	int result;
	bool is_broken;
} codes[] = {
	{CUDA_SUCCESS, 0, false},
	{CUDA_ERROR_INVALID_VALUE, -EBUSY, false},
	{CUDA_ERROR_OUT_OF_MEMORY, -ENOMEM, false},
	{CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT, true},
	{CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE, true},
	{CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE, true},
	{226, 226, true},     /* contained */
	{304, -EBUSY, false}, /* operating system error */
	{CUDA_ERROR_INVALID_HANDLE, -EBUSY, false},
	{CUDA_ERROR_NOT_READY, -EAGAIN, false},
	{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, true},
	{701, -EBUSY, false}, /* launch out of resources */
	{CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT, true},
	{CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED, true},
	{CUDA_ERROR_ASSERT, CUDA_ERROR_ASSERT, true},
	{CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR, true},
	{716, 716, true}, /* misaligned address */
	{CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, true},
	{720, -EBUSY, false}, /* cooperative launch too large */
	{721, 721, true},     /* tensor memory leak */
	{CUDA_ERROR_NOT_PERMITTED, -EPERM, false},
	{CUDA_ERROR_NOT_SUPPORTED, -EBUSY, false},
	{810, 810, true}, /* MPS client terminated */
	{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, -EBUSY, false},
	{911, 911, true}, /* external device */
	{999, -EBUSY, false},
};

START_TEST(only_sticky_errors_break_a_context_and_reach_the_program)
{
	struct gp_device device = {0};
	struct gp_context context = {.device = &device};

	ck_assert_int_eq(gp_driver_fence_result(&context, codes[_i].code), codes[_i].result);
	ck_assert_int_eq(gp_context_is(&context, GP_CONTEXT_BROKEN), codes[_i].is_broken);
	ck_assert_int_eq(context.lost_to, codes[_i].is_broken ? codes[_i].code : 0);
}
END_TEST

START_TEST(a_context_is_lost_to_its_first_sticky_error)
{
	struct gp_device device = {0};
	struct gp_context context = {.device = &device};

	ck_assert_int_eq(gp_driver_result(&context, CUDA_ERROR_ILLEGAL_ADDRESS), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(gp_driver_result(&context, CUDA_ERROR_LAUNCH_FAILED), CUDA_ERROR_LAUNCH_FAILED);
	ck_assert_int_eq(context.lost_to, CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("driver");
	TCase *tc = tcase_create("driver");

	ADD_ROWS(tc, codes, only_sticky_errors_break_a_context_and_reach_the_program);
	tcase_add_test(tc, a_context_is_lost_to_its_first_sticky_error);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
