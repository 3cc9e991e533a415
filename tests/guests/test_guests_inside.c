/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Guests with the library as a part of them: where processes fork, exec, are interrupted, and end under their threads. */

#include "guests.h"

static const char *const scenarios[][3] = {
	{"guest_process", "guest_process_inside", "fork-then-exec"},
	{"guest_process", "guest_process_inside", "exec-from-thread"},
	{"guest_signals", "guest_signals_inside", "interrupted"},
	{"guest_threads", "guest_threads_inside", "cancelled"},
	{"guest_threads", "guest_threads_inside", "ends"},
	{"guest_ends", "guest_ends_inside", "from-thread"},
	{"guest_ends", "guest_ends_inside", "busy-exit"},
	{"guest_ends", "guest_ends_inside", "in-late-thread"},
	{"guest_ends", "guest_ends_inside", "fork-at-end"},
};

START_TEST(a_guest_with_the_library_inside_cannot_tell)
{
	guests_same(&(struct play){
		.program = scenarios[_i][0], .inside = scenarios[_i][1], .words = {scenarios[_i][2]}});
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_guest_with_the_library_inside_cannot_tell, 0, (int)LENGTH(scenarios));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"inside", add}, 1);
}
