/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "steps.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "steps_words.h"

CUdevice steps_second_device;

/*
 * After INSIDE_MS the other thread counts as blocked inside its call. On the simulator the wait ends as soon as the
 * thread has entered the call. Only a busy machine makes it long there, up to INSIDE_SIMULATED_MS.
 */
enum { INSIDE_MS = 100, INSIDE_SIMULATED_MS = 1500 };

/* The other thread, and the step that it must take. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	word_fn run;
	struct site *site;
	bool is_started;
	unsigned n_wanted, n_done;
} other = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *run_other_thread(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&other.lock);
	for (;;) {
		while (other.n_done == other.n_wanted)
			pthread_cond_wait(&other.changed, &other.lock);
		pthread_mutex_unlock(&other.lock);
		context_enter(&other.site->context);
		other.run(other.site);
		pthread_mutex_lock(&other.lock);
		other.n_done++;
		pthread_cond_broadcast(&other.changed);
	}
	return NULL;
}

static void join_other(void)
{
	pthread_mutex_lock(&other.lock);
	while (other.n_done != other.n_wanted)
		pthread_cond_wait(&other.changed, &other.lock);
	pthread_mutex_unlock(&other.lock);
}

static bool is_other_done(void)
{
	bool is_done;

	pthread_mutex_lock(&other.lock);
	is_done = other.n_done == other.n_wanted;
	pthread_mutex_unlock(&other.lock);
	return is_done;
}

static uint64_t calls_that_wait(void)
{
	static const char *const names[] = {
		"cuMemFree_v2", "cuMemFreeHost", "cuCtxSynchronize", "cuEventQuery", "cuStreamQuery"};
	uint64_t n = 0;

	for (size_t i = 0; i < LENGTH(names); i++)
		n += app_calls(names[i]);
	return n;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void run_in_other(word_fn run, struct site *site, bool may_stay)
{
	uint64_t calls = calls_that_wait();
	long end = now_ms() + (app_is_simulated() ? INSIDE_SIMULATED_MS : INSIDE_MS);
	pthread_t thread;

	join_other();
	if (!other.is_started && pthread_create(&thread, NULL, run_other_thread, NULL))
		exit(71);
	other.is_started = true;
	pthread_mutex_lock(&other.lock);
	other.run = run;
	other.site = site;
	other.n_wanted++;
	pthread_cond_broadcast(&other.changed);
	pthread_mutex_unlock(&other.lock);
	if (!may_stay)
		join_other();
	/* The simulator counts calls as they begin. On a real GPU, only the time limit ends this loop. */
	while (!is_other_done() && calls_that_wait() == calls && now_ms() < end)
		sched_yield();
}

static bool skip_prefix(const char **text, const char *prefix)
{
	size_t length = strlen(prefix);
	bool is_prefix = strncmp(*text, prefix, length) == 0;

	*text += is_prefix ? length : 0;
	return is_prefix;
}

static void run_word(const char *text, const char *end)
{
	bool is_second = skip_prefix(&text, "second:"), is_other = skip_prefix(&text, "other:");
	bool may_stay = end[-1] == '&';
	size_t length = (size_t)(end - text) - may_stay;
	struct site *site = &sites[is_second];
	word_fn run = word_find(text, length);

	if (!run) {
		fprintf(stderr, "no word '%.*s'\n", (int)length, text);
		exit(64);
	}
	context_enter(&site->context);
	if (is_other)
		run_in_other(run, site, may_stay);
	else
		run(site);
}

static void run_words(const char *words)
{
	while (*words) {
		size_t length = strcspn(words, " ");

		run_word(words, words + length);
		words += length + (words[length] == ' ');
	}
}

/* Waits until all work is done. Returns the number of wrong words. */
static size_t end_all(void)
{
	size_t wrong;

	join_other();
	wrong = site_end(&sites[0]);
	wrong += site_end(&sites[1]);
	context_enter(&sites[0].context);
	return wrong;
}

static void start(bool is_alone)
{
	void *word;

	if (context_start() <= steps_second_device) {
		app_say("outcome", "needs %d devices", steps_second_device + 1);
		exit(0);
	}
	context_open(&sites[0].context, 0);
	CONTEXT_MUST(cuMemHostAlloc(&word, sizeof(*site_flag), CU_MEMHOSTALLOC_PORTABLE));
	site_flag = word;
	site_prepare(&sites[0], is_alone);
}

static void begin(size_t bytes, bool is_alone)
{
	context_watch();
	site_set_bytes(bytes);
	if (!sites[0].is_open)
		start(is_alone);
	atomic_store(site_flag, 0);
	site_hold(&sites[0]);
}

void steps_play(size_t bytes, const char *words)
{
	bool is_alone = skip_prefix(&words, "alone ");

	begin(bytes, is_alone);
	if (sites[1].is_open)
		site_hold(&sites[1]);
	else if (strstr(words, "second:") && !strstr(words, "open"))
		sites_open_second();
	context_enter(&sites[0].context);
	run_words(words);
	app_say("outcome", "finishes, %zu wrong", end_all());
}

static const char *const before[] = {"", "free ", "busy free ", "busy free free free ", "busy free malloc ",
	"free malloc free ", "busy-host free-host ", "busy free-async ", "busy free free-async ", "busy other:free "};
static const char *const meanwhile[] = {"", "malloc ", "malloc malloc malloc-big ", "malloc-host ", "stream ",
	"free-async ", "free-async malloc ", "free-behind malloc ", "info reclaim ", "other:malloc ",
	"other:free-async other:malloc "};
static const char *const after[] = {"release", "other:release", "host-release"};

static void play_combination(const char *words)
{
	context_question = words;
	context_watch();
	atomic_store(site_flag, 0);
	site_hold(&sites[0]);
	run_words(words);
	app_say(words, "finishes, %zu wrong", end_all());
}

void steps_sweep(size_t bytes)
{
	char words[256];
	unsigned n = 0;

	begin(bytes, false);
	for (size_t i = 0; i < LENGTH(before); i++) {
		for (size_t k = 0; k < LENGTH(meanwhile); k++) {
			for (size_t m = 0; m < LENGTH(after); m++, n++) {
				snprintf(words, sizeof(words), "%sspin %s%s free malloc", before[i], meanwhile[k],
					after[m]);
				play_combination(words);
			}
		}
	}
	app_say("combinations", "%u", n);
}
