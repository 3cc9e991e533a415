/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Call sites: which hold memory, which free wrongly, which run out of memory, and how this is reported. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "play.h"

static char answers[8][256 * 1024]; /* answers in the order of the pauses */
static unsigned n_answers;

/* Runs gpupool-stat with the words and returns its exit code. The output replaces the answer with number nth. */
static int run_stat(unsigned nth, const char *words)
{
	ck_assert_uint_lt(nth, LENGTH(answers));
	return play_run_stat(words, answers[nth], sizeof(answers[nth]));
}

static void check_in(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "expected '%s' in: %s", part, text);
}

static void keep(const char *answer)
{
	ck_assert_uint_lt(n_answers, LENGTH(answers));
	snprintf(answers[n_answers++], sizeof(answers[0]), "%s", answer);
}

static void ask_leaks(const char *name)
{
	keep(play_ask("leaks"));
}

static void play(const char *scenario, const char *const *env, void (*at_pause)(const char *name))
{
	n_answers = 0;
	play_run(&(struct play){.program = "app_sites",
		.words = {scenario},
		.env = env,
		.preload = play_library,
		.at_pause = at_pause});
	ck_assert_msg(play_status == 0, "expected exit status 0, got %d: %s", play_status, play_err);
}

/* Returns the object in a list that has a member with this value. The returned text includes the objects after it. */
static const char *find(const char *list, const char *member, unsigned long long value)
{
	char text[64];
	const char *at;

	snprintf(text, sizeof(text), "\"%s\":%llu,", member, value);
	at = strstr(list, text);
	ck_assert_msg(at, "expected %s in: %s", text, list);
	while (*at != '{')
		at--;
	return at;
}

static const char *const kinds[] = {
	"GPUPOOL_POOL=none", "GPUPOOL_POOL=simple", "GPUPOOL_POOL=binned", "GPUPOOL_POOL=split"};

START_TEST(each_call_site_is_reported_with_the_blocks_that_it_holds)
{
	const char *env[] = {"GPUPOOL_STACKS=8", kinds[_i], NULL}, *sites, *site;

	play("leaks", env, ask_leaks);
	ck_assert_uint_eq(n_answers, 2);
	sites = strstr(answers[0], "\"sites\":[");
	ck_assert_uint_eq(play_number(answers[0], "n_blocks"), 12);
	ck_assert_uint_eq(play_number(answers[0], "n_sites"), 5);
	site = find(sites, "blocks", 3);
	ck_assert_uint_eq(play_number(site, "requested_bytes"), 3 * MIB);
	ck_assert_uint_eq(play_number(site, "allocs"), 3);
	ck_assert_uint_eq(play_number(find(sites, "blocks", 2), "requested_bytes"), 8192);
	ck_assert_uint_eq(play_number(find(sites, "blocks", 5), "requested_bytes"), 20480);
	ck_assert_uint_eq(play_number(find(sites, "pinned_bytes", 2 * MIB), "blocks"), 1);
	ck_assert_uint_eq(play_number(find(sites, "unpooled_bytes", 8 * MIB), "blocks"), 1);
	ck_assert_uint_eq(play_number(strstr(answers[0], "\"without_stack\":"), "blocks"), 0);
	ck_assert_uint_eq(play_number(answers[1], "n_blocks"), 0);
	ck_assert_uint_eq(play_number(answers[1], "n_bad_frees"), 0);
	ck_assert_str_eq(play_err, "");
}
END_TEST

START_TEST(a_stack_of_depth_one_is_the_caller_of_CUDA)
{
	const char *const env[] = {"GPUPOOL_STACKS=1", NULL};
	const char *frames;

	play("leaks", env, ask_leaks);
	/* All device memory comes from one line of the program. */
	ck_assert_uint_eq(play_number(answers[0], "n_sites"), 3);
	frames = strstr(answers[0], "\"frames\":[[");
	ck_assert_ptr_nonnull(frames);
	ck_assert_ptr_null(strstr(answers[0], "],["));
	check_in(strstr(answers[0], "\"objects\":"), "/app_sites\"");
	ck_assert_ptr_null(strstr(answers[0], "libgpupool"));
}
END_TEST

static const char *const runtimes[] = {"app_runtime_shared", "app_runtime_static"};

/* A static runtime is a part of the program. */
START_TEST(a_stack_of_depth_one_skips_the_CUDA_runtime)
{
	const char *const env[] = {"GPUPOOL_STACKS=1", NULL};
	char path[64];

	n_answers = 0;
	play_run(&(struct play){.program = runtimes[_i],
		.words = {"held"},
		.env = env,
		.preload = play_library,
		.at_pause = ask_leaks});
	ck_assert_int_eq(play_status, 0);
	ck_assert_uint_eq(play_number(answers[0], "n_blocks"), 8);
	ck_assert_uint_eq(play_number(answers[0], "n_sites"), 1);
	ck_assert_uint_eq(play_number(strstr(answers[0], "\"sites\":["), "allocs"), 16);
	snprintf(path, sizeof(path), "/%s\",", runtimes[_i]);
	check_in(strstr(answers[0], "\"objects\":"), path);
	ck_assert_ptr_null(strstr(answers[0], "libcudart"));
}
END_TEST

START_TEST(blocks_from_thread_caches_have_call_sites)
{
	const char *const env[] = {"GPUPOOL_STACKS=8", NULL};
	const char *site;

	play("threads", env, ask_leaks);
	ck_assert_uint_eq(play_number(answers[0], "n_blocks"), 20);
	site = find(strstr(answers[0], "\"sites\":["), "blocks", 20);
	ck_assert_uint_eq(play_number(site, "allocs"), 20);
}
END_TEST

START_TEST(a_sample_leaves_out_small_blocks_and_no_large_ones)
{
	const char *const env[] = {"GPUPOOL_STACKS=8,sample=1000000", NULL};

	play("leaks", env, ask_leaks);
	ck_assert_uint_eq(
		play_number(find(strstr(answers[0], "\"sites\":["), "blocks", 3), "requested_bytes"), 3 * MIB);
	ck_assert_uint_eq(play_number(strstr(answers[0], "\"without_stack\":"), "blocks"), 7);
	ck_assert_uint_ne(play_number(strstr(answers[0], "\"without_stack\":"), "oldest_ns"), 0);
}
END_TEST

static void switch_stacks(const char *name)
{
	if (!strcmp(name, "before")) {
		keep(play_ask("leaks"));
		check_in(play_ask("stacks on 8"), "\"depth\":8,\"sample\":1");
	} else if (!strcmp(name, "on")) {
		keep(play_ask("leaks"));
		check_in(play_ask("stacks off"), "\"is_on\":false");
	} else {
		keep(play_ask("leaks"));
	}
}

START_TEST(stacks_can_be_switched_on_and_off_while_the_program_runs)
{
	play("turns", NULL, switch_stacks);
	ck_assert_uint_eq(play_number(answers[0], "n_sites"), 0);
	ck_assert_uint_eq(play_number(strstr(answers[0], "\"without_stack\":"), "blocks"), 1);
	ck_assert_uint_eq(play_number(answers[1], "n_blocks"), 3);
	/* The sites are two lines of the program. */
	ck_assert_uint_eq(play_number(answers[1], "n_sites"), 2);
	ck_assert_uint_eq(play_number(strstr(answers[1], "\"without_stack\":"), "blocks"), 1);
	ck_assert_uint_eq(play_number(answers[2], "n_blocks"), 3);
	ck_assert_uint_eq(play_number(answers[2], "n_sites"), 1);
	ck_assert_uint_eq(play_number(strstr(answers[2], "\"without_stack\":"), "blocks"), 2);
}
END_TEST

static const char *const bad_requests[] = {"stacks maybe", "stacks on 0", "stacks on 65", "stacks on sample=0",
	"stacks on 8 sample=x", "stacks off 8", "leaks -1", "leaks 1s", "leaks 99999999999999999999"};

static void send_bad_requests(const char *name)
{
	if (n_answers)
		return;
	for (size_t i = 0; i < LENGTH(bad_requests); i++)
		ck_assert_msg(strstr(play_ask(bad_requests[i]), "\"reason\":\"usage\""),
			"expected a usage error as the answer to '%s'", bad_requests[i]);
	keep("");
}

START_TEST(invalid_depths_samples_and_ages_are_refused)
{
	play("leaks", NULL, send_bad_requests);
	ck_assert_uint_eq(n_answers, 1);
}
END_TEST

START_TEST(a_double_free_is_reported_with_its_three_stacks)
{
	const char *const env[] = {"GPUPOOL_STACKS=8", NULL};
	const char *first, *second;

	play("wrong", env, ask_leaks);
	check_in(play_err, ": the block is already free\n");
	check_in(play_err, "warn:   freed here: app_sites+0x");
	check_in(play_err, "warn:   freed before, ");
	check_in(play_err, "warn:   allocated, 1000 bytes at 0x");
	check_in(play_err, ": the address is inside a block, not at its start\n");
	check_in(play_err, "warn:   allocated, 3145728 bytes at 0x");
	ck_assert_uint_eq(play_number(answers[0], "n_bad_frees"), 2);
	first = strstr(answers[0], "\"what\":\"double\"");
	second = strstr(answers[0], "\"what\":\"interior\"");
	ck_assert(first && second);
	ck_assert_uint_eq(play_number(first, "requested_bytes"), 1000);
	ck_assert_uint_eq(play_number(second, "requested_bytes"), 3 * MIB);
	check_in(first, "\"freed_before\":[[");
	check_in(second, "\"freed_before\":null");
	check_in(second, "\"allocated\":[[");
}
END_TEST

START_TEST(a_double_free_is_recognised_after_the_block_went_back_to_the_driver)
{
	const char *const env[] = {"GPUPOOL_STACKS=8", "GPUPOOL_POOL=none", "GPUPOOL_PENDING_COUNT=0", NULL};
	const char *bad;

	play("wrong", env, ask_leaks);
	check_in(play_err, ": the block is already free\n");
	bad = strstr(answers[0], "\"what\":\"double\"");
	ck_assert_ptr_nonnull(bad);
	check_in(bad, "\"freed_before\":[[");
}
END_TEST

START_TEST(many_wrong_frees_are_all_refused_and_the_first_16_are_logged)
{
	const char *const quiet[] = {"GPUPOOL_STACKS=8", "GPUPOOL_LOG=off", NULL};
	const char *const loud[] = {"GPUPOOL_STACKS=8", NULL};
	unsigned lines = 0;

	play_same(&(struct play){.program = "app_sites", .words = {"often"}, .env = quiet});
	play("often", loud, NULL);
	for (const char *at = play_err; (at = strchr(at, '\n')); at++)
		lines++;
	ck_assert_uint_eq(lines, 4 * (16 + 1));
}
END_TEST

static void ask_oom(const char *name)
{
	keep(play_ask("oom"));
}

START_TEST(a_fragmentation_report_names_the_blocks_in_the_way)
{
	const char *const env[] = {"GPUPOOL_STACKS=8", "SIMGPU_MEMORY=1GiB", "GPUPOOL_POOL=split", NULL};

	play("fragmented", env, ask_oom);
	check_in(play_err, "out of memory on device 0: a request for 4.00 MiB failed\n");
	check_in(play_err, "out of memory on device 0 (error 2 of this process): a request for 400 MiB failed\n");
	check_in(play_err, "cause: fragmentation: ");
	check_in(play_err, "tried: checking for finished GPU work gained ");
	check_in(play_err, "requested at: app_sites+0x");
	check_in(play_err, "next: run gpupool-stat oom ");
	ck_assert_uint_eq(play_number(answers[0], "n_ooms"), 3);
	check_in(answers[0], "\"cause\":\"fragmented\"");
	ck_assert_uint_eq(play_number(answers[0], "requested_bytes"), 400 * MIB);
	ck_assert_uint_eq(play_number(answers[0], "missing_bytes"), 0);
	ck_assert_uint_gt(play_number(answers[0], "cached_bytes"), 300 * MIB);
	ck_assert_uint_lt(play_number(answers[0], "largest_unused_bytes"), 64 * MIB);
	ck_assert_uint_gt(play_number(answers[0], "n_partly_used_segments"), 4);
	ck_assert_uint_eq(play_number(strstr(answers[0], "\"blocks\":[{"), "size_bytes"), 4 * MIB);
	check_in(strstr(answers[0], "\"segments\":["), "\"frames\":[[");
	check_in(strstr(answers[0], "\"holders\":["), "\"frames\":[[");
}
END_TEST

static const struct {
	const char *kind, *cause;
	unsigned device;
} ooms[] = {
	{"\"kind\":\"device\"", "\"cause\":\"limited\"", 0},
	{"\"kind\":\"device\"", "\"cause\":\"beyond-limit\"", 0},
	{"\"kind\":\"unpooled\"", "\"cause\":\"limited\"", 0},
	{"\"kind\":\"pinned\"", "\"cause\":\"beyond-limit\"", 0},
};

START_TEST(an_out_of_memory_report_names_the_request_and_its_cause)
{
	const char *const env[] = {"GPUPOOL_LIMIT=256MiB", "GPUPOOL_PINNED_LIMIT=16MiB", kinds[_i], NULL};

	play("limited", env, ask_oom);
	ck_assert_uint_eq(n_answers, LENGTH(ooms));
	for (size_t i = 0; i < LENGTH(ooms); i++) {
		check_in(answers[i], ooms[i].kind);
		check_in(answers[i], ooms[i].cause);
		ck_assert_uint_eq(play_number(answers[i], "n_ooms"), i + 1);
	}
	ck_assert_uint_eq(play_number(answers[0], "limit_bytes"), 256 * MIB);
	ck_assert_uint_gt(play_number(answers[0], "missing_bytes"), 40 * MIB);
	check_in(answers[0], "\"name\":\"all\"");
	check_in(answers[1], "\"rounds\":[]");
	check_in(play_err, "cause: the limit is reached: ");
	check_in(play_err, "GPUPOOL_LIMIT sets the limit");
}
END_TEST

/* Reads the report that the process wrote at its end. */
static void read_report(char text[static 65536])
{
	FILE *file = fopen("report", "r");
	size_t n;

	ck_assert_ptr_nonnull(file);
	n = fread(text, 1, 65535, file);
	text[n] = '\0';
	fclose(file);
}

START_TEST(the_report_at_exit_lists_call_sites_that_still_hold_memory)
{
	static const char *const in_file[] = {"GPUPOOL_STACKS=8", "GPUPOOL_REPORT=exit:report", NULL};
	static const char *const on_stderr[] = {"GPUPOOL_REPORT=exit", "GPUPOOL_LOG=off", NULL};
	static char text[65536];
	struct stat st;

	play_same(&(struct play){.program = "app_sites", .words = {"ends"}, .env = in_file});
	read_report(text);
	check_in(text, "at exit the program holds 1.02 MiB in 6 blocks\n");
	check_in(text, "  device 0: used 1.02 MiB (peak ");
	check_in(text, "  site: 1.00 MiB in 1 block: app_sites+0x");
	check_in(text, "  site: 20.0 KiB in 5 blocks: app_sites+0x");
	check_in(text, "  library: 1.02 MiB in 6 blocks: app_sites\n");
	check_in(text, "  size: 20.0 KiB in 5 blocks of 4.00 KiB and more\n");
	ck_assert_int_eq(stat("report", &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	play("ends", on_stderr, NULL);
	check_in(play_err, "]: at exit the program holds 1.02 MiB in 6 blocks\n");
	ck_assert_str_eq(play_out, "done\n");
}
END_TEST

#ifdef HAS_SYMBOLS
#define AT(function) function " (app_sites.c:"
#define ALLOC        "app_alloc (app_driver.c:"
#else
#define AT(function) "app_sites+0x"
#define ALLOC        AT("app_alloc")
#endif

static void show_leaks(const char *name)
{
	if (strcmp(name, "held"))
		return;
	ck_assert_int_eq(run_stat(0, "leaks"), 0);
	ck_assert_int_eq(run_stat(1, "leaks --by=library"), 0);
	ck_assert_int_eq(run_stat(2, "leaks --by=size --min=1MiB"), 0);
	ck_assert_int_eq(run_stat(3, "leaks --by=age -n 0"), 0);
	ck_assert_int_eq(run_stat(4, "leaks --json $(ls *.sock | cut -d. -f1) >saved"), 0);
	ck_assert_int_eq(run_stat(5, "leaks --watch=0.1 --count=2 --older=0"), 0);
	ck_assert_int_eq(run_stat(6, "leaks --older=100000"), 0);
}

START_TEST(gpupool_stat_leaks_groups_by_site_library_size_and_age)
{
	const char *const env[] = {"GPUPOOL_STACKS=8", NULL};

	play("leaks", env, show_leaks);
	check_in(answers[0], "13.0 MiB in 12 blocks; stacks of 8 frames, recorded for ");
	check_in(answers[0], "3.00 MiB       3 ");
	check_in(answers[0], AT("keep_large"));
	check_in(answers[0], AT("keep_many"));
	check_in(answers[0], AT("keep_managed"));
	ck_assert_ptr_null(strstr(answers[0], "GROWTH"));
	check_in(answers[1], "13.0 MiB      12 ");
	check_in(answers[1], "  app_sites\n");
	check_in(answers[2], "8.00 MiB and more\n");
	check_in(answers[2], "and 1 more, 28.0 KiB\n");
	check_in(answers[3], "and 1 more, 13.0 MiB\n");
	check_in(answers[5], "GROWTH");
	check_in(answers[5], "  0 B  ");
	check_in(answers[6], "0 B in 0 blocks;");
}
END_TEST

static void show_growth(const char *name)
{
	if (!strcmp(name, "before")) {
		ck_assert_int_eq(run_stat(0, "stacks $(ls *.sock | cut -d. -f1) on 4 sample=3"), 0);
	} else if (!strcmp(name, "on")) {
		ck_assert_int_eq(run_stat(1, "leaks --json >saved"), 0);
		ck_assert_int_eq(run_stat(2, "stacks $(ls *.sock | cut -d. -f1)"), 0);
	} else {
		ck_assert_int_eq(run_stat(3, "leaks --diff=saved"), 0);
		ck_assert_int_eq(run_stat(4, "leaks --from=saved"), 0);
		ck_assert_int_eq(run_stat(5, "stacks $(ls *.sock | cut -d. -f1) off"), 0);
	}
}

START_TEST(gpupool_stat_leaks_compares_with_a_saved_answer)
{
	play("turns", NULL, show_growth);
	check_in(answers[0], "call stacks are on, 4 frames, sample=3; 0 call sites so far\n");
	ck_assert_str_eq(answers[1], "");
	check_in(answers[2], "call stacks are on, 4 frames, sample=3; 2 call sites so far\n");
	/* One block was freed, and one was allocated. */
	check_in(answers[3], "-1.00 MiB  " ALLOC);
	check_in(answers[3], "+1.00 MiB  " ALLOC);
	check_in(answers[3], "0 B  (no stack)\n");
	check_in(answers[4], "3.00 MiB in 3 blocks; stacks of 4 frames, below 1 MiB for one block in 3, recorded for ");
	check_in(answers[4], AT("keep_large"));
	check_in(answers[4], "(no stack)\n");
	check_in(answers[5], "call stacks are off\n");
	ck_assert_int_eq(run_stat(6, "leaks --from=saved"), 0);
	check_in(answers[6], AT("keep_large"));
}
END_TEST

static void show_oom(const char *name)
{
	ck_assert_int_eq(run_stat(0, "oom"), 0);
}

START_TEST(gpupool_stat_oom_explains_the_last_out_of_memory)
{
	const char *const env[] = {"GPUPOOL_STACKS=8", "SIMGPU_MEMORY=1GiB", "GPUPOOL_POOL=split", NULL};

	play("fragmented", env, show_oom);
	check_in(answers[0], "3 out-of-memory errors; the last ");
	check_in(answers[0], " on device 0: a request for 400 MiB failed\n");
	check_in(answers[0], "cause    fragmentation: enough memory is cached between blocks that the program holds\n");
	check_in(answers[0], "requested at: " AT("fragmented"));
	check_in(answers[0], "driver allocations in which the program holds blocks:\n");
	check_in(answers[0], "checking for finished GPU work");
	check_in(answers[0], "The program held:\n");
}
END_TEST

static void show_none(const char *name)
{
	if (strcmp(name, "held") == 0)
		ck_assert_int_eq(run_stat(0, "oom"), 0);
}

START_TEST(gpupool_stat_oom_says_that_there_was_no_out_of_memory)
{
	play("leaks", NULL, show_none);
	check_in(answers[0], "no out-of-memory error\n");
}
END_TEST

static void show_wrong(const char *name)
{
	ck_assert_int_eq(run_stat(0, "leaks"), 0);
}

START_TEST(gpupool_stat_leaks_shows_wrong_frees_with_functions)
{
	const char *const env[] = {"GPUPOOL_STACKS=8", NULL};

	play("wrong", env, show_wrong);
	check_in(answers[0], "double free of 0x");
	check_in(answers[0], "freed here: " AT("free_block_again"));
	check_in(answers[0], "freed before: " AT("free_block"));
	check_in(answers[0], "allocated: " ALLOC);
	check_in(answers[0], " < " AT("alloc_block"));
	check_in(answers[0], "invalid free of 0x");
}
END_TEST

#ifdef PYTHON
static const char *const python_stacks[] = {
	" < alloc (app_sites.py:17) < Layer.forward (app_sites.py:24) < generate (app_sites.py:29)"
	" < <module> (app_sites.py:47)\n",
	" < alloc (app_sites.py:17) < größe (app_sites.py:36) < <module> (app_sites.py:48)\n",
	" < alloc (app_sites.py:17) < work (app_sites.py:41) < Thread.run (threading.py:",
	" < alloc (app_sites.py:17) < <module> (made up:4) < <module> (app_sites.py:52)\n",
};

static void show_leaks_once(const char *name)
{
	ck_assert_int_eq(run_stat(0, "leaks"), 0);
	ck_assert_int_eq(run_stat(1, "leaks --json >saved"), 0);
}

START_TEST(stacks_of_a_Python_program_contain_its_Python_functions)
{
	const char *const env[] = {"GPUPOOL_STACKS=24", "PYTHONDONTWRITEBYTECODE=1", NULL};

	play_run(&(struct play){.program = getenv("GPUPOOL_TEST_PYTHON") ?: PYTHON,
		.words = {"-s", SCRIPT},
		.env = env,
		.preload = play_library,
		.at_pause = show_leaks_once});
	ck_assert_msg(play_status == 0, "expected exit status 0, got %d: %s", play_status, play_err);
	check_in(answers[0], "9.06 MiB in 6 blocks;");
	for (size_t i = 0; i < LENGTH(python_stacks); i++)
		check_in(answers[0], python_stacks[i]);
	ck_assert_ptr_null(strstr(answers[0], "_PyEval_EvalFrameDefault"));
	/* A saved answer contains the names, too. */
	ck_assert_int_eq(run_stat(2, "leaks --from=saved"), 0);
	for (size_t i = 0; i < LENGTH(python_stacks); i++)
		check_in(answers[2], python_stacks[i]);
}
END_TEST

START_TEST(an_answer_without_room_for_all_sites_is_marked_truncated)
{
	const char *const env[] = {"GPUPOOL_STACKS=8", "PYTHONDONTWRITEBYTECODE=1", NULL};

	play_run(&(struct play){.program = getenv("GPUPOOL_TEST_PYTHON") ?: PYTHON,
		.words = {"-s", SCRIPT_MANY},
		.env = env,
		.preload = play_library,
		.at_pause = show_leaks_once});
	ck_assert_msg(play_status == 0, "expected exit status 0, got %d: %s", play_status, play_err);
	ck_assert_int_eq(run_stat(1, "leaks --from=saved --json | grep -o 'truncated[^,]*'"), 0);
	check_in(answers[1], "true");
}
END_TEST
#endif

static const struct {
	const char *words, *error;
	int code;
} bad_words[] = {
	{"leaks --by=colour", "--by: blocks cannot be grouped by 'colour'.", 2},
	{"leaks --min=much", "--min: 'much' ", 2},
	{"leaks --older=-1", "--older: '-1' is not a number of seconds.", 2},
	{"leaks --watch=0", "--watch: '0' is not a number of seconds from 0.01 to 86400.", 2},
	{"leaks --count=0", "--count: '0' is not a number of answers, from 1.", 2},
	{"leaks --diff=nowhere", "nowhere cannot be read", 1},
	{"leaks --from=nowhere", "nowhere cannot be read", 1},
	{"leaks --from=junk", "junk gave an answer that is not a JSON object.", 1},
	{"leaks --device=0", "leaks does not take --device.", 2},
	{"stacks", "stacks takes PID", 2},
	{"stacks 1 on 2 3 4", "stacks takes PID", 2},
	{"blocks --by=size", "blocks does not take --by.", 2},
	{"leaks", "no gpupool processes", 3},
	{"oom", "no gpupool processes", 3},
};

START_TEST(gpupool_stat_refuses_invalid_arguments_of_leaks_and_stacks)
{
	FILE *junk = fopen("junk", "w");

	ck_assert_ptr_nonnull(junk);
	fputs("[]", junk);
	fclose(junk);
	ck_assert_int_eq(run_stat(0, bad_words[_i].words), bad_words[_i].code);
	check_in(answers[0], bad_words[_i].error);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, each_call_site_is_reported_with_the_blocks_that_it_holds, 0, (int)LENGTH(kinds));
	tcase_add_test(tc, a_stack_of_depth_one_is_the_caller_of_CUDA);
	tcase_add_loop_test(tc, a_stack_of_depth_one_skips_the_CUDA_runtime, 0, 2);
	tcase_add_test(tc, blocks_from_thread_caches_have_call_sites);
	tcase_add_test(tc, a_sample_leaves_out_small_blocks_and_no_large_ones);
	tcase_add_test(tc, stacks_can_be_switched_on_and_off_while_the_program_runs);
	tcase_add_test(tc, invalid_depths_samples_and_ages_are_refused);
	tcase_add_test(tc, a_double_free_is_reported_with_its_three_stacks);
	tcase_add_test(tc, a_double_free_is_recognised_after_the_block_went_back_to_the_driver);
	tcase_add_test(tc, many_wrong_frees_are_all_refused_and_the_first_16_are_logged);
	tcase_add_test(tc, a_fragmentation_report_names_the_blocks_in_the_way);
	tcase_add_loop_test(tc, an_out_of_memory_report_names_the_request_and_its_cause, 0, (int)LENGTH(kinds));
	tcase_add_test(tc, the_report_at_exit_lists_call_sites_that_still_hold_memory);
}

static void add_tool(TCase *tc)
{
	if (!play_stat)
		return;
	tcase_add_test(tc, gpupool_stat_leaks_groups_by_site_library_size_and_age);
	tcase_add_test(tc, gpupool_stat_leaks_compares_with_a_saved_answer);
	tcase_add_test(tc, gpupool_stat_oom_explains_the_last_out_of_memory);
	tcase_add_test(tc, gpupool_stat_oom_says_that_there_was_no_out_of_memory);
	tcase_add_test(tc, gpupool_stat_leaks_shows_wrong_frees_with_functions);
#ifdef PYTHON
	/* The emulator cannot run the machine's own Python. */
	if (!getenv(EMULATOR) || getenv("GPUPOOL_TEST_PYTHON")) {
		tcase_add_test(tc, stacks_of_a_Python_program_contain_its_Python_functions);
		tcase_add_test(tc, an_answer_without_room_for_all_sites_is_marked_truncated);
	}
#endif
	tcase_add_loop_test(tc, gpupool_stat_refuses_invalid_arguments_of_leaks_and_stacks, 0, (int)LENGTH(bad_words));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, (struct play_tests[]){{"sites", add}, {"sites_tool", add_tool}}, 2);
}
