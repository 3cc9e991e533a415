/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "play.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/summary.h"
#include "tests/suite.h"

enum { FACTS_FD = 3, GO_FD = 4, ENV_MAX = 40, ANSWER_MAX = 1 << 20, STOP_TRIES = 30000 };

const char *play_library, *play_sim_dir, *play_app_dir, *play_stat;
char play_dir[] = "/tmp/gpupool-play-XXXXXX";
char play_out[PLAY_OUTPUT_MAX], play_err[PLAY_OUTPUT_MAX];
int play_status;

static char facts[PLAY_OUTPUT_MAX];
static char played_dir[] = "/tmp/gpupool-played-XXXXXX"; /* of all tests of this program */

static void setup(void)
{
	strcpy(play_dir + strlen(play_dir) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(play_dir));
	ck_assert_int_eq(chdir(play_dir), 0);
}

static void teardown(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", play_dir);
	ck_assert_int_eq(system(command), 0);
}

void play_read(const char *name, char text[static PLAY_OUTPUT_MAX])
{
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, PLAY_OUTPUT_MAX - 1);

	ck_assert_msg(n >= 0, "%s", name);
	text[n] = '\0';
	close(fd);
}

static void open_as(int wanted, const char *name)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	dup2(fd, wanted);
	close(fd);
}

/*
 * Adds the variable unless it is set already. Of two settings the loader would use the last and getenv the first, and
 * an emulator passes on either.
 */
static size_t add_variable(const char *env[static ENV_MAX], size_t n, const char *variable)
{
	size_t length = strcspn(variable, "=") + 1;

	for (size_t i = 0; i < n; i++)
		if (strncmp(env[i], variable, length) == 0)
			return n;
	if (n + 1 == ENV_MAX)
		_exit(126);
	env[n] = variable;
	return n + 1;
}

/* Runs in the child. LD_PRELOAD comes before the play's variables, and those before the defaults. */
static void make_environment(const struct play *play, const char *env[static ENV_MAX])
{
	static char libraries[PATH_MAX + 32], runtime[64], tmp[64], preload[2 * PATH_MAX];
	/* Without TMPDIR the library finds processes with sockets in /tmp, too. */
	const char *const defaults[] = {libraries, runtime, tmp, "PATH=/usr/bin:/bin", "SIMGPU_STRICT=1",
		"TSAN_OPTIONS=atexit_sleep_ms=0" /* the simulator's own checks suffice */};
	size_t n = 0;

	snprintf(libraries, sizeof(libraries), "LD_LIBRARY_PATH=%s", play_sim_dir);
	snprintf(runtime, sizeof(runtime), "GPUPOOL_RUNTIME_DIR=%s", play_dir);
	snprintf(tmp, sizeof(tmp), "TMPDIR=%s", play_dir);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", play->preload ? play->preload : "");
	if (play->preload)
		n = add_variable(env, n, preload);
	for (size_t i = 0; play->env && play->env[i]; i++)
		n = add_variable(env, n, play->env[i]);
	for (size_t i = 0; i < LENGTH(defaults); i++)
		n = add_variable(env, n, defaults[i]);
	env[n] = NULL;
}

static void become(const struct play *play, int facts_fd, int go_fd)
{
	const char *env[ENV_MAX], *argv[EMULATOR_WORDS_MAX + LENGTH(play->words) + 2] = {0};
	char program[PATH_MAX];
	size_t n = emulator_words(argv);

	snprintf(program, sizeof(program), "%s%s%s", play->program[0] == '/' ? "" : play_app_dir,
		play->program[0] == '/' ? "" : "/", play->program);
	argv[n] = program;
	for (size_t i = 0; i < LENGTH(play->words); i++)
		argv[n + i + 1] = play->words[i];
	make_environment(play, env);
	dup2(facts_fd, 10);
	dup2(go_fd, 11);
	dup2(10, FACTS_FD);
	dup2(11, GO_FD);
	close(10);
	close(11);
	open_as(STDOUT_FILENO, "out");
	open_as(STDERR_FILENO, "err");
	execvpe(argv[0], (char *const *)argv, (char *const *)env);
	_exit(127);
}

/* Collects the facts, and answers each pause, until the program and its children have ended. Closes the first pipe. */
static void attend(const struct play *play, int facts_fd, int go_fd)
{
	FILE *lines = fdopen(facts_fd, "r");
	char line[256];
	size_t length = 0;

	ck_assert_ptr_nonnull(lines);
	facts[0] = '\0';
	while (fgets(line, sizeof(line), lines)) {
		char *name = strncmp(line, "pause ", 6) == 0 ? line + 6 : NULL;

		if (name) {
			name[strcspn(name, "\n")] = '\0';
			if (play->at_pause)
				play->at_pause(name);
			ck_assert_int_eq(write(go_fd, "", 1), 1);
			continue;
		}
		ck_assert_uint_lt(length + strlen(line), sizeof(facts));
		strcpy(facts + length, line);
		length += strlen(line);
	}
	fclose(lines);
}

void play_run(const struct play *play)
{
	int facts_pipe[2], go_pipe[2], status;
	pid_t child;

	play_n_answers = 0;
	ck_assert_int_eq(pipe2(facts_pipe, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(go_pipe, O_CLOEXEC), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0)
		become(play, facts_pipe[1], go_pipe[0]);
	close(facts_pipe[1]);
	/* The reading end stays open: a program that was killed at a pause reads no answer. */
	attend(play, facts_pipe[0], go_pipe[1]);
	close(go_pipe[0]);
	close(go_pipe[1]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	play_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	play_read("out", play_out);
	play_read("err", play_err);
}

/* Fails with the first line that differs, since a TAP message is a single line. */
static void check_same(const struct play *play, const char *without, const char *with)
{
	unsigned line = 1;
	size_t i = 0;

	for (size_t at = 0; without[at] && without[at] == with[at]; at++) {
		if (without[at] != '\n')
			continue;
		i = at + 1;
		line++;
	}
	ck_assert_msg(strcmp(without, with) == 0, "%s %s with %s: line %u: got '%.*s', expected '%.*s'", play->program,
		play->words[0], play->env ? play->env[0] : "no settings", line, (int)strcspn(with + i, "\n"), with + i,
		(int)strcspn(without + i, "\n"), without + i);
}

/*
 * Runs without the library are the same whatever the library's settings are, so each is run once and kept in a file for
 * the other tests of this program, which run in processes of their own.
 */
struct played {
	int status;
	char key[4096], out[PLAY_OUTPUT_MAX], err[PLAY_OUTPUT_MAX];
};

static void add_key(char key[static sizeof(((struct played *)0)->key)], const char *word)
{
	size_t length = strlen(key);

	ck_assert_uint_lt(length + strlen(word) + 1, sizeof(((struct played *)0)->key));
	key[length] = '\n';
	strcpy(key + length + 1, word);
}

static uint64_t hash(const char *text)
{
	uint64_t value = 0xcbf29ce484222325;

	for (; *text; text++)
		value = (value ^ (unsigned char)*text) * 0x100000001b3;
	return value;
}

static bool read_played(const char *path, struct played *played)
{
	static struct played found;
	FILE *file = fopen(path, "rbe");
	bool is_found = file && fread(&found, sizeof(found), 1, file) == 1 && strcmp(found.key, played->key) == 0;

	if (file)
		fclose(file);
	if (is_found)
		*played = found;
	return is_found;
}

static void write_played(const char *path, const struct played *played)
{
	char new_path[sizeof(played_dir) + 64];
	FILE *file;

	snprintf(new_path, sizeof(new_path), "%s/%d", played_dir, (int)getpid());
	file = fopen(new_path, "wbe");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(played, sizeof(*played), 1, file), 1);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(rename(new_path, path), 0);
}

/* True if the variables preload a library into the program or into one that it starts. */
static bool preloads(const char *const *env)
{
	for (; *env; env++)
		if (strstr(*env, "PRELOAD="))
			return true;
	return false;
}

static void play_without(const struct play *play, struct played *played)
{
	struct play without = *play;
	char path[sizeof(played_dir) + 64];

	memset(played, 0, sizeof(*played));
	add_key(played->key, play->program);
	for (size_t i = 0; i < LENGTH(play->words) && play->words[i]; i++)
		add_key(played->key, play->words[i]);
	for (size_t i = 0; play->env && play->env[i]; i++)
		if (strncmp(play->env[i], "GPUPOOL", 7) != 0 || preloads(play->env))
			add_key(played->key, play->env[i]);
	snprintf(path, sizeof(path), "%s/%016llx", played_dir, (unsigned long long)hash(played->key));
	if (read_played(path, played))
		return;
	without.preload = NULL;
	without.at_pause = NULL;
	play_run(&without);
	played->status = play_status;
	strcpy(played->out, play_out);
	strcpy(played->err, play_err);
	write_played(path, played);
}

void play_same(const struct play *play)
{
	static struct played without;
	struct play with = *play;

	play_without(play, &without);
	ck_assert_str_ne(without.out, "");
	with.preload = play->preload ? play->preload : play_library;
	if (play->inside) {
		with.program = play->inside;
		with.preload = NULL;
	}
	play_run(&with);
	check_same(play, without.out, play_out);
	check_same(play, without.err, play_err);
	ck_assert_int_eq(play_status, without.status);
}

static bool is_off(const struct play *play)
{
	for (const char *const *variable = play->env; variable && *variable; variable++)
		if (!strcmp(*variable, "GPUPOOL=0"))
			return true;
	return false;
}

void play_same_or_served(const struct play *play)
{
	struct play served = *play;

	if (strcmp(play->words[0], "miss") != 0 || is_off(play)) {
		play_same(play);
		return;
	}
	served.preload = play_library;
	play_run(&served);
	ck_assert_int_eq(play_status, 0);
	ck_assert_str_eq(play_out, "cuMemAlloc: 0\nleft alone 0\nend: 0\ncuMemAlloc afterwards: 0\ncuMemFree: 0\n");
}

uint64_t play_fact(const char *name)
{
	size_t length = strlen(name);
	const char *line = facts;

	while (*line && !(strncmp(line, name, length) == 0 && line[length] == ' '))
		line += strcspn(line, "\n") + 1;
	ck_assert_msg(*line, "expected the fact %s in: %s%s", name, facts, play_err);
	return strtoull(line + length, NULL, 10);
}

/* Finds a control socket in the play's directory whose name starts with `begin`. Returns false if there is none. */
static bool find_socket(char name[static 256], const char *begin)
{
	DIR *dir = opendir(play_dir);
	const struct dirent *entry;
	bool found = false;

	ck_assert_ptr_nonnull(dir);
	while (!found && (entry = readdir(dir))) {
		found = strstr(entry->d_name, ".sock") && strncmp(entry->d_name, begin, strlen(begin)) == 0;
		snprintf(name, 256, "%s", entry->d_name);
	}
	closedir(dir);
	return found;
}

bool play_is_listening(void)
{
	char name[256];

	return find_socket(name, "");
}

static int send_request(const char *begin, const char *request)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char name[256];

	ck_assert_int_ge(fd, 0);
	ck_assert_msg(find_socket(name, begin), "expected a control socket, found none");
	ck_assert_int_lt(snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", play_dir, name),
		(int)sizeof(address.sun_path));
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(dprintf(fd, "%s\n", request), (int)strlen(request) + 1);
	return fd;
}

static const char *ask_socket(const char *begin, const char *request)
{
	static char answer[ANSWER_MAX];
	int fd = send_request(begin, request);
	size_t length = 0;
	ssize_t n;

	while ((n = read(fd, answer + length, sizeof(answer) - 1 - length)) > 0) {
		length += (size_t)n;
		if (answer[length - 1] == '\n')
			break;
	}
	answer[length] = '\0';
	close(fd);
	return answer;
}

int play_ask_only(const char *request)
{
	return send_request("", request);
}

char play_answers[8][256 * 1024];
unsigned play_n_answers;

void play_keep(const char *answer)
{
	ck_assert_uint_lt(play_n_answers, LENGTH(play_answers));
	snprintf(play_answers[play_n_answers++], sizeof(play_answers[0]), "%s", answer);
}

const char *play_ask(const char *request)
{
	return ask_socket("", request);
}

const char *play_ask_pid(unsigned pid, const char *request)
{
	char begin[16];

	snprintf(begin, sizeof(begin), "%u.", pid);
	return ask_socket(begin, request);
}

uint64_t play_number(const char *json, const char *name)
{
	char key[64];
	const char *found;

	snprintf(key, sizeof(key), "\"%s\":", name);
	found = strstr(json, key);
	ck_assert_msg(found, "expected %s in: %s", name, json);
	return strtoull(found + strlen(key), NULL, 10);
}

/* Writes a command for a shell. Keeps the tool away from directories in which other processes may have sockets. */
static void write_stat_command(char command[static 1024], const char *words)
{
	snprintf(command, 1024, "XDG_RUNTIME_DIR= TMPDIR=%s GPUPOOL_RUNTIME_DIR=%s exec $" EMULATOR " %s %s 2>&1",
		play_dir, play_dir, play_stat, words);
}

pid_t play_start_stat(const char *words, const char *file)
{
	char command[1024];
	pid_t child;

	write_stat_command(command, words);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child)
		return child;
	open_as(STDOUT_FILENO, file);
	execl("/bin/sh", "sh", "-c", command, NULL);
	_exit(127);
}

int play_run_stat(const char *words, char *text, size_t size)
{
	char command[1024];
	FILE *out;
	int status;

	write_stat_command(command, words);
	out = popen(command, "r");
	ck_assert_ptr_nonnull(out);
	text[fread(text, 1, size - 1, out)] = '\0';
	status = pclose(out);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A thread of the process goes on for a while after the signal was sent, on a busy machine. */
void play_stop(pid_t pid)
{
	char name[64], state = 0;

	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
	for (int i = 0; i < STOP_TRIES && state != 'T'; i++) {
		FILE *stat = fopen(name, "re");

		ck_assert_ptr_nonnull(stat);
		ck_assert_int_eq(fscanf(stat, "%*d (%*[^)]) %c", &state), 1);
		ck_assert_int_eq(fclose(stat), 0);
		if (state != 'T')
			usleep(1000);
	}
	ck_assert_msg(state == 'T', "process %d is not stopped: state %c", (int)pid, state);
}

void play_make_page(char variable[static PLAY_VARIABLE_MAX])
{
	const uint64_t head[] = {GP_SUMMARY_MAGIC, GP_SUMMARY_VERSION, sizeof(struct gp_summary_page), 1};
	int fd = memfd_create("gpupool-run", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(struct gp_summary_page)), 0);
	ck_assert_int_eq(pwrite(fd, head, sizeof(head), 0), (ssize_t)sizeof(head));
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	snprintf(variable, PLAY_VARIABLE_MAX, GP_SUMMARY_VARIABLE "=%d.%d.1", (int)getpid(), fd);
}

int play_main(int argc, char **argv, const struct play_tests *tests, size_t n)
{
	Suite *suite = suite_create("preload");
	char command[64];
	int result;

	if (argc != 4 && argc != 5) {
		fprintf(stderr, "usage: %s LIBRARY SIMULATOR-DIRECTORY PROGRAM-DIRECTORY [GPUPOOL-STAT]\n", argv[0]);
		return EXIT_FAILURE;
	}
	play_library = realpath(argv[1], NULL);
	play_sim_dir = realpath(argv[2], NULL);
	play_app_dir = realpath(argv[3], NULL);
	play_stat = argc == 5 ? realpath(argv[4], NULL) : NULL;
	if (!play_library || !play_sim_dir || !play_app_dir) {
		perror(argv[0]);
		return EXIT_FAILURE;
	}
	if (!mkdtemp(played_dir)) {
		perror(played_dir);
		return EXIT_FAILURE;
	}
	for (size_t i = 0; i < n; i++) {
		TCase *tc = tcase_create(tests[i].name);

		tcase_add_checked_fixture(tc, setup, teardown);
		tests[i].add(tc);
		suite_add_tcase(suite, tc);
	}
	result = suite_run(suite);
	snprintf(command, sizeof(command), "rm -rf %s", played_dir);
	return system(command) ? EXIT_FAILURE : result;
}
