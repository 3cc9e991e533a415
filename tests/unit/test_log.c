/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/base/log.h"
#include "tests/suite.h"

#define LENGTH(a) (sizeof(a) / sizeof(*(a)))

static char directory[] = "/tmp/gpupool-log-XXXXXX";
static char path[64];
static char text[64 * 1024];

/* Each test runs in its own process, and makes and removes its own directory. */
static void setup(void)
{
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/log", directory);
	gp_log_note_stderr();
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", directory);
	ck_assert_int_eq(system(command), 0);
}

static const char *file_text(const char *name)
{
	int fd = open(name, O_RDONLY);
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	n = read(fd, text, sizeof(text) - 1);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	close(fd);
	return text;
}

static int count_lines(const char *lines)
{
	int n = 0;

	for (; *lines; lines++)
		n += *lines == '\n';
	return n;
}

/* Makes a new file the process's stderr, as a shell does. */
static void redirect_stderr(int flags)
{
	int fd = open(path, O_CREAT | O_TRUNC | flags, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	close(fd);
	gp_log_note_stderr();
}

static void check_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void check_text(const char *format, ...)
{
	char wanted[4096];
	va_list args;

	va_start(args, format);
	vsnprintf(wanted, sizeof(wanted), format, args);
	va_end(args);
	ck_assert_str_eq(file_text(path), wanted);
}

START_TEST(nothing_is_logged_before_the_log_is_opened)
{
	redirect_stderr(O_WRONLY);
	gp_log(GP_LOG_ERROR, "too early");
	check_text("%s", "");
}
END_TEST

START_TEST(a_log_line_names_the_process_and_the_level)
{
	redirect_stderr(O_WRONLY);
	gp_log_open(GP_LOG_DEBUG, NULL);
	gp_log(GP_LOG_ERROR, "one %d", 1);
	gp_log(GP_LOG_WARN, "two %s", "2");
	gp_log(GP_LOG_INFO, "three");
	gp_log(GP_LOG_DEBUG, "four");
	check_text("gpupool[%1$d]: error: one 1\ngpupool[%1$d]: warn: two 2\n"
		   "gpupool[%1$d]: info: three\ngpupool[%1$d]: debug: four\n",
		(int)getpid());
}
END_TEST

START_TEST(a_log_level_hides_less_important_lines)
{
	redirect_stderr(O_WRONLY);
	gp_log_open((enum gp_log_level)_i, "stderr");
	gp_log(GP_LOG_OFF, "never");
	gp_log(GP_LOG_ERROR, "x");
	gp_log(GP_LOG_WARN, "x");
	gp_log(GP_LOG_INFO, "x");
	gp_log(GP_LOG_DEBUG, "x");
	ck_assert_int_eq(count_lines(file_text(path)), _i);
}
END_TEST

static void log_again(int i)
{
	gp_log(GP_LOG_WARN, "again %d", i);
}

START_TEST(a_log_site_is_silenced_after_sixteen_lines_with_one_notice)
{
	char last[128];

	redirect_stderr(O_WRONLY);
	gp_log_open(GP_LOG_WARN, "");
	for (int i = 0; i < 100; i++)
		log_again(i);
	gp_log(GP_LOG_WARN, "another site");
	file_text(path);
	ck_assert_int_eq(count_lines(text), GP_LOG_REPEATS + 2);
	snprintf(last, sizeof(last),
		"warn: again 15\ngpupool[%1$d]: warn: further messages like this are not shown\n"
		"gpupool[%1$d]: warn: another site\n",
		(int)getpid());
	ck_assert_ptr_nonnull(strstr(text, last));
}
END_TEST

START_TEST(control_characters_in_a_log_line_are_replaced)
{
	redirect_stderr(O_WRONLY);
	gp_log_open(GP_LOG_WARN, NULL);
	gp_log(GP_LOG_WARN, "a%sb\xc3\xa9", "\n\r\t\033[31m\177");
	gp_log(GP_LOG_WARN, "%s",
		"\xc2\x9b"
		"31mC1, \x9b"
		"31malone, \xe2\x80\xaeturned, \xe2\x80\x8bhidden, \xff\xc3");
	check_text("gpupool[%d]: warn: a????[31m?b\xc3\xa9\n"
		   "gpupool[%d]: warn: ?31mC1, ?31malone, ?turned, ?hidden, ??\n",
		(int)getpid(), (int)getpid());
}
END_TEST

START_TEST(a_long_log_line_is_truncated_and_still_ends_in_a_newline)
{
	char message[4096];

	redirect_stderr(O_WRONLY);
	gp_log_open(GP_LOG_WARN, NULL);
	for (size_t length = 900; length < 1200; length++) {
		static struct gp_log_site site;
		atomic_store(&site.lines, 0);
		memset(message, 'm', length);
		message[length] = '\0';
		ck_assert_int_eq(ftruncate(STDERR_FILENO, 0), 0);
		ck_assert_int_eq(lseek(STDERR_FILENO, 0, SEEK_SET), 0);
		gp_log_write(&site, GP_LOG_WARN, "%s", message);
		size_t got = strlen(file_text(path));
		ck_assert_uint_lt(got, 1024);
		ck_assert_int_eq(count_lines(text), 1);
		ck_assert_int_eq(text[got - 1], '\n');
		bool is_whole = strstr(text, message) != NULL;
		ck_assert_int_eq(is_whole, strcmp(text + got - 4, "...\n") != 0);
	}
}
END_TEST

START_TEST(logging_preserves_errno_and_can_print_it)
{
	redirect_stderr(O_WRONLY);
	gp_log_open(GP_LOG_WARN, "/dev/null/file"); /* no such file can exist */
	errno = ENOSPC;
	gp_log(GP_LOG_WARN, "%m");
	ck_assert_int_eq(errno, ENOSPC);
	check_text("gpupool[%1$d]: warn: cannot open the log file /dev/null/file (error 20): messages go to stderr; "
		   "correct GPUPOOL_LOG_FILE\n"
		   "gpupool[%1$d]: warn: No space left on device\n",
		(int)getpid());
}
END_TEST

START_TEST(a_log_file_that_cannot_be_opened_is_named_once)
{
	redirect_stderr(O_WRONLY);
	gp_log_open(GP_LOG_WARN, "/dev/null/%p");
	gp_log(GP_LOG_WARN, "one");
	gp_log(GP_LOG_WARN, "two");
	ck_assert_ptr_nonnull(strstr(file_text(path), "cannot open the log file /dev/null/%p (error 20)"));
	ck_assert_int_eq(count_lines(text), 3);
}
END_TEST

START_TEST(a_log_file_is_made_at_the_first_line_and_private_to_its_owner)
{
	struct stat st;
	char template[128];

	snprintf(template, sizeof(template), "%s/%%p-100%%%%.log", directory);
	gp_log_open(GP_LOG_WARN, template);
	snprintf(path, sizeof(path), "%s/%d-100%%.log", directory, (int)getpid());
	ck_assert_int_eq(stat(path, &st), -1);
	umask(0);
	gp_log(GP_LOG_WARN, "hello");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	check_text("gpupool[%d]: warn: hello\n", (int)getpid());
}
END_TEST

START_TEST(an_existing_log_file_is_appended_to)
{
	gp_log_open(GP_LOG_WARN, path);
	gp_log(GP_LOG_WARN, "one");
	gp_log_open(GP_LOG_WARN, path);
	gp_log(GP_LOG_WARN, "two");
	check_text("gpupool[%1$d]: warn: one\ngpupool[%1$d]: warn: two\n", (int)getpid());
}
END_TEST

START_TEST(a_symlink_as_log_file_is_not_followed)
{
	char target[80];
	struct stat st;

	snprintf(target, sizeof(target), "%s/target", directory);
	ck_assert_int_eq(symlink(target, path), 0);
	gp_log_open(GP_LOG_WARN, path);
	ck_assert_int_eq(close(STDERR_FILENO), 0);
	gp_log(GP_LOG_WARN, "hello");
	ck_assert_int_eq(stat(target, &st), -1);
}
END_TEST

START_TEST(a_fifo_without_a_reader_as_log_file_does_not_block_the_program)
{
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	gp_log_open(GP_LOG_WARN, path);
	ck_assert_int_eq(close(STDERR_FILENO), 0);
	gp_log(GP_LOG_WARN, "hello");
}
END_TEST

START_TEST(logging_continues_after_the_program_closes_every_descriptor)
{
	gp_log_open(GP_LOG_WARN, path);
	gp_log(GP_LOG_WARN, "one");
	for (int fd = 0; fd < 256; fd++)
		close(fd);
	gp_log(GP_LOG_WARN, "two");
	check_text("gpupool[%1$d]: warn: one\ngpupool[%1$d]: warn: two\n", (int)getpid());
}
END_TEST

START_TEST(logging_leaves_no_descriptor_open)
{
	int before = open("/dev/null", O_RDONLY);
	int after;

	close(before);
	gp_log_open(GP_LOG_WARN, path);
	gp_log(GP_LOG_WARN, "hello");
	after = open("/dev/null", O_RDONLY);
	ck_assert_int_eq(before, after);
}
END_TEST

/* Files that a program may open as descriptor 2 after it has closed stderr. */
static void open_for_reading_too(void)
{
	ck_assert_int_eq(open(path, O_RDWR | O_CREAT, 0600), STDERR_FILENO);
}

static void open_for_writing(void)
{
	ck_assert_int_eq(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
}

static void open_for_appending(void)
{
	ck_assert_int_eq(open(path, O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
}

static void open_as_stdout_too(void)
{
	open_for_writing();
	ck_assert_int_eq(dup2(STDERR_FILENO, STDOUT_FILENO), STDOUT_FILENO);
}

static const struct {
	void (*open)(void);
	bool is_followed;
} successors[] = {
	{open_for_reading_too, false},
	{open_for_writing, false},
	{open_for_appending, true},
	{open_as_stdout_too, true},
};

/*
 * The file replaces stderr before or after the log is opened, which the first allocation does. The log has
 * noted stderr before both, as it does at the first call.
 */
START_TEST(a_file_that_replaced_stderr_is_written_to_only_if_it_is_a_redirection)
{
	int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
	bool is_open_before = _i % 2;

	if (is_open_before)
		gp_log_open(GP_LOG_WARN, NULL);
	close(STDERR_FILENO);
	successors[_i / 2].open();
	if (!is_open_before)
		gp_log_open(GP_LOG_WARN, NULL);
	gp_log(GP_LOG_WARN, "hello");
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	if (successors[_i / 2].is_followed)
		check_text("gpupool[%d]: warn: hello\n", (int)getpid());
	else
		check_text("%s", "");
}
END_TEST

/* After "program 2>file": the shell opens the file without O_APPEND. */
START_TEST(a_file_that_was_stderr_at_the_first_call_is_written_to)
{
	int err = dup(STDERR_FILENO);

	close(STDERR_FILENO);
	open_for_writing();
	gp_log_note_stderr();
	gp_log_open(GP_LOG_WARN, NULL);
	gp_log(GP_LOG_WARN, "hello");
	dup2(err, STDERR_FILENO);
	check_text("gpupool[%d]: warn: hello\n", (int)getpid());
}
END_TEST

START_TEST(a_pipe_that_replaced_stderr_is_not_written_to)
{
	int fds[2], err = dup(STDERR_FILENO);
	char byte;

	ck_assert_int_eq(pipe2(fds, O_NONBLOCK), 0);
	dup2(fds[1], STDERR_FILENO);
	gp_log_open(GP_LOG_WARN, NULL);
	gp_log(GP_LOG_WARN, "hello");
	dup2(err, STDERR_FILENO);
	ck_assert_int_eq(read(fds[0], &byte, 1), -1);
	ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

static int other_end;

static int open_socket(void)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	other_end = pair[1];
	return pair[0];
}

START_TEST(a_socket_that_replaced_stderr_is_not_written_to)
{
	char byte;

	gp_log_open(GP_LOG_WARN, NULL);
	close(STDERR_FILENO);
	ck_assert_int_eq(open_socket(), STDERR_FILENO);
	gp_log(GP_LOG_WARN, "hello");
	ck_assert_int_eq(recv(other_end, &byte, 1, MSG_DONTWAIT), -1);
	ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

START_TEST(a_socket_that_was_stderr_from_the_start_is_written_to)
{
	char bytes[64];

	close(STDERR_FILENO);
	ck_assert_int_eq(open_socket(), STDERR_FILENO);
	gp_log_note_stderr();
	gp_log_open(GP_LOG_WARN, NULL);
	gp_log(GP_LOG_WARN, "hello");
	ck_assert_int_gt(recv(other_end, bytes, sizeof(bytes), MSG_DONTWAIT), 0);
}
END_TEST

START_TEST(logging_to_a_closed_stderr_does_not_fail)
{
	gp_log_open(GP_LOG_WARN, NULL);
	close(STDERR_FILENO);
	gp_log(GP_LOG_WARN, "hello");
	gp_log_open(GP_LOG_WARN, NULL);
	gp_log(GP_LOG_WARN, "hello");
}
END_TEST

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	signals++;
}

START_TEST(logging_to_a_pipe_without_a_reader_raises_no_signal)
{
	int pipe_fds[2];
	sigset_t pending, mask;

	ck_assert_ptr_ne(signal(SIGPIPE, on_signal), SIG_ERR);
	ck_assert_int_eq(pipe(pipe_fds), 0);
	ck_assert_int_eq(dup2(pipe_fds[1], STDERR_FILENO), STDERR_FILENO);
	gp_log_note_stderr();
	close(pipe_fds[0]);
	gp_log_open(GP_LOG_WARN, NULL);
	gp_log(GP_LOG_WARN, "hello");
	ck_assert_int_eq(signals, 0);
	sigpending(&pending);
	ck_assert(!sigismember(&pending, SIGPIPE));
	sigprocmask(SIG_SETMASK, NULL, &mask);
	ck_assert(!sigismember(&mask, SIGPIPE));

	/* A SIGPIPE that the program itself has blocked stays pending. */
	sigemptyset(&mask);
	sigaddset(&mask, SIGPIPE);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	raise(SIGPIPE);
	gp_log(GP_LOG_WARN, "hello");
	sigpending(&pending);
	ck_assert(sigismember(&pending, SIGPIPE));
}
END_TEST

START_TEST(a_forked_child_logs_with_its_own_process_id)
{
	int status;
	pid_t child;

	redirect_stderr(O_WRONLY | O_APPEND);
	gp_log_open(GP_LOG_WARN, NULL);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		gp_log(GP_LOG_WARN, "child");
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	check_text("gpupool[%d]: warn: child\n", (int)child);
}
END_TEST

static void *log_often(void *arg)
{
	for (int i = 0; i < 200; i++)
		log_again(i);
	return NULL;
}

START_TEST(threads_do_not_mix_their_log_lines_or_exceed_the_repeat_limit)
{
	pthread_t threads[4];

	gp_log_open(GP_LOG_WARN, path);
	for (size_t i = 0; i < LENGTH(threads); i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, log_often, NULL), 0);
	for (size_t i = 0; i < LENGTH(threads); i++)
		pthread_join(threads[i], NULL);
	file_text(path);
	ck_assert_int_eq(count_lines(text), GP_LOG_REPEATS + 1);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		ck_assert_ptr_eq(strstr(line, "gpupool["), line);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *tc = tcase_create("log");

	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, nothing_is_logged_before_the_log_is_opened);
	tcase_add_test(tc, a_log_line_names_the_process_and_the_level);
	tcase_add_loop_test(tc, a_log_level_hides_less_important_lines, GP_LOG_OFF, GP_LOG_DEBUG + 1);
	tcase_add_test(tc, a_log_site_is_silenced_after_sixteen_lines_with_one_notice);
	tcase_add_test(tc, control_characters_in_a_log_line_are_replaced);
	tcase_add_test(tc, a_long_log_line_is_truncated_and_still_ends_in_a_newline);
	tcase_add_test(tc, logging_preserves_errno_and_can_print_it);
	tcase_add_test(tc, a_log_file_that_cannot_be_opened_is_named_once);
	tcase_add_test(tc, a_log_file_is_made_at_the_first_line_and_private_to_its_owner);
	tcase_add_test(tc, an_existing_log_file_is_appended_to);
	tcase_add_test(tc, a_symlink_as_log_file_is_not_followed);
	tcase_add_test(tc, a_fifo_without_a_reader_as_log_file_does_not_block_the_program);
	tcase_add_test(tc, logging_continues_after_the_program_closes_every_descriptor);
	tcase_add_test(tc, logging_leaves_no_descriptor_open);
	tcase_add_loop_test(tc, a_file_that_replaced_stderr_is_written_to_only_if_it_is_a_redirection, 0,
		2 * (int)LENGTH(successors));
	tcase_add_test(tc, a_file_that_was_stderr_at_the_first_call_is_written_to);
	tcase_add_test(tc, a_pipe_that_replaced_stderr_is_not_written_to);
	tcase_add_test(tc, a_socket_that_replaced_stderr_is_not_written_to);
	tcase_add_test(tc, a_socket_that_was_stderr_from_the_start_is_written_to);
	tcase_add_test(tc, logging_to_a_closed_stderr_does_not_fail);
	tcase_add_test(tc, logging_to_a_pipe_without_a_reader_raises_no_signal);
	tcase_add_test(tc, a_forked_child_logs_with_its_own_process_id);
	tcase_add_test(tc, threads_do_not_mix_their_log_lines_or_exceed_the_repeat_limit);
	return suite_run(suite);
}
