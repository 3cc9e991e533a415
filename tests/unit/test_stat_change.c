/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The commands that change a process: the words that they take, and the requests that they make. */

#include <stdio.h>
#include <unistd.h>

#include "stat_peer.h"

static const struct {
	const char *words[STAT_WORDS];
	const char *out;
} screens[] = {
	{{"limit", "get"}, "DEVICE     LIMIT   COUNTED\n"
			   "0           none       0 B\n"
			   "11      8.00 GiB  1.20 GiB\n"
			   "pinned      none     512 B\n"},
	{{"limit", "set", "0=1GiB"}, "DEVICE     LIMIT   COUNTED\n"
				     "0       1.00 GiB  1.50 GiB\n"
				     "gave 2.00 MiB back to the driver\n"
				     "device 0: 512 MiB above the limit; the driver is asked for no more until the "
				     "program frees that much\n"},
	{{"limit", "set", "--pinned", "5%"}, "DEVICE     LIMIT  COUNTED\n"
					     "pinned  1.00 KiB    512 B\n"},
	{{"defer"}, "flushes are deferred by 1 scope\n"},
	{{"defer", "on"}, "flushes are deferred by 2 scopes\n"},
	{{"defer", "off"}, "flushes are not deferred\n"},
	{{"region"}, "DEVICE   USED    CACHED  PENDING     TOTAL  HITS  MISSES  REGION\n"
		     "     0  512 B  2.00 MiB      0 B  2.00 MiB    41       1  forward pass\n"},
	{{"region", "list"}, "DEVICE   USED    CACHED  PENDING     TOTAL  HITS  MISSES  REGION\n"
			     "     0  512 B  2.00 MiB      0 B  2.00 MiB    41       1  forward pass\n"},
	{{"region", "invalidate", "100% mine"},
		"gave 2.00 MiB back to the driver; 1 block in use, 512 B, will not be cached when freed\n"},
	{{"--json", "defer", "off"}, "{\"schema\":\"gpupool.defer/1\",\"scopes\":0}\n"},
};

START_TEST(each_changing_command_prints_its_result)
{
	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(stat_execute(geteuid(), screens[_i].words), 0);
	ck_assert_str_eq(stat_out, screens[_i].out);
	ck_assert_str_eq(stat_err, "");
}
END_TEST

static const struct {
	const char *words[STAT_WORDS];
	const char *err;
} mistakes[] = {
	{{"limit", "put"}, "limit takes [PID] [get | set LIMITS]."},
	{{"limit", "set"}, "limit takes [PID] [get | set LIMITS]."},
	{{"limit", "1", "set"}, "limit takes [PID] [get | set LIMITS]."},
	{{"limit", "1", "set", "2G", "x"}, "limit takes [PID] [get | set LIMITS]."},
	{{"limit", "get", "--pinned"}, "limit takes [PID] [get | set LIMITS]."},
	{{"limit", "set", "8Gx"}, "limit: '8Gx' is not a size."},
	{{"limit", "set", "0"}, "limit: '0' "},
	{{"limit", "set", "--pinned", "0=8G"}, "limit: '0=8G' is not a size."},
	{{"limit", "set", "8G", "x"}, "'x' is not a process id."},
	{{"defer", "maybe"}, "defer takes [PID] [on | off]."},
	{{"defer", "1", "on", "off"}, "defer takes [PID] [on | off]."},
	{{"defer", "--pinned", "on"}, "defer does not take --pinned."},
	{{"region", "invalidate"}, "region takes [PID] [list | invalidate NAME]."},
	{{"region", "invalidate", ""}, "region takes [PID] [list | invalidate NAME]."},
	{{"region", "leave"}, "region takes [PID] [list | invalidate NAME]."},
	{{"region", "1", "list", "x"}, "region takes [PID] [list | invalidate NAME]."},
	{{"region", "--pinned"}, "region does not take --pinned."},
};

START_TEST(malformed_words_of_changing_commands_are_refused_with_advice)
{
	peer_start(PEER_ANSWERS, NULL);
	stat_check_refused(mistakes[_i].words, mistakes[_i].err);
}
END_TEST

START_TEST(changing_commands_require_exactly_one_process_and_reading_ones_do_not)
{
	pid_t one = peer_start(PEER_ANSWERS, NULL), other = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(STAT("limit", "set", "0=1GiB"), 2);
	stat_check_in(stat_err, "gpupool-stat: there are 2 processes; name the one to change:\n");
	ck_assert_int_eq(STAT("defer", "on"), 2);
	ck_assert_int_eq(STAT("limit", stat_word(one), "set", "0=1GiB"), 0);
	ck_assert_int_eq(STAT("limit", "set", "0=1GiB", stat_word(one)), 0);
	ck_assert_int_eq(STAT("limit", stat_word(one), "get"), 0);
	ck_assert_int_eq(STAT("limit", stat_word(one)), 0);
	ck_assert_int_eq(STAT("defer", "off", stat_word(other)), 0);
	ck_assert_int_eq(STAT("defer", stat_word(other), "on"), 0);
	ck_assert_int_eq(STAT("region", "invalidate", "100% mine"), 2);
	ck_assert_int_eq(STAT("region", "invalidate", "100% mine", stat_word(one)), 0);
	ck_assert_int_eq(STAT("region", stat_word(one), "invalidate", "100% mine"), 0);
	ck_assert_int_eq(STAT("region", stat_word(one), "list"), 0);
	ck_assert_int_eq(STAT("region"), 0);
	ck_assert_int_eq(STAT("limit", "get"), 0);
	ck_assert_int_eq(STAT("limit"), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, each_changing_command_prints_its_result, 0, LENGTH(screens));
	tcase_add_loop_test(tc, malformed_words_of_changing_commands_are_refused_with_advice, 0, LENGTH(mistakes));
	tcase_add_test(tc, changing_commands_require_exactly_one_process_and_reading_ones_do_not);
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_change", add);
}
