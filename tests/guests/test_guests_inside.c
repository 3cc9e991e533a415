/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Guests with the library linked in: they fork, exec, are interrupted, and end while their threads run. */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "guests.h"

static const struct {
	const char *program, *inside, *scenario;
	bool is_real; /* an emulator cannot start programs */
} scenarios[] = {
	{"guest_process", "guest_process_inside", "fork-then-exec", true},
	{"guest_process", "guest_process_inside", "exec-from-thread", true},
	{"guest_signals", "guest_signals_inside", "interrupted"},
	{"guest_threads", "guest_threads_inside", "cancelled"},
	{"guest_threads", "guest_threads_inside", "ends"},
	{"guest_ends", "guest_ends_inside", "from-thread"},
	{"guest_ends", "guest_ends_inside", "busy-exit"},
	{"guest_ends", "guest_ends_inside", "in-late-thread"},
	{"guest_ends", "guest_ends_inside", "fork-at-end"},
};

START_TEST(a_guest_with_the_library_linked_in_behaves_as_without_it)
{
	if (scenarios[_i].is_real && getenv(EMULATOR)) {
		printf("# %s: not in an emulator\n", scenarios[_i].scenario);
		return;
	}
	guests_same(&(struct play){
		.program = scenarios[_i].program, .inside = scenarios[_i].inside, .words = {scenarios[_i].scenario}});
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_guest_with_the_library_linked_in_behaves_as_without_it, 0, (int)LENGTH(scenarios));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"inside", add}, 1);
}
