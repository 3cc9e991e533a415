/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/ctl_proto.h"
#include "tests/emulator.h"
#include "tests/suite.h"

const char *stat_path;
char peer_dir[64];
char stat_out[STAT_CATCH_SIZE];
char stat_err[STAT_CATCH_SIZE];

static const char *self_path;
static pid_t peers[16];
static int n_peers;

#define COUNTERS                                                                                 \
	"\"used_bytes\":805306368,\"requested_bytes\":796917760,\"cached_bytes\":484442112,"     \
	"\"pending_bytes\":2097152,\"returning_bytes\":0,\"total_bytes\":1291845632,"            \
	"\"unused_bytes\":486539264,\"n_used_blocks\":312,\"n_cached_blocks\":12,"               \
	"\"n_pending_blocks\":1,\"unpooled_bytes\":0,\"limit_bytes\":null,"                      \
	"\"peak_used_bytes\":943718400,\"peak_total_bytes\":1291845632,\"hits\":999,"            \
	"\"misses\":1,\"driver_allocs\":110,\"driver_frees\":1,\"driver_ns\":3210000,"           \
	"\"fence_records\":9000,\"fence_orders\":300,\"fence_queries\":12000,\"fence_waits\":2," \
	"\"ooms\":2,\"double_frees\":0,\"invalid_frees\":1,\"release_errors\":0,"                \
	"\"retries\":[{\"round\":1,\"name\":\"settle\",\"count\":3,\"gained_bytes\":12582912,"   \
	"\"ns\":1200000},{\"round\":2,\"name\":\"enough\",\"count\":0,\"gained_bytes\":0,"       \
	"\"ns\":0}]"

#define STATUS                                                                           \
	"{\"schema\":\"gpupool.status/2\",\"version\":\"0.1.0\",\"pid\":7,\"command\":"  \
	"\"python train.py\",\"uptime_ns\":11520000000000,\"pool\":\"split\",\"reuse\":" \
	"\"ordered\",\"bypass\":null,\"devices\":[{\"index\":0,\"contexts\":1,"          \
	"\"device_total_bytes\":16904998912,\"device_free_bytes\":15128363008,"          \
	"\"outside_bytes\":484790272," COUNTERS "}],\"pinned\":{" COUNTERS "}"

const char peer_status[] = STATUS "}";

const char peer_status_callers[] =
	STATUS ",\"callers\":[{\"caller\":\"libgrid.so\",\"path\":\"/opt/app/libgrid.so\",\"blocks\":310,"
	       "\"bytes\":805305344},{\"caller\":null,\"path\":null,\"blocks\":2,\"bytes\":1024}]}";

/* Two call sites at one code location, one elsewhere, and answers that the library cannot have given. */
#define OBJECTS "\"objects\":[{\"path\":\"/opt/app/solver\",\"build_id\":null,\"base\":\"0x1000\"}]"

const char peer_leaks[] =
	"{\"schema\":\"gpupool.leaks/1\",\"pid\":7,\"stacks\":{\"is_on\":true,\"depth\":8,\"sample\":1,"
	"\"since_ns\":60000000000},\"n_blocks\":6,\"bytes\":6291456,\"sites\":["
	"{\"blocks\":2,\"bytes\":2097152,\"oldest_ns\":3000000000,\"frames\":[[0,4096],[-2,0]]},"
	"{\"blocks\":1,\"bytes\":1048576,\"oldest_ns\":9000000000,\"frames\":[[0,4096],[-2,0]]},"
	"{\"blocks\":2,\"bytes\":2097152,\"oldest_ns\":null,\"frames\":[[-1,255],[7,16],[-2,9],[-2]]}],"
	"\"without_stack\":{\"blocks\":1,\"bytes\":1048576,\"oldest_ns\":null},"
	"\"bad_frees\":[{\"address\":\"0x7f00\",\"what\":\"double\",\"age_ns\":5,\"freed_here\":[[0,1]],"
	"\"freed_before\":null,\"allocated\":7}],"
	"\"places\":[{\"function\":\"Layer.forward\",\"file\":\"/opt/app/net.py\",\"line\":12}]," OBJECTS "}";

const char peer_oom[] =
	"{\"schema\":\"gpupool.oom/2\",\"pid\":7,\"n_ooms\":1,\"last\":{\"age_ns\":1000000000,\"kind\":\"device\","
	"\"device\":0,\"requested_bytes\":1073741824,\"cause\":\"full\",\"missing_bytes\":1048576,\"used_bytes\":512,"
	"\"held_bytes\":512,\"usable_bytes\":1024,\"better_pool\":\"vmm\","
	"\"limit_bytes\":null,\"rounds\":[{\"name\":\"settle\",\"gained_bytes\":1,\"ns\":1200}],"
	"\"processes\":[{\"pid\":8,\"answered\":true,\"released_bytes\":0,\"held_bytes\":1048576},"
	"{\"pid\":9,\"answered\":true,\"released_bytes\":512}],\"wait\":\"too-little\","
	"\"frames\":[[0,4096]],\"segments\":[],\"holders\":[{\"blocks\":1,\"bytes\":512,\"frames\":null}]}," OBJECTS
	"}";

#define DEBUG_HEAD                                                                                                \
	"{\"schema\":\"gpupool.debug/1\",\"pid\":7,\"is_on\":true,\"poison\":true,\"guard\":true,\"full\":false," \
	"\"errors\":3,\"checks\":900,\"skipped\":1,\"ns\":12000000,\"held_blocks\":12,\"guarded_blocks\":11,"     \
	"\"poisoned_pieces\":1,\"poisoned_bytes\":6291456,"

#define DEBUG_REPORTS                                                                                             \
	"\"n_reports\":2,\"reports\":["                                                                           \
	"{\"what\":\"after-free\",\"seen\":\"reuse\",\"age_ns\":3000000000,\"times\":2,\"block\":\"0x7f00\","     \
	"\"requested_bytes\":1000,\"device\":0,\"kind\":\"device\",\"offset\":16,\"n_wrong\":4,"                  \
	"\"bytes\":\"2a2a2a2af77ff77ff77ff77ff77ff77f\",\"allocated_ns\":5000000,\"freed_ns\":1200,"              \
	"\"allocated\":[[0,4096],[-2,0]],\"freed\":[[0,8192]]},"                                                  \
	"{\"what\":\"before-start\",\"seen\":\"check\",\"age_ns\":0,\"times\":1,\"block\":\"0x7e00\","            \
	"\"requested_bytes\":5,\"device\":null,\"kind\":\"pinned\",\"offset\":-4,\"n_wrong\":1,\"bytes\":\"2a\"," \
	"\"allocated_ns\":7000,\"freed_ns\":null,\"allocated\":null,\"freed\":null}],"                            \
	"\"places\":[{\"function\":\"Layer.forward\",\"file\":\"/opt/app/net.py\",\"line\":12}]," OBJECTS "}"

static const struct {
	const char *request, *answer;
} answers[] = {
	{"status", peer_status},
	{"status callers", peer_status_callers},
	{"blocks", "{\"schema\":\"gpupool.blocks/1\",\"pid\":7,\"n_blocks\":3,\"truncated\":false,"
		   "\"blocks\":["
		   "{\"address\":\"0x7f0000000200\",\"size_bytes\":512,\"requested_bytes\":5,"
		   "\"device\":0,\"kind\":\"device\",\"serial\":2,\"region\":null,\"caller\":null},"
		   "{\"address\":\"0x7f0000000000\",\"size_bytes\":512,\"requested_bytes\":512,"
		   "\"device\":0,\"kind\":\"device\",\"serial\":1,\"caller\":\"solver\"},"
		   "{\"address\":\"0x7e0000000000\",\"size_bytes\":2097152,"
		   "\"requested_bytes\":2000000,\"device\":0,\"kind\":\"pinned\",\"serial\":3}]}"},
	{"blocks 1", "{\"schema\":\"gpupool.blocks/1\",\"n_blocks\":3,\"blocks\":[]}"},
	{"map", "{\"schema\":\"gpupool.map/2\",\"pid\":7,\"truncated\":false,\"pools\":[]}"},
	{"leaks", peer_leaks},
	{"leaks 1500", peer_leaks},
	{"oom", peer_oom},
	{"debug", DEBUG_HEAD "\"check\":null," DEBUG_REPORTS},
	{"debug check", DEBUG_HEAD "\"check\":{\"blocks\":12,\"skipped\":0,\"errors\":1,\"ns\":1500000,"
				   "\"truncated\":true}," DEBUG_REPORTS},
	{"stacks", "{\"schema\":\"gpupool.stacks/1\",\"is_on\":false}"},
	{"stacks on 8 sample=2",
		"{\"schema\":\"gpupool.stacks/1\",\"is_on\":true,\"depth\":8,\"sample\":2,\"sites\":3}"},
	{"reclaim", "{\"schema\":\"gpupool.reclaim/1\",\"released_bytes\":1}"},
	{"reclaim 0", "{\"schema\":\"gpupool.reclaim/1\",\"released_bytes\":0,\"used_bytes\":805306368,"
		      "\"cached_bytes\":2097152,\"pending_bytes\":4096,\"returning_bytes\":512}"},
	{"reclaim pinned", "{\"schema\":\"gpupool.reclaim/1\",\"released_bytes\":3}"},
	{"reclaim 0 pinned", "{\"schema\":\"gpupool.reclaim/1\",\"released_bytes\":4}"},
	{"limit", "{\"schema\":\"gpupool.limit/2\",\"devices\":[{\"index\":0,\"limit_bytes\":null,"
		  "\"counted_bytes\":0},{\"index\":11,\"limit_bytes\":8589934592,\"counted_bytes\":"
		  "1291845632}],\"pinned\":{\"limit_bytes\":null,\"counted_bytes\":512}}"},
	{"limit set 0=1GiB", "{\"schema\":\"gpupool.limit/2\",\"released_bytes\":2097152,\"devices\":[{\"index\":0,"
			     "\"limit_bytes\":1073741824,\"counted_bytes\":1610612736}]}"},
	{"limit set pinned 5%",
		"{\"schema\":\"gpupool.limit/2\",\"pinned\":{\"limit_bytes\":1024,\"counted_bytes\":512}}"},
	{"defer", "{\"schema\":\"gpupool.defer/1\",\"scopes\":1}"},
	{"defer on", "{\"schema\":\"gpupool.defer/1\",\"scopes\":2}"},
	{"defer off", "{\"schema\":\"gpupool.defer/1\",\"scopes\":0}"},
	{"region", "{\"schema\":\"gpupool.region/2\",\"regions\":[{\"name\":\"forward pass\",\"device\":0,"
		   "\"used_bytes\":512,\"cached_bytes\":2097152,\"pending_bytes\":0,\"total_bytes\":2097664,"
		   "\"hits\":41,\"misses\":1}]}"},
	{"region invalidate 100%25%20mine",
		"{\"schema\":\"gpupool.region/2\",\"released_bytes\":2097152,\"busy_blocks\":1,"
		"\"busy_bytes\":512,\"regions\":[]}"},
	{"config", "{\"schema\":\"gpupool.config/1\",\"settings\":["
		   "{\"name\":\"GPUPOOL_POOL\",\"value\":\"split\",\"source\":\"default\"},"
		   "{\"name\":\"GPUPOOL_LIMIT\",\"value\":\"50%\",\"source\":\"environment\"},"
		   "{\"name\":\"GPUPOOL_RUNTIME_DIR\",\"value\":null,\"source\":\"default\"}]}"},
};

static const char *find_answer(const char *request)
{
	for (int i = 0; i < LENGTH(answers); i++)
		if (!strcmp(answers[i].request, request))
			return answers[i].answer;
	return "{\"schema\":\"gpupool.error/1\",\"reason\":\"unknown\",\"error\":\"what?\"}";
}

static void answer(int client, enum peer_manner manner, const char *text)
{
	char request[128] = "";

	if (read(client, request, sizeof(request) - 1) <= 0)
		return;
	request[strcspn(request, "\n")] = '\0';
	if (!text)
		text = find_answer(request);
	if (manner == PEER_SILENT)
		while (read(client, request, sizeof(request)) > 0)
			;
	else if (manner == PEER_ENDLESS)
		while (send(client, peer_status, 1000, MSG_NOSIGNAL) > 0)
			;
	else if (manner == PEER_HANGS_UP || manner == PEER_STOPS)
		send(client, text, strlen(text) / 2, MSG_NOSIGNAL);
	else if (send(client, text, strlen(text), MSG_NOSIGNAL) >= 0)
		send(client, "\n", 1, MSG_NOSIGNAL);
	if (manner == PEER_STOPS)
		raise(SIGSTOP);
}

static void converse(int client, int nth)
{
	char request[128], text[256];

	for (int n = 1; read(client, request, sizeof(request)) > 0; n++) {
		snprintf(text, sizeof(text), peer_counted "\n", nth, n);
		send(client, text, strlen(text), MSG_NOSIGNAL);
	}
}

static int listen_in(const char *dir)
{
	char name[GP_CTL_NAME_MAX], state;
	struct sockaddr_un address;
	uint64_t start_ticks;
	socklen_t length;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), dir_fd = open(dir, O_PATH);

	gp_ctl_process_stat(0, &start_ticks, &state);
	gp_ctl_name_format(name, getpid(), start_ticks);
	gp_ctl_address(dir_fd, name, &address, &length);
	if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 8) != 0)
		_exit(1);
	return fd;
}

static _Noreturn void run_peer(enum peer_manner manner, const char *text, const char *dir, int ready)
{
	int fd = manner < PEER_NO_SOCKET ? listen_in(dir) : -1;
	char path[128];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s/libgpupool.so", dir);
	if (manner == PEER_LIBRARY &&
		mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, open(path, O_RDONLY | O_CREAT, 0600), 0) == MAP_FAILED)
		_exit(1);
	if (manner == PEER_DEAF)
		close(fd);
	if (manner == PEER_HIDDEN)
		prctl(PR_SET_DUMPABLE, 0);
	if (write(ready, "", 1) != 1)
		_exit(1);
	if (manner == PEER_STOPPED)
		raise(SIGSTOP);
	if (manner >= PEER_DEAF)
		for (;;)
			pause();
	for (int n = 0;; n++) {
		int client = accept(fd, NULL, NULL);

		if (manner == PEER_STAYS)
			converse(client, n + 1);
		else if (manner != PEER_LATE || n >= 2)
			answer(client, manner, text);
		close(client);
	}
}

static pid_t add_peer(pid_t pid, int ready)
{
	char byte;

	ck_assert_int_gt(pid, 0);
	peers[n_peers++] = pid;
	ck_assert_int_eq(read(ready, &byte, 1), 1);
	close(ready);
	return pid;
}

static pid_t start_as(uid_t uid, enum peer_manner manner, const char *text)
{
	int ready[2];
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0 && uid != geteuid() && setuid(uid) != 0)
		_exit(1);
	if (pid == 0)
		run_peer(manner, text, peer_dir, ready[1]);
	close(ready[1]);
	add_peer(pid, ready[0]);
	if (manner == PEER_STOPPED)
		ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
	return pid;
}

pid_t peer_start(enum peer_manner manner, const char *text)
{
	return start_as(geteuid(), manner, text);
}

pid_t peer_start_as(uid_t uid, const char *text)
{
	return start_as(uid, PEER_ANSWERS, text);
}

const char *stat_self(void)
{
	return self_path;
}

void stat_become(const char *path, const char *const *words)
{
	const char *argv[EMULATOR_WORDS_MAX + STAT_WORDS + 2] = {0};
	size_t n = emulator_words(argv);

	argv[n++] = path;
	for (size_t i = 0; i < STAT_WORDS && words[i]; i++)
		argv[n++] = words[i];
	execvp(argv[0], (char *const *)argv);
	_exit(126);
}

pid_t peer_exec(const char *dir)
{
	int ready[2];
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		setenv("GPUPOOL_RUNTIME_DIR", dir, 1);
		dup2(ready[1], STDOUT_FILENO);
		stat_become(self_path, (const char *const[STAT_WORDS]){"--peer", dir});
	}
	close(ready[1]);
	return add_peer(pid, ready[0]);
}

void peer_kill(pid_t pid)
{
	for (int i = 0; i < n_peers; i++)
		if (peers[i] == pid)
			peers[i] = peers[--n_peers];
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

const char *peer_socket(pid_t pid)
{
	static char path[128];
	char name[GP_CTL_NAME_MAX], state;
	uint64_t start_ticks;

	ck_assert_int_eq(gp_ctl_process_stat(pid, &start_ticks, &state), 0);
	gp_ctl_name_format(name, pid, start_ticks);
	snprintf(path, sizeof(path), "%s/%s", peer_dir, name);
	return path;
}

void peer_setup(void)
{
	strcpy(peer_dir, "/tmp/gpupool-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(peer_dir));
	setenv("GPUPOOL_RUNTIME_DIR", peer_dir, 1);
	setenv("TMPDIR", peer_dir, 1);
	unsetenv("XDG_RUNTIME_DIR");
}

void peer_teardown(void)
{
	char command[128];

	while (n_peers)
		peer_kill(peers[0]);
	snprintf(command, sizeof(command), "rm -rf '%s'", peer_dir);
	ck_assert_int_eq(system(command), 0);
}

static int open_capture(void)
{
	int fd = memfd_create("caught", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void read_capture(int fd, char text[static STAT_CATCH_SIZE])
{
	ssize_t n = pread(fd, text, STAT_CATCH_SIZE - 1, 0);

	ck_assert_int_ge(n, 0);
	ck_assert_int_lt(n, STAT_CATCH_SIZE - 1);
	text[n] = '\0';
	close(fd);
}

int stat_execute(uid_t uid, const char *const *words)
{
	int status, out = open_capture(), err = open_capture();
	pid_t pid = fork();

	if (pid == 0) {
		dup2(out, STDOUT_FILENO);
		dup2(err, STDERR_FILENO);
		if (uid == geteuid() || setuid(uid) == 0)
			stat_become(stat_path, words);
		_exit(126);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	read_capture(out, stat_out);
	read_capture(err, stat_err);
	ck_assert_msg(WIFEXITED(status), "expected a normal exit, got signal %d: %s", WTERMSIG(status), stat_err);
	return WEXITSTATUS(status);
}

const char *stat_word(pid_t pid)
{
	static char words[STAT_WORDS][16];
	static int next;
	char *word = words[next++ % STAT_WORDS];

	snprintf(word, sizeof(words[0]), "%d", (int)pid);
	return word;
}

void stat_check_in(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part) != NULL, "expected '%s' in:\n%s", part, text);
}

void stat_check_refused(const char *const *words, const char *why)
{
	char expected[128];

	ck_assert_int_eq(stat_execute(geteuid(), words), 2);
	snprintf(expected, sizeof(expected), "gpupool-stat: %s", why);
	stat_check_in(stat_err, expected);
	stat_check_in(stat_err, "              Next: ");
	ck_assert_str_eq(stat_out, "");
}

void stat_skip(const char *why)
{
	printf("# skipped: %s\n", why);
	fflush(stdout);
}

/* Takes the second word of each line that begins with two blanks. */
int stat_find_commands(char names[STAT_COMMANDS_MAX][16])
{
	int n = 0;

	ck_assert_int_eq(STAT("--help"), 0);
	for (const char *line = strstr(stat_out, "\n  "); line && line[1] == ' '; line = strchr(line + 1, '\n')) {
		if (line[3] != ' ')
			ck_assert_int_eq(sscanf(line, " %15s", names[n++]), 1);
		ck_assert_int_lt(n, STAT_COMMANDS_MAX);
	}
	ck_assert_int_gt(n, 10);
	return n;
}

/*
 * gpupool-stat also searches the directories of a process that it is asked about, by the environment with which that
 * process was started. So this one starts again without the user's directories: another process may have left a report
 * there under the id of a peer.
 */
static void leave_directories_of_user(const char *argument)
{
	static const char no_directory[] = "/nonexistent";
	const char *runtime_dir = getenv("GPUPOOL_RUNTIME_DIR");

	if (runtime_dir && !strcmp(runtime_dir, no_directory))
		return;
	setenv("GPUPOOL_RUNTIME_DIR", no_directory, 1);
	setenv("TMPDIR", no_directory, 1);
	unsetenv("XDG_RUNTIME_DIR");
	stat_become(self_path, (const char *const[STAT_WORDS]){argument});
}

int stat_main(int argc, char **argv, const char *name, void (*add_tests)(TCase *tc))
{
	Suite *suite = suite_create(name);
	TCase *tc = tcase_create("gpupool-stat");

	if (argc == 3 && !strcmp(argv[1], "--peer"))
		run_peer(PEER_ANSWERS, NULL, argv[2], STDOUT_FILENO);
	if (argc != 2) {
		fprintf(stderr, "usage: %s GPUPOOL-STAT\n", argv[0]);
		return 2;
	}
	stat_path = realpath(argv[1], NULL);
	self_path = realpath("/proc/self/exe", NULL);
	leave_directories_of_user(stat_path);
	tcase_add_checked_fixture(tc, peer_setup, peer_teardown);
	add_tests(tc);
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
