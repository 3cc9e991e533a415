/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "shim/base/json.h"
#include "tests/suite.h"

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))

static struct gp_json json;

static void setup(void)
{
	gp_json_init(&json, 1 << 20);
}

static void teardown(void)
{
	gp_json_deinit(&json);
}

static void assert_document(const char *expected)
{
	const char *text;
	size_t length;

	ck_assert_int_eq(gp_json_finish(&json, &text, &length), 0);
	ck_assert_str_eq(text, expected);
	ck_assert_uint_eq(length, strlen(expected));
}

static const struct {
	const char *value, *expected;
} strings[] = {
	{"", "\"\"\n"},
	{"python train.py", "\"python train.py\"\n"},
	{"a\"b\\c", "\"a\\\"b\\\\c\"\n"},
	{"line\nnext\ttab", "\"line\\nnext\\ttab\"\n"},
	{"\x1b[31m\x7f\x01", "\"\\u001b[31m\\u007f\\u0001\"\n"},
	{"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\"\n"},
	{"\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\"\n"},
	{"\x80", "\"\\ufffd\"\n"},
	{"a\xc3", "\"a\\ufffd\"\n"},
	{"\xc3(", "\"\\ufffd(\"\n"},
	{"\xc0\x80", "\"\\ufffd\\ufffd\"\n"},
	{"\xe0\x80\x80", "\"\\ufffd\\ufffd\\ufffd\"\n"},
	{"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"\n"},
	{"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"\n"},
	{"\xf0\x8f\xbf\xbf", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"\n"},
	{"\xe2\x82", "\"\\ufffd\\ufffd\"\n"},
	{"\xff\xfe", "\"\\ufffd\\ufffd\"\n"},
	{NULL, "null\n"},
};

START_TEST(json_strings_are_escaped_and_made_valid_utf8)
{
	gp_json_string(&json, NULL, strings[_i].value);
	assert_document(strings[_i].expected);
}
END_TEST

START_TEST(a_json_string_with_a_length_may_contain_nul_and_needs_no_terminator)
{
	static const char bytes[] = {'a', '\0', 'b'};

	gp_json_string_n(&json, NULL, bytes, sizeof(bytes));
	assert_document("\"a\\u0000b\"\n");
}
END_TEST

static const struct {
	double value;
	const char *expected;
} doubles[] = {
	{0, "0\n"},
	{0.5, "0.5\n"},
	{-12.25, "-12.25\n"},
	{1e300, "1e+300\n"},
	{1e-9, "1e-09\n"},
	{99.9, "99.9\n"},
	{INFINITY, "null\n"},
	{-INFINITY, "null\n"},
	{NAN, "null\n"},
};

START_TEST(doubles_are_written_as_json_numbers_or_null)
{
	gp_json_double(&json, NULL, doubles[_i].value);
	assert_document(doubles[_i].expected);
}
END_TEST

/* Returns a locale of this machine that does not write a point in 1.5, or NULL. */
static const char *find_comma_locale(void)
{
	static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "pt_BR.UTF-8", "ps_AF.UTF-8"};
	const char *found = NULL;

	for (int i = 0; i < ROWS(names) && !found; i++)
		if (setlocale(LC_NUMERIC, names[i]))
			found = names[i];
	setlocale(LC_NUMERIC, "C");
	return found;
}

START_TEST(the_locale_does_not_change_how_json_doubles_are_written)
{
	ck_assert_ptr_nonnull(setlocale(LC_NUMERIC, find_comma_locale()));
	ck_assert_str_ne(localeconv()->decimal_point, ".");
	gp_json_array_begin(&json, NULL);
	gp_json_double(&json, NULL, 1.5);
	gp_json_double(&json, NULL, 1234567.25);
	gp_json_array_end(&json);
	assert_document("[1.5,1234567.25]\n");
}
END_TEST

START_TEST(json_integers_keep_all_their_digits)
{
	gp_json_object_begin(&json, NULL);
	gp_json_u64(&json, "u", UINT64_MAX);
	gp_json_i64(&json, "i", INT64_MIN);
	gp_json_address(&json, "a", 0x7f12000000200);
	gp_json_bool(&json, "yes", true);
	gp_json_bool(&json, "no", false);
	gp_json_null(&json, "nothing");
	gp_json_object_end(&json);
	assert_document("{\"u\":18446744073709551615,\"i\":-9223372036854775808,\"a\":\"0x7f12000000200\","
			"\"yes\":true,\"no\":false,\"nothing\":null}\n");
}
END_TEST

START_TEST(json_values_are_separated_by_commas_at_every_level)
{
	gp_json_object_begin(&json, NULL);
	gp_json_array_begin(&json, "empty");
	gp_json_array_end(&json);
	gp_json_array_begin(&json, "rows");
	for (int i = 0; i < 2; i++) {
		gp_json_object_begin(&json, NULL);
		gp_json_i64(&json, "i", i);
		gp_json_object_begin(&json, "o");
		gp_json_object_end(&json);
		gp_json_object_end(&json);
	}
	gp_json_array_end(&json);
	gp_json_u64(&json, "last", 1);
	gp_json_object_end(&json);
	assert_document("{\"empty\":[],\"rows\":[{\"i\":0,\"o\":{}},{\"i\":1,\"o\":{}}],\"last\":1}\n");
}
END_TEST

static void nothing(void)
{
}

static void left_open(void)
{
	gp_json_object_begin(&json, NULL);
}

static void ended_too_often(void)
{
	left_open();
	gp_json_object_end(&json);
	gp_json_object_end(&json);
}

static void ended_as_another_kind(void)
{
	left_open();
	gp_json_array_end(&json);
}

static void member_without_key(void)
{
	left_open();
	gp_json_u64(&json, NULL, 1);
	gp_json_object_end(&json);
}

static void element_with_key(void)
{
	gp_json_array_begin(&json, NULL);
	gp_json_u64(&json, "key", 1);
	gp_json_array_end(&json);
}

static void two_documents(void)
{
	gp_json_u64(&json, NULL, 1);
	gp_json_u64(&json, NULL, 2);
}

static void nested_64_deep(void)
{
	for (int i = 0; i < 64; i++)
		gp_json_array_begin(&json, NULL);
	for (int i = 0; i < 64; i++)
		gp_json_array_end(&json);
}

static void (*const mistakes[])(void) = {
	nothing,
	left_open,
	ended_too_often,
	ended_as_another_kind,
	member_without_key,
	element_with_key,
	two_documents,
	nested_64_deep,
};

START_TEST(a_malformed_json_document_is_refused_and_the_writer_can_be_reset)
{
	const char *text = "untouched";
	size_t length = 7;

	mistakes[_i]();
	ck_assert_int_eq(gp_json_finish(&json, &text, &length), -EINVAL);
	ck_assert_str_eq(text, "untouched");
	ck_assert_uint_eq(length, 7);
	gp_json_reset(&json);
	gp_json_u64(&json, NULL, 1);
	assert_document("1\n");
}
END_TEST

START_TEST(a_json_document_of_63_levels_is_accepted)
{
	const char *text;
	size_t length;

	for (int i = 0; i < 63; i++)
		gp_json_array_begin(&json, NULL);
	for (int i = 0; i < 63; i++)
		gp_json_array_end(&json);
	ck_assert_int_eq(gp_json_finish(&json, &text, &length), 0);
	ck_assert_uint_eq(length, 2 * 63 + 1);
}
END_TEST

/* Writes "[1,1,1]" under every size limit from 0 to more than it needs. */
START_TEST(a_json_document_beyond_its_size_limit_fails_and_never_exceeds_it)
{
	size_t cap = (size_t)_i, needed = 2 + 3 * 2 - 1 + 1;
	const char *text;
	size_t length;
	int error;

	gp_json_init(&json, cap);
	gp_json_array_begin(&json, NULL);
	for (int i = 0; i < 3; i++)
		gp_json_u64(&json, NULL, 1);
	gp_json_array_end(&json);
	ck_assert_uint_le(json.length, cap);
	error = gp_json_finish(&json, &text, &length);
	if (cap >= needed) {
		ck_assert_int_eq(error, 0);
		ck_assert_str_eq(text, "[1,1,1]\n");
	} else {
		ck_assert_int_eq(error, -EOVERFLOW);
		ck_assert_uint_eq(gp_json_room(&json), 0);
	}
}
END_TEST

START_TEST(a_long_json_document_is_written_without_loss)
{
	const char *text;
	size_t length;

	gp_json_array_begin(&json, NULL);
	while (gp_json_room(&json) > 100)
		gp_json_string(&json, NULL, "0123456789");
	gp_json_array_end(&json);
	ck_assert_int_eq(gp_json_finish(&json, &text, &length), 0);
	ck_assert_uint_gt(length, (1 << 20) - 128);
	for (size_t i = 1; i + 13 < length; i += 13)
		ck_assert_int_eq(memcmp(text + i, "\"0123456789\"", 12), 0);
}
END_TEST

static Suite *json_suite(void)
{
	Suite *suite = suite_create("json");
	TCase *tc = tcase_create("writer");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, json_strings_are_escaped_and_made_valid_utf8, 0, ROWS(strings));
	tcase_add_test(tc, a_json_string_with_a_length_may_contain_nul_and_needs_no_terminator);
	tcase_add_loop_test(tc, doubles_are_written_as_json_numbers_or_null, 0, ROWS(doubles));
	if (find_comma_locale())
		tcase_add_test(tc, the_locale_does_not_change_how_json_doubles_are_written);
	tcase_add_test(tc, json_integers_keep_all_their_digits);
	tcase_add_test(tc, json_values_are_separated_by_commas_at_every_level);
	tcase_add_loop_test(tc, a_malformed_json_document_is_refused_and_the_writer_can_be_reset, 0, ROWS(mistakes));
	tcase_add_test(tc, a_json_document_of_63_levels_is_accepted);
	tcase_add_loop_test(tc, a_json_document_beyond_its_size_limit_fails_and_never_exceeds_it, 0, 12);
	tcase_add_test(tc, a_long_json_document_is_written_without_loss);
	suite_add_tcase(suite, tc);
	return suite;
}

int main(void)
{
	return suite_run(json_suite());
}
