/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "deep.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/context/device.h"

static _Atomic uint32_t is_deep; /* a futex: threads of the program may wait for hours */
static _Atomic(const char *) refused;
static _Atomic uint64_t bytes_of[GP_DEVICES_MAX];

void gp_deep_begin(void)
{
	for (int i = 0; i < GP_DEVICES_MAX; i++)
		atomic_store(&bytes_of[i], UINT64_MAX);
	atomic_store(&is_deep, 1);
	atomic_fetch_or(&gp_slow_path, GP_SLOW_PATH_DEEP);
}

void gp_deep_end(void)
{
	atomic_fetch_and(&gp_slow_path, ~(unsigned)GP_SLOW_PATH_DEEP);
	atomic_store(&is_deep, 0);
	(void)syscall(SYS_futex, &is_deep, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void gp_deep_await(void)
{
	int saved_errno = errno;

	while (atomic_load(&is_deep))
		(void)syscall(SYS_futex, &is_deep, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
	errno = saved_errno;
}

void gp_deep_note_refused(const char *what)
{
	const char *none = NULL;

	(void)atomic_compare_exchange_strong(&refused, &none, what);
}

const char *gp_deep_refused(void)
{
	return atomic_load(&refused);
}

void gp_deep_set_bytes(int device, uint64_t bytes)
{
	atomic_store(&bytes_of[device], bytes);
}

uint64_t gp_deep_bytes_of(int device)
{
	return atomic_load(&bytes_of[device]);
}
