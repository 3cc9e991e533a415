/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The summary of gpupool-run, for which CMD is its child: exit status, signals, job control and terminals are as
 * without it. The library of these tests does nothing, so no process has figures.
 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_run.h"
#include "tests/suite.h"

#define NO_CUDA ") but saw no CUDA\n"

/* Descriptors of CMD: it writes to the first one when it is ready, and reads from the second one. */
enum { READY_FD = 3, GO_FD = 4 };

static int ready_fd, go_fd; /* the other ends */

/* Starts gpupool-run in a process group of its own. Its output goes to the files "out" and "err". */
static pid_t start(const char *const *words)
{
	const char *all[RUN_WORDS + 3] = {run_path, "--library=libgpupool.so"};
	int ready[2], go[2];
	pid_t pid;

	for (size_t i = 0; i < RUN_WORDS && words[i]; i++)
		all[i + 2] = words[i];
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		setpgid(0, 0);
		dup2(open("out", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDOUT_FILENO);
		dup2(open("err", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDERR_FILENO);
		dup2(ready[1], 10);
		dup2(go[0], 11);
		dup2(10, READY_FD);
		dup2(11, GO_FD);
		close(10);
		close(11);
		execv(all[0], (char *const *)all);
		_exit(99);
	}
	close(ready[1]);
	close(go[0]);
	ready_fd = ready[0];
	go_fd = go[1];
	return pid;
}
#define START(...) start((const char *const[RUN_WORDS]){__VA_ARGS__})

static void await_ready(void)
{
	char c;

	ck_assert_int_eq(read(ready_fd, &c, 1), 1);
}

static void let_go(void)
{
	ck_assert_int_eq(write(go_fd, "\n", 1), 1);
}

/* Returns the status of the process at its end, or at its stop. */
static int await_status(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	run_read_text("out", run_out);
	run_read_text("err", run_err);
	return status;
}

static void check_exit(pid_t pid, int wanted)
{
	int status = await_status(pid);

	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == wanted, "expected exit status %d, got 0x%x: %s",
		wanted, status, run_err);
}

START_TEST(a_process_without_cuda_gets_one_line)
{
	ck_assert_int_eq(RUN("--summary", "sh", "-c", "echo a; exit 42"), 42);
	ck_assert_str_eq(run_out, "a\n");
	ck_assert_int_eq(strncmp(run_err, "gpupool was loaded into sh (process ", 36), 0);
	ck_assert_str_eq(strchr(run_err, ')'), NO_CUDA);
}
END_TEST

static const struct {
	const char *words[RUN_WORDS];
	bool has_summary;
} choices[] = {
	{{"true"}, false},
	{{"--summary", "true"}, true},
	{{"--summary=on", "true"}, true},
	{{"--summary=off", "true"}, false},
	{{"--summary", "--summary=off", "true"}, false},
	{{"-q", "true"}, false},
	{{"-q", "--summary", "true"}, true},
	{{"--summary", "-q", "true"}, true},
	{{"--enable=off", "--summary", "true"}, false},
};

START_TEST(the_summary_is_printed_where_it_was_requested)
{
	ck_assert_int_eq(run_launcher(choices[_i].words), 0);
	ck_assert_str_eq(run_err[0] ? strchr(run_err, ')') : "", choices[_i].has_summary ? NO_CUDA : "");
}
END_TEST

START_TEST(a_wrong_value_of_summary_is_refused)
{
	ck_assert_int_eq(RUN("--summary=maybe", "true"), 2);
	ck_assert_str_eq(run_err, "gpupool-run: --summary: 'maybe' is neither on nor off\n"
				  "            --summary=maybe\n"
				  "                      ^  use on or off\n");
}
END_TEST

START_TEST(a_program_that_cannot_be_started_has_no_summary)
{
	run_write_text("empty", "#!/nonexistent\n");
	ck_assert_int_eq(RUN("--summary", "./no-such-program"), 127);
	ck_assert_ptr_null(strstr(run_err, "CUDA"));
	/* The loader of this program does not exist, which only execve() finds out. */
	ck_assert_int_eq(RUN("--summary", "./empty"), 127);
	ck_assert_ptr_null(strstr(run_err, "saw no CUDA"));
}
END_TEST

static const int fatal[] = {SIGTERM, SIGKILL, SIGSEGV, SIGINT, SIGHUP, SIGUSR1, SIGPIPE, SIGABRT};

START_TEST(a_command_that_a_signal_ended_ends_gpupool_run_by_the_same_signal)
{
	char script[32];
	int status;

	snprintf(script, sizeof(script), "kill -%d $$", fatal[_i]);
	status = await_status(START("--summary", "sh", "-c", script));
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == fatal[_i], "expected signal %d, got 0x%x", fatal[_i],
		status);
	run_check_in(run_err, NO_CUDA);
}
END_TEST

/* The command writes to the pipe as long as it lives, so the pipe has an end once it has ended. */
static const char waits[] = "echo >&3; read x <&4; exit 8";

START_TEST(a_signal_sent_to_gpupool_run_reaches_the_command)
{
	pid_t pid = START("--summary", "sh", "-c", waits);
	int status;

	await_ready();
	kill(pid, fatal[_i]);
	status = await_status(pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == fatal[_i], "expected signal %d, got 0x%x", fatal[_i],
		status);
	/* SIGKILL cannot be passed on. The kernel ends the command then. */
	ck_assert_int_eq(read(ready_fd, &(char){0}, 1), 0);
}
END_TEST

static const int stops[] = {SIGSTOP, SIGTSTP, SIGTTIN};

START_TEST(gpupool_run_stops_and_goes_on_with_the_command)
{
	char script[64];
	pid_t pid;
	int status;

	snprintf(script, sizeof(script), "kill -%d $$; kill -%d $$; exit 7", stops[_i], stops[_i]);
	pid = START("--summary", "sh", "-c", script);
	for (int i = 0; i < 2; i++) {
		status = await_status(pid);
		ck_assert_msg(WIFSTOPPED(status) && WSTOPSIG(status) == stops[_i], "expected a stop by %d, got 0x%x",
			stops[_i], status);
		ck_assert_str_eq(run_err, "");
		kill(pid, SIGCONT);
	}
	check_exit(pid, 7);
	run_check_in(run_err, NO_CUDA);
}
END_TEST

START_TEST(a_stop_and_a_continuation_of_the_whole_group_work_as_in_a_shell)
{
	pid_t pid = START("--summary", "sh", "-c", waits);
	int status;

	await_ready();
	kill(-pid, SIGTSTP);
	status = await_status(pid);
	ck_assert_msg(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP, "expected a stop, got 0x%x", status);
	kill(-pid, SIGCONT);
	let_go();
	check_exit(pid, 8);
}
END_TEST

START_TEST(a_reader_notices_that_the_command_has_closed_its_output)
{
	pid_t pid;
	int out[2];

	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	/* start() replaces descriptor 1 by a file, so the pipe gets another number. */
	ck_assert_int_eq(dup2(out[1], 7), 7);
	pid = START("--summary", "sh", "-c", "exec 7>&-; echo >&3; read x <&4; exit 8");
	close(7);
	close(out[1]);
	await_ready();
	ck_assert_int_eq(read(out[0], &(char){0}, 1), 0);
	let_go();
	check_exit(pid, 8);
}
END_TEST

START_TEST(the_command_has_the_standard_input_of_gpupool_run)
{
	ck_assert_int_eq(system("seq 3 >in"), 0);
	ck_assert_int_eq(dup2(open("in", O_RDONLY | O_CLOEXEC), STDIN_FILENO), STDIN_FILENO);
	ck_assert_int_eq(RUN("--summary", "sh", "-c", "read a; echo $a"), 0);
	ck_assert_str_eq(run_out, "1\n");
}
END_TEST

START_TEST(the_command_has_the_signal_settings_that_gpupool_run_was_started_with)
{
	static char without[RUN_OUTPUT_SIZE];
	sigset_t blocked;

	signal(SIGCHLD, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	for (int i = 0; i < 2; i++) {
		pid_t pid = START(i ? "--summary" : "-q", "grep", "^Sig[BIC]", "/proc/self/status");
		int status;

		/* The kernel keeps no status for a process that ignores SIGCHLD. */
		ck_assert_int_eq(waitpid(pid, &status, 0), -1);
		ck_assert_int_eq(errno, ECHILD);
		run_read_text("out", run_out);
		if (!i)
			strcpy(without, run_out);
	}
	signal(SIGCHLD, SIG_DFL);
	run_check_in(without, "SigIgn:");
	ck_assert_str_eq(run_out, without);
}
END_TEST

START_TEST(the_exit_status_is_right_even_if_sigchld_is_ignored)
{
	const char *words[] = {"/bin/sh", "-c",
		"trap '' CHLD; \"$0\" --library=libgpupool.so --summary sh -c 'exit 6'; echo $?", run_path, NULL};
	ck_assert_int_eq(run_execute(words), 0);
	ck_assert_str_eq(run_out, "6\n");
}
END_TEST

START_TEST(gpupool_run_does_not_wait_for_daemons_of_the_command)
{
	pid_t pid = START("--summary", "sh", "-c", "sh -c 'read x <&4; echo >&3' >&- 2>&- & exit 3");

	check_exit(pid, 3);
	run_check_in(run_err, NO_CUDA);
	let_go();
	await_ready();
}
END_TEST

/* The command: counts the signals SIGINT until a line arrives. */
static _Atomic int n_signals;

static void count(int signal_number)
{
	n_signals++;
}

int run_count_signals(void)
{
	const struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
	char line[16];

	sigaction(SIGINT, &action, NULL);
	printf("ready %d\n", isatty(STDIN_FILENO));
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	printf("count %d\n", n_signals);
	return 0;
}

/* Starts gpupool-run with a terminal of its own. Returns the other end of it. */
static int start_on_terminal(const char *const *words, pid_t *ret_pid)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	ck_assert_int_ge(master, 0);
	ck_assert_int_eq(grantpt(master), 0);
	ck_assert_int_eq(unlockpt(master), 0);
	*ret_pid = fork();
	ck_assert_int_ge(*ret_pid, 0);
	if (*ret_pid == 0) {
		int fd;

		setsid();
		fd = open(ptsname(master), O_RDWR);
		ioctl(fd, TIOCSCTTY, 0);
		for (int i = 0; i < 3; i++)
			dup2(fd, i);
		execv(words[0], (char *const *)words);
		_exit(99);
	}
	return master;
}

/* Reads from the terminal until a text has appeared, or the last process has closed it. Appends to run_out. */
static void read_until(int master, const char *text)
{
	size_t length = strlen(run_out);

	while (!text || !strstr(run_out, text)) {
		ssize_t n = read(master, run_out + length, RUN_OUTPUT_SIZE - 1 - length);

		if (n <= 0)
			break;
		length += (size_t)n;
		run_out[length] = '\0';
	}
}

static void check_terminal(const char *option, bool has_summary)
{
	const char *words[] = {run_path, "--library=libgpupool.so", option, "/proc/self/exe", "--count-signals", NULL};
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	pid_t pid;
	int master, status;

	ck_assert_int_gt(n, 0);
	self[n] = '\0';
	words[3] = self;
	run_out[0] = '\0';
	master = start_on_terminal(words, &pid);
	read_until(master, "ready 1");
	ck_assert_int_eq(write(master, "\003", 1), 1);
	read_until(master, "^C");
	ck_assert_int_eq(write(master, "x\n", 2), 2);
	read_until(master, NULL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status 0x%x: %s", status, run_out);
	run_check_in(run_out, "count 1");
	ck_assert_msg(!!strstr(run_out, "but saw no CUDA") == has_summary, "with %s: %s", option, run_out);
	close(master);
}

START_TEST(on_a_terminal_the_summary_is_on_and_an_interrupt_reaches_the_command_once)
{
	check_terminal("--limit=none", true);
	check_terminal("-q", false);
	check_terminal("--summary=off", false);
}
END_TEST

START_TEST(the_summary_of_an_interrupted_command_begins_a_line)
{
	const char *words[] = {run_path, "--library=libgpupool.so", "sh", "-c", "echo ready; exec sleep 1000", NULL};
	int master, status;
	pid_t pid;

	run_out[0] = '\0';
	master = start_on_terminal(words, &pid);
	read_until(master, "ready");
	ck_assert_int_eq(write(master, "\003", 1), 1);
	read_until(master, NULL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	close(master);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "status 0x%x", status);
	run_check_in(run_out, "^C\r\ngpupool was loaded into sh ");
}
END_TEST

START_TEST(a_run_inside_another_one_leaves_the_summary_to_that_one)
{
	const char *words[] = {run_path, "--library=libgpupool.so", "sh", "-c",
		"\"$0\" --library=libgpupool.so true; _GPUPOOL_RUN=1.2.3 \"$0\" --library=libgpupool.so true", run_path,
		NULL};
	int master, status;
	pid_t pid;

	run_out[0] = '\0';
	master = start_on_terminal(words, &pid);
	read_until(master, NULL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	close(master);
	/* The third one of them has a variable that is not true. */
	ck_assert_ptr_nonnull(strstr(run_out, "gpupool was loaded into true "));
	ck_assert_ptr_null(strstr(strstr(run_out, "into true ") + 1, "into true "));
	run_check_in(run_out, "gpupool was loaded into sh ");
}
END_TEST

/* Runs a comparison on a terminal, whose output is then in run_out. Returns the exit status. */
static int compare_on_terminal(const char *script)
{
	const char *words[] = {run_path, "--library=libgpupool.so", "--compare=split", "sh", "-c", script, NULL};
	int master, status;
	pid_t pid;

	run_out[0] = '\0';
	master = start_on_terminal(words, &pid);
	read_until(master, NULL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	close(master);
	ck_assert_msg(WIFEXITED(status), "status 0x%x: %s", status, run_out);
	return WEXITSTATUS(status);
}

START_TEST(a_comparison_shows_its_progress_on_a_terminal)
{
	ck_assert_int_eq(compare_on_terminal("echo a"), 0);
	run_check_in(run_out, "\r\033[Krun 1 of 2, without gpupool: 0 s");
	run_check_in(run_out, "\r\033[Krun 2 of 2, with split: 0 s");
	run_check_in(run_out, "\r\033[K");
	run_check_in(run_out, "exit status");
}
END_TEST

START_TEST(a_compared_command_that_reads_from_the_terminal_is_ended)
{
	ck_assert_int_eq(compare_on_terminal("read x </dev/tty"), 1);
	run_check_in(run_out, "gpupool-run: sh without gpupool wants the terminal, and was ended.\r\n");
	run_check_in(run_out, "gpupool-run: sh with split wants the terminal, and was ended.\r\n");
}
END_TEST

/* Two blocks of 512 bytes are less than the page. */
START_TEST(without_a_page_the_command_runs_without_a_summary)
{
	const char *words[] = {"/bin/sh", "-c",
		"ulimit -f 2; \"$0\" --library=libgpupool.so --summary sh -c 'exit 6'; echo $?", run_path, NULL};

	ck_assert_int_eq(run_execute(words), 0);
	ck_assert_str_eq(run_out, "6\n");
	ck_assert_str_eq(run_err, "gpupool-run: there will be no summary: File too large.\n"
				  "             Next: -q runs CMD without a summary.\n");
}
END_TEST

START_TEST(print_env_does_not_print_the_variable_of_the_summary)
{
	ck_assert_int_eq(RUN("--summary", "--print-env"), 0);
	ck_assert_ptr_null(strstr(run_out, "_GPUPOOL_RUN"));
}
END_TEST

void run_add_wait_tests(TCase *tc)
{
	tcase_add_test(tc, a_process_without_cuda_gets_one_line);
	ADD_ROWS(tc, choices, the_summary_is_printed_where_it_was_requested);
	tcase_add_test(tc, a_wrong_value_of_summary_is_refused);
	tcase_add_test(tc, a_program_that_cannot_be_started_has_no_summary);
	ADD_ROWS(tc, fatal, a_command_that_a_signal_ended_ends_gpupool_run_by_the_same_signal);
	ADD_ROWS(tc, fatal, a_signal_sent_to_gpupool_run_reaches_the_command);
	ADD_ROWS(tc, stops, gpupool_run_stops_and_goes_on_with_the_command);
	tcase_add_test(tc, a_stop_and_a_continuation_of_the_whole_group_work_as_in_a_shell);
	tcase_add_test(tc, a_reader_notices_that_the_command_has_closed_its_output);
	tcase_add_test(tc, the_command_has_the_standard_input_of_gpupool_run);
	tcase_add_test(tc, the_command_has_the_signal_settings_that_gpupool_run_was_started_with);
	tcase_add_test(tc, the_exit_status_is_right_even_if_sigchld_is_ignored);
	tcase_add_test(tc, gpupool_run_does_not_wait_for_daemons_of_the_command);
	tcase_add_test(tc, on_a_terminal_the_summary_is_on_and_an_interrupt_reaches_the_command_once);
	tcase_add_test(tc, without_a_page_the_command_runs_without_a_summary);
	tcase_add_test(tc, the_summary_of_an_interrupted_command_begins_a_line);
	tcase_add_test(tc, a_run_inside_another_one_leaves_the_summary_to_that_one);
	tcase_add_test(tc, a_comparison_shows_its_progress_on_a_terminal);
	tcase_add_test(tc, a_compared_command_that_reads_from_the_terminal_is_ended);
	tcase_add_test(tc, print_env_does_not_print_the_variable_of_the_summary);
}
