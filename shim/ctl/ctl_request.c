/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "ctl_request.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	int error;
} reasons[] = {
	[GP_CTL_USAGE] = {"usage", -EINVAL},
	[GP_CTL_PERMISSION] = {"permission", -EPERM},
	[GP_CTL_FAILED] = {"failed", -EIO},
	[GP_CTL_UNKNOWN] = {"unknown", -ENOENT},
};

int gp_ctl_error(struct gp_json *out, enum gp_ctl_reason reason, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	gp_json_reset(out);
	gp_json_object_begin(out, NULL);
	gp_json_string(out, "schema", "gpupool.error/1");
	gp_json_string(out, "reason", reasons[reason].name);
	gp_json_string(out, "error", text);
	gp_json_object_end(out);
	return reasons[reason].error;
}

/* All handlers run in the server's thread, so there is one attached descriptor at most. */
static int attached = -1;

int gp_ctl_take_attached(void)
{
	int fd = attached;

	attached = -1;
	return fd;
}

static void drop_attached(void)
{
	int fd = gp_ctl_take_attached();

	if (fd >= 0)
		close(fd);
}

void gp_ctl_attach(int fd)
{
	drop_attached();
	attached = fd;
}

void gp_ctl_answer_begin(struct gp_json *out, enum gp_ctl_command command)
{
	char schema[GP_CTL_SCHEMA_MAX];

	snprintf(schema, sizeof(schema), "gpupool.%s/%u", gp_ctl_commands[command].name,
		gp_ctl_commands[command].version);
	gp_json_object_begin(out, NULL);
	gp_json_string(out, "schema", schema);
}

static void answer_help(struct gp_json *out)
{
	gp_ctl_answer_begin(out, GP_CTL_help);
	gp_json_array_begin(out, "commands");
	for (int i = 0; i < GP_CTL_N_COMMANDS; i++) {
		const struct gp_ctl_command_row *row = &gp_ctl_commands[i];

		gp_json_object_begin(out, NULL);
		gp_json_string(out, "name", row->name);
		gp_json_string(out, "words", row->synopsis);
		gp_json_string(out, "access", row->access == GP_CTL_WRITE ? "write" : "read");
		gp_json_string(out, "help", row->help);
		gp_json_object_end(out);
	}
	gp_json_array_end(out);
	gp_json_object_end(out);
}

static void answer_version(struct gp_json *out)
{
	gp_ctl_answer_begin(out, GP_CTL_version);
	gp_json_string(out, "version", GPUPOOL_VERSION);
	gp_json_object_end(out);
}

static void call(gp_ctl_handler_fn handler, int argc, char **argv, struct gp_json *out)
{
	int error;

	if (!handler) {
		gp_ctl_error(out, GP_CTL_UNKNOWN, "%s is not available in this process", argv[0]);
		return;
	}
	error = handler(argc, argv, out);
	if (error)
		drop_attached();
	if (error && !out->length)
		gp_ctl_error(out, GP_CTL_FAILED, "%s failed with error %d", argv[0], -error);
}

static void dispatch(const gp_ctl_handler_fn *handlers, int argc, char **argv, struct gp_json *out)
{
	enum gp_ctl_command command = gp_ctl_command_find(argv[0]);
	const struct gp_ctl_command_row *row;

	if (command == GP_CTL_N_COMMANDS) {
		gp_ctl_error(out, GP_CTL_UNKNOWN, "no command '%.32s'; try: help", argv[0]);
		return;
	}
	row = &gp_ctl_commands[command];
	if (argc - 1 < row->min_words || argc - 1 > row->max_words)
		gp_ctl_error(out, GP_CTL_USAGE, "usage: %s%s%s", row->name, *row->synopsis ? " " : "", row->synopsis);
	else if (command == GP_CTL_help)
		answer_help(out);
	else if (command == GP_CTL_version)
		answer_version(out);
	else
		call(handlers[command], argc, argv, out);
}

/*
 * True if the line is printable ASCII and tabs, with perhaps a carriage return at the end. Other bytes could reach a
 * terminal by way of an error message.
 */
static bool is_clean(const char *line, size_t length)
{
	if (length && line[length - 1] == '\r')
		length--;
	for (size_t i = 0; i < length; i++)
		if ((line[i] < 0x20 || line[i] > 0x7e) && line[i] != '\t')
			return false;
	return true;
}

void gp_ctl_request(const gp_ctl_handler_fn handlers[GP_CTL_N_COMMANDS], char *line, size_t length, struct gp_json *out,
	const char **answer, size_t *answer_length)
{
	char *words[GP_CTL_WORDS_MAX];
	int n;

	drop_attached();
	gp_json_reset(out);
	line[length] = '\0';
	if (!is_clean(line, length)) {
		gp_ctl_error(out, GP_CTL_USAGE, "a request is one line of printable ASCII words; try: help");
	} else {
		n = gp_ctl_split(line, words, GP_CTL_WORDS_MAX);
		if (n == 0)
			gp_ctl_error(out, GP_CTL_USAGE, "the request is empty; try: help");
		else if (n < 0)
			gp_ctl_error(out, GP_CTL_USAGE, "the request has more than %d words", GP_CTL_WORDS_MAX);
		else
			dispatch(handlers, n, words, out);
	}
	if (gp_json_finish(out, answer, answer_length) == 0)
		return;
	drop_attached();
	if (out->error == -EOVERFLOW)
		gp_ctl_error(out, GP_CTL_FAILED, "the answer is too long; ask for less");
	else
		gp_ctl_error(out, GP_CTL_FAILED, "the answer could not be written: error %d", -out->error);
	if (gp_json_finish(out, answer, answer_length) != 0)
		*answer_length = 0; /* out of host memory: the connection is closed instead */
}
