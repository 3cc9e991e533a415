/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Recordings of GPUPOOL_RECORD: their contents for every kind of end of a program, and a replay that must make the same
 * decisions as the process.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "play.h"

static char answer[256 * 1024]; /* output of gpupool-stat */

/* Runs gpupool-stat with the words, and returns its exit code. */
static int run_tool(const char *words, const char *option, const char *file)
{
	char command[1024];
	FILE *out;
	size_t n;
	int status;

	snprintf(command, sizeof(command), "$" EMULATOR " %s %s %s %s 2>messages", play_stat, words, option, file);
	out = popen(command, "r");
	ck_assert_ptr_nonnull(out);
	n = fread(answer, 1, sizeof(answer) - 1, out);
	answer[n] = '\0';
	status = pclose(out);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int replay(const char *file, const char *option)
{
	return run_tool("replay --json", option, file);
}

static void check_replay(const char *file)
{
	char messages[PLAY_OUTPUT_MAX];
	int r = replay(file, "");

	play_read("messages", messages);
	ck_assert_msg(r == 0, "%s", messages);
}

/* Counts the files in the play's directory whose names begin with start, and stores the name of the last. */
static unsigned count_files(const char *start, char name[static 256])
{
	DIR *dir = opendir(play_dir);
	const struct dirent *entry;
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		if (strncmp(entry->d_name, start, strlen(start)) != 0)
			continue;
		snprintf(name, 256, "%s", entry->d_name);
		n++;
	}
	closedir(dir);
	return n;
}

static const char *const recorded[] = {"GPUPOOL_RECORD=rec.%p", "GPUPOOL_LOG=error", NULL};

static const char *const alike[][2] = {
	{"app_memory", "loop"},
	{"app_memory", "pitch"},
	{"app_memory", "pinned"},
	{"app_capture", "bad-ends"},
	{"app_context", "reset"},
	{"app_context", "create"},
	{"app_context", "green"},
	{"app_context", "end-under-threads"},
	{"app_process", "fork-before"},
	{"app_process", "fork-after"},
	{"app_process", "exit"},
	{"app_process", "exit-late"},
	{"app_process", "killed"},
	{"app_process", "moves-away"},
	{"app_threads", "many"},
	{"app_threads", "cut-short"},
	{"app_oom", "capacity"},
	{"app_oom", "managed"},
};

START_TEST(a_recorded_program_behaves_as_without_the_library)
{
	char name[256];

	play_same(&(struct play){.program = alike[_i][0], .words = {alike[_i][1]}, .env = recorded});
	ck_assert_uint_ge(count_files("rec.", name), 1);
	check_replay(name);
}
END_TEST

START_TEST(a_process_that_ends_while_a_thread_starts_the_library_is_recorded)
{
	char name[256];

	play_run(&(struct play){
		.program = "app_threads", .words = {"starting"}, .env = recorded, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "bye\n");
	ck_assert_uint_eq(count_files("rec.", name), 1);
	check_replay(name);
	ck_assert_uint_ge(play_number(answer, "n_allocs"), 10);
}
END_TEST

static char status[64 * 1024];

static void keep_status(const char *name)
{
	if (strcmp(name, "middle") == 0) {
		play_ask("limit set 80MiB");
		play_ask("defer on");
	}
	snprintf(status, sizeof(status), "%s", play_ask("status"));
}

/* All counters, and those that a replay cannot know: the driver's time, and frees of memory that is not allocated. */
static const char *const counters[] = {
#define STAT(name, ...) #name,
#include "pool/stats.def"
};
static const char *const unknown[] = {"driver_ns", "double_frees", "invalid_frees", "release_errors"};

/* The process takes fences to fall asleep. */
static const char *const of_fences[] = {"fence_records", "fence_queries", "polls", "pending_wait_ns"};
static bool has_slept;

static bool is_known(const char *counter)
{
	for (size_t i = 0; i < LENGTH(of_fences) && has_slept; i++)
		if (!strcmp(of_fences[i], counter))
			return false;
	for (size_t i = 0; i < LENGTH(unknown); i++)
		if (!strcmp(unknown[i], counter))
			return false;
	return true;
}

/* Each of these pauses at its end. */
static const char *const scenarios[][3] = {
	{"app_memory", "loop", ""},
	{"app_memory", "frees", ""},
	{"app_oom", "device", ""},
	{"app_oom", "limit", "GPUPOOL_LIMIT=256MiB"},
	{"app_api", "controls", "GPUPOOL_LIMIT=300MiB"},
	{"app_async", "steps", ""},
};
static const char *const kinds[] = {"none", "simple", "binned", "split", "vmm"};
static const char *const settings[] = {
	"GPUPOOL_REUSE=auto", "GPUPOOL_REUSE=completed", "GPUPOOL_SYNC_FREE=1", "SIMGPU_DRIVER_VERSION=12040"};

/* Records a process and replays the recording. Returns the first counter that differs, or NULL. */
static const char *record_and_replay(const char *const scenario[3], const char *const *env, const char *option,
	uint64_t *ret_recorded, uint64_t *ret_replayed)
{
	const char *device, *again;

	ck_assert(!unlink("rec") || errno == ENOENT);
	play_run(&(struct play){.program = scenario[0],
		.words = {scenario[1]},
		.env = env,
		.preload = play_library,
		.at_pause = keep_status});
	ck_assert_int_eq(play_status, 0);
	ck_assert_int_eq(replay("rec", option), 0);
	device = strstr(status, "\"devices\":");
	again = strstr(answer, "\"device\":");
	ck_assert(device && again);
	ck_assert_ptr_nonnull(strstr(answer, "\"has_end\":true"));
	for (size_t i = 0; i < LENGTH(counters); i++) {
		if (!is_known(counters[i]))
			continue;
		*ret_recorded = play_number(device, counters[i]);
		*ret_replayed = play_number(again, counters[i]);
		if (*ret_recorded != *ret_replayed)
			return counters[i];
	}
	*ret_recorded = play_number(device, "peak_total_bytes");
	*ret_replayed = play_number(again, "peak_total_bytes");
	return *ret_recorded == *ret_replayed ? NULL : "peak_total_bytes";
}

/*
 * A thread cache finds the set of a block by its address. A recording of the kind vmm has no addresses, so two blocks
 * can share a set in the process and not in the replay, or the other way round. Each run has other addresses, and such
 * a collision is rare.
 *
 * A wait in stream order has a limit. On a busy machine a wait may reach it, and the clock of the replay has the times
 * of the queries only, so it may make one query more or less then.
 */
START_TEST(a_replay_ends_with_the_counters_of_the_recorded_process)
{
	const char *const *scenario = scenarios[_i % (int)LENGTH(scenarios)];
	const char *kind = kinds[_i / (int)LENGTH(scenarios) % (int)LENGTH(kinds)];
	const char *setting = settings[_i / (int)LENGTH(scenarios) / (int)LENGTH(kinds)];
	unsigned n_tries = strcmp(kind, "vmm") == 0 || strcmp(scenario[0], "app_async") == 0 ? 8 : 1;
	char pool[32], option[32];
	const char *env[] = {"GPUPOOL_RECORD=rec", pool, setting, "GPUPOOL_LOG=off", scenario[2], NULL};
	const char *differing;
	uint64_t recorded_count, replayed_count;

	snprintf(pool, sizeof(pool), "GPUPOOL_POOL=%s", kind);
	snprintf(option, sizeof(option), "--pool=%s", kind);
	do
		differing = record_and_replay(scenario, env, option, &recorded_count, &replayed_count);
	while (differing && --n_tries);
	ck_assert_msg(!differing, "%s %s: %s is %llu in the process, but %llu in the replay", pool, setting, differing,
		(unsigned long long)recorded_count, (unsigned long long)replayed_count);
}
END_TEST

/* Its chunks have other handles after each sleep, and the recording has the names that they had before. */
START_TEST(a_replay_of_a_process_that_slept_ends_with_its_counters)
{
	static const char *const scenario[3] = {"app_sleep", "recorded", ""};
	const char *env[] = {"GPUPOOL_RECORD=rec", "GPUPOOL_POOL=vmm", "GPUPOOL_LOG=off",
		"SIMGPU_LATENCY=cuEventQuery=100000", NULL};
	uint64_t recorded_count, replayed_count, total = 0;
	const char *differing;
	unsigned n_tries = 4;

	has_slept = true;
	do
		differing = record_and_replay(scenario, env, "--pool=vmm", &recorded_count, &replayed_count);
	while (differing && --n_tries);
	ck_assert_msg(!differing, "%s is %llu in the process, but %llu in the replay", differing,
		(unsigned long long)recorded_count, (unsigned long long)replayed_count);
	ck_assert_uint_ge(play_number(strstr(status, "\"sleep\":"), "sleeps"), 3);
	/* Chunks that have slept have gone back in the end, and the recording knows which ones. */
	ck_assert_uint_ge(play_number(strstr(status, "\"devices\":"), "driver_frees"), 1);
	ck_assert_int_eq(run_tool("convert --to=chrome", "", "rec"), 0);
	for (const char *at = answer; (at = strstr(at, "{\"used\":")); at++)
		total = play_number(at, "used") + play_number(at, "unused");
	ck_assert_uint_eq(total, play_number(strstr(status, "\"devices\":"), "total_bytes"));
}
END_TEST

/* Runs a process that pauses at its end, with the kind split, and returns its counters. */
static void run_and_count(const char *const scenario[3], const char *record, uint64_t counts[LENGTH(counters)])
{
	play_run(&(struct play){.program = scenario[0],
		.words = {scenario[1]},
		.env = (const char *const[]){"GPUPOOL_POOL=split", "GPUPOOL_LOG=off", record, scenario[2], NULL},
		.preload = play_library,
		.at_pause = keep_status});
	ck_assert_int_eq(play_status, 0);
	for (size_t i = 0; i < LENGTH(counters); i++)
		counts[i] = play_number(strstr(status, "\"devices\":"), counters[i]);
}

/*
 * A recording changes neither what thread caches keep nor the number of fences. The counters are comparable only for
 * programs that wait for their GPU work before the next allocation.
 */
static const unsigned deterministic[] = {1, 3};

START_TEST(recording_does_not_change_the_counters_of_a_process)
{
	const char *const *scenario = scenarios[deterministic[_i]];
	uint64_t plain[LENGTH(counters)], seen[LENGTH(counters)];

	run_and_count(scenario, "GPUPOOL_RECORD=", plain);
	run_and_count(scenario, "GPUPOOL_RECORD=rec", seen);
	for (size_t i = 0; i < LENGTH(counters); i++)
		if (strcmp(counters[i], "driver_ns") != 0)
			ck_assert_msg(plain[i] == seen[i], "%s: %llu without a recording, %llu with one", counters[i],
				(unsigned long long)plain[i], (unsigned long long)seen[i]);
}
END_TEST

/* Threads take turns in an order that a recording shows only approximately. */
START_TEST(a_replay_of_many_threads_frees_every_block)
{
	char name[256];

	play_run(&(struct play){.program = "app_threads", .words = {"many"}, .env = recorded, .preload = play_library});
	ck_assert_uint_eq(count_files("rec.", name), 1);
	ck_assert_int_eq(replay(name, "--pool=split"), 0);
	ck_assert_uint_eq(play_number(answer, "n_threads"), 17);
	ck_assert_uint_eq(play_number(answer, "n_allocs"), play_number(answer, "n_frees"));
	ck_assert_uint_eq(play_number(answer, "n_foreign_frees"), 0);
	ck_assert_uint_eq(play_number(strstr(answer, "\"device\":"), "used_bytes"), 0);
}
END_TEST

START_TEST(parent_and_forked_child_write_separate_recordings)
{
	char name[256];

	play_run(&(struct play){
		.program = "app_process", .words = {"fork-before"}, .env = recorded, .preload = play_library});
	ck_assert_uint_eq(count_files("rec.", name), 2);
	ck_assert_int_eq(replay(name, ""), 0);
	ck_assert_uint_eq(play_number(answer, "pid"), strtoull(name + strlen("rec."), NULL, 10));
	ck_assert_uint_eq(play_number(answer, "n_allocs"), 16);
}
END_TEST

/* Checks that there is one message, with the full name of the file. */
static void check_logged_once(const char *why)
{
	ck_assert_ptr_nonnull(strstr(play_err, "gpupool["));
	ck_assert_ptr_nonnull(strstr(play_err, "warn: GPUPOOL_RECORD: "));
	ck_assert_ptr_nonnull(strstr(play_err, ": cannot write /"));
	ck_assert_msg(strstr(play_err, why), "expected '%s' in: %s", why, play_err);
	ck_assert_ptr_null(strchr(strchr(play_err, '\n') + 1, '\n'));
}

START_TEST(each_rank_of_a_job_writes_separate_recordings_logs_and_reports)
{
	static const char *const ranks[] = {"PMI_RANK=0", "PMI_RANK=1", ""};
	static const char *const made[] = {"rec.8812.0", "rec.8812.1", "rec.8812.no-rank"};
	char name[256];

	for (size_t i = 0; i < LENGTH(ranks); i++)
		play_run(&(struct play){.program = "app_memory",
			.words = {"loop"},
			.env = (const char *const[]){"GPUPOOL_RECORD=rec.%j.%r", "GPUPOOL_LOG_FILE=log.%j.%r",
				"GPUPOOL_LOG=info", "GPUPOOL_REPORT=exit:end.%j.%r", "SLURM_JOB_ID=8812", ranks[i],
				NULL},
			.preload = play_library});
	for (size_t i = 0; i < LENGTH(made); i++) {
		ck_assert_uint_eq(count_files(made[i], name), 1);
		ck_assert_int_eq(replay(made[i], ""), 0);
		ck_assert_uint_eq(play_number(answer, "n_allocs"), 1511);
	}
	ck_assert_uint_eq(count_files("log.8812.", name), 3);
	ck_assert_uint_eq(count_files("end.8812.", name), 3);
}
END_TEST

/* A name without a process id is the same for parent and child. The first of them to allocate gets the file. */
START_TEST(a_second_process_does_not_overwrite_a_recording_of_the_same_name)
{
	char name[256];

	play_run(&(struct play){.program = "app_process",
		.words = {"fork-before"},
		.env = (const char *const[]){"GPUPOOL_RECORD=rec.%r", NULL},
		.preload = play_library});
	ck_assert_int_eq(play_status, 0);
	check_logged_once("it exists, and is not overwritten");
	ck_assert_uint_eq(count_files("rec.", name), 1);
	ck_assert_str_eq(name, "rec.no-rank");
	ck_assert_int_eq(replay(name, ""), 0);
	ck_assert_ptr_nonnull(strstr(answer, "\"has_end\":true"));
	ck_assert_uint_eq(play_number(answer, "n_allocs"), 16);
}
END_TEST

START_TEST(a_forked_child_does_not_write_into_its_parents_recording)
{
	char name[256];

	play_run(&(struct play){
		.program = "app_process", .words = {"fork-after"}, .env = recorded, .preload = play_library});
	ck_assert_uint_eq(count_files("rec.", name), 1);
	ck_assert_int_eq(replay(name, "--pool=split"), 0);
	ck_assert_ptr_nonnull(strstr(answer, "\"has_end\":true"));
	ck_assert_uint_eq(play_number(answer, "n_allocs"), play_number(answer, "n_frees"));
}
END_TEST

static const struct {
	const char *scenario;
	bool has_end;
	uint64_t least_allocs;
} endings[] = {
	{"exit", true, 33},
	{"exit-late", true, 4},
	{"killed", false, 1000},
	{"moves-away", true, 8000},
};

START_TEST(a_recording_can_be_read_however_its_process_ends)
{
	char name[256];

	play_run(&(struct play){
		.program = "app_process", .words = {endings[_i].scenario}, .env = recorded, .preload = play_library});
	ck_assert_uint_eq(count_files("rec.", name), 1);
	ck_assert_int_eq(replay(name, ""), 0);
	ck_assert_int_eq(strstr(answer, "\"has_end\":true") != NULL, endings[_i].has_end);
	ck_assert_uint_ge(play_number(answer, "n_allocs"), endings[_i].least_allocs);
}
END_TEST

START_TEST(a_recording_that_is_cut_anywhere_can_be_read_up_to_the_cut)
{
	uint64_t allocs, last = 0;
	struct stat file;

	play_run(&(struct play){.program = "app_memory",
		.words = {"loop"},
		.env = (const char *const[]){"GPUPOOL_RECORD=rec", NULL},
		.preload = play_library});
	ck_assert_int_eq(stat("rec", &file), 0);
	ck_assert_int_eq(file.st_mode & 0777, 0600);
	ck_assert_int_eq(replay("rec", "--pool=split"), 0);
	allocs = play_number(answer, "n_allocs");
	for (off_t size = file.st_size - 1; size > 500; size -= 1 + size / 20) {
		ck_assert_int_eq(truncate("rec", size), 0);
		ck_assert_int_eq(replay("rec", "--pool=split"), 0);
		last = play_number(answer, "n_allocs");
		ck_assert_uint_le(last, allocs);
		ck_assert_ptr_null(strstr(answer, "\"has_end\":true"));
		allocs = last;
	}
	ck_assert_uint_lt(last, 100);
}
END_TEST

static void make_file(void)
{
	int fd = open("rec", O_WRONLY | O_CREAT, 0600);

	ck_assert_int_eq(write(fd, "mine", 4), 4);
	close(fd);
}

static void make_link(void)
{
	ck_assert_int_eq(symlink("other", "rec"), 0);
}

static void make_fifo(void)
{
	ck_assert_int_eq(mkfifo("rec", 0600), 0);
}

static void make_nothing(void)
{
}

static const struct {
	const char *env;
	void (*make)(void);
	const char *why;
} refused[] = {
	{"GPUPOOL_RECORD=rec", make_file, "rec: it exists, and is not overwritten"},
	{"GPUPOOL_RECORD=rec", make_link, "rec: it exists, and is not overwritten"},
	{"GPUPOOL_RECORD=rec", make_fifo, "rec: it exists, and is not overwritten"},
	{"GPUPOOL_RECORD=nowhere/rec", make_nothing, "nowhere/rec: its directory does not exist"},
	{"GPUPOOL_RECORD=/proc/rec", make_nothing, "/proc/rec: its directory does not exist"},
};

START_TEST(a_recording_that_cannot_be_created_is_logged_once_and_the_program_runs)
{
	struct stat file;

	refused[_i].make();
	play_run(&(struct play){.program = "app_memory",
		.words = {"loop"},
		.env = (const char *const[]){refused[_i].env, NULL},
		.preload = play_library});
	check_logged_once(refused[_i].why);
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "allocs 1511, wrong bytes 0\n");
	ck_assert_int_ne(stat("other", &file), 0);
	if (refused[_i].make == make_file)
		ck_assert(stat("rec", &file) == 0 && file.st_size == 4);
}
END_TEST

START_TEST(a_full_disk_ends_the_recording_and_not_the_program)
{
	play_run(&(struct play){.program = "app_process",
		.words = {"full-disk"},
		.env = (const char *const[]){"GPUPOOL_RECORD=rec", NULL},
		.preload = play_library});
	check_logged_once("the disk is full");
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "done\n");
	ck_assert_int_eq(replay("rec", "--pool=split"), 0);
	ck_assert_uint_ge(play_number(answer, "n_allocs"), 1000);
}
END_TEST

START_TEST(no_recording_is_written_without_a_name_without_CUDA_or_with_GPUPOOL_off)
{
	char name[256];

	play_run(&(struct play){.program = "app_memory", .words = {"loop"}, .preload = play_library});
	ck_assert_uint_eq(count_files("rec", name), 0);
	play_run(&(struct play){.program = "/bin/true",
		.env = (const char *const[]){"GPUPOOL_RECORD=rec", NULL},
		.preload = play_library});
	ck_assert_uint_eq(count_files("rec", name), 0);
	play_run(&(struct play){.program = "app_memory",
		.words = {"loop"},
		.env = (const char *const[]){"GPUPOOL_RECORD=rec", "GPUPOOL=off", NULL},
		.preload = play_library});
	ck_assert_uint_eq(count_files("rec", name), 0);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_recorded_program_behaves_as_without_the_library, 0, (int)LENGTH(alike));
	/* Without a wait at exit, the thread is too late in two of three runs. */
	tcase_add_loop_test(tc, a_process_that_ends_while_a_thread_starts_the_library_is_recorded, 0, 5);
	tcase_add_loop_test(tc, a_replay_ends_with_the_counters_of_the_recorded_process, 0,
		(int)(LENGTH(scenarios) * LENGTH(kinds) * LENGTH(settings)));
	tcase_add_test(tc, a_replay_of_a_process_that_slept_ends_with_its_counters);
	tcase_add_loop_test(tc, recording_does_not_change_the_counters_of_a_process, 0, (int)LENGTH(deterministic));
	tcase_add_test(tc, a_replay_of_many_threads_frees_every_block);
	tcase_add_test(tc, parent_and_forked_child_write_separate_recordings);
	tcase_add_test(tc, each_rank_of_a_job_writes_separate_recordings_logs_and_reports);
	tcase_add_test(tc, a_second_process_does_not_overwrite_a_recording_of_the_same_name);
	tcase_add_test(tc, a_forked_child_does_not_write_into_its_parents_recording);
	tcase_add_loop_test(tc, a_recording_can_be_read_however_its_process_ends, 0, (int)LENGTH(endings));
	tcase_add_test(tc, a_recording_that_is_cut_anywhere_can_be_read_up_to_the_cut);
	tcase_add_loop_test(
		tc, a_recording_that_cannot_be_created_is_logged_once_and_the_program_runs, 0, (int)LENGTH(refused));
	tcase_add_test(tc, a_full_disk_ends_the_recording_and_not_the_program);
	tcase_add_test(tc, no_recording_is_written_without_a_name_without_CUDA_or_with_GPUPOOL_off);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"record", add}, 1);
}
