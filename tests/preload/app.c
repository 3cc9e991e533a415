/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "app.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

enum { FACTS_FD = 3, GO_FD = 4 };

void app_result(const char *what, int result)
{
	printf("%s: %d\n", what, result);
}

void app_say(const char *what, const char *format, ...)
{
	va_list args;

	printf("%s: ", what);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

void app_must(int result, const char *call)
{
	if (!result)
		return;
	printf("%s: %d\n", call, result);
	exit(70);
}

/* Writes a line for the test. The write fails if the program was started by hand, since no test reads then. */
static void write_to_test(const char *line, int length)
{
	if (write(FACTS_FD, line, (size_t)length) < 0)
		return;
}

void app_fact(const char *name, uint64_t value)
{
	char line[128];

	write_to_test(line, snprintf(line, sizeof(line), "%s %llu\n", name, (unsigned long long)value));
}

/* The program may have found the driver in any way. */
void *app_simulator(const char *name)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	return driver ? dlsym(driver, name) : NULL;
}

bool app_is_simulated(void)
{
	return app_simulator("simgpu_calls") != NULL;
}

uint64_t app_calls(const char *function)
{
	uint64_t (*calls)(const char *) = (uint64_t(*)(const char *))app_simulator("simgpu_calls");

	return calls ? calls(function) : 0;
}

void app_stop_nth_call(const char *function, bool at_end, unsigned nth)
{
	bool (*stop)(const char *, bool, unsigned) =
		(bool (*)(const char *, bool, unsigned))app_simulator("simgpu_stop_nth");

	if (stop && !stop(function, at_end, nth))
		app_must(-1, function);
}

void app_stop_calls(const char *function, bool at_end)
{
	app_stop_nth_call(function, at_end, 1);
}

void app_await_stopped_call(void)
{
	unsigned (*stopped)(void) = (unsigned (*)(void))app_simulator("simgpu_stopped");

	while (stopped && !stopped())
		sched_yield();
}

void app_release_calls(void)
{
	void (*go)(void) = (void (*)(void))app_simulator("simgpu_go");

	if (go)
		go();
}

uint64_t app_now_ns(void)
{
	uint64_t (*simulated_ns)(void) = (uint64_t(*)(void))app_simulator("simgpu_now_ns");
	struct timespec now;

	if (simulated_ns)
		return simulated_ns();
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void app_fact_calls(const char *function)
{
	app_fact(function, app_calls(function));
}

bool app_is_asleep(int thread)
{
	char name[64], text[512] = "";
	const char *state;
	FILE *file;

	snprintf(name, sizeof(name), "/proc/self/task/%d/stat", thread);
	file = fopen(name, "r");
	if (!file)
		return true;
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	state = strrchr(text, ')');
	return state && state[1] && state[2] == 'S';
}

void app_report_driver(void)
{
	static const char *const functions[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemFreeAsync", "cuMemHostAlloc",
		"cuMemFreeHost", "cuCtxRecordEvent", "cuCtxWaitEvent", "cuCtxSynchronize", "cuEventQuery"};
	uint64_t (*races)(void) = (uint64_t(*)(void))app_simulator("simgpu_races");

	for (size_t i = 0; i < LENGTH(functions); i++)
		app_fact_calls(functions[i]);
	if (races)
		app_fact("races", races());
}

void app_pause(const char *name)
{
	char line[128];

	fflush(stdout);
	write_to_test(line, snprintf(line, sizeof(line), "pause %s\n", name));
	if (read(GO_FD, line, 1) < 0)
		return;
}

unsigned app_random(unsigned *state)
{
	*state = *state * 1103515245u + 12345u;
	return *state >> 16;
}

static int run_one(const char *name)
{
	for (const struct app_scenario *s = app_scenarios; s->name; s++) {
		if (strcmp(s->name, name) == 0) {
			s->run();
			return 0;
		}
	}
	fprintf(stderr, "no scenario '%s'\n", name);
	return 64;
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--all") == 0)
		return app_run_all();
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		for (const struct app_scenario *s = app_scenarios; s->name; s++)
			puts(s->name);
		return 0;
	}
	if (argc == 2)
		return run_one(argv[1]);
	fprintf(stderr, "usage: %s SCENARIO | --all | --list\n", argv[0]);
	return 64;
}
