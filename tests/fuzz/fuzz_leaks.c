/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat leaks --from, leaks --diff, convert and report, with hostile saved answers. The first bytes choose the
 * options. The rest is the answer and, after an operation, the answer to compare it with. The text for the terminal
 * must have no control characters, JSON output must be valid, and the size of the output must be bounded.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "screen.h"
#include "tools/convert/convert_formats.h"
#include "tools/report/report.h"
#include "tools/stat/stat_commands.h"

enum { IS_JSON = 1, HAS_DIFF = 2, IS_OLDER = 4, IS_SHORT = 8 };

/* The bound is large: a call site of a few bytes in an answer may expand to a stack of many frames. */
enum { PRINTED_BASE = 64 << 10, PRINTED_FACTOR = 4096 };

static size_t n_written;

static ssize_t count_bytes(void *cookie, const char *bytes, size_t n)
{
	n_written += n;
	return (ssize_t)n;
}

static const struct stat_command *find_command(const char *name)
{
	const struct stat_command *command = stat_commands;

	while (strcmp(command->name, name) != 0)
		command++;
	return command;
}

static void show(const struct stat_options *options, size_t most)
{
	const struct stat_command *command = find_command("leaks");
	enum stat_exit result;

	screens_begin(options->is_json);
	result = command->run(command, options);
	screens_end(most);
	FUZZ_CHECK(
		result == STAT_OK || result == STAT_FAILED || result == STAT_USAGE, "the exit code is %d", (int)result);
	if (options->is_json)
		screens_check_json();
}

static void write_formats(const struct stat_source *source, size_t most)
{
	static enum stat_exit (*const formats[])(FILE *, const struct stat_source *, uint64_t) = {
		convert_folded, report_write};

	for (unsigned i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
		FILE *out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = count_bytes});

		fuzz_require(out != NULL, "no stream");
		n_written = 0;
		(void)formats[i](out, source, UINT64_MAX);
		fclose(out);
		FUZZ_CHECK(n_written <= most, "the output has %zu bytes, more than %zu", n_written, most);
	}
}

static void convert(const struct stat_options *options, size_t most)
{
	struct stat_source source;

	screens_begin(false);
	if (stat_source_open(&source, options) == STAT_OK) {
		write_formats(&source, most);
		stat_source_close(&source);
	}
	screens_end(most);
}

/* Writes the two answers, each to its own file. */
static void write_answers(struct fuzz_input *in, const int fds[static 2])
{
	size_t size = (size_t)(in->end - in->at), n = 0;
	uint8_t *bytes = malloc(size + 1);

	fuzz_require(bytes != NULL, "no memory");
	for (unsigned nth = 0; nth < 2; nth++, n = 0) {
		while (!fuzz_is_over(in) && !fuzz_op(in, &bytes[n]))
			n++;
		fuzz_require(write(fds[nth], bytes, n) == (ssize_t)n, "no room");
	}
	free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	static const char *const by[] = {NULL, "site", "library", "size", "age", "none"};
	unsigned flags = fuzz_byte(&in), number = fuzz_byte(&in);
	int fds[2] = {memfd_create("from", MFD_CLOEXEC), memfd_create("diff", MFD_CLOEXEC)};
	size_t most = PRINTED_BASE + PRINTED_FACTOR * size;
	char from[64], diff[64];
	struct stat_options options = {
		.is_json = flags & IS_JSON,
		.from = from,
		.file = from,
		.diff = flags & HAS_DIFF ? diff : NULL,
		.by = by[number % 6],
		.min_bytes = number,
		.older_ms = flags & IS_OLDER ? number : 0,
		.max_blocks = flags & IS_SHORT ? number : UINT64_MAX,
	};

	fuzz_require(fds[0] >= 0 && fds[1] >= 0, "no file");
	write_answers(&in, fds);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", fds[0]);
	snprintf(diff, sizeof(diff), "/proc/self/fd/%d", fds[1]);
	show(&options, most);
	convert(&options, most);
	close(fds[0]);
	close(fds[1]);
	return 0;
}
