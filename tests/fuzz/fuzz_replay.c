/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat replay, with a hostile file. The first byte chooses the pool type, the reuse mode and the limit. The
 * rest is the whole file, or the part after the title of a recording. The allocator's own checks must hold, the output
 * must be bounded and without control characters, and a second replay must give the same result. If every pool type is
 * replayed without a limit, gpupool-stat advise has to do the same.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "screen.h"
#include "tools/replay/replay.h"
#include "tools/replay/replay_advise.h"
#include "tools/replay/replay_read.h"
#include "tools/ask/stat_command.h"

enum { HAS_TITLE = 1 << 7, IS_LIMITED = 1 << 6, IS_JSON = 1 << 5, PRINTED_MAX = 64 << 10 };

static const char *const kinds[] = {"none", "simple", "binned", "split", "vmm", NULL};
static const char *const reuses[] = {"auto", "ordered", "completed"};

static void run(const struct stat_options *options, bool is_advice)
{
	enum stat_exit result;

	screens_begin(true);
	result = is_advice ? replay_advise_file(options) : replay_command(NULL, options);
	screens_end(PRINTED_MAX);
	FUZZ_CHECK(result == STAT_OK || result == STAT_FAILED, "the exit code is %d", (int)result);
}

/* Runs a command twice. The output must be the same. */
static void run_twice(const struct stat_options *options, bool is_advice)
{
	const char *text;
	char *first;
	size_t n_first, n;

	run(options, is_advice);
	if (options->is_json)
		screens_check_json();
	text = screens_kept(&n_first);
	first = malloc(n_first + 1);
	fuzz_require(first != NULL, "no memory");
	memcpy(first, text, n_first);
	run(options, is_advice);
	text = screens_kept(&n);
	FUZZ_CHECK(
		n == n_first && memcmp(text, first, n) == 0, "the second run gives another result: %.*s", (int)n, text);
	free(first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	unsigned choice = fuzz_byte(&in);
	int fd = memfd_create("input", MFD_CLOEXEC);
	char path[64];
	struct stat_options options = {
		.file = path,
		.is_json = choice & IS_JSON,
		.limit = choice & IS_LIMITED ? "1MiB" : NULL,
		.pool = kinds[choice % 6],
		.reuse = reuses[choice / 6 % 3],
	};

	fuzz_require(fd >= 0, "no file");
	if (choice & HAS_TITLE)
		fuzz_require(write(fd, GP_RECORD_TITLE, strlen(GP_RECORD_TITLE)) > 0, "no room");
	fuzz_require(write(fd, in.at, (size_t)(in.end - in.at)) == in.end - in.at, "no room");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	run_twice(&options, false);
	if (!options.pool && !options.limit && choice / 6 % 3 == 0)
		run_twice(&options, true);
	close(fd);
	return 0;
}
