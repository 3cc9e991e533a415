/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The screen of gpupool-stat map. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stat_peer.h"

/* clang-format off */
static const char answer[] =
	"{\"schema\":\"gpupool.map/2\",\"pid\":7,\"pools\":[{\"device\":0,\"kind\":\"device\",\"n_segments\":2,"
	"\"n_blocks\":8,\"largest_cached_bytes\":100663296,\"largest_unused_bytes\":100663296,"
	"\"segments\":[{\"address\":\"0x7f0004000000\",\"blocks\":[[8388608,\"used\",8388600,0],[4194304,"
	"\"used\",2097152],[1048576,\"used\",1048576],[3145728,\"cached\"]]},"
	"{\"address\":\"0x7f0000000000\",\"blocks\":[[33554432,\"cached\"],[16777216,\"pending\"],"
	"[67108864,\"used\",67108864],[100663296,\"cached\"]]}]}],\"truncated\":false,"
	"\"sites\":[{\"frames\":[[0,4096]]}],\"objects\":[{\"path\":\"/opt/app/solver\",\"build_id\":null,"
	"\"base\":\"0x1000\"}]}";

static const char screen[] =
	"one cell is 2.00 MiB: # used, 1 to 8 partly used, ! used, with over a quarter lost to rounding, "
	"+ pending, . cached\n"
	"\n"
	"device 0: 224 MiB in 2 segments; used 77.0 MiB (2.00 MiB lost to rounding); cached 131 MiB, pending 16.0 MiB\n"
	"0x7f0000000000    208 MiB  ................++++++++#############################\n"
	"                           ###................................................\n"
	"0x7f0004000000   16.0 MiB  ####!!4.\n"
	"largest unused block 96.0 MiB: a larger request goes to the driver\n"
	"147 MiB are unused in 2 segments in which the program holds blocks:\n"
	"SEGMENT             SIZE    UNUSED  BLOCKS  HELD BY             SIZE  WHERE\n"
	"0x7f0000000000   208 MiB   144 MiB       1  0x7f0003000000  64.0 MiB  -\n"
	"0x7f0004000000  16.0 MiB  3.00 MiB       3  0x7f0004000000  8.00 MiB  solver+0x1000\n"
	"                                            0x7f0004800000  4.00 MiB  -\n"
	"                                            0x7f0004c00000  1.00 MiB  -\n";
/* clang-format on */

START_TEST(map_draws_segments_as_cells_and_lists_the_blocks_that_hold_them)
{
	ck_assert_int_eq(STAT("map", "--ascii", stat_word(peer_start(PEER_ANSWERS, answer))), 0);
	ck_assert_str_eq(stat_out, screen);
	ck_assert_str_eq(stat_err, "");
}
END_TEST

START_TEST(map_counts_the_segments_that_it_does_not_show)
{
	ck_assert_int_eq(STAT("map", "--ascii", "-n1", stat_word(peer_start(PEER_ANSWERS, answer))), 0);
	stat_check_in(stat_out, "\nand 1 more segment: 16.0 MiB, of which 13.0 MiB are used\n");
	ck_assert_ptr_null(strstr(stat_out, "####!!4."));
	stat_check_in(stat_out, "\nand 1 more segment, in which 3.00 MiB are unused\n");
	ck_assert_ptr_null(strstr(stat_out, "0x7f0004000000"));
}
END_TEST

/* Ten segments of 3 MiB, in each of which the program holds 1 MiB. */
START_TEST(map_lists_the_first_of_many_held_segments_and_counts_the_rest)
{
	char many[4096];
	size_t used = (size_t)snprintf(many, sizeof(many),
		"{\"schema\":\"gpupool.map/2\",\"pools\":[{\"device\":0,\"n_segments\":10,\"segments\":[");

	for (int i = 0; i < 10; i++)
		used += (size_t)snprintf(many + used, sizeof(many) - used,
			"%s{\"address\":\"0x7f000%d000000\",\"blocks\":[[1048576,\"used\",1048576],"
			"[2097152,\"cached\"]]}",
			i ? "," : "", i);
	snprintf(many + used, sizeof(many) - used, "]}]}");
	ck_assert_int_eq(STAT("map", "--ascii", stat_word(peer_start(PEER_ANSWERS, many))), 0);
	stat_check_in(stat_out, "20.0 MiB are unused in 10 segments in which the program holds blocks:\n");
	stat_check_in(stat_out, "\nand 2 more segments, in which 4.00 MiB are unused\n");
}
END_TEST

static const struct {
	const char *locale, *cells;
} locales[] = {
	{"C", "####!!4."},
	{"C.UTF-8", "\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88!!\xe2\x96\x84\xc2\xb7\n"},
};

START_TEST(map_draws_with_characters_of_the_locale)
{
	setenv("LC_ALL", locales[_i].locale, 1);
	ck_assert_int_eq(STAT("map", stat_word(peer_start(PEER_ANSWERS, answer))), 0);
	stat_check_in(stat_out, locales[_i].cells);
	ck_assert_ptr_null(strchr(stat_out, '\033'));
}
END_TEST

/* Malformed answers, with which the command must not fail. */
#define POOL(segments) "{\"schema\":\"gpupool.map/2\",\"pools\":[{\"n_segments\":-1,\"segments\":" segments "}]}"
static const struct {
	const char *answer, *out;
} strange[] = {
	{"{\"schema\":\"gpupool.map/2\"}", "no memory\n"},
	{"{\"schema\":\"gpupool.map/2\",\"pools\":{\"a\":1}}", "no memory\n"},
	{"{\"schema\":\"gpupool.map/2\",\"pools\":[7,null]}", "pinned memory: 0 B in 0 segments"},
	{"{\"schema\":\"gpupool.map/2\",\"pools\":[{\"device\":1,\"region\":\"forward \\u001b[2J\",\"segments\":[]}]}",
		"device 1, region forward ?[2J: 0 B in 0 segments"},
	{"{\"schema\":\"gpupool.map/2\",\"pools\":[{\"device\":1,\"region\":7,\"segments\":[]}]}", "device 1: 0 B"},
	{"{\"schema\":\"gpupool.map/2\",\"pools\":[{\"device\":1,\"region\":\"a\",\"in_stream_order\":true,"
	 "\"segments\":[]}]}",
		"device 1, in stream order, region a: 0 B in 0 segments"},
	{POOL("[1,[],{}]"), "pinned memory: 0 B in 0 segments"},
	{POOL("[{\"address\":7,\"blocks\":[[1],[\"used\",2],[0,\"used\"],[-5,\"used\"],[5,\"odd\"]]}]"), "0 B in 0"},
	{POOL("[{\"address\":\"\\u001b[2J\",\"blocks\":[[9223372036854775807,\"used\",1,-7],"
	      "[9223372036854775807,\"cached\"],[9223372036854775807,\"pending\"]]}]"),
		"16.0 EiB in 0 segments"},
	{POOL("[{\"blocks\":[[512,\"used\",9223372036854775807,9223372036854775807],[1,\"cached\"]]}]"), "513 B in 0"},
};

START_TEST(map_survives_malformed_answers)
{
	ck_assert_int_eq(STAT("map", "--ascii", stat_word(peer_start(PEER_ANSWERS, strange[_i].answer))), 0);
	stat_check_in(stat_out, strange[_i].out);
	for (const char *s = stat_out; *s; s++)
		ck_assert_msg(*s == '\n' || (*s >= ' ' && *s < 0x7f),
			"expected only ASCII without control characters in: %s", stat_out);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, map_draws_segments_as_cells_and_lists_the_blocks_that_hold_them);
	tcase_add_test(tc, map_counts_the_segments_that_it_does_not_show);
	tcase_add_test(tc, map_lists_the_first_of_many_held_segments_and_counts_the_rest);
	tcase_add_loop_test(tc, map_draws_with_characters_of_the_locale, 0, LENGTH(locales));
	tcase_add_loop_test(tc, map_survives_malformed_answers, 0, LENGTH(strange));
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_map", add);
}
