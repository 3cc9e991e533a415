/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat leaks, stacks, oom and debug: how they show answers of processes, good or bad. */

#include "stat_peer.h"

#include <string.h>
#include <unistd.h>

START_TEST(leaks_merges_call_sites_at_one_code_location_and_shows_lines)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(STAT("leaks", stat_word(pid)), 0);
	ck_assert_str_eq(stat_err, "");
	stat_check_in(stat_out, "6.00 MiB in 6 blocks; stacks of 8 frames, recorded for 1m00s\n");
	stat_check_in(stat_out, "3.00 MiB       3      9s  solver+0x1000 < Layer.forward (net.py:12)\n");
	stat_check_in(stat_out, "2.00 MiB       2       -  0xff < 0x10 < ? (?:0)\n");
	stat_check_in(stat_out, "1.00 MiB       1       -  (no stack)\n");
	stat_check_in(stat_out, "double free of 0x7f00, 0s ago\n  freed here: solver+0x1\n");
	ck_assert_ptr_null(strstr(stat_out, "allocated"));
	ck_assert_int_eq(STAT("leaks", "--by=library", stat_word(pid)), 0);
	stat_check_in(stat_out, "3.00 MiB       3      9s  solver\n");
	ck_assert_int_eq(STAT("leaks", "--older=1.5", "-n", "1", stat_word(pid)), 0);
	stat_check_in(stat_out, "and 2 more, 3.00 MiB\n");
}
END_TEST

START_TEST(leaks_json_contains_the_names_of_frames)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(STAT("leaks", "--json", stat_word(pid)), 0);
	stat_check_in(stat_out, "\"symbols\":{");
	stat_check_in(stat_out, "\"0+4096\":\"solver+0x1000\"");
	stat_check_in(stat_out, "\"-2+0\":\"Layer.forward (net.py:12)\"");
	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(STAT("leaks", "--json"), 0);
	stat_check_in(stat_out, "{\"schema\":\"gpupool.leaks-list/1\",\"processes\":[{");
}
END_TEST

static const char one_site[] = "{\"schema\":\"gpupool.stacks/1\",\"is_on\":true,\"depth\":1,\"sample\":1,\"sites\":1}";

START_TEST(stacks_passes_the_words_after_the_process_id_on)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(STAT("stacks", stat_word(pid)), 0);
	ck_assert_str_eq(stat_out, "call stacks are off\n");
	ck_assert_int_eq(STAT("stacks", stat_word(pid), "on", "8", "sample=2"), 0);
	ck_assert_str_eq(stat_out, "call stacks are on, 8 frames, sample=2; 3 call sites so far\n");
	ck_assert_int_eq(STAT("stacks", stat_word(peer_start(PEER_ANSWERS, one_site))), 0);
	ck_assert_str_eq(stat_out, "call stacks are on, 1 frame, sample=1; 1 call site so far\n");
	ck_assert_int_eq(STAT("stacks", "--json", stat_word(pid), "on", "8", "sample=2"), 0);
	stat_check_in(stat_out, "{\"schema\":\"gpupool.stacks/1\",");
	ck_assert_int_eq(STAT("stacks", stat_word(pid), "up"), 1);
	stat_check_in(stat_err, "says: what?");
	ck_assert_int_eq(STAT("stacks", "on"), 2);
	stat_check_in(stat_err, "'on' is not a process id.");
	stat_check_in(stat_err, "Next: gpupool-stat stacks --help");
}
END_TEST

START_TEST(oom_shows_the_last_out_of_memory_and_the_other_programs)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	stat_check_in(
		stat_out, "1 out-of-memory error; the last one 1s ago on device 0: a request for 1.00 GiB failed\n");
	stat_check_in(
		stat_out, "cause    the device is full; 1.00 MiB short even if all available memory were contiguous\n");
	stat_check_in(stat_out, "program  holds 512 B of the 1.00 KiB that it may use, 50.0%\n");
	stat_check_in(stat_out, "advice   GPUPOOL_POOL=vmm can combine scattered unused memory\n");
	stat_check_in(stat_out, "requested at: solver+0x1000\n");
	stat_check_in(stat_out, "process  used 512 B, cached -, ");
	stat_check_in(stat_out, ", limit none\n");
	stat_check_in(stat_out, "(no stack)\n");
	ck_assert_ptr_null(strstr(stat_out, "Other programs"));
	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(STAT("oom", stat_word(pid)), 0);
	stat_check_in(stat_out, "\nOther programs with gpupool, now:\n");
	stat_check_in(stat_out, "python train.py\n");
	ck_assert_int_eq(STAT("oom", "--json", stat_word(pid)), 0);
	stat_check_in(stat_out, "{\"schema\":\"gpupool.oom/2\",");
}
END_TEST

START_TEST(debug_shows_wild_writes_with_their_blocks_and_code_locations)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(STAT("debug", stat_word(pid)), 0);
	ck_assert_str_eq(stat_err, "");
	ck_assert_str_eq(stat_out,
		"poison, guard: 3 errors; 900 checks, 1 skipped, 12.0 ms spent\n"
		"watched: 11 of 12 blocks that the program holds, and 6.00 MiB in 1 piece that it has freed\n"
		"\n"
		"write after a free of 0x7f00 (1000 bytes, device 0), seen before its reuse, 3s ago; "
		"2 such writes\n"
		"  found: 4 wrong bytes, from offset +16: 2a2a2a2af77ff77ff77ff77ff77ff77f\n"
		"  allocated 5.00 ms before: solver+0x1000 < Layer.forward (net.py:12)\n"
		"  freed 1.20 us before: solver+0x2000\n"
		"\n"
		"write before the start of 0x7e00 (5 bytes, pinned), seen by a check, 0s ago\n"
		"  found: 1 wrong byte, from offset -4: 2a\n"
		"  allocated 7.00 us before\n");
	ck_assert_int_eq(STAT("debug", "--check", stat_word(pid)), 0);
	stat_check_in(stat_out, "checked 12 of these in 1.50 ms: 1 error, 0 skipped; time ran out before the last\n");
	ck_assert_int_eq(STAT("debug", "--json", "--check", stat_word(pid)), 0);
	stat_check_in(stat_out, "{\"schema\":\"gpupool.debug/1\",");
	stat_check_in(stat_out, "\"0+4096\":\"solver+0x1000\"");
	ck_assert_int_eq(STAT("leaks", "--check", stat_word(pid)), 2);
	stat_check_in(stat_err, "leaks does not take --check.");
}
END_TEST

START_TEST(debug_says_how_to_enable_memory_debugging_if_it_is_off)
{
	pid_t pid = peer_start(PEER_ANSWERS, "{\"schema\":\"gpupool.debug/1\",\"is_on\":false,\"reports\":[]}");

	ck_assert_int_eq(STAT("debug", stat_word(pid)), 0);
	ck_assert_str_eq(stat_out, "memory debugging is off; to use it: gpupool-run --debug=poison,guard COMMAND\n");
}
END_TEST

static const char *const malformed_debug[] = {
	"{\"schema\":\"gpupool.debug/1\"}",
	"{\"schema\":\"gpupool.debug/1\",\"is_on\":true,\"reports\":[7,null,{},[]],\"check\":7}",
	"{\"schema\":\"gpupool.debug/1\",\"is_on\":true,\"reports\":[{\"what\":\"\\u001b[2J\",\"seen\":3,"
	"\"block\":\"\\u202e\\u001b\",\"bytes\":\"\\u001b]0;x\\u0007\",\"offset\":\"x\",\"allocated_ns\":1,"
	"\"allocated\":[[0,1]],\"freed_ns\":-1}],\"objects\":[{\"path\":\"/\\u001b[2J\"}]}",
};

START_TEST(malformed_debug_answers_are_shown_without_control_characters)
{
	pid_t pid = peer_start(PEER_ANSWERS, malformed_debug[_i]);

	ck_assert_int_eq(STAT("debug", stat_word(pid)), 0);
	ck_assert_ptr_null(strchr(stat_out, '\033'));
	ck_assert_ptr_null(strstr(stat_out, "\xe2\x80\xae"));
	ck_assert_int_eq(STAT("debug", "--json", stat_word(pid)), 0);
	ck_assert_ptr_null(strchr(stat_out, '\033'));
}
END_TEST

static const char *const malformed_leaks[] = {
	"{\"schema\":\"gpupool.leaks/1\"}",
	"{\"schema\":\"gpupool.leaks/1\",\"sites\":7,\"stacks\":[],\"objects\":{},\"places\":\"x\",\"bad_frees\":3}",
	"{\"schema\":\"gpupool.leaks/1\",\"sites\":[1,null,{\"frames\":[[0]]},{\"frames\":[[\"a\",-1],[0,-1],[1.5,2]]},"
	"{\"frames\":[[9223372036854775807,9223372036854775807]]}]}",
	"{\"schema\":\"gpupool.leaks/1\",\"sites\":[{\"bytes\":9223372036854775807,\"frames\":[[0,1]]},"
	"{\"bytes\":9223372036854775807,\"frames\":[[0,1]]}],\"objects\":[{\"path\":7}]}",
	"{\"schema\":\"gpupool.leaks/1\",\"sites\":[{\"bytes\":1,\"frames\":[[0,1]]}],"
	"\"objects\":[{\"path\":\"/\\u001b[2J\\u202e\"}],\"symbols\":{\"0+1\":\"\\u001b]0;x\\u0007\"}}",
	"{\"schema\":\"gpupool.leaks/1\",\"sites\":[{\"bytes\":1,\"frames\":[[0,1]]}],"
	"\"objects\":[{\"path\":\"/dev/zero\",\"build_id\":\"00\"},"
	"{\"path\":\"relative\"},{\"path\":\"/proc/self/mem\"}]}",
};

START_TEST(malformed_leaks_answers_are_shown_without_control_characters)
{
	pid_t pid = peer_start(PEER_ANSWERS, malformed_leaks[_i]);

	ck_assert_int_eq(STAT("leaks", stat_word(pid)), 0);
	ck_assert_ptr_null(strchr(stat_out, '\033'));
	ck_assert_ptr_null(strstr(stat_out, "\xe2\x80\xae"));
	ck_assert_int_eq(STAT("leaks", "--by=size", stat_word(pid)), 0);
	ck_assert_int_eq(STAT("leaks", "--json", stat_word(pid)), 0);
	ck_assert_ptr_null(strchr(stat_out, '\033'));
}
END_TEST

START_TEST(watched_leaks_are_one_json_object_a_line)
{
	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(STAT("leaks", "--watch=0.1", "--count=3", "--json"), 0);
	stat_check_in(stat_out, "}\n{\"schema\":\"gpupool.leaks-list/1\",");
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, leaks_merges_call_sites_at_one_code_location_and_shows_lines);
	tcase_add_test(tc, leaks_json_contains_the_names_of_frames);
	tcase_add_test(tc, stacks_passes_the_words_after_the_process_id_on);
	tcase_add_test(tc, oom_shows_the_last_out_of_memory_and_the_other_programs);
	tcase_add_test(tc, debug_shows_wild_writes_with_their_blocks_and_code_locations);
	tcase_add_test(tc, debug_says_how_to_enable_memory_debugging_if_it_is_off);
	tcase_add_loop_test(
		tc, malformed_debug_answers_are_shown_without_control_characters, 0, LENGTH(malformed_debug));
	tcase_add_loop_test(
		tc, malformed_leaks_answers_are_shown_without_control_characters, 0, LENGTH(malformed_leaks));
	tcase_add_test(tc, watched_leaks_are_one_json_object_a_line);
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat_sites", add);
}
