/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>

#include "pool/sizeclass.h"
#include "tests/suite.h"

static const struct {
	uint64_t bytes, size;
} rows[] = {
	{0, 512},
	{1, 512},
	{511, 512},
	{512, 512},
	{513, 1024},
	{1200, 1536},
	{2048, 2048},
	{2049, 2560},
	{3584, 3584},
	{3585, 4096},
	{4096, 4096},
	{4097, 5120},
	{GP_MIB, GP_MIB},
	{GP_MIB + 1, GP_MIB + GP_MIB / 8},
	{15 * GP_MIB / 8, 15 * GP_MIB / 8},
	{15 * GP_MIB / 8 + 1, 2 * GP_MIB},
	{100 * GP_MIB, 104 * GP_MIB},
	{GP_GIB, GP_GIB},
	{GP_GIB + 1, GP_GIB + GP_GIB / 8},
	{GP_CLASS_MAX, GP_CLASS_MAX},
};

START_TEST(a_size_is_rounded_up_to_its_size_class)
{
	ck_assert_uint_eq(gp_sizeclass_bytes(gp_sizeclass_index(rows[_i].bytes)), rows[_i].size);
}
END_TEST

START_TEST(size_classes_ascend_and_each_maps_to_itself)
{
	unsigned last = gp_sizeclass_index(GP_CLASS_MAX);

	ck_assert_uint_lt(last, GP_N_CLASSES);
	for (unsigned i = 0; i <= last; i++) {
		uint64_t bytes = gp_sizeclass_bytes(i);

		ck_assert_uint_eq(bytes % GP_ALIGN, 0);
		ck_assert_uint_eq(gp_sizeclass_index(bytes), i);
		ck_assert_uint_eq(gp_sizeclass_index(bytes + (i < last)), i + (i < last));
	}
}
END_TEST

START_TEST(a_size_class_wastes_a_bounded_share_of_a_block)
{
	unsigned last = gp_sizeclass_index(GP_CLASS_MAX);

	for (unsigned i = 4; i < last; i++) {
		uint64_t bytes = gp_sizeclass_bytes(i), step = gp_sizeclass_bytes(i + 1) - bytes;

		ck_assert_uint_le(step, bytes >= GP_CLASS_FINE_ABOVE ? bytes / 8 : bytes / 4);
	}
}
END_TEST

static const struct {
	uint64_t bytes, multiple, rounded;
} round_rows[] = {
	{0, 512, 0},
	{1, 512, 512},
	{512, 512, 512},
	{513, 512, 1024},
	{UINT64_MAX - 511, 512, UINT64_MAX - 511},
	{UINT64_MAX - 510, 512, UINT64_MAX - 511},
	{UINT64_MAX, 512, UINT64_MAX - 511},
	{UINT64_MAX, 2 * GP_MIB, UINT64_MAX - (2 * GP_MIB - 1)},
	{7, 1, 7},
};

START_TEST(rounding_up_saturates_and_never_wraps)
{
	ck_assert_uint_eq(gp_round_up(round_rows[_i].bytes, round_rows[_i].multiple), round_rows[_i].rounded);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sizeclass");
	TCase *tc = tcase_create("sizeclass");

	suite_add_tcase(suite, tc);
	tcase_add_loop_test(tc, a_size_is_rounded_up_to_its_size_class, 0, sizeof(rows) / sizeof(*rows));
	tcase_add_test(tc, size_classes_ascend_and_each_maps_to_itself);
	tcase_add_test(tc, a_size_class_wastes_a_bounded_share_of_a_block);
	tcase_add_loop_test(tc, rounding_up_saturates_and_never_wraps, 0, sizeof(round_rows) / sizeof(*round_rows));
	return suite_run(suite);
}
