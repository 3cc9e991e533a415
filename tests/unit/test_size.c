/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>

#include "common/size.h"
#include "tests/suite.h"

#define KIB       UINT64_C(1024)
#define MIB       (KIB * 1024)
#define GIB       (MIB * 1024)
#define TIB       (GIB * 1024)
#define LENGTH(a) (sizeof(a) / sizeof(*(a)))

static const struct {
	const char *text;
	uint64_t bytes;
} good_sizes[] = {
	{"0", 0},
	{"1", 1},
	{"1073741824", GIB},
	{"007", 7},
	{"512b", 512},
	{"512B", 512},
	{"4k", 4 * KIB},
	{"4K", 4 * KIB},
	{"4m", 4 * MIB},
	{"4G", 4 * GIB},
	{"4T", 4 * TIB},
	{"4kib", 4 * KIB},
	{"4MiB", 4 * MIB},
	{"4GIB", 4 * GIB},
	{"4TiB", 4 * TIB},
	{"4KB", 4000},
	{"4mb", 4000000},
	{"4GB", UINT64_C(4000000000)},
	{"4TB", UINT64_C(4000000000000)},
	{"1.5G", GIB + GIB / 2},
	{"0.5KiB", 512},
	{"1.5GB", UINT64_C(1500000000)},
	{"0.1K", 102},
	{"0.0001K", 0},
	{"0.99999999999999999999999999K", 1023},
	{"9223372036854775807", INT64_MAX},
	{"8388607T", 8388607 * TIB},
};

START_TEST(a_valid_size_is_parsed)
{
	struct gp_text_error error;
	uint64_t bytes = 77;

	ck_assert_int_eq(gp_size_parse(good_sizes[_i].text, &bytes, &error), 0);
	ck_assert_msg(bytes == good_sizes[_i].bytes, "%s: got %" PRIu64 " bytes", good_sizes[_i].text, bytes);
}
END_TEST

struct bad {
	const char *text;
	size_t offset;
	const char *why;
};

static const struct bad bad_sizes[] = {
	{"", 0, "is empty"},
	{" ", 0, "is not a size"},
	{" 4G", 0, "is not a size"},
	{"4G ", 2, "is not a size"},
	{"4 G", 1, "is not a size"},
	{"4Gx", 2, "is not a size"},
	{"4Gi", 2, "is not a size"},
	{"4GiBs", 4, "is not a size"},
	{"4GBB", 3, "is not a size"},
	{"4E", 1, "is not a size"},
	{"4iB", 1, "is not a size"},
	{"0x10", 1, "is not a size"},
	{"1e9", 1, "is not a size"},
	{"+4G", 0, "is not a size"},
	{"G", 0, "is not a size"},
	{".5G", 0, "is not a size"},
	{"1.G", 2, "is not a size"},
	{"1.5.5G", 3, "is not a size"},
	{"1,5G", 1, "is not a size"},
	{"none", 0, "is not a size"},
	{"50%", 2, "is not a size"},
	{"nan", 0, "is not a size"},
	{"-1", 0, "is negative"},
	{"-4G", 0, "is negative"},
	{"1.5", 1, "has a fraction of a byte"},
	{"1.5B", 1, "has a fraction of a byte"},
	{"9223372036854775808", 0, "is too large"},
	{"18446744073709551616", 0, "is too large"},
	{"99999999999999999999999999999999", 0, "is too large"},
	{"8388608T", 0, "is too large"},
	{"18014398509481985K", 0, "is too large"},
};

static void check_refused(const struct bad *bad, int r, const struct gp_text_error *error)
{
	ck_assert_msg(r == -EINVAL, "expected '%s' to be refused", bad->text);
	ck_assert_str_eq(error->why, bad->why);
	ck_assert_msg(error->offset == bad->offset, "'%s': refused at offset %zu, expected %zu", bad->text,
		error->offset, bad->offset);
}

START_TEST(a_bad_size_is_refused_at_the_offending_character)
{
	struct gp_text_error error = {0};
	uint64_t bytes = 77;

	check_refused(&bad_sizes[_i], gp_size_parse(bad_sizes[_i].text, &bytes, &error), &error);
	ck_assert_uint_eq(bytes, 77);
}
END_TEST

static const struct {
	uint64_t bytes;
	const char *text;
} formats[] = {
	{0, "0"},
	{1, "1"},
	{1023, "1023"},
	{1024, "1KiB"},
	{1536, "1536"},
	{GIB + GIB / 2, "1536MiB"},
	{4 * GIB, "4GiB"},
	{2048 * TIB, "2048TiB"},
	{INT64_MAX, "9223372036854775807"},
};

START_TEST(a_formatted_size_parses_back_to_the_same_value)
{
	char text[GP_SIZE_TEXT_MAX];
	struct gp_text_error error;
	uint64_t bytes;

	gp_size_format(formats[_i].bytes, text);
	ck_assert_str_eq(text, formats[_i].text);
	ck_assert_int_eq(gp_size_parse(text, &bytes, &error), 0);
	ck_assert_uint_eq(bytes, formats[_i].bytes);
}
END_TEST

/* The limits of devices 0, 1 and 63 if each has 1000 GiB. */
static const struct {
	const char *text;
	uint64_t bytes[3];
} good_lists[] = {
	{"none", {UINT64_MAX, UINT64_MAX, UINT64_MAX}},
	{"NONE", {UINT64_MAX, UINT64_MAX, UINT64_MAX}},
	{"8GiB", {8 * GIB, 8 * GIB, 8 * GIB}},
	{"100%", {1000 * GIB, 1000 * GIB, 1000 * GIB}},
	{"50%", {500 * GIB, 500 * GIB, 500 * GIB}},
	{"12.5%", {125 * GIB, 125 * GIB, 125 * GIB}},
	{"0=8GiB", {8 * GIB, UINT64_MAX, UINT64_MAX}},
	{"0=8GiB,1=50%", {8 * GIB, 500 * GIB, UINT64_MAX}},
	{"1=50%,0=8GiB", {8 * GIB, 500 * GIB, UINT64_MAX}},
	{"*=1G", {GIB, GIB, GIB}},
	{"1=none,*=1G", {GIB, UINT64_MAX, GIB}},
	{"*=1G,1=none", {GIB, UINT64_MAX, GIB}},
	{"63=2G,*=3G,00=1G", {GIB, 3 * GIB, 2 * GIB}},
	{"0=1,1=1.5K,63=1KB", {1, 1536, 1000}},
};

START_TEST(a_limit_list_gives_each_device_its_limit)
{
	static const int devices[] = {0, 1, 63};
	struct gp_text_error error;
	struct gp_limit_list list;

	ck_assert_int_eq(gp_limit_list_parse(good_lists[_i].text, &list, &error), 0);
	for (size_t i = 0; i < LENGTH(devices); i++) {
		uint64_t bytes = gp_limit_bytes(gp_limit_list_find(&list, devices[i]), 1000 * GIB);
		ck_assert_msg(bytes == good_lists[_i].bytes[i], "%s: device %d got %" PRIu64 " bytes",
			good_lists[_i].text, devices[i], bytes);
	}
}
END_TEST

static const struct bad bad_lists[] = {
	{"", 0, "is empty"},
	{"0", 0, "is a limit of zero"},
	{"0%", 0, "is a limit of zero"},
	{"0.0G", 0, "is a limit of zero"},
	{"0.00000001%", 0, "is a limit of zero"},
	{"-5", 0, "is negative"},
	{"-5%", 0, "is negative"},
	{"101%", 0, "is over 100 %"},
	{"100.5%", 0, "is over 100 %"},
	{"100.0000000000000000000001%", 0, "is over 100 %"},
	{"99999999999999999999%", 0, "is over 100 %"},
	{"50%%", 3, "is not a percentage"},
	{"50%G", 3, "is not a percentage"},
	{"%", 0, "is not a size"},
	{"4Gx", 2, "is not a size"},
	{"nonesuch", 0, "is not a size"},
	{"unlimited", 0, "is not a size"},
	{"9223372036854775808", 0, "is too large"},
	{"8G,4G", 0, "has an entry without a device"},
	{"8G,1=4G", 0, "has an entry without a device"},
	{"8,", 0, "has an entry without a device"},
	{"0=8G,4G", 5, "has an entry without a device"},
	{"0=8G,", 5, "has an empty entry"},
	{",0=8G", 0, "has an empty entry"},
	{"0=8G,,1=8G", 5, "has an empty entry"},
	{"0=", 2, "ends too early"},
	{"0=,1=8G", 2, "ends too early"},
	{"=8G", 0, "names no device"},
	{"x=8G", 0, "names no device"},
	{" 0=8G", 0, "names no device"},
	{"0=8G, 1=8G", 5, "names no device"},
	{"-1=8G", 0, "names no device"},
	{"GPU-1234=8G", 0, "names no device"},
	{"64=8G", 0, "names a device over 63"},
	{"18446744073709551616=8G", 0, "names a device over 63"},
	{"0=8G,0=4G", 5, "names a device twice"},
	{"0=8G,00=4G", 5, "names a device twice"},
	{"*=8G,1=2G,*=4G", 10, "names a device twice"},
	{"0=8G,1=0", 7, "is a limit of zero"},
	{"0=8G,1=4Gx", 9, "is not a size"},
	{"0=8G;1=4G", 4, "is not a size"},
	{"0=101%,1=4G", 2, "is over 100 %"},
};

START_TEST(a_bad_limit_list_is_refused_at_the_offending_character)
{
	struct gp_limit_list list = {.named = 77};
	struct gp_text_error error = {0};

	check_refused(&bad_lists[_i], gp_limit_list_parse(bad_lists[_i].text, &list, &error), &error);
	ck_assert_uint_eq(list.named, 77);
}
END_TEST

START_TEST(a_single_limit_cannot_be_a_list)
{
	static const struct bad rows[] = {
		{"8G,4G", 2, "is more than one limit"},
		{"0=8G", 1, "is not a size"},
		{"*=8G", 0, "is not a size"},
	};
	struct gp_limit limit = {.bytes = 77};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct gp_text_error error = {0};
		check_refused(&rows[i], gp_limit_parse(rows[i].text, &limit, &error), &error);
		ck_assert_uint_eq(limit.bytes, 77);
	}
}
END_TEST

static const struct {
	const char *text;
	uint64_t total_bytes;
	uint64_t limit_bytes;
} shares[] = {
	{"50%", 0, 0},
	{"50%", 1, 0},
	{"50%", 3, 1},
	{"33.3%", 1000, 333},
	{"0.0000001%", UINT64_C(1000000000), 1},
	{"100%", UINT64_MAX, UINT64_MAX},
	{"99.9999999%", INT64_MAX, UINT64_C(9223372027631403770)},
};

START_TEST(a_percentage_limit_is_rounded_down)
{
	struct gp_text_error error;
	struct gp_limit limit;

	ck_assert_int_eq(gp_limit_parse(shares[_i].text, &limit, &error), 0);
	ck_assert_uint_eq(gp_limit_bytes(&limit, shares[_i].total_bytes), shares[_i].limit_bytes);
}
END_TEST

START_TEST(a_device_number_out_of_range_gets_the_limit_of_the_rest)
{
	struct gp_text_error error;
	struct gp_limit_list list;

	ck_assert_int_eq(gp_limit_list_parse("0=1G,*=2G", &list, &error), 0);
	ck_assert_ptr_eq(gp_limit_list_find(&list, -1), &list.rest);
	ck_assert_ptr_eq(gp_limit_list_find(&list, 64), &list.rest);
	ck_assert_ptr_eq(gp_limit_list_find(&list, 1000), &list.rest);
}
END_TEST

static const struct {
	const char *text;
	double ratio;
} good_ratios[] = {
	{"0", 0},
	{"0.2", 0.2},
	{"20%", 0.2},
	{"12.5%", 0.125},
	{"1", 1},
	{"1.000", 1},
	{"100%", 1},
	{"0%", 0},
};

START_TEST(a_valid_ratio_is_parsed_the_same_in_every_locale)
{
	struct gp_text_error error;
	double ratio = 77;

	setlocale(LC_ALL, "");
	ck_assert_int_eq(gp_ratio_parse(good_ratios[_i].text, &ratio, &error), 0);
	ck_assert_double_eq_tol(ratio, good_ratios[_i].ratio, 1e-12);
}
END_TEST

static const struct bad bad_ratios[] = {
	{"", 0, "is empty"},
	{"-0.1", 0, "is negative"},
	{"1.01", 0, "is over 1"},
	{"2", 0, "is over 1"},
	{"20", 0, "is over 1"},
	{"100.1%", 0, "is over 1"},
	{"0,2", 1, "is not a fraction"},
	{".2", 0, "is not a fraction"},
	{"0.2x", 3, "is not a fraction"},
	{"20%%", 3, "is not a fraction"},
	{"half", 0, "is not a fraction"},
};

START_TEST(a_bad_ratio_is_refused_at_the_offending_character)
{
	struct gp_text_error error = {0};
	double ratio = 77;

	check_refused(&bad_ratios[_i], gp_ratio_parse(bad_ratios[_i].text, &ratio, &error), &error);
	ck_assert_double_eq(ratio, 77);
}
END_TEST

START_TEST(a_valid_count_is_parsed)
{
	static const struct {
		const char *text;
		uint64_t count;
	} rows[] = {
		{"0", 0},
		{"10", 10},
		{"unlimited", UINT64_MAX},
		{"Unlimited", UINT64_MAX},
		{"9223372036854775807", INT64_MAX},
	};

	for (size_t i = 0; i < LENGTH(rows); i++) {
		struct gp_text_error error;
		uint64_t count = 77;
		ck_assert_int_eq(gp_count_parse(rows[i].text, &count, &error), 0);
		ck_assert_uint_eq(count, rows[i].count);
	}
}
END_TEST

static const struct bad bad_counts[] = {
	{"", 0, "is empty"},
	{"-1", 0, "is negative"},
	{"ten", 0, "is not a whole number"},
	{"10K", 2, "is not a whole number"},
	{"1.5", 1, "is not a whole number"},
	{"10,", 2, "is not a whole number"},
	{"unlimitedly", 0, "is not a whole number"},
	{"9223372036854775808", 0, "is too large"},
	{"184467440737095516160", 0, "is too large"},
};

START_TEST(a_bad_count_is_refused_at_the_offending_character)
{
	struct gp_text_error error = {0};
	uint64_t count = 77;

	check_refused(&bad_counts[_i], gp_count_parse(bad_counts[_i].text, &count, &error), &error);
	ck_assert_uint_eq(count, 77);
}
END_TEST

static const struct {
	uint64_t bytes;
	const char *text;
} amounts[] = {
	{0, "0 B"},
	{1, "1 B"},
	{1023, "1023 B"},
	{1024, "1.00 KiB"},
	{1500, "1.46 KiB"},
	{10234, "9.99 KiB"},
	{10235, "10.0 KiB"},
	{102348, "99.9 KiB"},
	{102349, "100 KiB"},
	{1023 * KIB, "1023 KiB"},
	{1023 * KIB + 511, "1023 KiB"},
	{1023 * KIB + 512, "1.00 MiB"},
	{2 * MIB + 128 * KIB, "2.13 MiB"}, /* half a unit is rounded up, as a browser does */
	{3 * MIB + 4096, "3.00 MiB"},
	{80 * GIB, "80.0 GiB"},
	{1500 * TIB, "1.46 PiB"},
	{UINT64_C(1) << 60, "1.00 EiB"},
	{UINT64_MAX, "16.0 EiB"},
};

START_TEST(an_amount_is_formatted_with_three_digits)
{
	char text[GP_AMOUNT_TEXT_MAX];

	ck_assert_ptr_eq(gp_amount_text(text, amounts[_i].bytes), text);
	ck_assert_str_eq(text, amounts[_i].text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("size");
	TCase *tc = tcase_create("size");

	suite_add_tcase(suite, tc);
	ADD_ROWS(tc, good_sizes, a_valid_size_is_parsed);
	ADD_ROWS(tc, bad_sizes, a_bad_size_is_refused_at_the_offending_character);
	ADD_ROWS(tc, formats, a_formatted_size_parses_back_to_the_same_value);
	ADD_ROWS(tc, amounts, an_amount_is_formatted_with_three_digits);
	ADD_ROWS(tc, good_lists, a_limit_list_gives_each_device_its_limit);
	ADD_ROWS(tc, bad_lists, a_bad_limit_list_is_refused_at_the_offending_character);
	ADD_ROWS(tc, shares, a_percentage_limit_is_rounded_down);
	ADD_ROWS(tc, good_ratios, a_valid_ratio_is_parsed_the_same_in_every_locale);
	ADD_ROWS(tc, bad_ratios, a_bad_ratio_is_refused_at_the_offending_character);
	ADD_ROWS(tc, bad_counts, a_bad_count_is_refused_at_the_offending_character);
	tcase_add_test(tc, a_single_limit_cannot_be_a_list);
	tcase_add_test(tc, a_device_number_out_of_range_gets_the_limit_of_the_rest);
	tcase_add_test(tc, a_valid_count_is_parsed);
	return suite_run(suite);
}
