/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The child is forked with the first question. It becomes the user of the process: it cannot read files that the user
 * may not read, and a file that takes control of a parser gains only the user's rights. It has limits on memory and
 * time, and no descriptors but /dev/null and its socket, on which each question is one message and each answer another.
 *
 * The parent waits for the child for a bounded time. If the child fails, the parent continues without names.
 */

#include "stat_symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ask/ctl_client.h"
#include "tools/ask/stat_reply.h"
#include "stat_symbols_dw.h"

enum {
	TEXT_MAX = 1 << 16, /* of an answer: that of the longest frame (FRAME_MAX in stat_stack.c) */
	OWN_SECONDS = 60,   /* of waiting for names, per minute */
	USER_SECONDS = 20,
	FOREIGN_SECONDS = 60, /* for all foreign users together */
	CPU_SECONDS = 60,
	END_MS = 1000,
	NOBODY = 65534,
	DESCRIPTORS_MAX = 65536,
};

#define MEMORY_BYTES (UINT64_C(4) << 30)
#define MINUTE_NS    INT64_C(60000000000)
#define SECOND_NS    INT64_C(1000000000)

struct question {
	uint64_t object, address;
};

enum { UNKNOWN = 'u', KNOWN = 'k', CUT = 'c' }; /* the first byte of an answer; the text follows if it is known */

struct stat_symbols {
	const json_t *objects;
	pid_t pid;
	uid_t uid;
	pid_t child; /* 0: not started yet */
	int fd;      /* -1: there is no child, or no longer */
	const char *problem;
};

/* The time spent waiting for names in this minute, for each user. */
static struct spent {
	uid_t uid;
	int64_t ns;
} * spent;
static size_t n_spent;
static int64_t spent_since_ns, spent_foreign_ns;

static struct spent *time_spent_by(uid_t uid)
{
	int64_t now_ns = ctl_client_now_ns();
	size_t i = 0;

	if (now_ns - spent_since_ns >= MINUTE_NS) {
		n_spent = 0;
		spent_foreign_ns = 0;
		spent_since_ns = now_ns;
	}
	while (i < n_spent && spent[i].uid != uid)
		i++;
	if (i == n_spent) {
		spent = stat_alloc(reallocarray(spent, n_spent + 1, sizeof(*spent)));
		spent[n_spent++] = (struct spent){.uid = uid};
	}
	return &spent[i];
}

static int64_t left_ns(uid_t uid)
{
	const struct spent *of_user = time_spent_by(uid);
	int64_t user_ns, all_ns;

	if (uid == geteuid())
		return OWN_SECONDS * SECOND_NS - of_user->ns;
	user_ns = USER_SECONDS * SECOND_NS - of_user->ns;
	all_ns = FOREIGN_SECONDS * SECOND_NS - spent_foreign_ns;
	return user_ns < all_ns ? user_ns : all_ns;
}

static void add_time_spent(uid_t uid, int64_t ns)
{
	time_spent_by(uid)->ns += ns;
	if (uid != geteuid())
		spent_foreign_ns += ns;
}

/* The functions of the child. */

static void close_from(unsigned first, unsigned last)
{
	if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
		return;
	/* The kernel does not have close_range(). */
	for (unsigned i = first; i <= last && i < DESCRIPTORS_MAX; i++)
		close((int)i);
}

/* Closes all but the socket. The standard streams become /dev/null, so that nothing printed gets into the socket. */
static bool close_others(int fd)
{
	int null = open("/dev/null", O_RDWR);

	for (int i = 0; i <= STDERR_FILENO; i++)
		if (null < 0 || dup2(null, i) < 0)
			return false;
	close_from(STDERR_FILENO + 1, (unsigned)fd - 1);
	close_from((unsigned)fd + 1, ~0U);
	return true;
}

static bool become_user(uid_t uid, gid_t gid)
{
	if (uid == geteuid())
		return true;
	return setgroups(0, NULL) == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0;
}

/* Returns the size of the mapped address space, which is added to the limit: a sanitizer maps terabytes. */
static uint64_t mapped_bytes(void)
{
	unsigned long long pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (file && fscanf(file, "%llu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Sets a limit, unless it is lower already. */
static bool set_limit(int resource, rlim_t value)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)resource, &limit) != 0)
		return false;
	if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < value)
		value = limit.rlim_max;
	limit = (struct rlimit){value, value};
	return setrlimit((__rlimit_resource_t)resource, &limit) == 0;
}

static bool confine(uid_t uid, gid_t gid)
{
	return become_user(uid, gid) && set_limit(RLIMIT_AS, mapped_bytes() + MEMORY_BYTES) &&
	       set_limit(RLIMIT_CPU, CPU_SECONDS) && set_limit(RLIMIT_CORE, 0) && set_limit(RLIMIT_FSIZE, 0) &&
	       prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
}

static void answer_all(struct symbol_files *files, int fd)
{
	struct question question;
	char answer[1 + TEXT_MAX];

	while (recv(fd, &question, sizeof(question), 0) == sizeof(question)) {
		answer[0] = symbol_files_at(files, question.object, question.address, answer + 1, TEXT_MAX) ? KNOWN
			    : symbol_files_are_cut(files)                                                   ? CUT
													    : UNKNOWN;
		if (send(fd, answer, 1 + (answer[0] == KNOWN ? strlen(answer + 1) : 0), MSG_NOSIGNAL) < 0)
			return;
	}
}

static _Noreturn void run_child(const struct stat_symbols *symbols, gid_t gid, int fd)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
	struct symbol_files *files;
	sigset_t none;

	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		signal(signals[i], SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	unsetenv("DEBUGINFOD_URLS");
	if (close_others(fd) && confine(symbols->uid, gid)) {
		files = symbol_files_new(symbols->objects, symbols->pid);
		if (files)
			answer_all(files, fd);
	}
	_exit(0);
}

/* The functions of the parent. */

static void start(struct stat_symbols *symbols)
{
	const struct passwd *user = getpwuid(symbols->uid);
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
		symbols->problem = "there are too many open files";
		return;
	}
	symbols->child = fork();
	if (symbols->child == 0)
		run_child(symbols, user ? user->pw_gid : NOBODY, fds[1]);
	close(fds[1]);
	if (symbols->child > 0) {
		symbols->fd = fds[0];
		return;
	}
	symbols->child = -1;
	close(fds[0]);
	symbols->problem = "the process that reads the files could not be started";
}

/* Ends the child, if it has not ended yet. If the kernel does not end it in time, it is not waited for. */
static void end(struct stat_symbols *symbols)
{
	struct pollfd closed = {.fd = symbols->fd};

	if (symbols->fd < 0)
		return;
	(void)kill(symbols->child, SIGKILL);
	(void)poll(&closed, 1, END_MS);
	(void)waitpid(symbols->child, NULL, closed.revents ? 0 : WNOHANG);
	close(symbols->fd);
	symbols->fd = -1;
}

/* Asks the child. Returns the length of the answer with its first byte, or 0 if there is none. */
static size_t ask(struct stat_symbols *symbols, const struct question *question, char *answer)
{
	struct pollfd readable = {.fd = symbols->fd, .events = POLLIN};
	int64_t begin_ns = ctl_client_now_ns(), most_ns = left_ns(symbols->uid);
	ssize_t n = 0;
	int n_ready;

	if (most_ns <= 0 || send(symbols->fd, question, sizeof(*question), MSG_NOSIGNAL) < 0)
		return 0;
	do
		n_ready = poll(&readable, 1, (int)((begin_ns + most_ns - ctl_client_now_ns()) / 1000000 + 1));
	while (n_ready < 0 && errno == EINTR && ctl_client_now_ns() - begin_ns < most_ns);
	if (n_ready > 0)
		n = recv(symbols->fd, answer, 1 + TEXT_MAX, MSG_DONTWAIT);
	add_time_spent(symbols->uid, ctl_client_now_ns() - begin_ns);
	return n > 0 ? (size_t)n : 0;
}

struct stat_symbols *stat_symbols_new(const json_t *objects, pid_t pid, uid_t uid)
{
	struct stat_symbols *symbols = stat_alloc(calloc(1, sizeof(*symbols)));

	*symbols = (struct stat_symbols){.objects = objects, .pid = pid, .uid = uid, .fd = -1};
	return symbols;
}

void stat_symbols_free(struct stat_symbols *symbols)
{
	if (!symbols)
		return;
	end(symbols);
	free(symbols);
}

bool stat_symbols_at(struct stat_symbols *symbols, size_t object, uint64_t address, char *text, size_t size)
{
	struct question question = {object, address};
	char answer[1 + TEXT_MAX + 1];
	size_t n;

	text[0] = '\0';
	if (object >= json_array_size(symbols->objects))
		return false;
	if (!symbols->child)
		start(symbols);
	if (symbols->fd < 0)
		return false;
	n = ask(symbols, &question, answer);
	answer[n] = '\0';
	if (n == 0 || strlen(answer) != n || !strchr((const char[]){KNOWN, UNKNOWN, CUT, '\0'}, answer[0])) {
		symbols->problem = "reading its files took too much time or memory, or failed";
		end(symbols);
		return false;
	}
	if (answer[0] == CUT)
		symbols->problem = "its files are too many or too large";
	if (answer[0] == KNOWN)
		snprintf(text, size, "%s", answer + 1);
	return answer[0] == KNOWN;
}

const char *stat_symbols_problem(const struct stat_symbols *symbols)
{
	return symbols ? symbols->problem : NULL;
}
