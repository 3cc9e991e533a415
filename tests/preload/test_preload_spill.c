/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Programs that need more memory than the device has: what goes to the host, what comes back, and what stays away. */

#include <stdio.h>
#include <string.h>

#include "play.h"

/* The simulated clock jumps to the end of work only at the hundredth query, unless queries take time. */
#define GPU   "SIMGPU_LATENCY=cuEventQuery=100000", "SIMGPU_MEMORY=128M", "GPUPOOL_RESERVE=0", "SIMGPU_STRICT=1"
#define VMM   "GPUPOOL_POOL=vmm"
#define SPILL "GPUPOOL_SPILL=64MiB"

static const char *const spilling[] = {VMM, SPILL, GPU, NULL};

static void play_spill(const char *scenario, const char *const *env, void (*at_pause)(const char *name))
{
	play_run(&(struct play){.program = "app_spill",
		.words = {scenario},
		.env = env,
		.preload = play_library,
		.at_pause = at_pause});
	ck_assert_msg(play_status == 0, "status %d: %s%s", play_status, play_out, play_err);
}

static void is_right(void)
{
	ck_assert_msg(!strstr(play_out, "wrong words: 1") && !strstr(play_out, "more: 2"), "%s", play_out);
	for (const char *at = play_out; (at = strstr(at, "wrong words")); at++)
		ck_assert_msg(strncmp(strchr(at, ':'), ": 0\n", 4) == 0, "%s", play_out);
}

static void look(const char *name)
{
	const char *answer = play_ask("status");
	uint64_t spilled = play_number(answer, "spilled_bytes");

	if (strcmp(name, "spilled") == 0)
		ck_assert_uint_ge(spilled, (uint64_t)12 * MIB);
	else
		ck_assert_uint_eq(spilled, 0);
	if (strcmp(name, "back") == 0)
		ck_assert_uint_eq(play_number(answer, "spills"), play_number(answer, "spill_returns"));
}

START_TEST(a_program_that_needs_more_than_the_device_has_goes_on_with_its_content_and_gets_its_memory_back)
{
	play_spill("content", spilling, look);
	ck_assert_ptr_nonnull(strstr(play_out, "more: 0\n"));
	is_right();
	ck_assert_uint_ge(play_fact("host bytes"), (uint64_t)12 * MIB);
	ck_assert_uint_le(play_fact("host bytes"), (uint64_t)20 * MIB);
	ck_assert_uint_eq(play_fact("host bytes after the return"), 0);
	ck_assert_uint_eq(play_fact("races"), 0);
	ck_assert_ptr_nonnull(strstr(play_err, "of device memory: moved"));
	ck_assert_ptr_nonnull(strstr(play_err, "no memory is in host memory any more"));
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, a_program_that_needs_more_than_the_device_has_goes_on_with_its_content_and_gets_its_memory_back);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"spill", add}, 1);
}
