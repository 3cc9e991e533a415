/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Peaks of charged memory: kept in the process, until they move to the counter page. */

#include <check.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shim/context/device.h"
#include "tests/suite.h"

static _Atomic uint64_t first[GP_DEVICE_PEAKS], second[GP_DEVICE_PEAKS];

static void charge(uint64_t bytes)
{
	atomic_store(&gp_state.pinned_budget.charged_bytes, bytes);
	gp_device_note_growth(NULL);
}

START_TEST(a_peak_stays_when_less_is_charged_and_goes_along_when_peaks_move)
{
	charge(5);
	charge(3);
	gp_devices_move_peaks(first);
	ck_assert_uint_eq(first[0], 5);
	charge(7);
	ck_assert_uint_eq(first[0], 7);
	second[0] = 9;
	gp_devices_move_peaks(second);
	charge(8);
	ck_assert_uint_eq(second[0], 9);
	for (int i = 1; i < GP_DEVICE_PEAKS; i++)
		ck_assert_uint_eq(second[i], 0);
}
END_TEST

#ifndef __SANITIZE_THREAD__       /* its runtime holds a lock of its own where the store faults */
static _Atomic uint64_t *guarded; /* on a page of its own */

/* Runs when a thread is about to store a peak: as if another thread moved the peaks at that moment. */
static void move_from_guarded(int signal)
{
	mprotect(guarded, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE);
	gp_devices_move_peaks(second);
}

START_TEST(a_peak_that_is_stored_while_peaks_move_is_where_they_have_moved_to)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct sigaction action = {.sa_handler = move_from_guarded};

	guarded = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(guarded, MAP_FAILED);
	gp_devices_move_peaks(guarded);
	charge(5);
	ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
	ck_assert_int_eq(mprotect(guarded, page, PROT_READ), 0);
	charge(7);
	ck_assert_uint_eq(guarded[0], 7);
	ck_assert_uint_eq(second[0], 7);
}
END_TEST
#endif

int main(void)
{
	Suite *suite = suite_create("peaks");
	TCase *tc = tcase_create("peaks");

	tcase_add_test(tc, a_peak_stays_when_less_is_charged_and_goes_along_when_peaks_move);
#ifndef __SANITIZE_THREAD__
	tcase_add_test(tc, a_peak_that_is_stored_while_peaks_move_is_where_they_have_moved_to);
#endif
	suite_add_tcase(suite, tc);
	return suite_run(suite);
}
