/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What the programs share. A program is a list of scenarios, of which the first argument names one. What it prints
 * must be the same with and without a preloaded library; what may differ it tells as facts, on descriptor 3.
 * A real GPU runs them as well: then there are fewer facts.
 *
 *   PROGRAM SCENARIO    that one, in this process
 *   PROGRAM --all       every one, in a process of its own, each line as "scenario/question: answer"; one that ends
 *                       badly adds "scenario: hangs", ": signal N" or ": status N". APP_LIMIT_S bounds each (20).
 *   PROGRAM --list      their names
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

/* What --all may do with a scenario. */
enum {
	APP_TOGETHER = 1 << 0, /* needs no process of its own: follows the one before it, and leaves everything freed */
};

struct app_scenario {
	const char *name;
	void (*run)(void);
	unsigned flags;
};
extern const struct app_scenario app_scenarios[]; /* of the program; the last has no name */

int app_run_all(void);

/* Prints a result under a name. */
void app_result(const char *what, int result);

/* Prints "what: " and the rest. */
void app_say(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends the program with a message if a call that must succeed did not. */
#define APP_MUST(call) app_must(call, #call)
void app_must(int result, const char *call);

/* Whether the driver is the simulated one, which can be asked. */
bool app_is_simulated(void);

void app_fact(const char *name, uint64_t value);
uint64_t app_calls(const char *function); /* of the simulated driver, so far; else 0 */
uint64_t app_now_ns(void); /* the simulated driver's clock, which knows what the GPU does, or the machine's */
void app_fact_calls(const char *function);

/*
 * Calls of a function of the simulated driver stand still inside it, at their start or at their end, until they are
 * released (tests/sim/simgpu.h). On a real driver none of this does anything.
 */
void app_stop_calls(const char *function, bool at_end);
void app_await_stopped_call(void);
void app_release_calls(void);

void app_tell_driver(void); /* what the simulated driver has counted that matters */

/* Lets the test look into the process: it goes on when the test says so. */
void app_pause(const char *name);

/* Small numbers that look random and are the same in every run. */
unsigned app_random(unsigned *state);
