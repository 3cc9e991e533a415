/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* The commands that change a process: the one that the user names or the only one that runs. --watch is refused. */

#include "stat_commands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/size.h"
#include "stat_deep.h"
#include "tools/ask/stat_report.h"
#include "tools/text/stat_text.h"

enum {
	REQUEST_MAX = 512,
	NAME_MAX_BYTES = 200,     /* of a name of a region, encoded: none that is longer exists */
	SLEEP_REQUEST_MAX = 4000, /* the names of STAT_NAMES_MAX regions and the other words */
	WAIT_MAX_MS = 600000,
	STATUS_MS = 2000, /* the least that a process has for its status */
	/* The driver blocks a process that is slower: a single thread pins 1.3 GiB of host memory in a second. */
	MOVE_LEAST_MS = 5000,
	MOVE_MS_A_GIB = 1000,
};

/* Finds the process to change if the user named none. If there may be several, lists them and changes none of them. */
static enum stat_exit choose_one(const struct stat_options *options, pid_t *pid)
{
	struct stat_question question = {.schema = "status", .timeout_ms = options->timeout_ms};
	struct stat_survey survey;
	enum stat_exit result = STAT_OK;
	char why[STAT_ERROR_MAX];

	stat_survey_run(&survey, &question);
	if (survey.n_processes && stat_survey_is_incomplete(&survey, why)) {
		stat_error(NULL, "there may be more processes than these (left out: %s); name the one to change:", why);
		stat_report_commands(&survey);
		result = STAT_USAGE;
	} else if (survey.n_processes == 1) {
		*pid = survey.processes[0].pid;
	} else if (survey.n_processes == 0) {
		result = stat_report_errors(&survey, options);
	} else {
		stat_error(NULL, "there are %zu processes; name the one to change:", survey.n_processes);
		stat_report_commands(&survey);
		result = STAT_USAGE;
	}
	stat_survey_deinit(&survey);
	return result;
}

/* Makes *one the options with the named process, or the only one, whose number goes to *pid. */
static enum stat_exit name_one(
	const struct stat_command *command, const struct stat_options *options, struct stat_options *one, pid_t *pid)
{
	enum stat_exit result = STAT_OK;

	if (!stat_command_check_once(
		    command, options, options->n_words ? options->words[0] : NULL, STAT_CHANGE_IS_ONCE))
		return STAT_USAGE;
	*one = *options;
	if (options->n_pids) {
		*pid = options->pids[0];
		return STAT_OK;
	}
	result = choose_one(options, pid);
	one->pids = pid;
	one->n_pids = 1;
	return result;
}

/*
 * Sends the request to the named process, or to the only one, and shows its answer. answer_ms: how long the process may
 * take for it. add: adds to the answer before it is shown, or NULL.
 */
static enum stat_exit change_one(const struct stat_command *command, const struct stat_options *one,
	const char *request, int answer_ms, void (*add)(json_t *reply, void *arg), void *arg)
{
	struct stat_question question = stat_command_question(command, one, request);
	struct stat_survey survey;
	enum stat_exit result;

	question.timeout_ms = answer_ms;
	stat_survey_run(&survey, &question);
	if (add && survey.n_processes && survey.processes[0].reply)
		add(survey.processes[0].reply, arg);
	if (one->is_json)
		stat_report_json(&survey, one, command->name);
	else if (survey.n_processes && survey.processes[0].reply)
		command->show(&survey.processes[0], one);
	result = stat_report_errors(&survey, one);
	stat_survey_deinit(&survey);
	return result;
}

static enum stat_exit change(
	const struct stat_command *command, const struct stat_options *options, const char *request)
{
	struct stat_options one;
	pid_t pid;
	enum stat_exit result = name_one(command, options, &one, &pid);

	return result == STAT_OK ? change_one(command, &one, request, options->timeout_ms, NULL, NULL) : result;
}

enum stat_exit stat_reclaim_run(const struct stat_command *command, const struct stat_options *options)
{
	char request[REQUEST_MAX];

	snprintf(request, sizeof(request), "reclaim%s%.16s%s\n", options->device ? " " : "",
		options->device ? options->device : "", options->is_pinned ? " pinned" : "");
	return change(command, options, request);
}

/* Prints what stays, and why, unless it is nothing or the process, of an older release, does not say so. */
static void show_rest(const json_t *reply)
{
	static const struct {
		const char *key, *why;
	} rests[] = {
		{"cached_bytes", "stays cached, in driver allocations with used blocks"},
		{"pending_bytes", "is pending: the GPU may still use it"},
		{"returning_bytes", "is on its way to the driver"},
		{"used_bytes", "is used by the program"},
	};

	for (size_t i = 0; i < sizeof(rests) / sizeof(*rests); i++) {
		uint64_t bytes = stat_reply_u64_or_0(reply, rests[i].key);
		char text[STAT_TEXT_MAX];

		stat_bytes(text, bytes);
		if (bytes)
			printf("  %s %s\n", text, rests[i].why);
	}
}

void stat_reclaim_show(const struct stat_process *process, const struct stat_options *options)
{
	uint64_t released = stat_reply_u64_or_0(process->reply, "released_bytes");
	char bytes[STAT_TEXT_MAX];

	stat_bytes(bytes, released);
	printf("gave %s%s back to the driver%s%s%s\n", released ? bytes : "nothing",
		options->is_pinned ? " of pinned memory" : "", options->device ? " (device " : "",
		options->device ? options->device : "", options->device ? ")" : "");
	show_rest(process->reply);
}

/* Encodes a name as one word of a request. A byte that a word or a list of names cannot contain becomes
 * %XX, in hexadecimal. */
static void encode(char *text, size_t size, const char *name)
{
	size_t n = 0;

	for (; *name && n + 4 < size; name++) {
		bool is_plain = *name > ' ' && *name <= '~' && *name != '%' && *name != ',';

		if (is_plain)
			text[n++] = *name;
		else
			n += (size_t)snprintf(text + n, size - n, "%%%02x", (unsigned char)*name);
	}
	text[n] = '\0';
}

/* --timeout bounds the wait for the GPU or for memory. The copies come on top of it. */
static int wait_of(const struct stat_options *options)
{
	return options->timeout_ms < WAIT_MAX_MS ? options->timeout_ms : WAIT_MAX_MS;
}

/* Returns the time of the clock that all processes of the machine share, as the request has it. */
static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Appends the words that say what is dropped. Returns false after a message. */
static bool add_drops(char *request, size_t size, const struct stat_options *options)
{
	size_t length = strlen(request);

	if (options->to && strcmp(options->to, "host") != 0 && strcmp(options->to, "none") != 0) {
		stat_error("use --to=host or --to=none.", "--to: '%s' is not where content can go.", options->to);
		return false;
	}
	if (options->to)
		length += (size_t)snprintf(request + length, size - length, " to=%s", options->to);
	for (size_t i = 0; i < options->drop.n; i++) {
		char name[NAME_MAX_BYTES];

		encode(name, sizeof(name), options->drop.names[i]);
		length += (size_t)snprintf(request + length, size - length, "%s%s", i ? "," : " drop=", name);
	}
	return true;
}

/* Members of the answer, beside those of the process: what the driver did. */
static void add_deep(json_t *reply, const struct stat_deep *deep)
{
	json_object_set_new(reply, "deep", json_boolean(deep->is_done));
	json_object_set_new(reply, "deep_was_so", json_boolean(deep->was_so));
	json_object_set_new(reply, "deep_bytes",
		deep->is_done && deep->bytes != UINT64_MAX ? json_integer((json_int_t)deep->bytes) : json_null());
	json_object_set_new(reply, "deep_ns", json_integer((json_int_t)deep->ns));
	json_object_set_new(reply, "deep_error", *deep->why && !deep->is_done ? json_string(deep->why) : json_null());
}

static enum stat_exit report_deep(const struct stat_deep *deep, const char *what)
{
	stat_error(*deep->next ? deep->next : NULL, "pid %d %s: %s.", (int)deep->pid, what, deep->why);
	return deep->exit;
}

struct deepening {
	struct stat_deep *deep;
	const struct stat_survey *before;
};

/* The process is asleep: goes on with the driver. */
static void deepen(json_t *reply, void *arg)
{
	struct deepening *deepening = arg;

	(void)stat_deep_go(deepening->deep, deepening->before);
	add_deep(reply, deepening->deep);
}

/*
 * Asks how much memory the process has, which decides how long a move of all of it may take. A process that does not
 * answer is not sent the request.
 */
static enum stat_exit ask_move_ms(const struct stat_command *command, const struct stat_options *one, int *ret_ms)
{
	struct stat_question question = stat_command_question(command, one, "status\n");
	const int most_gib = WAIT_MAX_MS / MOVE_MS_A_GIB;
	struct stat_survey survey;
	enum stat_exit result;
	uint64_t gib = 0;

	question.schema = "status";
	if (question.timeout_ms < STATUS_MS)
		question.timeout_ms = STATUS_MS;
	stat_survey_run(&survey, &question);
	if (survey.n_processes && survey.processes[0].reply)
		gib = stat_reply_sum(json_object_get(survey.processes[0].reply, "devices"), "total_bytes") >> 30;
	result = stat_report_errors(&survey, one);
	stat_survey_deinit(&survey);
	*ret_ms = MOVE_LEAST_MS + MOVE_MS_A_GIB * (gib < (uint64_t)most_gib ? (int)gib : most_gib);
	return result;
}

/*
 * The process does not carry out a request that it reads after this command has given up, for example because it was
 * stopped: the user would not know.
 */
enum stat_exit stat_sleep_run(const struct stat_command *command, const struct stat_options *options)
{
	char request[SLEEP_REQUEST_MAX], drops[SLEEP_REQUEST_MAX - 64] = "";
	struct stat_deep deep = {.timeout_ms = wait_of(options)};
	struct stat_survey before = {0};
	struct deepening deepening = {&deep, &before};
	struct stat_options one;
	enum stat_exit result;
	int move_ms;

	if (!add_drops(drops, sizeof(drops), options))
		return STAT_USAGE;
	result = name_one(command, options, &one, &deep.pid);
	if (result == STAT_OK && one.is_deep && !stat_deep_look(&deep, &before))
		result = report_deep(&deep, "is not asleep");
	if (result == STAT_OK)
		result = ask_move_ms(command, &one, &move_ms);
	if (result == STAT_OK) {
		snprintf(request, sizeof(request), "sleep %d before=%" PRIu64 "%s\n", deep.timeout_ms,
			now_ns() + (uint64_t)deep.timeout_ms * UINT64_C(1000000), drops);
		result = change_one(
			command, &one, request, deep.timeout_ms + move_ms, one.is_deep ? deepen : NULL, &deepening);
	}
	if (result == STAT_OK && deep.exit != STAT_OK)
		result = report_deep(&deep, "is not deep asleep");
	stat_survey_deinit(&before);
	return result;
}

static void add_undone(json_t *reply, void *arg)
{
	add_deep(reply, arg);
	json_object_set_new(reply, "deep", json_false());
}

/* Brings back what the driver took, if it took anything. *ret_deep->is_done: it did. */
static enum stat_exit undo_deep(struct stat_deep *deep)
{
	struct stat_survey survey;
	enum stat_exit result = STAT_OK;

	if (!stat_deep_look(deep, &survey))
		result = report_deep(deep, "is not awake");
	else if (stat_deep_is(&survey) && !stat_deep_undo(deep, &survey))
		result = report_deep(deep, "is not awake");
	stat_survey_deinit(&survey);
	return result;
}

enum stat_exit stat_wake_run(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_deep deep = {.timeout_ms = wait_of(options)};
	struct stat_options one;
	char request[REQUEST_MAX];
	int move_ms;
	enum stat_exit result = name_one(command, options, &one, &deep.pid);

	if (result == STAT_OK)
		result = undo_deep(&deep);
	if (result == STAT_OK)
		result = ask_move_ms(command, &one, &move_ms);
	if (result != STAT_OK)
		return result;
	snprintf(request, sizeof(request), "wake %d\n", deep.timeout_ms);
	return change_one(command, &one, request, deep.timeout_ms + move_ms, deep.is_done ? add_undone : NULL, &deep);
}

struct move {
	bool was_so;
	uint64_t dropped_bytes;
	char device[STAT_TEXT_MAX], dropped[STAT_TEXT_MAX], host[STAT_TEXT_MAX], time[STAT_TEXT_MAX];
};

static struct move read_move(const json_t *reply)
{
	struct move move = {.was_so = json_is_true(json_object_get(reply, "was_so"))};

	stat_bytes(move.device, stat_reply_u64_or_0(reply, "device_bytes"));
	move.dropped_bytes = stat_reply_u64_or_0(reply, "dropped_bytes");
	stat_bytes(move.dropped, move.dropped_bytes);
	stat_bytes(move.host, stat_reply_u64_or_0(reply, "host_bytes"));
	stat_duration(move.time, stat_reply_u64_or_0(reply, "ns"));
	return move;
}

/* Prints what the driver did, unless it had done it before. */
static void show_deep(const json_t *reply, const char *what)
{
	char bytes[STAT_TEXT_MAX] = "the rest", time[STAT_TEXT_MAX];
	uint64_t n;

	if (stat_reply_u64(reply, "deep_bytes", &n))
		stat_bytes(bytes, n);
	stat_duration(time, stat_reply_u64_or_0(reply, "deep_ns"));
	if (!json_is_true(json_object_get(reply, "deep_was_so")))
		printf("%s %s (%s)\n", what, bytes, time);
}

void stat_sleep_show(const struct stat_process *process, const struct stat_options *options)
{
	struct move move = read_move(process->reply);

	bool is_deep = json_is_true(json_object_get(process->reply, "deep"));

	if (is_deep && json_is_true(json_object_get(process->reply, "deep_was_so")))
		puts("the process was deep asleep already");
	else if (move.was_so)
		puts("the process was asleep already");
	else
		printf("asleep: gave %s to the driver, host has %s%s%s (%s)\n", move.device, move.host,
			move.dropped_bytes ? ", dropped " : "", move.dropped_bytes ? move.dropped : "", move.time);
	if (is_deep)
		show_deep(process->reply, "deep asleep: the driver took out");
}

void stat_wake_show(const struct stat_process *process, const struct stat_options *options)
{
	struct move move = read_move(process->reply);
	bool was_deep = json_object_get(process->reply, "deep_ns");

	if (was_deep)
		show_deep(process->reply, "not deep asleep any more: the driver brought back");
	if (move.was_so && was_deep)
		puts("awake: work that had waited has woken the process");
	else if (move.was_so)
		puts("the process was awake already");
	else
		printf("awake: took %s from the driver, copied %s from the host%s%s (%s)\n", move.device, move.host,
			move.dropped_bytes ? ", set to zero " : "", move.dropped_bytes ? move.dropped : "", move.time);
}

static enum stat_exit misuse(const struct stat_command *command)
{
	char next[64];

	snprintf(next, sizeof(next), "gpupool-stat %s --help", command->name);
	stat_error(next, "%s takes %s.", command->name, command->synopsis);
	return STAT_USAGE;
}

/* Checks the limits here, so that malformed ones are refused before a process is asked. */
static bool check_limits(const struct stat_options *options)
{
	const char *text = options->words[1];
	struct gp_limit_list list;
	struct gp_text_error error;
	struct gp_limit limit;

	if (options->is_pinned ? gp_limit_parse(text, &limit, &error) == 0
			       : gp_limit_list_parse(text, &list, &error) == 0)
		return true;
	stat_error(error.next ? error.next : "as in: 8GiB, 50%, 0=8GiB,1=none", "limit: '%s' %s.", text, error.why);
	return false;
}

/* Without words, or with "get", only shows the limits. */
enum stat_exit stat_limit_run(const struct stat_command *command, const struct stat_options *options)
{
	char request[REQUEST_MAX];
	bool is_set = options->n_words == 2 && strcmp(options->words[0], "set") == 0;
	bool is_get = !options->n_words || (options->n_words == 1 && strcmp(options->words[0], "get") == 0);

	if ((!is_set && !is_get) || (is_get && options->is_pinned))
		return misuse(command);
	if (is_get)
		return stat_command_read(command, options);
	if (!check_limits(options))
		return STAT_USAGE;
	snprintf(request, sizeof(request), "limit set %s%.400s\n", options->is_pinned ? "pinned " : "",
		options->words[1]);
	return change(command, options, request);
}

/* Without words, only shows whether flushes are deferred. */
enum stat_exit stat_defer_run(const struct stat_command *command, const struct stat_options *options)
{
	char request[REQUEST_MAX];
	const char *word = options->n_words == 1 ? options->words[0] : "";

	if (!options->n_words)
		return stat_command_read(command, options);
	if (strcmp(word, "on") != 0 && strcmp(word, "off") != 0)
		return misuse(command);
	snprintf(request, sizeof(request), "defer %s\n", word);
	return change(command, options, request);
}

void stat_defer_show(const struct stat_process *process, const struct stat_options *options)
{
	uint64_t n = stat_reply_u64_or_0(process->reply, "scopes");

	if (n)
		printf("flushes are deferred by %" PRIu64 " scope%s\n", n, n == 1 ? "" : "s");
	else
		puts("flushes are not deferred");
}

/* Without words, or with "list", lists the regions. */
enum stat_exit stat_region_run(const struct stat_command *command, const struct stat_options *options)
{
	char request[REQUEST_MAX], name[REQUEST_MAX / 2];
	bool is_list = !options->n_words || (options->n_words == 1 && strcmp(options->words[0], "list") == 0);
	bool is_other = options->n_words == 2 && strcmp(options->words[0], "invalidate") == 0 && *options->words[1];

	if (is_list)
		return stat_command_read(command, options);
	if (!is_other)
		return misuse(command);
	encode(name, sizeof(name), options->words[1]);
	snprintf(request, sizeof(request), "region invalidate %s\n", name);
	return change(command, options, request);
}

static void show_regions(const json_t *regions)
{
	static const char *const headings[] = {
		">DEVICE", ">USED", ">CACHED", ">PENDING", ">TOTAL", ">HITS", ">MISSES", "<REGION"};
	static const char *const keys[] = {"used_bytes", "cached_bytes", "pending_bytes", "total_bytes"};
	struct stat_table *table = stat_table_new(headings, 8);
	char texts[7][STAT_TEXT_MAX];
	const json_t *region;
	size_t i;

	json_array_foreach(regions, i, region) {
		snprintf(texts[0], STAT_TEXT_MAX, "%" PRIu64, stat_reply_u64_or_0(region, "device"));
		for (size_t k = 0; k < 4; k++)
			stat_bytes(texts[k + 1], stat_reply_u64_or_0(region, keys[k]));
		snprintf(texts[5], STAT_TEXT_MAX, "%" PRIu64, stat_reply_u64_or_0(region, "hits"));
		snprintf(texts[6], STAT_TEXT_MAX, "%" PRIu64, stat_reply_u64_or_0(region, "misses"));
		stat_table_add(table, (const char *[]){texts[0], texts[1], texts[2], texts[3], texts[4], texts[5],
					      texts[6], stat_reply_text(region, "name")});
	}
	stat_table_print(table, stat_width());
	stat_table_free(table);
}

void stat_region_show(const struct stat_process *process, const struct stat_options *options)
{
	uint64_t released, n = stat_reply_u64_or_0(process->reply, "busy_blocks");
	const json_t *regions = json_object_get(process->reply, "regions");
	char given[STAT_TEXT_MAX], busy[STAT_TEXT_MAX];

	if (stat_reply_u64(process->reply, "released_bytes", &released)) {
		stat_bytes(given, released);
		stat_bytes(busy, stat_reply_u64_or_0(process->reply, "busy_bytes"));
		printf("gave %s back to the driver; %" PRIu64 " block%s in use, %s, will not be cached when freed\n",
			given, n, n == 1 ? "" : "s", busy);
	} else if (json_array_size(regions)) {
		show_regions(regions);
	} else {
		puts("no regions");
	}
}

/* Without words, only shows the setting. */
enum stat_exit stat_stacks_run(const struct stat_command *command, const struct stat_options *options)
{
	char request[REQUEST_MAX] = "stacks";
	size_t length = strlen(request);

	if (!options->n_words)
		return stat_command_read(command, options);
	for (size_t i = 0; i < options->n_words; i++)
		length += (size_t)snprintf(request + length, sizeof(request) - length, " %.30s", options->words[i]);
	snprintf(request + length, sizeof(request) - length, "\n");
	return change(command, options, request);
}

void stat_stacks_show(const struct stat_process *process, const struct stat_options *options)
{
	const json_t *setting = process->reply;
	uint64_t depth = stat_reply_u64_or_0(setting, "depth"), sites = stat_reply_u64_or_0(setting, "sites");

	if (!json_is_true(json_object_get(setting, "is_on"))) {
		puts("call stacks are off");
		return;
	}
	printf("call stacks are on, %" PRIu64 " frame%s, sample=%" PRIu64 "; %" PRIu64 " call site%s so far\n", depth,
		depth == 1 ? "" : "s", stat_reply_u64_or_0(setting, "sample"), sites, sites == 1 ? "" : "s");
}
