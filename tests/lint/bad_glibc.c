/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A bad sample for glibc.py: it needs closefrom, which glibc has since 2.34, and pthread_create in an old version, but
 * without libpthread.
 */

#include <pthread.h>
#include <unistd.h>

#include "common/compat.h"

static void *wait(void *arg)
{
	return arg;
}

int main(void)
{
	pthread_t thread;

	closefrom(3);
	return pthread_create(&thread, NULL, wait, NULL);
}
