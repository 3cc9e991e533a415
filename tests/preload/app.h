/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Shared by the programs. A program is a list of scenarios, and its first argument names one of them. Its output must
 * be the same with and without a preloaded library. Values that may differ are reported as facts, on descriptor 3. A
 * real GPU runs the programs as well, but then there are fewer facts.
 *
 *   PROGRAM SCENARIO    runs that scenario in this process
 *   PROGRAM --all       runs every scenario in a separate process and prints each line as "scenario/question: answer".
 *                       A scenario that ends badly adds "scenario: hangs", ": signal N" or ": status N".
 *                       APP_LIMIT_S bounds the time of each in seconds (20).
 *   PROGRAM --list      prints the names of the scenarios
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/apps/cuda_min.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define MS  1000000ull

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* Flags of a scenario for --all. */
enum {
	APP_TOGETHER = 1 << 0, /* may share a process with the scenario before it; leaves everything freed */
};

struct app_scenario {
	const char *name;
	void (*run)(void);
	unsigned flags;
};
extern const struct app_scenario app_scenarios[]; /* defined by the program; the last has no name */

int app_run_all(void);

/* Prints a result under a name. */
void app_result(const char *what, int result);

/* Prints "what: " and then the formatted text. */
void app_say(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends the program with a message if a call that must succeed has failed. */
#define APP_MUST(call) app_must(call, #call)
void app_must(int result, const char *call);

/* True if the driver is the simulated one, which counts its calls. */
bool app_is_simulated(void);

/* Returns a function that only the simulated driver has (tests/sim/simgpu.h), or NULL. */
void *app_simulator(const char *name);

void app_fact(const char *name, uint64_t value);
uint64_t app_calls(const char *function); /* calls of the simulated driver so far, NULL: of all; 0 on a real driver */
uint64_t app_now_ns(void);                /* the simulated driver's clock, or CLOCK_MONOTONIC on a real driver */
void app_fact_calls(const char *function);

/*
 * Holds calls of a function inside the simulated driver, at their start or at their end, until app_release_calls
 * (tests/sim/simgpu.h). Does nothing on a real driver.
 */
void app_stop_calls(const char *function, bool at_end);
void app_stop_nth_call(const char *function, bool at_end, unsigned nth); /* the nth call from now, and later ones */
void app_await_stopped_call(void);
void app_release_calls(void);

/* True if the thread of this process sleeps, or has ended. */
bool app_is_asleep(int thread);

void app_report_driver(void); /* reports the simulated driver's counts of calls and races as facts */

/* Pauses until the test, which may look into the process meanwhile, lets the program go on. */
void app_pause(const char *name);

/* Returns a pseudo-random number below 65536. The sequence is the same in every run. */
unsigned app_random(unsigned *state);
