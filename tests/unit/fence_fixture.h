/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The fences of a fake GPU, for a suite in a single file. */

#include <check.h>

#include "fake_backend.h"
#include "pool/fence.h"

static struct fake fake;
static struct gp_fence f;

static void setup(void)
{
	struct gp_backend backend = fake_backend(&fake);

	fake_init(&fake, GP_MIB);
	gp_fence_init(&f, &backend);
}

static void teardown(void)
{
	ck_assert_ptr_null(atomic_load(&fake.breach));
	gp_fence_deinit(&f);
	fake_deinit(&fake);
}

/* Submits work and records a fence as a free would. Returns the fence sequence of the freed block. */
static uint64_t free_block(void)
{
	uint64_t seq;

	atomic_store(&fake.waitable, fake_submit(&fake, 1));
	seq = gp_fence_started(&f);
	ck_assert_int_eq(gp_fence_record(&f, seq, true), 0);
	return seq;
}
