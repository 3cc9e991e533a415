/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The cause that is reported for an out-of-memory, by the numbers that are known. */

#include <check.h>

#include "shim/oom/oom_cause.h"
#include "tests/suite.h"

#define LENGTH(a) (sizeof(a) / sizeof(*(a)))
#define UNKNOWN   UINT64_MAX

/* In MiB. Other processes hold the memory of the device that is neither free nor charged. */
static const struct {
	const char *name;
	enum gp_kind kind;
	uint64_t asked, limit, device, device_free, charged, used, least, cached, pending, unpooled, movable;
	enum gp_oom_cause cause;
	uint64_t missing;
	bool is_vmm_better;
} rows[] = {
	{"more than the limit", GP_KIND_SPLIT, 300, 200, 1000, 900, 0, 0, 0, 0, 0, 0, 0, GP_OOM_BEYOND_LIMIT, 100},
	{"more than the device", GP_KIND_SPLIT, 1100, UNKNOWN, 1000, 900, 0, 0, 0, 0, 0, 0, 0, GP_OOM_BEYOND_DEVICE,
		200},
	{"all of the limit used", GP_KIND_SPLIT, 10, 200, 1000, 800, 200, 196, 196, 4, 0, 0, 0, GP_OOM_LIMITED, 6},
	{"over 95 % used, and the rest would be enough", GP_KIND_SPLIT, 3, 200, 1000, 800, 200, 192, 192, 8, 0, 0, 8,
		GP_OOM_LIMITED, 0},
	{"exactly 95 % used, the rest being enough", GP_KIND_SPLIT, 3, 200, 1000, 800, 200, 190, 190, 10, 0, 0, 10,
		GP_OOM_FRAGMENTED, 0, true},
	{"half used, and the rest is too small", GP_KIND_SPLIT, 120, 200, 1000, 800, 200, 100, 100, 100, 0, 0, 100,
		GP_OOM_LIMITED, 20},
	{"unpooled memory counts as used", GP_KIND_SPLIT, 10, 200, 1000, 800, 200, 40, 40, 4, 0, 156, 0, GP_OOM_LIMITED,
		6},
	{"a device full of the program's memory", GP_KIND_SPLIT, 10, UNKNOWN, 1000, 0, 990, 985, 985, 5, 0, 0, 0,
		GP_OOM_FULL, 5},
	{"a device full of other processes' memory", GP_KIND_SPLIT, 10, UNKNOWN, 1000, 0, 300, 298, 298, 2, 0, 0, 0,
		GP_OOM_OTHERS, 8},
	{"other processes hold less than the program", GP_KIND_SPLIT, 10, UNKNOWN, 1000, 0, 600, 598, 598, 2, 0, 0, 0,
		GP_OOM_FULL, 8},
	{"other processes hold less than is missing", GP_KIND_SPLIT, 800, UNKNOWN, 1000, 300, 100, 0, 0, 0, 0, 100, 0,
		GP_OOM_OTHERS, 500},
	{"the limit is reached before the end of the device", GP_KIND_SPLIT, 10, 300, 1000, 100, 300, 298, 298, 2, 0, 0,
		0, GP_OOM_LIMITED, 8},
	{"the driver has enough", GP_KIND_SPLIT, 10, UNKNOWN, 1000, 900, 100, 100, 100, 0, 0, 0, 0, GP_OOM_REFUSED, 0},
	{"vmm needs whole granules of the driver", GP_KIND_VMM, 1, 200, 1000, 800, 197, 150, 150, 47, 0, 0, 0,
		GP_OOM_FRAGMENTED, 0},
	{"enough cached that could be moved", GP_KIND_SPLIT, 20, 200, 1000, 800, 200, 150, 150, 50, 0, 0, 27,
		GP_OOM_FRAGMENTED, 0, true},
	{"enough cached, but not enough of it movable", GP_KIND_SPLIT, 20, 200, 1000, 800, 200, 150, 150, 50, 0, 0, 25,
		GP_OOM_FRAGMENTED, 0, false},
	{"the pool is vmm already", GP_KIND_VMM, 20, 200, 1000, 800, 200, 150, 150, 50, 0, 0, 50, GP_OOM_FRAGMENTED, 0,
		false},
	{"enough freed, but the GPU may still use it", GP_KIND_SPLIT, 20, 200, 1000, 800, 200, 150, 150, 10, 40, 0, 0,
		GP_OOM_PENDING, 10},
	{"enough lost to size classes", GP_KIND_BINNED, 20, 200, 1000, 800, 200, 200, 160, 0, 0, 0, 0, GP_OOM_ROUNDED,
		20},
	{"not enough lost to size classes", GP_KIND_BINNED, 50, 200, 1000, 800, 200, 200, 160, 0, 0, 0, 0,
		GP_OOM_LIMITED, 50},
	{"the driver's numbers are unknown", GP_KIND_SPLIT, 10, UNKNOWN, UNKNOWN, UNKNOWN, 100, 100, 100, 0, 0, 0, 0,
		GP_OOM_FULL, 0},
	{"a limit, and the driver's numbers are unknown", GP_KIND_SPLIT, 10, 200, UNKNOWN, UNKNOWN, 200, 198, 198, 2, 0,
		0, 0, GP_OOM_LIMITED, 8},
};

static uint64_t mib(uint64_t n)
{
	return n == UNKNOWN ? UNKNOWN : n * GP_MIB;
}

START_TEST(the_cause_of_an_out_of_memory_follows_from_its_figures)
{
	struct gp_oom oom = {
		.kind = rows[_i].kind,
		.bytes = mib(rows[_i].asked),
		.limit_bytes = mib(rows[_i].limit),
		.device_total_bytes = mib(rows[_i].device),
		.device_free_bytes = mib(rows[_i].device_free),
		.charged_bytes = mib(rows[_i].charged),
		.least_bytes = mib(rows[_i].least),
		.unpooled_bytes = mib(rows[_i].unpooled),
		.movable_bytes = mib(rows[_i].movable),
		.granule = 2 * GP_MIB,
		.stats = {.used_bytes = mib(rows[_i].used),
			.cached_bytes = mib(rows[_i].cached),
			.pending_bytes = mib(rows[_i].pending)},
	};

	gp_oom_explain(&oom);
	ck_assert_msg(oom.cause == rows[_i].cause, "%s: got cause %d, expected %d", rows[_i].name, (int)oom.cause,
		(int)rows[_i].cause);
	ck_assert_msg(oom.missing_bytes == mib(rows[_i].missing), "%s: got %lu MiB missing", rows[_i].name,
		(unsigned long)(oom.missing_bytes / GP_MIB));
	ck_assert_msg(oom.is_vmm_better == rows[_i].is_vmm_better, "%s: wrong advice about vmm", rows[_i].name);
	oom.granule = 0;
	gp_oom_explain(&oom);
	ck_assert_msg(!oom.is_vmm_better, "%s: vmm was recommended without virtual memory", rows[_i].name);
}
END_TEST

static const struct {
	const char *name, *problem;
	uint64_t asked, limit, device_free, charged, group_limit, group_sum;
	enum gp_oom_cause cause;
	uint64_t missing;
} group_rows[] = {
	{"a full group", NULL, 10, UNKNOWN, 900, 100, 500, 500, GP_OOM_GROUP, 10},
	{"a group with too little left", NULL, 30, UNKNOWN, 900, 100, 500, 480, GP_OOM_GROUP, 10},
	{"more than the limit of the group", NULL, 600, UNKNOWN, 900, 0, 500, 0, GP_OOM_GROUP, 100},
	{"a group that cannot be joined", "its file cannot be used", 10, UNKNOWN, 900, 0, 500, 0, GP_OOM_GROUP, 10},
	{"a limit that is nearer than that of the group", NULL, 30, 110, 900, 100, 500, 480, GP_OOM_LIMITED, 20},
	{"a device that is nearer than the limit of the group", NULL, 30, UNKNOWN, 5, 100, 500, 480, GP_OOM_OTHERS, 25},
};

START_TEST(the_cause_is_the_group_if_its_limit_is_the_nearest)
{
	struct gp_oom oom = {
		.kind = GP_KIND_SPLIT,
		.bytes = mib(group_rows[_i].asked),
		.limit_bytes = mib(group_rows[_i].limit),
		.device_total_bytes = mib(1000),
		.device_free_bytes = mib(group_rows[_i].device_free),
		.charged_bytes = mib(group_rows[_i].charged),
		.least_bytes = mib(group_rows[_i].charged),
		.stats = {.used_bytes = mib(group_rows[_i].charged)},
		.group = {.is_on = true,
			.problem = group_rows[_i].problem,
			.view = {.limit_bytes = mib(group_rows[_i].group_limit),
				.reserved_bytes = mib(group_rows[_i].group_sum)}},
	};

	gp_oom_explain(&oom);
	ck_assert_msg(oom.cause == group_rows[_i].cause, "%s: got cause %d", group_rows[_i].name, (int)oom.cause);
	ck_assert_msg(oom.missing_bytes == mib(group_rows[_i].missing), "%s: got %lu MiB missing", group_rows[_i].name,
		(unsigned long)(oom.missing_bytes / GP_MIB));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("oom_cause");
	TCase *tc = tcase_create("oom_cause");

	suite_add_tcase(suite, tc);
	tcase_add_loop_test(tc, the_cause_of_an_out_of_memory_follows_from_its_figures, 0, (int)LENGTH(rows));
	tcase_add_loop_test(tc, the_cause_is_the_group_if_its_limit_is_the_nearest, 0, (int)LENGTH(group_rows));
	return suite_run(suite);
}
