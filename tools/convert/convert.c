/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "convert.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/text/stat_output.h"
#include "tools/text/stat_text.h"
#include "convert_formats.h"

static const char next_help[] = "gpupool-stat convert --help";

enum { FROM_RECORDING = 1, FROM_LEAKS = 2, FROM_PROCESS = 4 };

static const struct format {
	const char *name;
	unsigned from;
	bool is_binary;
	enum stat_exit (*write)(FILE *out, const struct stat_source *source, uint64_t n_max);
	bool needs_stacks; /* it shows the memory that is held at one moment, by stack */
} formats[] = {
	{"torch", FROM_RECORDING | FROM_PROCESS, true, convert_torch},
	{"chrome", FROM_RECORDING, false, convert_chrome},
	{"rmm", FROM_RECORDING, false, convert_rmm},
	{"pprof", FROM_RECORDING | FROM_LEAKS | FROM_PROCESS, true, convert_pprof, .needs_stacks = true},
	{"folded", FROM_RECORDING | FROM_LEAKS | FROM_PROCESS, false, convert_folded, .needs_stacks = true},
};

static const struct format *choose(const char *name)
{
	for (size_t i = 0; name && i < sizeof(formats) / sizeof(*formats); i++)
		if (strcmp(formats[i].name, name) == 0)
			return &formats[i];
	if (name)
		stat_error(next_help, "--to: '%s' is not a format; use torch, chrome, rmm, pprof or folded.", name);
	else
		stat_error(next_help, "convert needs a format: --to=torch, chrome, rmm, pprof or folded.");
	return NULL;
}

static bool is_same_file(const char *one, const char *other)
{
	struct stat a, b;

	return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool convert_check_output(const char *input, const char *output)
{
	if (!is_same_file(input, output))
		return true;
	stat_error("name another file with -o.", "refusing to overwrite %s: it is the input.", output);
	return false;
}

FILE *convert_open(const struct stat_source *source, const char *path, bool is_binary)
{
	FILE *out;

	if (!path && is_binary && isatty(STDOUT_FILENO)) {
		stat_error("-o FILE, or >FILE", "refusing to write the output to a terminal.");
		return NULL;
	}
	if (!path)
		return stdout;
	if (source->kind != STAT_SOURCE_PROCESS && !convert_check_output(source->name, path))
		return NULL;
	out = stat_output_open(path);
	if (!out)
		stat_error(NULL, "cannot write %s: %s.", path, strerror(errno));
	return out;
}

/* Reports the file and its size; a pipe or a device has no size. */
static void report_written(const char *path, const struct stat *st)
{
	char bytes[STAT_TEXT_MAX];

	stat_bytes(bytes, (uint64_t)st->st_size);
	if (S_ISREG(st->st_mode))
		stat_note("wrote %s, %s.", path, bytes);
	else
		stat_note("wrote %s.", path);
}

enum stat_exit convert_close(FILE *out, const char *path, enum stat_exit result)
{
	struct stat st;
	int error;

	if (path)
		error = stat_output_close(out, result == STAT_OK);
	else
		error = stat_output_flush(out);
	if (error && result == STAT_OK) {
		stat_error(NULL, "cannot write%s%s: %s.", path ? " " : "", path ? path : "", strerror(-error));
		result = STAT_FAILED;
	}
	if (path && result == STAT_OK && stat(path, &st) == 0)
		report_written(path, &st);
	return result;
}

static bool fits(const struct format *format, const struct stat_source *source)
{
	static const unsigned from[] = {
		[STAT_SOURCE_RECORDING] = FROM_RECORDING,
		[STAT_SOURCE_SAVED] = FROM_LEAKS,
		[STAT_SOURCE_PROCESS] = FROM_PROCESS,
	};
	bool is_recording = source->kind == STAT_SOURCE_RECORDING;

	if (is_recording && format->needs_stacks && !replay_has_stacks(source->file))
		stat_error("record the program with: gpupool-run --record=FILE --stacks COMMAND",
			"the format %s needs stacks, and this %s has none.", format->name,
			source->contents.is_text ? "trace" : "recording");
	else if (format->from & from[source->kind])
		return true;
	else
		stat_error("record the program: gpupool-run --record=FILE COMMAND", "the format %s needs a recording.",
			format->name);
	return false;
}

/* Checks that --at, --device and --pinned have a meaning here, and finds what was held. */
static enum stat_exit hold(const struct format *format, struct stat_source *source, const struct stat_options *options)
{
	if (format->needs_stacks && source->kind == STAT_SOURCE_RECORDING)
		return stat_source_hold(source, options);
	if (!stat_source_chooses(options))
		return STAT_OK;
	stat_error(next_help, "--at, --device and --pinned are for the formats pprof and folded of a recording.");
	return STAT_USAGE;
}

enum stat_exit convert_command(const struct stat_command *command, const struct stat_options *options)
{
	const struct format *format = choose(options->to);
	struct stat_source source;
	enum stat_exit result;
	FILE *out;

	if (!format)
		return STAT_USAGE;
	result = stat_source_open(&source, options);
	if (result != STAT_OK)
		return result;
	result = fits(format, &source) ? hold(format, &source, options) : STAT_FAILED;
	out = result == STAT_OK ? convert_open(&source, options->output, format->is_binary) : NULL;
	if (out)
		result = convert_close(out, options->output, format->write(out, &source, options->max_blocks));
	else if (result == STAT_OK)
		result = STAT_FAILED;
	if (result == STAT_OK)
		result = replay_survey_end(source.name, &source.contents);
	stat_source_close(&source);
	return result;
}
