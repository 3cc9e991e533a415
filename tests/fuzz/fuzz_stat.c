/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat with hostile processes: a whole command, from the connections to the last byte on the
 * terminal. The input chooses the command and its options. The rest is the answers of the processes,
 * mixed with operations that split an answer into writes or close the connection (enum op).
 *
 * The output must be valid UTF-8 without control characters, and not much longer than the answers.
 */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "screen.h"
#include "sockets.h"
#include "tools/ask/checkpoint.h"
#include "tools/ask/device_memory.h"
#include "tools/stat/stat_check.h"
#include "tools/stat/stat_commands.h"

enum op {
	OP_LITERAL,
	OP_CUT,
	OP_HANG_UP,
	OP_NEXT,   /* the following bytes are the answer of the next process */
	OP_REPEAT, /* repeats the last bytes of this answer: a number of bytes, then how many times */
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
 * The bound of the output: a base, for 64 devices of three processes, and a factor for each byte of
 * the answers ("{}," gives a row of a table).
 */
enum { PRINTED_BASE = 256 << 10, PRINTED_FACTOR = 64 };

/* Stand-ins for the driver and NVML. Each call of the driver succeeds, and the states take turns. */
bool checkpoint_open(char why[static STAT_ERROR_MAX])
{
	return true;
}

bool checkpoint_get(pid_t pid, enum checkpoint_state *ret_state, char why[static STAT_ERROR_MAX])
{
	static unsigned n;

	*ret_state = (enum checkpoint_state)(n++ % (CHECKPOINT_FAILED + 1));
	return true;
}

bool checkpoint_lock(pid_t pid, int timeout_ms, char why[static STAT_ERROR_MAX])
{
	return true;
}

bool checkpoint_take(pid_t pid, char why[static STAT_ERROR_MAX])
{
	return true;
}

bool checkpoint_restore(pid_t pid, char why[static STAT_ERROR_MAX])
{
	return true;
}

bool checkpoint_unlock(pid_t pid, char why[static STAT_ERROR_MAX])
{
	return true;
}

bool device_memory_read(const char *uuid, pid_t pid, struct device_memory *ret_memory)
{
	return false;
}

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
	return (command->once && !strcmp(command->once, STAT_CHANGE_IS_ONCE)) || options->n_words;
}

/* Adds fixed words after a verb. They are not fuzzed: gpupool-stat parses them before it connects. */
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

/*
 * Checks the exit code if one process answered with a whole line at once: the command must succeed if the answer is
 * valid, and only then.
 */
static void check_result(const struct stat_command *command, const struct stat_options *options, enum stat_exit result)
{
	const char *schema = command->show ? command->name : "status";
	char error[STAT_ERROR_MAX];
	enum stat_exit expected;
	size_t length;
	const char *line = sockets_line(&length);
	json_t *reply;

	/*
	 * The other commands only connect, connect or ask for the status first, have their own exit codes or forms,
	 * read a file, or show only the processes of a job.
	 */
	if (!line || !strcmp(command->name, "wake") || (!strcmp(command->name, "sleep") && options->is_deep) ||
		options->is_quiet || options->job || command->has_no_json || command->takes & STAT_TAKES_LEVELS ||
		!strcmp(command->name, "replay") || (is_change(command, options) && !options->n_pids))
		return;
	reply = stat_reply_parse(line, length, schema, STAT_VALUES_MAX, &expected, error);
	FUZZ_CHECK(result == expected, "the exit code of %s is %d instead of %d", command->name, (int)result,
		(int)expected);
	json_decref(reply);
}

/* Repeats the last bytes of an answer, which makes patterns such as [[],[],[],... */
static void repeat(unsigned nth, const uint8_t *recent, size_t n_recent, struct fuzz_input *in)
{
	size_t length = fuzz_byte(in), times = fuzz_u16(in);

	if (!length || length > n_recent)
		return;
	for (size_t i = 0; i < length * times; i++)
		if (!sockets_add_byte(nth, recent[n_recent - length + i % length]))
			return;
}

static void write_scripts(struct fuzz_input *in)
{
	static uint8_t recent[256];
	size_t n_recent = 0;
	unsigned nth = 0;
	uint8_t byte;

	while (!fuzz_is_over(in)) {
		bool is_op = fuzz_op(in, &byte);
		enum op op = is_op ? (enum op)(byte % N_OPS) : OP_LITERAL;

		if (!is_op) {
			sockets_add_byte(nth, byte);
			if (n_recent == sizeof(recent))
				memmove(recent, recent + 1, --n_recent);
			recent[n_recent++] = byte;
		} else if (op == OP_CUT) {
			sockets_add_cut(nth);
		} else if (op == OP_HANG_UP) {
			sockets_add_hang_up(nth);
		} else if (op == OP_NEXT) {
			nth = (nth + 1) % SOCKETS_MAX;
			n_recent = 0;
		} else if (op == OP_REPEAT) {
			repeat(nth, recent, n_recent, in);
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
	static const char *const by[][4] = {{NULL, "library", "size", "age"}, {NULL, "job", "user", "pod"}};
	static const char *const to[][4] = {{"folded", "prometheus", "torch", NULL}, {"host", "none", NULL, NULL}};
	bool is_page = !(command->takes & STAT_TAKES_TO), is_oom = !strcmp(command->name, "oom");
	char device[8], process[16];
	pid_t pid = getpid();
	struct stat_options options = {
		.is_json = flags & IS_JSON && !command->has_no_json,
		.is_quiet = flags & IS_QUIET,
		.is_pinned = flags & IS_PINNED,
		.timeout_ms = 2000,
		.max_blocks = flags & HAS_MAX ? number : UINT64_MAX,
		.device = flags & HAS_DEVICE ? device : NULL,
		.by = by[strcmp(command->name, "list") == 0][number % 4],
		.to = to[strcmp(command->name, "sleep") == 0][number % 4],
		.is_deep = number & 4,
		.output = is_page || number % 4 ? "/dev/null" : NULL,
		.file = is_oom ? NULL : process, /* with a file oom would ask no process */
		.min_bytes = number,
		.pids = &pid,
		.n_pids = flags & HAS_PID ? 1 : 0,
		.job = command->takes & STAT_TAKES_JOB && !(flags & HAS_PID) && number % 2 ? "8812" : NULL,
	};
	enum stat_exit result;

	snprintf(device, sizeof(device), "%u", number & 63u);
	snprintf(process, sizeof(process), "%d", (int)pid);
	choose_words(command, &options);
	sockets_open(1 + fuzz_byte(&in) % SOCKETS_MAX);
	write_scripts(&in);
	result = run(command, &options);
	FUZZ_CHECK(result <= (command->takes & STAT_TAKES_LEVELS ? (int)STAT_CHECK_UNKNOWN : (int)STAT_OTHER_VERSION),
		"the exit code is %d", (int)result);
	check_result(command, &options, result);
	/* A quiet command prints process ids even with --json. */
	if (options.is_json && !(options.is_quiet && command->takes & STAT_TAKES_QUIET))
		screens_check_json();
	sockets_close();
	return 0;
}
