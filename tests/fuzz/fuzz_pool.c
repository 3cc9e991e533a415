/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The allocator, with a program, a GPU and a driver that follow the input. The input makes the
 * choices of tests/unit/pool_model.c, which checks every invariant after every step. The first byte
 * chooses the pool type, the second the behaviour of the driver.
 */

#include "fuzz.h"
#include "tests/unit/pool_model.h"

enum { STEPS_MAX = 2000 };

/* Takes as few bytes as can hold the choice, so that an inserted or removed byte shifts few choices. */
static uint64_t choose_below(void *arg, uint64_t n)
{
	struct fuzz_input *in = arg;
	uint64_t choice = 0;

	for (uint64_t left = n - 1; left; left >>= 8)
		choice = choice << 8 | fuzz_byte(in);
	return choice % n;
}

static void fail(void *arg, const char *what)
{
	fuzz_fail(__FILE__, __LINE__, "%s", what);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	struct model_options options = {
		.kind = (enum gp_kind)(fuzz_byte(&in) % GP_N_KINDS),
		.profile = fuzz_byte(&in) % MODEL_N_PROFILES,
		.below = choose_below,
		.fail = fail,
		.arg = &in,
	};
	struct model *model = model_new(&options);

	for (unsigned step = 0; step < STEPS_MAX && !fuzz_is_over(&in); step++)
		model_step(model);
	model_free(model);
	return 0;
}
