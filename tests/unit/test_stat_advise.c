/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-stat advise, on recordings and on processes, and the conclusion that replay shares with it. */

#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/record_format.h"
#include "stat_peer.h"
#include "tests/suite.h"

#define MIB      ((json_int_t)1 << 20)
#define FILE_MAX (256 * 1024)

static const char *traces_dir;
static char path[128]; /* of the file that the test makes */
static char text[FILE_MAX];
static size_t n_text;
static json_t *answer;

static void put_bytes(const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	close(fd);
}

static void add(const char *action, unsigned long long name, unsigned long long bytes)
{
	n_text += (size_t)snprintf(
		text + n_text, sizeof(text) - n_text, bytes ? "%s %llx %llu\n" : "%s %llx\n", action, name, bytes);
	ck_assert_uint_lt(n_text, sizeof(text));
}

static void put_added(void)
{
	put_bytes(text, n_text);
	n_text = 0;
}

/* Blocks that fragment segments: every second one is freed, then others come that do not fit into the gaps. */
static void put_fragmenting(void)
{
	for (unsigned i = 0; i < 40; i++)
		add("a", 0x1000 + i * 0x1000, 3 << 20);
	for (unsigned i = 0; i < 40; i += 2)
		add("f", 0x1000 + i * 0x1000, 0);
	for (unsigned i = 0; i < 20; i++)
		add("a", 0x1000000 + i * 0x1000, 5 << 20);
	put_added();
}

static const json_t *advise(const char *file)
{
	json_error_t error;

	ck_assert_int_eq(STAT("advise", "--json", file), 0);
	ck_assert_str_eq(stat_err, "");
	json_decref(answer);
	answer = json_loads(stat_out, 0, &error);
	ck_assert_msg(answer, "%s: %s", error.text, stat_out);
	ck_assert_str_eq(json_string_value(json_object_get(answer, "schema")), "gpupool.advise/1");
	return json_object_get(answer, "advice");
}

static json_int_t number(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	ck_assert_msg(json_is_integer(value), "expected the number %s", name);
	return json_integer_value(value);
}

static const char *word(const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	ck_assert_msg(value, "expected the text %s", name);
	return value;
}

/* Returns the number of allocations that fail with this pool type and limit. */
static json_int_t refused_with(const char *pool, json_int_t limit)
{
	char pool_option[32], limit_option[64];
	json_t *replay;
	json_int_t n;

	snprintf(pool_option, sizeof(pool_option), "--pool=%s", pool);
	snprintf(limit_option, sizeof(limit_option), "--limit=%lld", (long long)limit);
	ck_assert_int_eq(STAT("replay", "--json", path, pool_option, limit_option), 0);
	replay = json_loads(stat_out, 0, NULL);
	ck_assert_ptr_nonnull(replay);
	n = number(json_array_get(json_object_get(replay, "runs"), 0), "n_refused");
	json_decref(replay);
	return n;
}

START_TEST(the_advised_limit_serves_the_recording_and_a_clearly_lower_one_does_not)
{
	const json_t *pools, *pool;
	json_int_t limit;
	char name[16];
	size_t i;

	put_fragmenting();
	snprintf(name, sizeof(name), "%s", word(advise(path), "pool"));
	limit = number(json_object_get(answer, "advice"), "limit_bytes");
	ck_assert_int_eq(refused_with(name, limit), 0);
	pools = json_object_get(answer, "pools");
	ck_assert_uint_eq(json_array_size(pools), 5);
	json_array_foreach(pools, i, pool) {
		json_int_t smallest = number(json_object_get(pool, "smallest"), "limit_bytes");

		ck_assert_int_eq(refused_with(word(pool, "pool"), smallest), 0);
		ck_assert_int_gt(refused_with(word(pool, "pool"), smallest - smallest / 64 - 4 * MIB), 0);
		ck_assert_int_ge(smallest, number(answer, "peak_live_bytes"));
	}
}
END_TEST

START_TEST(the_advice_saves_memory_against_the_default_pool_of_a_fragmenting_trace)
{
	const json_t *advice;
	char command[128];

	put_fragmenting();
	advice = advise(path);
	ck_assert_str_eq(word(advice, "pool"), "vmm");
	ck_assert_str_eq(word(advice, "before_pool"), "split");
	ck_assert_int_eq(
		number(advice, "saved_bytes"), number(advice, "before_peak_bytes") - number(advice, "peak_bytes"));
	ck_assert_int_gt(number(advice, "saved_bytes"), 0);
	ck_assert_int_le(number(advice, "peak_bytes"), number(advice, "limit_bytes"));
	snprintf(command, sizeof(command), "gpupool-run --pool=vmm --limit=%lldMiB COMMAND",
		(long long)(number(advice, "limit_bytes") / MIB));
	ck_assert_str_eq(word(advice, "command"), command);
	ck_assert_int_eq(STAT("advise", path), 0);
	stat_check_in(stat_out, command);
	stat_check_in(stat_out, "This is expected to take ");
}
END_TEST

START_TEST(fragmentation_is_shown_by_the_blocks_beside_free_memory)
{
	const json_t *fragmentation, *first;

	put_fragmenting();
	advise(path);
	fragmentation = json_object_get(answer, "fragmentation");
	first = json_array_get(json_object_get(fragmentation, "groups"), 0);
	ck_assert_int_eq(number(first, "requested_bytes"), 3 * MIB);
	ck_assert_int_ge(number(first, "n_blocks"), 10);
	ck_assert_int_gt(number(first, "unused_beside_bytes"), 10 * MIB);
	ck_assert_int_le(number(first, "unused_beside_bytes"), number(fragmentation, "unused_bytes"));
	ck_assert_int_eq(STAT("advise", path), 0);
	stat_check_in(stat_out, "at the peak of split ");
	stat_check_in(stat_out, "3.00 MiB  the program\n");
}
END_TEST

START_TEST(replay_ends_with_the_conclusion_that_its_table_supports)
{
	const char *last;

	put_fragmenting();
	ck_assert_int_eq(STAT("replay", path), 0);
	last = strstr(stat_out, "\n    gpupool-run --pool=vmm COMMAND\nThis is expected to take ");
	ck_assert_ptr_nonnull(last);
	stat_check_in(last, " with split, the default: ");
	ck_assert_str_eq(stat_out + strlen(stat_out) - strlen(" driver calls.\n"), " driver calls.\n");
	ck_assert_int_eq(STAT("replay", "--pool=vmm", path), 0);
	stat_check_in(stat_out, " times the memory that the program holds.\n");
	ck_assert_int_eq(STAT("replay", "--limit=100MiB", path), 0);
	stat_check_in(stat_out,
		"\nNo pool type that suits the program serves all allocations that the recorded process "
		"was served.\n");
}
END_TEST

START_TEST(a_program_without_fragmentation_is_advised_to_keep_its_pool)
{
	for (unsigned i = 0; i < 4; i++)
		add("a", 0x1000 + i * 0x1000, 64 << 20);
	put_added();
	ck_assert_str_eq(word(advise(path), "pool"), "split");
	ck_assert_int_eq(STAT("replay", path), 0);
	stat_check_in(stat_out, "split, the default, is expected to take ");
	stat_check_in(stat_out, " and no other pool type clearly less.\n");
}
END_TEST

START_TEST(each_limit_of_a_small_program_is_shown_once)
{
	json_int_t last = 0;
	const json_t *one;
	size_t i;

	for (unsigned n = 0; n < 4; n++)
		add("a", 0x1000 + n * 0x1000, 64 << 10);
	put_added();
	advise(path);
	ck_assert_uint_gt(json_array_size(json_object_get(answer, "limits")), 1);
	json_array_foreach(json_object_get(answer, "limits"), i, one) {
		ck_assert_int_gt(number(one, "limit_bytes"), last);
		last = number(one, "limit_bytes");
	}
}
END_TEST

static void run_on_processors(const char *file, int n_processors, char *ret_out)
{
	cpu_set_t all, some;
	int n = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&some);
	for (int i = 0; i < CPU_SETSIZE && n < n_processors; i++) {
		if (!CPU_ISSET(i, &all))
			continue;
		CPU_SET(i, &some);
		n++;
	}
	ck_assert_int_eq(sched_setaffinity(0, sizeof(some), &some), 0);
	ck_assert_int_eq(STAT("replay", file), 0);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(all), &all), 0);
	ck_assert_str_eq(stat_err, "");
	strcpy(ret_out, stat_out);
}

START_TEST(replays_in_several_processes_give_the_result_of_one_process)
{
	static char one[STAT_CATCH_SIZE], several[STAT_CATCH_SIZE];
	char trace[256];

	snprintf(trace, sizeof(trace), "%s/conv.txt.gz", traces_dir);
	run_on_processors(trace, 1, one);
	run_on_processors(trace, 8, several);
	ck_assert_str_eq(one, several);
	ck_assert_uint_gt(strlen(one), 1000);
}
END_TEST

/* clang-format off */
enum { N_NOT_RECORDINGS = 4 }; /* of these: the first ones */

static const struct {
	const char *content, *error;
} bad_files[] = {
	{"", "it is empty"},
	{"gpupool-reco", "it ends before its first record"},
	{"{\"schema\":\"gpupool.leaks/1\"}\n", "it is neither a recording nor a trace"},
	{"f 1000\n", "there is no allocation in it"},
	{"a 1000 512\nb 1000\n", "line 2 is neither 'a ADDRESS BYTES' nor 'f ADDRESS'"},
	{GP_RECORD_TITLE "\x23\x01\x05", "it is damaged at byte 20"},
};
/* clang-format on */

START_TEST(advice_on_a_malformed_file_is_refused_with_the_reason)
{
	put_bytes(bad_files[_i].content, strlen(bad_files[_i].content));
	ck_assert_int_eq(STAT("advise", path), 1);
	ck_assert_str_eq(stat_out, "");
	stat_check_in(stat_err, bad_files[_i].error);
	stat_check_in(stat_err, path);
	if (_i < N_NOT_RECORDINGS)
		stat_check_in(stat_err, "gpupool-run --record=FILE COMMAND makes a recording.");
}
END_TEST

START_TEST(a_recording_that_is_cut_off_is_advised_on_as_far_as_it_goes)
{
	static char bytes[1 << 20];
	char trace[256];
	size_t n;
	FILE *file;

	snprintf(trace, sizeof(trace), "%s/elements.rec.gz", traces_dir);
	file = fopen(trace, "re");
	ck_assert_ptr_nonnull(file);
	n = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	put_bytes(bytes, n / 4);
	advise(path);
	ck_assert(json_is_true(json_object_get(answer, "is_cut")));
	ck_assert_int_gt(number(answer, "n_allocs"), 100);
	ck_assert_int_lt(number(answer, "n_allocs"), 12530);
}
END_TEST

START_TEST(advice_on_a_process_shows_its_counters_and_names_the_command_that_makes_a_recording)
{
	pid_t pid = peer_start(PEER_ANSWERS, NULL);

	ck_assert_int_eq(STAT("advise", stat_word(pid)), 0);
	ck_assert_str_eq(stat_err, "");
	stat_check_in(stat_out, "device 0: 1.20 GiB taken from the driver: 768 MiB used, 462 MiB cached, ");
	stat_check_in(stat_out, "peak 1.20 GiB taken, 900 MiB used: 1.37; limit none\n");
	stat_check_in(stat_out, "hits 99.9%, 2 out-of-memory errors\n");
	stat_check_in(stat_out, "  gpupool-stat oom ");
	stat_check_in(stat_out, "  gpupool-stat reclaim --device=0 ");
	stat_check_in(
		stat_out, "neither the memory of another pool type nor the smallest limit that suffices is known");
	stat_check_in(stat_out, "    gpupool-run --record=/tmp/gpupool.rec ");
	stat_check_in(stat_out, "    gpupool-stat advise /tmp/gpupool.rec\n");
	stat_check_in(stat_out, "    gpupool-run --limit=1232MiB ");
	stat_check_in(stat_out, "saves at most 332 MiB of the peak");
}
END_TEST

START_TEST(advice_on_a_process_has_the_same_schema_in_json)
{
	const json_t *advice = advise(stat_word(peer_start(PEER_ANSWERS, NULL)));
	const json_t *device = json_array_get(json_object_get(answer, "devices"), 0);

	ck_assert_str_eq(word(answer, "source"), "process");
	ck_assert_int_eq(number(device, "ooms"), 2);
	ck_assert(json_is_null(json_object_get(device, "limit_bytes")));
	ck_assert_int_eq(number(advice, "limit_bytes"), 1232 * MIB);
	ck_assert_int_eq(number(advice, "saved_bytes_max"), 332 * MIB);
	stat_check_in(word(answer, "record_command"), "gpupool-run --record=");
}
END_TEST

START_TEST(advice_on_a_process_that_does_not_exist_or_answer_fails_with_the_reason)
{
	char pid[16];
	pid_t ended = peer_start(PEER_ANSWERS, NULL);

	peer_kill(ended);
	snprintf(pid, sizeof(pid), "%d", (int)ended);
	ck_assert_int_eq(STAT("advise", pid), 3);
	ck_assert_str_eq(stat_out, "");
	stat_check_in(stat_err, pid);
	ck_assert_int_eq(STAT("advise", "--timeout=0.2", stat_word(peer_start(PEER_SILENT, NULL))), 5);
	ck_assert_str_eq(stat_out, "");
	ck_assert_str_ne(stat_err, "");
}
END_TEST

/* clang-format off */
static const struct {
	const char *words[STAT_WORDS], *error;
} bad_words[] = {
	{{"advise"}, "advise takes one file or process id."},
	{{"advise", "a", "b"}, "advise takes one file or process id."},
	{{"advise", "--pool=vmm", "a"}, "advise does not take --pool."},
	{{"advise", "--watch=1", "a"}, "advise does not take --watch: it advises once"},
};
/* clang-format on */

START_TEST(a_malformed_advise_command_line_is_refused)
{
	ck_assert_int_eq(stat_execute(geteuid(), bad_words[_i].words), 2);
	ck_assert_str_eq(stat_out, "");
	stat_check_in(stat_err, bad_words[_i].error);
}
END_TEST

static void setup(void)
{
	peer_setup();
	snprintf(path, sizeof(path), "%s/file", peer_dir);
	n_text = 0;
}

static Suite *advise_suite(void)
{
	Suite *suite = suite_create("stat_advise");
	TCase *tc = tcase_create("advise");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, peer_teardown);
	tcase_add_test(tc, the_advised_limit_serves_the_recording_and_a_clearly_lower_one_does_not);
	tcase_add_test(tc, the_advice_saves_memory_against_the_default_pool_of_a_fragmenting_trace);
	tcase_add_test(tc, fragmentation_is_shown_by_the_blocks_beside_free_memory);
	tcase_add_test(tc, replay_ends_with_the_conclusion_that_its_table_supports);
	tcase_add_test(tc, a_program_without_fragmentation_is_advised_to_keep_its_pool);
	tcase_add_test(tc, each_limit_of_a_small_program_is_shown_once);
	tcase_add_test(tc, replays_in_several_processes_give_the_result_of_one_process);
	tcase_add_loop_test(tc, advice_on_a_malformed_file_is_refused_with_the_reason, 0, LENGTH(bad_files));
	tcase_add_test(tc, a_recording_that_is_cut_off_is_advised_on_as_far_as_it_goes);
	tcase_add_test(tc, advice_on_a_process_shows_its_counters_and_names_the_command_that_makes_a_recording);
	tcase_add_test(tc, advice_on_a_process_has_the_same_schema_in_json);
	tcase_add_test(tc, advice_on_a_process_that_does_not_exist_or_answer_fails_with_the_reason);
	tcase_add_loop_test(tc, a_malformed_advise_command_line_is_refused, 0, LENGTH(bad_words));
	suite_add_tcase(suite, tc);
	return suite;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s GPUPOOL-STAT TRACES\n", argv[0]);
		return 2;
	}
	stat_path = realpath(argv[1], NULL);
	traces_dir = realpath(argv[2], NULL);
	return suite_run(advise_suite());
}
