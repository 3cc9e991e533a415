/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Signals belong to the program: their handlers, their masks, and the threads that receive them. */

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest.h"

static volatile sig_atomic_t n_caught[NSIG];
static char *guarded;
static size_t page_bytes;

static void catch (int number, siginfo_t *info, void *unused)
{
	n_caught[number]++;
	if (number == SIGSEGV)
		mprotect(guarded, page_bytes, PROT_READ | PROT_WRITE);
}

static const int handled[] = {SIGSEGV, SIGCHLD, SIGPIPE, SIGUSR1, SIGTERM, SIGALRM};

static void install(int flags)
{
	struct sigaction action = {.sa_sigaction = catch, .sa_flags = SA_SIGINFO | flags};

	for (size_t i = 0; i < LENGTH(handled); i++)
		sigaction(handled[i], &action, NULL);
}

static void print_dispositions(const char *when)
{
	stack_t stack;
	sigset_t mask;

	sigprocmask(SIG_BLOCK, NULL, &mask);
	sigaltstack(NULL, &stack);
	printf("%s:", when);
	for (int number = 1; number < NSIG; number++) {
		struct sigaction action = {0};

		if (sigaction(number, NULL, &action))
			continue;
		if (action.sa_handler != SIG_DFL)
			printf(" %d%s", number, action.sa_sigaction == catch ? "" : " another handler");
		if (sigismember(&mask, number))
			printf(" %d blocked", number);
	}
	printf(", another stack %d\n", !(stack.ss_flags & SS_DISABLE));
}

static void touch_guarded(void)
{
	page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	guarded = mmap(NULL, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (guarded == MAP_FAILED)
		exit(76);
	*(volatile char *)guarded = 1;
}

static void break_a_pipe(void)
{
	int ends[2];

	if (pipe(ends))
		exit(77);
	close(ends[0]);
	printf("written %zd, error %d\n", write(ends[1], "x", 1), errno);
	close(ends[1]);
}

/* Handlers on an alternate stack remain installed after CUDA has started, and are called. */
static void handlers(void)
{
	static char other_stack[64 * KIB];
	stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof(other_stack)};
	pid_t child;

	sigaltstack(&stack, NULL);
	install(SA_ONSTACK);
	print_dispositions("before");
	app_start();
	guest_use("handled");
	print_dispositions("after");
	touch_guarded();
	break_a_pipe();
	raise(SIGUSR1);
	kill(getpid(), SIGTERM);
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(0);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	for (size_t i = 0; i < LENGTH(handled); i++)
		printf("signal %d: %d\n", handled[i], (int)n_caught[handled[i]]);
}

static void defaults(void)
{
	print_dispositions("before");
	app_start();
	guest_use("as it came");
	print_dispositions("after");
	signal(SIGPIPE, SIG_IGN);
	break_a_pipe();
}

/* This thread blocks all signals, so each stays pending here unless a thread of the library takes it. */
static void blocked(void)
{
	struct timespec no_time = {0};
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	app_start();
	guest_use("blocked");
	for (int number = 1; number < NSIG; number++) {
		sigset_t one;

		if (number == SIGKILL || number == SIGSTOP || !sigismember(&all, number))
			continue;
		sigemptyset(&one);
		sigaddset(&one, number);
		kill(getpid(), number);
		printf("signal %d: %d\n", number, sigtimedwait(&one, NULL, &no_time) == number);
	}
}

/* This thread takes every signal, since it blocks none and threads of the library block all. */
static void open_in_one(void)
{
	app_start();
	guest_use("open");
	install(0);
	for (unsigned i = 0; i < 100; i++)
		kill(getpid(), SIGUSR1);
	printf("signal %d: %d\n", SIGUSR1, (int)n_caught[SIGUSR1]);
}

/* A call that a signal interrupts at any point succeeds and leaves errno unchanged. */
static void interrupted(void)
{
	struct itimerval often = {{0, 200}, {0, 200}}, never = {0};
	unsigned n_changed = 0;

	app_start();
	install(0);
	setitimer(ITIMER_REAL, &often, NULL);
	for (unsigned i = 0; i < 64 || !n_caught[SIGALRM]; i++) {
		errno = EXDEV;
		n_changed += guest_count_wrong() != 0;
		n_changed += cuMemFree_v2(app_alloc(MIB)) != 0;
		errno = EXDEV;
		n_changed += cuMemFree_v2(app_alloc(MIB)) != 0 || errno != EXDEV;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	printf("interrupted %d, wrong %u\n", n_caught[SIGALRM] > 0, n_changed);
}

const struct app_scenario app_scenarios[] = {
	{"handlers", handlers},
	{"defaults", defaults},
	{"blocked", blocked},
	{"open-in-one", open_in_one},
	{"interrupted", interrupted},
	{0},
};
