/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>

#include "tests/suite.h"
#include "tools/answer/stat_rate.h"

#define REPLY(uptime, device, pinned) "{\"uptime_ns\":" #uptime ",\"devices\":[" device "],\"pinned\":" pinned "}"
#define DEVICE(index, hits, misses, calls, ns)                                                      \
	"{\"index\":" #index ",\"hits\":" #hits ",\"misses\":" #misses ",\"driver_allocs\":" #calls \
	",\"driver_frees\":" #calls ",\"driver_ns\":" #ns ",\"used_bytes\":" #hits "}"

static json_t *parse(const char *text)
{
	json_t *reply = json_loads(text, 0, NULL);

	ck_assert_ptr_nonnull(reply);
	return reply;
}

START_TEST(rates_are_the_growth_of_counters_in_the_time_of_the_process)
{
	json_t *before = parse(REPLY(1000000000, DEVICE(1, 10, 2, 0, 0) "," DEVICE(0, 100, 0, 1, 0), "{}"));
	json_t *reply = parse(REPLY(3000000000, DEVICE(0, 300, 20, 3, 1000000000), "{}"));
	const json_t *device = json_array_get(json_object_get(reply, "devices"), 0);
	const json_t *then = stat_rate_device_before(before, device);
	uint64_t elapsed_ns = stat_rate_elapsed_ns(reply, before);
	struct stat_rates rates;

	ck_assert_uint_eq(elapsed_ns, 2000000000);
	stat_rates_of(&rates, device, then, elapsed_ns);
	ck_assert_double_eq(rates.allocs, 110);
	ck_assert_double_eq(rates.misses, 10);
	ck_assert_double_eq(rates.driver_calls, 2);
	ck_assert_double_eq(rates.driver_share, 0.5);
	ck_assert_double_eq(stat_rate_of_member("hits", device, then, elapsed_ns), 100);
	ck_assert_double_lt(stat_rate_of_member("used_bytes", device, then, elapsed_ns), 0);
	ck_assert_double_lt(stat_rate_of_member("index", device, then, elapsed_ns), 0);
	stat_rates_of_process(&rates, reply, before);
	ck_assert_double_eq(rates.allocs, (320 - 112) / 2.0);
	json_decref(reply);
	json_decref(before);
}
END_TEST

static const char *const unusable[] = {
	"{}",
	"[]",
	"{\"uptime_ns\":-1,\"devices\":7}",
	REPLY(1000000000, "", "{}"),
	REPLY(1000000000, DEVICE(0, 300, 0, 0, 0), "{}"), /* a counter fell */
	REPLY(3000000000, DEVICE(0, 1, 0, 0, 0), "{}"),   /* no time has passed */
	REPLY(4000000000, DEVICE(0, 1, 0, 0, 0), "{}"),
};

START_TEST(a_rate_is_unknown_without_an_earlier_and_smaller_value)
{
	json_t *before = parse(unusable[_i]), *reply = parse(REPLY(3000000000, DEVICE(0, 200, 0, 0, 0), "{}"));
	const json_t *device = json_array_get(json_object_get(reply, "devices"), 0);
	struct stat_rates rates;

	stat_rates_of(&rates, device, stat_rate_device_before(before, device), stat_rate_elapsed_ns(reply, before));
	ck_assert_double_lt(rates.allocs, 0);
	stat_rates_of(&rates, device, NULL, 1);
	ck_assert_double_lt(rates.allocs, 0);
	ck_assert_uint_eq(stat_rate_elapsed_ns(reply, NULL), 0);
	json_decref(reply);
	json_decref(before);
}
END_TEST

static const struct {
	double per_second;
	const char *text;
} texts[] = {
	{-1, "-"},
	{0, "0"},
	{0.001, "0.00"},
	{0.25, "0.25"},
	{9.996, "10.0"},
	{12.34, "12.3"},
	{99.96, "100"},
	{999.4, "999"},
	{999.6, "1.00k"},
	{1234, "1.23k"},
	{4.5e6, "4.50M"},
	{1e30, "1000000000000E"},
};

START_TEST(rates_have_three_significant_digits_and_a_prefix)
{
	char text[STAT_TEXT_MAX];

	stat_rate_text(text, texts[_i].per_second);
	ck_assert_str_eq(text, texts[_i].text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("stat_rate");
	TCase *tc = tcase_create("stat_rate");

	tcase_add_test(tc, rates_are_the_growth_of_counters_in_the_time_of_the_process);
	ADD_ROWS(tc, unusable, a_rate_is_unknown_without_an_earlier_and_smaller_value);
	ADD_ROWS(tc, texts, rates_have_three_significant_digits_and_a_prefix);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
