/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat among hostile processes: a whole command, from the connections to the last byte on
 * the terminal. The input chooses the command and its options; the rest is what the processes
 * answer, and when they cut it up, hang up or fall silent (enum op).
 *
 * Whatever they say, what is printed is valid UTF-8 without anything that steers a terminal, and
 * not much longer than what they said.
 */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "screen.h"
#include "sockets.h"
#include "tools/stat_check.h"
#include "tools/stat_command.h"

enum op {
	OP_LITERAL,
	OP_CUT,
	OP_HANG_UP,
	OP_NEXT,   /* what follows is said by the next process */
	OP_REPEAT, /* the last so many bytes of this process again, so many times */
	N_OPS
};

enum {
	IS_JSON = 1,
	IS_QUIET = 2,
	HAS_MAX = 4,
	HAS_DEVICE = 8,
	IS_PINNED = 16,
	HAS_PID = 32,
};

/*
 * Of what is printed: so much in any case, which is 64 devices of three processes, and so much for
 * each byte that was said ("{}," is a row of a table).
 */
enum { PRINTED_BASE = 256 << 10, PRINTED_FACTOR = 64 };

static enum stat_exit run(const struct stat_command *command, const struct stat_options *options)
{
	enum stat_exit result;

	screens_begin(options->is_json);
	result = command->run(command, options);
	screens_end(PRINTED_BASE + PRINTED_FACTOR * sockets_bytes());
	return result;
}

static bool is_change(const struct stat_command *command, const struct stat_options *options)
{
	return !strcmp(command->name, "reclaim") || options->n_words;
}

/* What is typed behind a verb is no input: gpupool-stat has read it before it asks. */
static void choose_words(const struct stat_command *command, struct stat_options *options)
{
	if (!strcmp(command->name, "defer"))
		options->words[options->n_words++] = "on";
	if (!strcmp(command->name, "region") && options->is_pinned) {
		options->words[options->n_words++] = "invalidate";
		options->words[options->n_words++] = "a b";
	}
	if (strcmp(command->name, "limit") != 0 || !options->is_pinned)
		return;
	options->words[options->n_words++] = "set";
	options->words[options->n_words++] = "1GiB";
}

/* One process that says a line at once, and all of it, is shown if its answer is good, and only then. */
static void check_result(const struct stat_command *command, const struct stat_options *options, enum stat_exit result)
{
	const char *schema = command->show ? command->name : "status";
	char error[STAT_ERROR_MAX];
	enum stat_exit expected;
	size_t length;
	const char *line = sockets_line(&length);
	json_t *reply;

	/* Those only connect, or do so first, or have exit codes or forms of their own, or read a file. */
	if (!line || options->is_quiet || command->takes & (STAT_HAS_NO_JSON | STAT_TAKES_LEVELS) ||
		!strcmp(command->name, "replay") || (is_change(command, options) && !options->n_pids))
		return;
	reply = stat_reply_parse(line, length, schema, STAT_VALUES_MAX, &expected, error);
	FUZZ_CHECK(result == expected, "exit code %d of %s instead of %d", (int)result, command->name, (int)expected);
	json_decref(reply);
}

/* The last bytes that were said are a pattern: [[],[],[],... */
static void repeat(unsigned nth, const uint8_t *said, size_t n_said, struct fuzz_input *in)
{
	size_t length = fuzz_byte(in), times = fuzz_u16(in);

	if (!length || length > n_said)
		return;
	for (size_t i = 0; i < length * times; i++)
		if (!sockets_say(nth, said[n_said - length + i % length]))
			return;
}

static void write_scripts(struct fuzz_input *in)
{
	static uint8_t said[256];
	size_t n_said = 0;
	unsigned nth = 0;
	uint8_t byte;

	while (!fuzz_is_over(in)) {
		bool is_op = fuzz_op(in, &byte);
		enum op op = is_op ? (enum op)(byte % N_OPS) : OP_LITERAL;

		if (!is_op) {
			sockets_say(nth, byte);
			if (n_said == sizeof(said))
				memmove(said, said + 1, --n_said);
			said[n_said++] = byte;
		} else if (op == OP_CUT) {
			sockets_cut(nth);
		} else if (op == OP_HANG_UP) {
			sockets_hang_up(nth);
		} else if (op == OP_NEXT) {
			nth = (nth + 1) % SOCKETS_MAX;
			n_said = 0;
		} else if (op == OP_REPEAT) {
			repeat(nth, said, n_said, in);
		}
	}
}

static size_t n_commands(void)
{
	size_t n = 0;

	while (stat_commands[n].name)
		n++;
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	const struct stat_command *command = &stat_commands[fuzz_byte(&in) % n_commands()];
	uint8_t flags = fuzz_byte(&in), number = fuzz_byte(&in);
	static const char *const by[] = {NULL, "library", "size", "age"};
	static const char *const to[] = {"folded", "prometheus", "torch", NULL};
	bool is_page = !(command->takes & STAT_TAKES_TO);
	char device[8], process[16];
	pid_t pid = getpid();
	struct stat_options options = {
		.is_json = flags & IS_JSON && !(command->takes & STAT_HAS_NO_JSON),
		.is_quiet = flags & IS_QUIET,
		.is_pinned = flags & IS_PINNED,
		.timeout_ms = 2000,
		.max_blocks = flags & HAS_MAX ? number : UINT64_MAX,
		.device = flags & HAS_DEVICE ? device : NULL,
		.by = by[number % 4],
		.to = to[number % 4],
		.output = is_page || number % 4 ? "/dev/null" : NULL,
		.file = process,
		.min_bytes = number,
		.pids = &pid,
		.n_pids = flags & HAS_PID ? 1 : 0,
	};
	enum stat_exit result;

	snprintf(device, sizeof(device), "%u", number & 63u);
	snprintf(process, sizeof(process), "%d", (int)pid);
	choose_words(command, &options);
	sockets_open(1 + fuzz_byte(&in) % SOCKETS_MAX);
	write_scripts(&in);
	result = run(command, &options);
	FUZZ_CHECK(result <= (command->takes & STAT_TAKES_LEVELS ? (int)STAT_CHECK_UNKNOWN : (int)STAT_OTHER_VERSION),
		"exit code %d", (int)result);
	check_result(command, &options, result);
	/* Only process ids: those are the same in both. */
	if (options.is_json && !(options.is_quiet && command->takes & STAT_TAKES_QUIET))
		screens_check_json();
	sockets_close();
	return 0;
}
