/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* gpupool-run --compare, on commands without CUDA. tests/preload/test_preload_summary.c has those with CUDA. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test_run.h"
#include "tests/suite.h"

/* Returns the text of a row of the table behind its label, up to the end of the line. */
static const char *row_of(const char *label)
{
	static char row[256];
	char wanted[64];
	const char *at;

	snprintf(wanted, sizeof(wanted), "\n%-23s", label);
	at = strstr(run_out, wanted);
	ck_assert_msg(at, "expected a row '%s' in: %s", label, run_out);
	at += strlen(wanted);
	snprintf(row, sizeof(row), "%.*s", (int)strcspn(at, "\n"), at);
	return row;
}

static void check_row(const char *label, const char *wanted)
{
	const char *row = row_of(label);

	row += strspn(row, " ");
	ck_assert_msg(!strcmp(row, wanted), "expected '%s' as '%s' in: %s", wanted, label, run_out);
}

static void check_start(const char *text, const char *start)
{
	ck_assert_msg(!strncmp(text, start, strlen(start)), "expected '%s' at the start of: %s", start, text);
}

START_TEST(the_table_has_a_column_for_each_pool_type)
{
	ck_assert_int_eq(RUN("--compare=split,vmm,none", "sh", "-c", "echo a"), 0);
	ck_assert_str_eq(run_err, "");
	check_start(
		run_out, "                        without gpupool           split             vmm            none\n");
	check_row("exit status", "0               0               0               0");
	check_row("output", "2 bytes        the same        the same        the same");
	check_row("allocations", "-               0               0               0");
	run_check_in(run_out, "\nOne run each, ");
	/* There is no NVML in the paths of this test, or one without the devices of this test. */
	run_check_in(run_out, "peak");
}
END_TEST

START_TEST(a_run_that_takes_longer_is_shown_with_how_many_times_as_long)
{
	ck_assert_int_eq(RUN("--compare=split", "sh", "-c", "test -z \"$LD_PRELOAD\" || sleep 0.3"), 0);
	ck_assert_msg(!strstr(row_of(""), " 0.") && strstr(row_of(""), "x as long"), "%s", run_out);
	/* Between a tenth of the speed and the same. */
	ck_assert_int_eq(RUN("--compare=split", "sh", "-c", "test -z \"$LD_PRELOAD\" || sleep 0.5; sleep 0.1"), 0);
	ck_assert_msg(!strstr(row_of(""), " 0.") && strstr(row_of(""), "x as long"), "%s", run_out);
}
END_TEST

START_TEST(a_comparison_of_two_pool_types_fits_into_80_columns)
{
	ck_assert_int_eq(RUN("--compare=split,vmm", "true"), 0);
	for (const char *line = run_out; *line; line += strcspn(line, "\n") + 1)
		ck_assert_msg(strcspn(line, "\n") <= 80, "wider than 80 columns: %s", line);
}
END_TEST

START_TEST(the_configured_pool_type_is_compared_by_default)
{
	ck_assert_int_eq(RUN("--compare", "--pool=vmm", "true"), 0);
	check_start(run_out, "                        without gpupool             vmm\n");
	ck_assert_int_eq(RUN("--compare", "true"), 0);
	check_start(run_out, "                        without gpupool           split\n");
}
END_TEST

START_TEST(the_first_run_has_no_library_and_the_others_have_their_pool_type)
{
	setenv("LD_PRELOAD", "/elsewhere/libgpupool.so", 1);
	setenv("GPUPOOL_LIMIT", "1GiB", 1);
	ck_assert_int_eq(RUN("-q", "--regions=nvtx", "--limit=2GiB", "--compare=binned", "sh", "-c",
				 "echo \"$LD_PRELOAD,$NVTX_INJECTION64_PATH,$GPUPOOL_POOL,$GPUPOOL_LIMIT\" >>seen"),
		0);
	unsetenv("LD_PRELOAD");
	run_read_text("seen", run_out);
	check_start(run_out, ",,,1GiB\n/tmp/gpupool-run-");
	run_check_in(run_out, "libgpupool.so,/tmp/gpupool-run-");
	run_check_in(run_out, "libgpupool.so,binned,2GiB\n");
}
END_TEST

START_TEST(other_preloaded_libraries_stay_in_the_first_run)
{
	run_make_library("other.so");
	setenv("LD_PRELOAD", "./other.so", 1);
	ck_assert_int_eq(RUN("-q", "--compare=split", "sh", "-c", "echo \"$LD_PRELOAD\" >>seen"), 0);
	unsetenv("LD_PRELOAD");
	run_read_text("seen", run_out);
	check_start(run_out, "./other.so\n");
}
END_TEST

START_TEST(a_difference_of_the_output_is_shown_with_its_line)
{
	ck_assert_int_eq(RUN("--compare=split,none", "sh", "-c", "echo same; echo \"a$GPUPOOL_POOL\"; echo end"), 1);
	check_row("output", "11 bytes       DIFFERENT       DIFFERENT");
	run_check_in(run_out, "The output with split differs from line 2 on:\n"
			      "    without gpupool  a\n"
			      "    split            asplit\n");
	run_check_in(run_out, "    none             anone\n");
}
END_TEST

static const struct {
	const char *script; /* prints nothing without gpupool */
	const char *lines;
} outputs[] = {
	{"test -z $GPUPOOL_POOL || echo x", "line 1 on:\n    without gpupool  (nothing)\n    split            x\n"},
	{"printf 'a\\n'; test -z $GPUPOOL_POOL || printf 'b'",
		"line 2 on:\n    without gpupool  (nothing)\n    split            b\n"},
	{"printf 'a'; test -z $GPUPOOL_POOL || printf '\\033[2J'",
		"line 1 on:\n    without gpupool  a\n    split            a?[2J\n"},
	{"head -c 70000 /dev/zero; test -z $GPUPOOL_POOL || echo; echo", "line 2 on:\n"},
};

START_TEST(outputs_of_any_kind_are_compared)
{
	ck_assert_int_eq(RUN("--compare=split", "sh", "-c", outputs[_i].script), 1);
	run_check_in(run_out, outputs[_i].lines);
}
END_TEST

START_TEST(a_failing_run_is_reported_with_the_end_of_its_messages)
{
	ck_assert_int_eq(RUN("--compare=split", "sh", "-c", "seq 20 >&2; test -z $GPUPOOL_POOL || exit 3"), 1);
	check_start(run_err, "gpupool-run: sh with split ended with exit status 3.\n    11\n");
	check_row("exit status", "0               3");
	ck_assert_int_eq(RUN("--compare=split", "sh", "-c", "kill -9 $$"), 1);
	run_check_in(run_err, "gpupool-run: sh without gpupool ended with signal 9 (Killed).\n");
	check_row("exit status", "signal 9        signal 9");
}
END_TEST

START_TEST(a_command_that_cannot_be_started_is_not_compared)
{
	ck_assert_int_eq(RUN("--compare", "no-such-program"), 127);
	ck_assert_str_eq(run_out, "");
	run_write_text("script", "#!/nonexistent\n");
	ck_assert_int_eq(RUN("--compare", "./script"), 127);
	ck_assert_str_eq(run_out, "");
}
END_TEST

static const struct {
	const char *words[RUN_WORDS];
	const char *err;
} refused[] = {
	{{"--compare=split,big", "true"}, "gpupool-run: --compare: 'split,big' is not one of its values\n"
					  "            --compare=split,big\n"
					  "                            ^  none|simple|binned|split|vmm|auto\n"},
	{{"--compare=", "true"}, "gpupool-run: --compare: '' is not one of its values\n"},
	{{"--compare=split,", "true"}, "gpupool-run: --compare: 'split,' is not one of its values\n"},
	{{"--compare=a-word-that-is-longer-than-every-type", "true"}, "' is not one of its values\n"},
	{{"--compare=vmm,vmm,vmm,vmm,vmm,vmm", "true"}, "' has too many pool types\n"},
	{{"--compare", "--print-env"}, "gpupool-run: --compare and --print-env exclude each other.\n"},
	{{"--compare"}, "there is no CMD to start"},
	{{"--compare", "--enable=off", "true"}, "gpupool-run: --compare needs gpupool, which is switched off.\n"},
	{{"--compare", "--record=rec", "true"},
		"gpupool-run: --compare runs CMD several times, which cannot all record to rec.\n"},
};

START_TEST(a_comparison_that_cannot_work_is_refused)
{
	ck_assert_int_eq(run_launcher(refused[_i].words), 2);
	run_check_in(run_err, refused[_i].err);
	ck_assert_str_eq(run_out, "");
}
END_TEST

START_TEST(each_run_has_the_same_input_if_it_is_a_file)
{
	ck_assert_int_eq(system("seq 3 >in"), 0);
	ck_assert_int_eq(dup2(open("in", O_RDONLY | O_CLOEXEC), STDIN_FILENO), STDIN_FILENO);
	ck_assert_int_eq(lseek(STDIN_FILENO, 2, SEEK_SET), 2);
	ck_assert_int_eq(RUN("--compare=split,vmm", "sh", "-c", "cat; cat >>seen </dev/null"), 0);
	check_row("output", "4 bytes        the same        the same");
}
END_TEST

START_TEST(the_runs_have_no_input_if_it_is_not_a_file)
{
	int ends[2];

	/* Reading from this pipe would never end. */
	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
	ck_assert_int_eq(RUN("--compare=split", "cat"), 0);
	check_row("output", "0 bytes        the same");
}
END_TEST

START_TEST(no_file_stays_behind)
{
	setenv("TMPDIR", run_directory, 1);
	ck_assert_int_eq(RUN("--compare=split", "sh", "-c", "echo a; echo b >&2"), 0);
	ck_assert_int_eq(system("test $(ls | wc -l) = 3"), 0); /* libgpupool.so, out and err */
	setenv("TMPDIR", "/nonexistent", 1);
	ck_assert_int_eq(RUN("--compare=split", "true"), 125);
	run_check_in(
		run_err, "gpupool-run: cannot make a temporary file in /nonexistent: No such file or directory.\n");
}
END_TEST

static const struct {
	int signals[2];
	const char *script; /* writes a line to the fifo once it can be interrupted */
} interruptions[] = {
	{{SIGINT, 0}, "echo >fifo; sleep 1000"},
	{{SIGTERM, 0}, "sleep 1000 & echo >fifo; wait"},
	{{SIGHUP, 0}, "echo >fifo; sleep 1000"},
	{{SIGTERM, SIGINT}, "trap '' TERM INT; echo >fifo; sleep 1000"},
	{{SIGTERM, 0}, "trap '' TERM; echo >fifo; sleep 1000"},
};

START_TEST(an_interrupt_ends_the_comparison_with_all_processes_of_the_command)
{
	const char *words[] = {
		run_path, "--library=libgpupool.so", "--compare=split", "sh", "-c", interruptions[_i].script, NULL};
	char group[64];
	int status, fd, held[2];
	pid_t pid;
	char c;

	ck_assert_int_eq(system("mkfifo fifo"), 0);
	/* Every process that the comparison starts has the write end of this pipe. */
	ck_assert_int_eq(pipe(held), 0);
	ck_assert_int_eq(fcntl(held[0], F_SETFD, FD_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		dup2(open("out", O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDOUT_FILENO);
		dup2(open("err", O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDERR_FILENO);
		execv(words[0], (char *const *)words);
		_exit(99);
	}
	close(held[1]);
	fd = open("fifo", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(read(fd, group, 1), 1);
	for (int i = 0; i < 2 && interruptions[_i].signals[i]; i++)
		kill(pid, interruptions[_i].signals[i]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status), "status 0x%x", status);
	ck_assert_int_eq(read(held[0], &c, 1), 0);
	run_read_text("out", run_out);
	ck_assert_str_eq(run_out, "");
}
END_TEST

/* The kernel may stop a process later than the call that asks for it. */
static void await_stop(pid_t pid)
{
	const struct timespec ms = {.tv_nsec = 1000000};
	char path[64], state[256] = "";

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	for (int i = 0; i < 20000 && !strstr(state, ") T "); i++) {
		FILE *stat = fopen(path, "r");

		ck_assert_ptr_nonnull(stat);
		ck_assert_ptr_nonnull(fgets(state, sizeof(state), stat));
		fclose(stat);
		nanosleep(&ms, NULL);
	}
	run_check_in(state, ") T ");
}

START_TEST(a_comparison_stops_and_goes_on_with_the_command)
{
	const char *words[] = {
		run_path, "--library=libgpupool.so", "--compare=split", "sh", "-c", "echo $$ >fifo; read x <go", NULL};
	char text[32] = "";
	int status, fifo, go;
	pid_t pid;

	ck_assert_int_eq(system("mkfifo fifo go"), 0);
	go = open("go", O_RDWR | O_CLOEXEC);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		dup2(open("out", O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDOUT_FILENO);
		execv(words[0], (char *const *)words);
		_exit(99);
	}
	fifo = open("fifo", O_RDWR | O_CLOEXEC);
	ck_assert_int_gt(read(fifo, text, sizeof(text) - 1), 0);
	kill(pid, SIGTSTP);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert_msg(WIFSTOPPED(status), "status 0x%x", status);
	await_stop(atoi(text));
	kill(pid, SIGCONT);
	ck_assert_int_eq(write(go, "\n\n", 2), 2);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status 0x%x", status);
}
END_TEST

void run_add_compare_tests(TCase *tc)
{
	tcase_add_test(tc, the_table_has_a_column_for_each_pool_type);
	tcase_add_test(tc, a_comparison_of_two_pool_types_fits_into_80_columns);
	tcase_add_test(tc, the_configured_pool_type_is_compared_by_default);
	tcase_add_test(tc, a_run_that_takes_longer_is_shown_with_how_many_times_as_long);
	tcase_add_test(tc, the_first_run_has_no_library_and_the_others_have_their_pool_type);
	tcase_add_test(tc, other_preloaded_libraries_stay_in_the_first_run);
	tcase_add_test(tc, a_difference_of_the_output_is_shown_with_its_line);
	ADD_ROWS(tc, outputs, outputs_of_any_kind_are_compared);
	tcase_add_test(tc, a_failing_run_is_reported_with_the_end_of_its_messages);
	tcase_add_test(tc, a_command_that_cannot_be_started_is_not_compared);
	ADD_ROWS(tc, refused, a_comparison_that_cannot_work_is_refused);
	tcase_add_test(tc, each_run_has_the_same_input_if_it_is_a_file);
	tcase_add_test(tc, the_runs_have_no_input_if_it_is_not_a_file);
	tcase_add_test(tc, no_file_stays_behind);
	tcase_add_test(tc, a_comparison_stops_and_goes_on_with_the_command);
	ADD_ROWS(tc, interruptions, an_interrupt_ends_the_comparison_with_all_processes_of_the_command);
}
