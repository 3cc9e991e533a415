/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat as its users see it: words in, text and exit code out. */

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl_fixture.h"
#include "shim/ctl/ctl_server.h"
#include "stat_peer.h"
#include "tests/emulator.h"
#include "tools/ask/stat_options.h"

/* clang-format off */
#define HELD \
	"  used                768 MiB  312 blocks, 760 MiB requested\n" \
	"  cached              462 MiB  12 blocks\n" \
	"  pending            2.00 MiB  1 block\n" \
	"  returning               0 B\n"
#define COUNTED \
	"  total              1.20 GiB  taken from the driver\n" \
	"  limit                  none\n" \
	"  peak               1.20 GiB  900 MiB used\n" \
	"  hits                  99.9%%  999 hits, 1 miss\n" \
	"  driver calls            111  110 allocs, 1 free, 3.21 ms\n" \
	"  fences                 9000  300 GPU waits, 12000 polled, 2 host waits\n" \
	"  out of memory             2  errors that reached the program\n" \
	"  invalid frees             1  of a pointer inside a block\n" \
	"  retry 1 settle            3  times, 12.0 MiB gained, 1.20 ms\n"
/* clang-format on */

START_TEST(status_shows_all_counters_within_80_columns)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	char expected[4096];

	snprintf(expected, sizeof(expected),
		"pid %d  python train.py\n"
		"up 3h12m, pool split, reuse ordered, gpupool 0.1.0\n"
		"\n"
		"device 0\n" HELD "  outside gpupool     462 MiB\n"
		"  free               14.1 GiB  of 15.7 GiB\n" COUNTED "\n"
		"pinned memory\n" HELD COUNTED "\n"
		"held by\n"
		"   BYTES  BLOCKS  CALLER\n"
		" 768 MiB     310  libgrid.so\n"
		"1.00 KiB       2  ?\n",
		(int)pid);
	ck_assert_int_eq(STAT(NULL), 0);
	ck_assert_str_eq(stat_out, expected);
	ck_assert_str_eq(stat_err, "");
	for (const char *line = stat_out; *line; line += strcspn(line, "\n") + 1)
		ck_assert_uint_le(strcspn(line, "\n"), 80);
	ck_assert_int_eq(STAT("status", stat_word(pid)), 0);
	ck_assert_str_eq(stat_out, expected);
	ck_assert_int_eq(STAT(stat_word(pid)), 0);
	ck_assert_str_eq(stat_out, expected);
}
END_TEST

static const struct {
	const char *words[STAT_WORDS];
	const char *out;
} screens[] = {
	{{"limit"}, "DEVICE     LIMIT   COUNTED\n"
		    "0           none       0 B\n"
		    "11      8.00 GiB  1.20 GiB\n"
		    "pinned      none     512 B\n"},
	{{"config"}, "SETTING              SOURCE       VALUE\n"
		     "GPUPOOL_POOL         default      split\n"
		     "GPUPOOL_LIMIT        environment  50%\n"
		     "GPUPOOL_RUNTIME_DIR  default      -\n"},
	{{"blocks"}, "3 blocks, 2.00 MiB\n"
		     "ADDRESS             SIZE  REQUESTED  DEVICE  KIND    SERIAL  CALLER\n"
		     "0x7e0000000000  2.00 MiB   1.91 MiB       0  pinned       3  ?\n"
		     "0x7f0000000000     512 B      512 B       0  device       1  solver\n"
		     "0x7f0000000200     512 B        5 B       0  device       2  ?\n"},
	{{"blocks", "-n", "1"}, "3 blocks, 2.00 MiB\n"
				"ADDRESS             SIZE  REQUESTED  DEVICE  KIND    SERIAL  CALLER\n"
				"0x7e0000000000  2.00 MiB   1.91 MiB       0  pinned       3  ?\n"
				"and 2 more\n"},
	{{"blocks", "--max=0"}, "3 blocks, 2.00 MiB\nand 3 more\n"},
	{{"reclaim"}, "gave 1 B back to the driver\n"},
	{{"reclaim", "--device=0"}, "gave nothing back to the driver (device 0)\n"
				    "  2.00 MiB stays cached, in driver allocations with used blocks\n"
				    "  4.00 KiB is pending: the GPU may still use it\n"
				    "  512 B is on its way to the driver\n"
				    "  768 MiB is used by the program\n"},
	{{"reclaim", "--pinned"}, "gave 3 B of pinned memory back to the driver\n"},
	{{"reclaim", "--pinned", "--device", "0"}, "gave 4 B of pinned memory back to the driver (device 0)\n"},
	{{"--pinned", "reclaim", "--json"}, "{\"schema\":\"gpupool.reclaim/1\",\"released_bytes\":3}\n"},
	{{"--version"}, "gpupool-stat " GPUPOOL_VERSION "\n"},
};

START_TEST(each_command_prints_its_screen)
{
	peer_start(PEER_ANSWERS, NULL);
	ck_assert_int_eq(stat_execute(geteuid(), screens[_i].words), 0);
	ck_assert_str_eq(stat_out, screens[_i].out);
	ck_assert_str_eq(stat_err, "");
}
END_TEST

struct pids {
	pid_t low, high;
};

/*
 * Starts two processes; returns them in the order in which they are shown. The later one may have the lower
 * process id, since ids start again from the bottom.
 */
static struct pids start_two(void)
{
	pid_t one = peer_start(PEER_ANSWERS, NULL), other = peer_start(PEER_ANSWERS, NULL);

	return one < other ? (struct pids){one, other} : (struct pids){other, one};
}

START_TEST(the_lines_of_CUDA_jl_have_their_own_option)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	char expected[512];

	snprintf(expected, sizeof(expected),
		"pid %d  python train.py\n"
		"device 0\n"
		"  Effective GPU memory usage: 10.51%% (1.655 GiB/15.744 GiB)\n"
		"  CUDA GPU memory usage: 1.203 GiB\n"
		"  SplitPool usage: 1.203 GiB (768.000 MiB allocated, 464.000 MiB cached)\n",
		(int)pid);
	ck_assert_int_eq(STAT("--julia"), 0);
	ck_assert_str_eq(stat_out, expected);
	ck_assert_int_eq(STAT("status", "--julia", stat_word(pid)), 0);
	ck_assert_str_eq(stat_out, expected);
}
END_TEST

START_TEST(list_has_a_line_for_each_process)
{
	struct pids pids = start_two();
	char expected[256];

	ck_assert_int_eq(STAT("list"), 0);
	snprintf(expected, sizeof(expected), "%d  ", (int)pids.low);
	stat_check_in(stat_out, expected);
	stat_check_in(stat_out, "  3h12m  split  768 MiB  462 MiB  1.20 GiB  python train.py\n");
	ck_assert_int_eq(STAT("list", "-q"), 0);
	snprintf(expected, sizeof(expected), "%d\n%d\n", (int)pids.low, (int)pids.high);
	ck_assert_str_eq(stat_out, expected);
	ck_assert_int_eq(STAT("list", "--json"), 0);
	snprintf(expected, sizeof(expected), "\"socket\":\"%s\",", peer_socket(pids.high));
	stat_check_in(stat_out, expected);
	stat_check_in(stat_out, "{\"schema\":\"gpupool.list/2\",\"processes\":[{\"pid\":");
	stat_check_in(stat_out, "\"used_bytes\":805306368,\"cached_bytes\":484442112,\"unused_bytes\":486539264,");
}
END_TEST

START_TEST(answers_of_several_processes_are_labelled_with_their_pids)
{
	struct pids pids = start_two();
	char title[32];

	ck_assert_int_eq(STAT("limit"), 0);
	snprintf(title, sizeof(title), "\n\npid %d  ", (int)pids.high);
	stat_check_in(stat_out, title);
	ck_assert_int_eq(STAT("limit", "--json"), 0);
	snprintf(title, sizeof(title), "\"pid\":%d}],\"errors\":[]}\n", (int)pids.high);
	stat_check_in(stat_out, title);
}
END_TEST

#define DEVICE(index, uuid, used, total)                                                         \
	"{\"index\":" #index ",\"uuid\":\"GPU-" #uuid "-0\",\"device_total_bytes\":17179869184," \
	"\"device_free_bytes\":8589934592,\"used_bytes\":" #used ",\"cached_bytes\":1073741824," \
	"\"total_bytes\":" #total "}"
#define STATUS_OF(command, devices) \
	"{\"schema\":\"gpupool.status/2\",\"command\":\"" command "\",\"devices\":[" devices "]}"

/* The processes number the first device differently, and two devices have the number 0. */
START_TEST(several_processes_without_arguments_are_one_table_with_the_sum_of_each_device)
{
	peer_start(PEER_ANSWERS, STATUS_OF("one", DEVICE(0, 11111111, 1073741824, 2147483648)));
	peer_start(PEER_ANSWERS,
		STATUS_OF("two", DEVICE(1, 11111111, 2147483648, 3221225472) "," DEVICE(0, 22222222, 0, 1073741824)));
	peer_start(PEER_ANSWERS, STATUS_OF("three", ""));
	ck_assert_int_eq(STAT(NULL), 0);
	stat_check_in(stat_out, "PID  USER  DEVICE              USED    CACHED     TOTAL  COMMAND\n");
	stat_check_in(stat_out, "  root  0 GPU-11111111  1.00 GiB  1.00 GiB  2.00 GiB  one\n");
	stat_check_in(stat_out, "  root  0 GPU-11111111  2.00 GiB  1.00 GiB  3.00 GiB  two\n");
	stat_check_in(stat_out, "all        0 GPU-11111111  3.00 GiB  2.00 GiB  5.00 GiB  8.00 GiB free of 16.0 GiB\n");
	stat_check_in(stat_out, "  root  0 GPU-22222222       0 B  1.00 GiB  1.00 GiB  two\n");
	stat_check_in(stat_out, "all        0 GPU-22222222       0 B  1.00 GiB  1.00 GiB  8.00 GiB free of 16.0 GiB\n");
	stat_check_in(stat_out, "  root  -                      -         -         -  three\n");
	ck_assert_int_le(strstr(stat_out, "COMMAND") - stat_out, 72); /* the last column is cut on a terminal */
	ck_assert_int_eq(STAT("--watch=0.01", "--count=1"), 0);
	stat_check_in(stat_out, " 5.00 GiB        -  8.00 GiB free of 16.0 GiB\n");
	ck_assert_int_eq(STAT("status"), 0);
	stat_check_in(stat_out, "  three\n");
	stat_check_in(stat_out, "  peak ");
}
END_TEST

/* Otherwise an answer could make the table as long as it likes. */
START_TEST(devices_that_a_process_cannot_have_are_not_in_the_table_of_processes)
{
	peer_start(PEER_ANSWERS, STATUS_OF("bad", "{},7,{\"index\":-1},{\"index\":99}," DEVICE(
							  0, 1, 512, 512) "," DEVICE(0, 1, 512, 512)));
	peer_start(PEER_ANSWERS, STATUS_OF("one", DEVICE(0, 1, 512, 512)));
	ck_assert_int_eq(STAT(NULL), 0);
	stat_check_in(stat_out, "all        0       1.00 KiB  2.00 GiB  1.00 KiB  8.00 GiB free of 16.0 GiB\n");
	ck_assert_ptr_null(strstr(stat_out, " - "));
}
END_TEST

START_TEST(json_of_one_named_process_is_its_unchanged_answer)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	char expected[4096];

	ck_assert_int_eq(STAT("--json", stat_word(pid)), 0);
	snprintf(expected, sizeof(expected), "%s\n", peer_status_callers);
	ck_assert_str_eq(stat_out, expected);
	ck_assert_int_eq(STAT("status", "--json"), 0);
	snprintf(expected, sizeof(expected),
		"{\"schema\":\"gpupool.status-list/2\",\"processes\":[%s],\"errors\":[]}\n", peer_status_callers);
	ck_assert_str_eq(stat_out, expected);
	ck_assert_int_eq(STAT("blocks", "--json", "-n1", stat_word(pid)), 0);
	ck_assert_str_eq(stat_out, "{\"schema\":\"gpupool.blocks/1\",\"n_blocks\":3,\"blocks\":[]}\n");
}
END_TEST

START_TEST(a_stopped_process_does_not_suppress_the_answers_of_others)
{
	pid_t stopped = peer_start(PEER_STOPPED, NULL), good = peer_start(PEER_ANSWERS, NULL);
	char expected[256];

	ck_assert_int_eq(STAT("--timeout=0.05"), 0);
	snprintf(expected, sizeof(expected), "pid %d  python train.py\n", (int)good);
	stat_check_in(stat_out, expected);
	snprintf(expected, sizeof(expected),
		"gpupool-stat: pid %d is stopped (state T), and cannot answer.\n"
		"              Next: kill -CONT %d, or wait for its debugger.\n",
		(int)stopped, (int)stopped);
	ck_assert_str_eq(stat_err, expected);
	ck_assert_int_eq(STAT("--timeout=0.05", "--json"), 0);
	snprintf(expected, sizeof(expected),
		"],\"errors\":[{\"pid\":%d,\"error\":\"is stopped (state T), and cannot answer.\"}]}\n", (int)stopped);
	stat_check_in(stat_out, expected);
	ck_assert_str_eq(stat_err, "");
	ck_assert_int_eq(STAT("--timeout=0.05", stat_word(good), stat_word(stopped)), 5);
	stat_check_in(stat_out, "python train.py\n");
}
END_TEST

START_TEST(a_process_with_a_full_backlog_counts_as_not_answering)
{
	pid_t stopped = peer_start(PEER_STOPPED, NULL);

	for (int i = 0; i < 12; i++)
		ck_assert_int_eq(STAT("--timeout=0.01", stat_word(stopped)), 5);
}
END_TEST

/* The message and the exit code for each kind of process or answer. */
static const struct {
	enum peer_manner manner;
	const char *answer;
	int exit;
	const char *err;
} peers[] = {
	{PEER_SILENT, NULL, 5, " did not answer within 0.5 s."},
	{PEER_ENDLESS, NULL, 1, " sent an answer of more than 1048576 bytes."},
	{PEER_HANGS_UP, NULL, 1, " closed the connection before it had answered."},
	{PEER_DEAF, NULL, 5, " runs, but does not listen at its socket."},
	{PEER_NO_SOCKET, NULL, 3, " runs without libgpupool.so."},
	{PEER_LIBRARY, NULL, 3, " has libgpupool.so, but no control socket."},
	{PEER_LATE, NULL, 0, ""},
	{PEER_ANSWERS, "", 1, " gave an answer that is not a JSON object\n"},
	{PEER_ANSWERS, "garbage", 1, " gave an answer that is not a JSON object\n"},
	{PEER_ANSWERS, "[]", 1, " gave an answer that is not a JSON object\n"},
	{PEER_ANSWERS, "{\"schema\":\"gpupool.status/2\"", 1, " that is not a JSON object\n"},
	{PEER_ANSWERS, "{\"schema\":\"gpupool.status/2\",\"schema\":1}", 1, " not a JSON object\n"},
	{PEER_ANSWERS, "{\"schema\":\"gpupool.status/2\",\"a\":\"\xff\"}", 1, " not a JSON object\n"},
	{PEER_ANSWERS, "{\"a\":[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]}", 1, " too deeply\n"},
	{PEER_ANSWERS, "{}", 1, " gave an answer without a schema of gpupool\n"},
	{PEER_ANSWERS, "{\"schema\":1}", 1, " gave an answer without a schema of gpupool\n"},
	{PEER_ANSWERS, "{\"schema\":\"other/1\"}", 1, " without a schema of gpupool\n"},
	{PEER_ANSWERS, "{\"schema\":\"gpupool.limit/2\"}", 1, " answered with gpupool.limit/2 to 'status'\n"},
	{PEER_ANSWERS, "{\"schema\":\"gpupool.status/3\"}", 6,
		" answers with gpupool.status/3; this gpupool-stat supports version 2\n"},
	{PEER_ANSWERS, "{\"schema\":\"gpupool.error/1\",\"reason\":\"usage\",\"error\":\"no\"}", 2, " says: no\n"},
	{PEER_ANSWERS, "{\"schema\":\"gpupool.error/1\",\"reason\":\"permission\"}", 4, " says: ?\n"},
	{PEER_ANSWERS,
		"{\"schema\":\"gpupool.error/1\",\"reason\":\"failed\",\"error\":"
		"\"\\u001b[2J\\nx\"}",
		1, " says: ?[2J?x\n"},
	{PEER_ANSWERS, "{\"schema\":\"gpupool.error/1\",\"reason\":\"unknown\"}", 1, " says: ?\n"},
	/* A field that is missing or of another type counts as unknown. */
	{PEER_ANSWERS, "{\"schema\":\"gpupool.status/2\"}", 0, ""},
	{PEER_ANSWERS, "{\"schema\":\"gpupool.status/2\",\"devices\":{},\"pinned\":[]}", 0, ""},
	{PEER_ANSWERS,
		"{\"schema\":\"gpupool.status/2\",\"devices\":[1,null,{\"index\":-1},{\"index\":"
		"\"x\",\"device_total_bytes\":0,\"device_free_bytes\":1,\"retries\":{}}]}",
		0, ""},
	{PEER_ANSWERS,
		"{\"schema\":\"gpupool.status/2\",\"devices\":[{\"used_bytes\":"
		"9223372036854775807,\"hits\":9223372036854775807,\"misses\":"
		"9223372036854775807,\"driver_ns\":9223372036854775807}]}",
		0, ""},
	{PEER_ANSWERS, "{\"schema\":\"gpupool.status/2\",\"pid\":99999999999999999999}", 1, " not a JSON object\n"},
};

START_TEST(every_kind_of_process_and_answer_gets_its_message_and_exit_code)
{
	pid_t pid = peer_start(peers[_i].manner, peers[_i].answer);
	char prefix[64];

	snprintf(prefix, sizeof(prefix), "gpupool-stat: pid %d ", (int)pid);
	ck_assert_int_eq(STAT("--timeout=0.5", stat_word(pid)), peers[_i].exit);
	stat_check_in(stat_err, peers[_i].err);
	if (peers[_i].exit)
		ck_assert_int_eq(strncmp(stat_err, prefix, strlen(prefix)), 0);
	else
		ck_assert_uint_gt(strlen(stat_out), 0);
}
END_TEST

START_TEST(a_process_with_hidden_mappings_gets_a_message_and_advice)
{
	pid_t pid = peer_start(PEER_HIDDEN, NULL);

	/* Root lacks these rights over a process that another container has started. */
	for (unsigned long right = 0; geteuid() == 0 && right <= CAP_LAST_CAP; right++)
		(void)prctl(PR_CAPBSET_DROP, right, 0, 0, 0);
	ck_assert_int_eq(STAT(stat_word(pid)), 4);
	stat_check_in(stat_err, " has no control socket that you can see.\n");
	stat_check_in(
		stat_err, geteuid() == 0 ? "Next: this root lacks CAP_SYS_PTRACE over it;" : "Next: run as root.");
}
END_TEST

/* The parser would need a hundred bytes for each value. */
static const struct {
	size_t n;
	int exit;
} values[] = {{1000, 0}, {500000, 0}, {(1 << 20) + 1, 1}, {3 << 20, 1}};

START_TEST(an_answer_with_too_many_values_is_refused_before_it_is_parsed)
{
	static const char head[] = "{\"schema\":\"gpupool.blocks/1\",\"blocks\":[0";
	size_t n = values[_i].n;
	char *text = calloc(1, sizeof(head) + 2 * n + 3);

	ck_assert_ptr_nonnull(text);
	strcpy(text, head);
	for (size_t i = 0; i < n; i++)
		memcpy(text + sizeof(head) - 1 + 2 * i, ",0", 2);
	strcpy(text + sizeof(head) - 1 + 2 * n, "]}");
	ck_assert_int_eq(STAT("blocks", "-n0", stat_word(peer_start(PEER_ANSWERS, text))), values[_i].exit);
	if (values[_i].exit)
		stat_check_in(stat_err, " gave an answer that has too many values\n");
	free(text);
}
END_TEST

START_TEST(the_blocks_table_has_a_region_column_if_a_block_belongs_to_a_region)
{
	static const char answer[] =
		"{\"schema\":\"gpupool.blocks/1\",\"n_blocks\":2,\"blocks\":["
		"{\"address\":\"0x7f0000000000\",\"size_bytes\":1024,\"requested_bytes\":1000,\"device\":0,"
		"\"kind\":\"device\",\"serial\":1,\"region\":\"forward pass\",\"caller\":\"solver\"},"
		"{\"address\":\"0x7f0000000400\",\"size_bytes\":512,\"requested_bytes\":512,\"device\":0,"
		"\"kind\":\"device\",\"serial\":2,\"region\":null,\"caller\":null}]}";

	ck_assert_int_eq(STAT("blocks", stat_word(peer_start(PEER_ANSWERS, answer))), 0);
	ck_assert_str_eq(stat_out, "2 blocks, 1.50 KiB\n"
				   "ADDRESS             SIZE  REQUESTED  DEVICE  KIND    SERIAL  REGION        CALLER\n"
				   "0x7f0000000000  1.00 KiB     1000 B       0  device       1  forward pass  solver\n"
				   "0x7f0000000400     512 B      512 B       0  device       2  -             ?\n");
}
END_TEST

START_TEST(status_shows_the_steps_that_served_allocations_and_their_times)
{
	static const char head[] =
		"{\"schema\":\"gpupool.status/2\",\"devices\":[{\"steps\":["
		"{\"name\":\"cache\",\"count\":750,\"ns\":0},{\"name\":\"poll\",\"count\":0,\"ns\":0}";
	char answer[512];

	snprintf(answer, sizeof(answer), "%s,{\"name\":\"grow\",\"count\":250,\"ns\":3210000}]}]}", head);
	peer_start(PEER_ANSWERS, answer);
	ck_assert_int_eq(STAT("status"), 0);
	stat_check_in(stat_out, "  from cache              750  allocations, 75.0%\n");
	stat_check_in(stat_out, "  from grow               250  allocations, 25.0%, 3.21 ms\n");
	ck_assert_ptr_null(strstr(stat_out, "from poll"));
}
END_TEST

START_TEST(status_tells_why_allocations_in_stream_order_were_left_to_the_driver)
{
	peer_start(PEER_ANSWERS,
		"{\"schema\":\"gpupool.status/2\",\"async\":{\"on\":true,\"left\":[{\"name\":\"off\",\"count\":0},"
		"{\"name\":\"capture\",\"count\":3},{\"name\":\"later\\nx\",\"count\":1},7]},"
		"\"devices\":[{\"stream_allocs\":40},{\"stream_allocs\":2}]}");
	ck_assert_int_eq(STAT("status"), 0);
	stat_check_in(stat_out, "\ncudaMallocAsync and the like: 42 allocations from the pool, 4 left to the driver\n"
				"  3 of them left to the driver: a stream was being captured\n"
				"  1 of them left to the driver: later?x\n");
	ck_assert_ptr_null(strstr(stat_out, "GPUPOOL_ASYNC is off"));
}
END_TEST

static const char *const untouched[] = {
	"{\"on\":true,\"left\":[]}", "{\"on\":false,\"left\":[{\"name\":\"off\",\"count\":0}]}", "3"};

START_TEST(status_has_no_line_about_allocations_in_stream_order_if_the_program_has_made_none)
{
	char answer[256];

	snprintf(answer, sizeof(answer), "{\"schema\":\"gpupool.status/2\",\"async\":%s,\"devices\":[{}]}",
		untouched[_i]);
	peer_start(PEER_ANSWERS, answer);
	ck_assert_int_eq(STAT("status"), 0);
	ck_assert_ptr_null(strstr(stat_out, "Async"));
	ck_assert_ptr_null(strstr(stat_out, "ASYNC"));
}
END_TEST

START_TEST(status_names_frameworks_whose_own_pool_is_in_front)
{
	peer_start(PEER_ANSWERS,
		"{\"schema\":\"gpupool.status/1\",\"frameworks\":["
		"{\"name\":\"PyTorch\",\"own_pool\":true,\"switch\":\"X=1\"},{\"name\":\"CuPy\",\"own_pool\":false},"
		"{\"name\":\"RMM\",\"own_pool\":null},"
		"{\"name\":\"a\\nb\",\"own_pool\":true,\"switch\":null},3,{}]}");
	ck_assert_int_eq(STAT("status"), 0);
	stat_check_in(stat_out, "\nPyTorch's own pool is in front of gpupool (gpupool-run --own-pools=off)\n"
				"a?b's own pool is in front of gpupool\n");
	ck_assert_ptr_null(strstr(stat_out, "CuPy"));
	ck_assert_ptr_null(strstr(stat_out, "RMM"));
}
END_TEST

START_TEST(control_characters_of_a_process_never_reach_the_terminal)
{
	static const char answer[] = "{\"schema\":\"gpupool.status/2\",\"command\":\"a\\u001b[31m\\u0007\\u009b\\u202e"
				     "b\\nc \xc3\xa4\",\"pool\":\"\\u001b]0;x\\u0007\x7f\",\"bypass\":\"\\r\\nx\","
				     "\"devices\":[{\"retries\":[{\"name\":\"\\u001b\",\"count\":1}]}]}";
	static const char *const commands[] = {"status", "list"};

	peer_start(PEER_ANSWERS, answer);
	for (int i = 0; i < LENGTH(commands); i++) {
		ck_assert_int_eq(STAT(commands[i]), 0);
		stat_check_in(stat_out, "a?[31m???b?c \xc3\xa4\n");
		for (const char *s = stat_out; *s; s++)
			ck_assert_msg(*s == '\n' || (unsigned char)*s >= ' ', "expected no control character in: %s",
				stat_out);
		ck_assert_ptr_null(strstr(stat_out, "\xc2\x9b"));
		ck_assert_ptr_null(strstr(stat_out, "\xe2\x80\xae"));
	}
	ck_assert_int_eq(STAT("--json"), 0);
	for (const char *s = stat_out; *s; s++)
		ck_assert_msg(*s == '\n' || (*s >= ' ' && *s < 0x7f), "expected no control character in: %s", stat_out);
}
END_TEST

START_TEST(no_process_to_ask_is_reported_with_exit_code_3)
{
	ck_assert_int_eq(STAT(NULL), 3);
	stat_check_in(stat_err, "gpupool-stat: no gpupool processes");
	stat_check_in(stat_err, peer_dir);
	stat_check_in(stat_err, "Next: start a program with: gpupool-run COMMAND\n");
	ck_assert_str_eq(stat_out, "");
	ck_assert_int_eq(STAT("--json"), 3);
	ck_assert_str_eq(stat_out, "{\"schema\":\"gpupool.status-list/2\",\"processes\":[],\"errors\":[]}\n");
	ck_assert_int_eq(STAT("list", "-q"), 3);
	ck_assert_int_eq(STAT("reclaim"), 3);
	ck_assert_str_eq(stat_out, "");
}
END_TEST

START_TEST(a_process_that_has_ended_is_reported_as_ended)
{
	pid_t pid = peer_start(PEER_NO_SOCKET, NULL);

	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(STAT(stat_word(pid)), 3);
	stat_check_in(stat_err, " has ended (state Z).\n");
	peer_kill(pid);
	ck_assert_int_eq(STAT(stat_word(pid)), 3);
	stat_check_in(stat_err, " does not exist.\n");
}
END_TEST

START_TEST(the_socket_of_an_ended_process_is_removed)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	char path[128];

	strcpy(path, peer_socket(pid));
	ck_assert_int_eq(STAT("list", "-q"), 0);
	ck_assert_int_eq(access(path, F_OK), 0);
	peer_kill(pid);
	ck_assert_int_eq(access(path, F_OK), 0);
	ck_assert_int_eq(STAT("list", "-q"), 3);
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_socket_without_a_listener_stays_while_its_process_lives)
{
	pid_t pid = peer_start(PEER_DEAF, NULL);

	ck_assert_int_eq(STAT("status"), 5);
	ck_assert_int_eq(access(peer_socket(pid), F_OK), 0);
}
END_TEST

START_TEST(a_symlink_in_place_of_a_socket_is_not_followed)
{
	pid_t answers = peer_start(PEER_ANSWERS, NULL), other = peer_start(PEER_NO_SOCKET, NULL);
	char target[128];

	strcpy(target, peer_socket(answers));
	ck_assert_int_eq(symlink(target, peer_socket(other)), 0);
	ck_assert_int_eq(STAT(stat_word(other)), 1);
	stat_check_in(stat_err, " has a file that is not a socket: ");
}
END_TEST

START_TEST(other_files_in_the_socket_directory_are_ignored)
{
	char path[128];
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	snprintf(path, sizeof(path), "%s/README", peer_dir);
	ck_assert_int_ge(open(path, O_CREAT | O_WRONLY, 0600), 0);
	snprintf(path, sizeof(path), "%s/.1.2.sock.new", peer_dir);
	ck_assert_int_ge(open(path, O_CREAT | O_WRONLY, 0600), 0);
	ck_assert_int_eq(STAT("list", "-q"), 0);
	snprintf(path, sizeof(path), "%d\n", (int)pid);
	ck_assert_str_eq(stat_out, path);
	ck_assert_str_eq(stat_err, "");
}
END_TEST

START_TEST(a_command_that_changes_a_process_requires_exactly_one)
{
	pid_t one = peer_start(PEER_ANSWERS, NULL), other = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(STAT("reclaim"), 2);
	stat_check_in(stat_err, "gpupool-stat: there are 2 processes; name the one to change:\n");
	stat_check_in(stat_err, stat_word(one));
	stat_check_in(stat_err, stat_word(other));
	ck_assert_str_eq(stat_out, "");
	ck_assert_int_eq(STAT("reclaim", stat_word(other)), 0);
	ck_assert_str_eq(stat_out, "gave 1 B back to the driver\n");
}
END_TEST

START_TEST(a_named_process_is_found_in_the_directory_of_its_own_environment)
{
	char dir[128];
	pid_t pid;

	snprintf(dir, sizeof(dir), "%s/elsewhere", peer_dir);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	pid = peer_exec(dir);
	ck_assert_int_eq(STAT("reclaim", stat_word(pid)), 0);
	ck_assert_str_eq(stat_out, "gave 1 B back to the driver\n");
	ck_assert_int_eq(STAT("reclaim"), 3);
}
END_TEST

START_TEST(gpupool_stat_accepts_the_answers_of_the_real_server)
{
	int ready[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		strcpy(fixture_root, peer_dir);
		if (fixture_start(0) != 0 || write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	ck_assert_int_eq(STAT("reclaim", "--device=3", "--pinned", "--json", stat_word(pid)), 0);
	ck_assert_str_eq(stat_out, "{\"schema\":\"gpupool.reclaim/1\",\"words\":[\"3\",\"pinned\"]}\n");
	ck_assert_int_eq(STAT("limit", stat_word(pid)), 1);
	stat_check_in(stat_err, " says: limit is not available in this process\n");
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

START_TEST(output_that_cannot_be_written_gives_a_failure_exit_code)
{
	char command[256];

	peer_start(PEER_ANSWERS, NULL);
	snprintf(command, sizeof(command), "$" EMULATOR " '%s' list > /dev/full 2> /dev/null", stat_path);
	ck_assert_int_eq(WEXITSTATUS(system(command)), 1);
	snprintf(command, sizeof(command), "$" EMULATOR " '%s' check --warn=ooms=3 > /dev/full 2>&1", stat_path);
	ck_assert_int_eq(WEXITSTATUS(system(command)), 3);
}
END_TEST

static const struct {
	const char *words[STAT_WORDS];
	const char *err;
} mistakes[] = {
	{{"frob"}, "there is no command 'frob'."},
	{{"status", "list"}, "'list' is not a process id."},
	{{"status", "0"}, "'0' is not a process id."},
	{{"1x"}, "'1x' is neither a command nor a process id."},
	{{"99999999999"}, "'99999999999' is neither a command nor a process id."},
	{{"list", "1"}, "list takes no process ids."},
	{{"blocks", "1", "2"}, "blocks takes one process id."},
	{{"status", "-q"}, "status does not take -q."},
	{{"list", "-n", "1"}, "list does not take -n."},
	{{"blocks", "--pinned"}, "blocks does not take --pinned."},
	{{"lsit"}, "there is no command 'lsit'; did you mean 'list'?"},
	{{"--limt=8GiB", "replay"}, "there is no option '--limt=8GiB'; did you mean '--limit'?"},
	{{"help", "lsit"}, "there is no command 'lsit'; did you mean 'list'?"},
	{{"help", "list", "top"}, "help takes the name of one command."},
	{{"help", "--json"}, "help does not take --json."},
	{{"--zzz"}, "there is no option '--zzz'."},
	{{"-z"}, "there is no option '-z'."},
	{{"--json=1"}, "option '--json=1' takes no value."},
	{{"reclaim", "--device"}, "option '--device' needs a value."},
	{{"reclaim", "--device=-1"}, "--device: '-1' is not the number of a device."},
	{{"blocks", "-n", "many"}, "-n: 'many' is not a number of blocks."},
	{{"--timeout=0"}, "--timeout: '0' is not a number of seconds from 0.001 to 86400."},
	{{"--timeout=nan"}, "--timeout: 'nan' is not a number of seconds from 0.001 to 86400."},
	{{"--timeout=1s"}, "--timeout: '1s' is not a number of seconds from 0.001 to 86400."},
	{{"\x1b[2J"}, "there is no command '?[2J'."},
};

static const struct {
	uint64_t bit;
	char letter;
	const char *word;
} every_option[] = {
#define OPTION(id, name, letter, type, member, function, value, help) \
	{STAT_TAKES_##id, letter, sizeof(value) > 1 ? "--" name "=" EXAMPLE_##function : "--" name},
#define EXAMPLE_take_flag    ""
#define EXAMPLE_take_text    "1"
#define EXAMPLE_take_blocks  "1"
#define EXAMPLE_take_device  "1"
#define EXAMPLE_take_name    "1"
#define EXAMPLE_take_job     "1"
#define EXAMPLE_take_at      "peak"
#define EXAMPLE_take_min     "1"
#define EXAMPLE_take_older   "1"
#define EXAMPLE_take_watch   "1"
#define EXAMPLE_take_count   "1"
#define EXAMPLE_take_timeout "1"
#include "tools/ask/options.def"
};

/* The set of options that a command does not take has a bit for each, also for those after the 32nd. */
START_TEST(every_option_is_refused_by_its_name_where_a_command_does_not_take_it)
{
	const uint64_t taken_by_all = STAT_TAKES_TIMEOUT | STAT_TAKES_HELP | STAT_TAKES_VERSION;
	const char *words[STAT_WORDS] = {"help", every_option[_i].word};
	char err[64];

	if (every_option[_i].bit & taken_by_all)
		return;
	if (every_option[_i].letter)
		snprintf(err, sizeof(err), "help does not take -%c", every_option[_i].letter);
	else
		snprintf(err, sizeof(err), "help does not take %.*s", (int)strcspn(words[1], "="), words[1]);
	stat_check_refused(words, err);
}
END_TEST

START_TEST(a_malformed_command_line_is_refused_with_advice)
{
	peer_start(PEER_ANSWERS, NULL);
	stat_check_refused(mistakes[_i].words, mistakes[_i].err);
}
END_TEST

START_TEST(a_process_of_another_user_is_not_asked)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(chmod(peer_dir, 0711), 0);
	ck_assert_int_eq(stat_execute(65534, (const char *const[STAT_WORDS]){stat_word(pid)}), 4);
	stat_check_in(stat_err, " belongs to root; you are nobody.\n");
}
END_TEST

/* The directory belongs to another user, so a socket of root's in it could be a trap for root. */
START_TEST(root_asks_only_processes_of_the_owner_of_the_directory)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);
	char path[128];

	strcpy(path, peer_socket(pid));
	ck_assert_int_eq(chown(peer_dir, 65534, 65534), 0);
	ck_assert_int_eq(STAT(stat_word(pid)), 4);
	stat_check_in(stat_err, " has a socket of user nobody, at which another user listens.\n");
	peer_kill(pid);
	ck_assert_int_eq(STAT("list"), 3);
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

/* Otherwise any user could make more directories than root has descriptors for. */
START_TEST(root_searches_only_directories_named_after_the_uid_of_their_owner)
{
	pid_t pid;

	ck_assert_int_eq(rmdir(peer_dir), 0);
	snprintf(peer_dir, sizeof(peer_dir), "/tmp/gpupool-0%d", (int)getpid());
	ck_assert_int_eq(mkdir(peer_dir, 0700), 0);
	unsetenv("GPUPOOL_RUNTIME_DIR");
	pid = peer_start(PEER_ANSWERS, NULL);
	(void)STAT("list", "-q");
	for (const char *word = strtok(stat_out, "\n"); word; word = strtok(NULL, "\n"))
		ck_assert_str_ne(word, stat_word(pid));
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_test(tc, status_shows_all_counters_within_80_columns);
	tcase_add_loop_test(tc, each_command_prints_its_screen, 0, LENGTH(screens));
	tcase_add_test(tc, the_lines_of_CUDA_jl_have_their_own_option);
	tcase_add_test(tc, list_has_a_line_for_each_process);
	tcase_add_test(tc, several_processes_without_arguments_are_one_table_with_the_sum_of_each_device);
	tcase_add_test(tc, devices_that_a_process_cannot_have_are_not_in_the_table_of_processes);
	tcase_add_test(tc, answers_of_several_processes_are_labelled_with_their_pids);
	tcase_add_test(tc, json_of_one_named_process_is_its_unchanged_answer);
	tcase_add_test(tc, a_stopped_process_does_not_suppress_the_answers_of_others);
	tcase_add_test(tc, a_process_with_a_full_backlog_counts_as_not_answering);
	tcase_add_test(tc, a_process_with_hidden_mappings_gets_a_message_and_advice);
	tcase_add_loop_test(tc, every_kind_of_process_and_answer_gets_its_message_and_exit_code, 0, LENGTH(peers));
	tcase_add_loop_test(tc, an_answer_with_too_many_values_is_refused_before_it_is_parsed, 0, LENGTH(values));
	tcase_add_test(tc, the_blocks_table_has_a_region_column_if_a_block_belongs_to_a_region);
	tcase_add_test(tc, status_shows_the_steps_that_served_allocations_and_their_times);
	tcase_add_test(tc, status_tells_why_allocations_in_stream_order_were_left_to_the_driver);
	tcase_add_loop_test(tc, status_has_no_line_about_allocations_in_stream_order_if_the_program_has_made_none, 0,
		LENGTH(untouched));
	tcase_add_test(tc, status_names_frameworks_whose_own_pool_is_in_front);
	tcase_add_test(tc, control_characters_of_a_process_never_reach_the_terminal);
	tcase_add_test(tc, no_process_to_ask_is_reported_with_exit_code_3);
	tcase_add_test(tc, a_process_that_has_ended_is_reported_as_ended);
	tcase_add_test(tc, the_socket_of_an_ended_process_is_removed);
	tcase_add_test(tc, a_socket_without_a_listener_stays_while_its_process_lives);
	tcase_add_test(tc, a_symlink_in_place_of_a_socket_is_not_followed);
	tcase_add_test(tc, other_files_in_the_socket_directory_are_ignored);
	tcase_add_test(tc, a_command_that_changes_a_process_requires_exactly_one);
	tcase_add_test(tc, a_named_process_is_found_in_the_directory_of_its_own_environment);
	tcase_add_test(tc, gpupool_stat_accepts_the_answers_of_the_real_server);
	tcase_add_test(tc, output_that_cannot_be_written_gives_a_failure_exit_code);
	tcase_add_loop_test(
		tc, every_option_is_refused_by_its_name_where_a_command_does_not_take_it, 0, LENGTH(every_option));
	tcase_add_loop_test(tc, a_malformed_command_line_is_refused_with_advice, 0, LENGTH(mistakes));
	if (geteuid() == 0) {
		tcase_add_test(tc, a_process_of_another_user_is_not_asked);
		tcase_add_test(tc, root_asks_only_processes_of_the_owner_of_the_directory);
		tcase_add_test(tc, root_searches_only_directories_named_after_the_uid_of_their_owner);
	}
}

int main(int argc, char **argv)
{
	return stat_main(argc, argv, "stat", add);
}
