/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The control socket if no directory is usable for it, and programs without one. */

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "play.h"

enum { ANOTHER_USER = 54321 };

#define NO_TMP "TMPDIR=/nowhere"
#define NO_XDG "XDG_RUNTIME_DIR="

static char bad_dir[128], runtime_variable[160];

static void make_open(void)
{
	ck_assert_int_eq(mkdir(bad_dir, 0700), 0);
	ck_assert_int_eq(chmod(bad_dir, 0755), 0);
}

static void make_link(void)
{
	ck_assert_int_eq(symlink("/", bad_dir), 0);
}

static void make_file(void)
{
	close(open(bad_dir, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

static void make_squatted(void)
{
	ck_assert_int_eq(mkdir(bad_dir, 0700), 0);
	ck_assert_int_eq(chown(bad_dir, ANOTHER_USER, ANOTHER_USER), 0);
}

/* Only root can set up the last row. */
static const struct {
	void (*make)(void);
	const char *message;
} directories[] = {
	{make_open, " is open to other users (mode 0755); "},
	{make_link, " is a symbolic link; "},
	{make_file, " is not a directory; "},
	{make_squatted, " belongs to another user (uid 54321); "},
};

static int n_directories(void)
{
	return (int)LENGTH(directories) - (geteuid() != 0);
}

static void make_directory(int nth)
{
	snprintf(bad_dir, sizeof(bad_dir), "%s/bad", play_dir);
	snprintf(runtime_variable, sizeof(runtime_variable), "GPUPOOL_RUNTIME_DIR=%s", bad_dir);
	directories[nth].make();
}

START_TEST(two_processes_share_memory_despite_an_unusable_socket_directory)
{
	const char *env[] = {runtime_variable, NO_TMP, NO_XDG, "GPUPOOL_LOG=off", "SIMGPU_MEMORY=256M",
		"SIMGPU_LATENCY=cuEventQuery=1000000,cuStreamQuery=1000000", NULL};

	make_directory(_i);
	play_same(&(struct play){.program = "app_ipc", .words = {"many"}, .env = env});
	ck_assert_ptr_nonnull(strstr(play_out, "wrong words: 0\n"));
}
END_TEST

START_TEST(one_message_names_an_unusable_socket_directory_and_the_cause)
{
	const char *env[] = {runtime_variable, NO_TMP, NO_XDG, NULL};
	char expected[256];

	make_directory(_i);
	play_run(&(struct play){.program = "app_memory", .words = {"loop"}, .env = env, .preload = play_library});
	snprintf(expected, sizeof(expected), "]: warn: %s%s", bad_dir, directories[_i].message);
	ck_assert_msg(strstr(play_err, expected), "expected '%s' in: %s", expected, play_err);
	ck_assert_msg(strstr(play_err, "; the control socket is @gpupool-"),
		"expected '; the control socket is @gpupool-' in: %s", play_err);
	ck_assert_str_eq(strchr(play_err, '\n'), "\n");
}
END_TEST

static char listed[16384], shown[65536];

static int run_stat(const char *words, char *text, size_t size)
{
	char command[1024];
	FILE *out;

	snprintf(command, sizeof(command), NO_XDG " " NO_TMP " %s %s %s 2>&1", runtime_variable, play_stat, words);
	out = popen(command, "r");
	ck_assert_ptr_nonnull(out);
	text[fread(text, 1, size - 1, out)] = '\0';
	return pclose(out);
}

static void ask_stat(const char *name)
{
	char words[64];

	ck_assert_int_eq(run_stat("list --query=pid --format=csv,noheader", listed, sizeof(listed)), 0);
	snprintf(words, sizeof(words), "--json status %u", (unsigned)play_fact("pid"));
	ck_assert_msg(run_stat(words, shown, sizeof(shown)) == 0, "gpupool-stat failed: %s", shown);
}

START_TEST(gpupool_stat_finds_a_process_without_a_socket_directory)
{
	const char *env[] = {runtime_variable, NO_TMP, NO_XDG, NULL};
	char line[32];

	make_directory(_i);
	play_run(&(struct play){
		.program = "app_memory", .words = {"loop"}, .env = env, .preload = play_library, .at_pause = ask_stat});
	ck_assert_int_eq(play_status, 0);
	snprintf(line, sizeof(line), "%u\n", (unsigned)play_fact("pid"));
	ck_assert_msg(strstr(listed, line), "expected '%s' in: %s", line, listed);
	ck_assert_uint_eq(play_number(shown, "pid"), play_fact("pid"));
}
END_TEST

/* Runs in a child: a process of another user that listens without a file, under a name of this user. */
static _Noreturn void squat(int ready_fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t length;

	length = (size_t)snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "gpupool-%u/%d.1.00000000",
		(unsigned)geteuid(), (int)getpid());
	if (setuid(ANOTHER_USER) != 0 ||
		bind(fd, (struct sockaddr *)&address,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) != 0 ||
		listen(fd, 8) != 0 || write(ready_fd, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

START_TEST(gpupool_stat_lists_no_socket_of_another_user_under_this_users_name)
{
	char byte, line[32];
	int ready[2];
	pid_t child;

	make_directory(0);
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (child == 0)
		squat(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	(void)run_stat("list", listed, sizeof(listed));
	snprintf(line, sizeof(line), "%d", (int)child);
	ck_assert_msg(!strstr(listed, line), "expected no line '%s' in: %s", line, listed);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}
END_TEST

/* Mounts a read-only file system at the directory, in a separate mount namespace, and runs the command. */
static const char mount_and_run[] = "mount -t tmpfs -o ro none \"$1\" && shift && exec \"$@\"";

static const char *unshare_words(void)
{
	return geteuid() == 0 ? "-m" : "-Urm";
}

static bool can_mount(void)
{
	char command[128];

	snprintf(command, sizeof(command), "unshare %s mount -t tmpfs none /mnt 2>/dev/null", unshare_words());
	return system(command) == 0;
}

START_TEST(two_processes_share_memory_despite_a_read_only_socket_directory)
{
	const char *env[] = {runtime_variable, NO_TMP, NO_XDG, "SIMGPU_MEMORY=256M",
		"SIMGPU_LATENCY=cuEventQuery=1000000,cuStreamQuery=1000000", NULL};
	char message[256], script[512];

	snprintf(bad_dir, sizeof(bad_dir), "%s/bad", play_dir);
	snprintf(runtime_variable, sizeof(runtime_variable), "GPUPOOL_RUNTIME_DIR=%s/sockets", bad_dir);
	ck_assert_int_eq(mkdir(bad_dir, 0700), 0);
	snprintf(script, sizeof(script), "exec unshare %s sh -c '%s' sh %s %s/app_ipc many", unshare_words(),
		mount_and_run, bad_dir, play_app_dir);
	play_run(&(struct play){.program = "/bin/sh", .words = {"-c", script}, .env = env, .preload = play_library});
	ck_assert_msg(play_status == 0 && strstr(play_out, "wrong words: 0\n"),
		"expected exit status 0 and no wrong words: %s%s", play_out, play_err);
	snprintf(message, sizeof(message), "warn: %s/sockets cannot be used: the file system is read-only; ", bad_dir);
	ck_assert_msg(strstr(play_err, message), "expected '%s' in: %s", message, play_err);
}
END_TEST

/* Returns true once the process has a single thread. One that registers the barrier lives for some 25 ms. */
static bool gets_single_thread(unsigned pid)
{
	char tasks[64];
	struct stat st = {0};

	snprintf(tasks, sizeof(tasks), "/proc/%u/task", pid);
	for (int ms = 0; ms < 10000 && stat(tasks, &st) == 0 && st.st_nlink != 2 + 1; ms++)
		usleep(1000);
	return st.st_nlink == 2 + 1;
}

static void check_no_socket(const char *name)
{
	char command[128];

	snprintf(command, sizeof(command), "ls -l /proc/%u/fd | grep -c socket: >&2", (unsigned)play_fact("pid"));
	ck_assert_msg(system(command) != 0, "expected no socket in the process");
	ck_assert_msg(gets_single_thread((unsigned)play_fact("pid")), "expected a single thread in the process");
	ck_assert(!play_is_listening());
}

START_TEST(GPUPOOL_SOCKET_off_means_no_socket_no_lasting_thread_and_no_message)
{
	static const char *const env[] = {"GPUPOOL_SOCKET=off", NULL};

	play_run(&(struct play){.program = "app_memory",
		.words = {"loop"},
		.env = env,
		.preload = play_library,
		.at_pause = check_no_socket});
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_err, "");
}
END_TEST

START_TEST(without_a_socket_exporting_part_of_a_segment_fails_with_a_message)
{
	static const char *const env[] = {"GPUPOOL_SOCKET=off", "SIMGPU_MEMORY=256M", NULL};

	play_run(&(struct play){.program = "app_ipc", .words = {"many"}, .env = env, .preload = play_library});
	ck_assert_msg(strstr(play_err, "needs the control socket, and GPUPOOL_SOCKET is off"),
		"expected 'needs the control socket, and GPUPOOL_SOCKET is off' in: %s", play_err);
}
END_TEST

static void add(TCase *tc)
{
	if (getenv(EMULATOR)) {
		printf("# not in an emulator, where programs cannot start others\n");
		return;
	}
	if (geteuid() != 0)
		printf("# a directory of another user: not shown, since only root can make one\n");
	tcase_add_loop_test(tc, two_processes_share_memory_despite_an_unusable_socket_directory, 0, n_directories());
	tcase_add_loop_test(tc, one_message_names_an_unusable_socket_directory_and_the_cause, 0, n_directories());
	if (play_stat)
		tcase_add_loop_test(tc, gpupool_stat_finds_a_process_without_a_socket_directory, 0, n_directories());
	else
		printf("# gpupool-stat is not built\n");
	if (play_stat && geteuid() == 0)
		tcase_add_test(tc, gpupool_stat_lists_no_socket_of_another_user_under_this_users_name);
	if (can_mount())
		tcase_add_test(tc, two_processes_share_memory_despite_a_read_only_socket_directory);
	else
		printf("# a read-only directory: not shown, since no mount namespace can be made here\n");
	tcase_add_test(tc, GPUPOOL_SOCKET_off_means_no_socket_no_lasting_thread_and_no_message);
	tcase_add_test(tc, without_a_socket_exporting_part_of_a_segment_fails_with_a_message);
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"socket", add}, 1);
}
