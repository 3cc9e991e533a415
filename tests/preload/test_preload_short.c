/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Compares the advice of an out-of-memory message with what the other pool types do for the same program: its
 * recording without a limit is replayed under the limit of the run that failed. The rules, by what the message texts:
 *
 *	recommends a pool type		that type serves more allocations
 *	the limit is reached		no type goes further by the margin
 *	fragmentation, and no advice	neither split nor vmm goes further by the margin; the types without
 *					shared driver allocations leave small blocks to the driver, which
 *					no limit counts
 *	rounding			the message names the replay, which alone can tell
 */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "play.h"

#define LIMIT "200MiB"

enum { MARGIN_PERCENT = 5 };

enum type { SIMPLE, BINNED, SPLIT, VMM, N_TYPES };
static const char *const types[N_TYPES] = {"simple", "binned", "split", "vmm"};

/* Progress of a program until it ended or was refused memory. */
struct progress {
	uint64_t n_served, live_bytes;
	bool is_refused;
};

static char answer[256 * 1024];

static void take_oom(const char *name)
{
	snprintf(answer, sizeof(answer), "%s", play_ask("oom"));
}

static json_t *parse(const char *text)
{
	json_error_t where;
	json_t *object = json_loads(text, 0, &where);

	ck_assert_msg(json_is_object(object), "%s: %s", where.text, text);
	return object;
}

static struct progress replay(enum type type)
{
	static char text[64 * 1024];
	char words[128];
	const json_t *run, *device;
	struct progress progress;
	json_t *object;

	snprintf(words, sizeof(words), "replay --json --limit=" LIMIT " --pool=%s %s/recording", types[type], play_dir);
	ck_assert_int_eq(play_run_stat(words, text, sizeof(text)), 0);
	object = parse(text);
	run = json_array_get(json_object_get(object, "runs"), 0);
	device = json_object_get(run, "device");
	ck_assert(json_is_integer(json_object_get(run, "n_served")) && json_is_object(device));
	progress.n_served = (uint64_t)json_integer_value(json_object_get(run, "n_served"));
	progress.live_bytes = (uint64_t)json_integer_value(json_object_get(run, "peak_served_bytes"));
	progress.is_refused = json_integer_value(json_object_get(run, "n_refused")) > 0;
	json_decref(object);
	return progress;
}

static void record(const char *scenario)
{
	const char *const env[] = {"GPUPOOL_RECORD=recording", NULL};

	play_run(&(struct play){.program = "app_short", .words = {scenario}, .env = env, .preload = play_library});
	ck_assert_int_eq(play_status, 0);
	ck_assert_msg(!play_fact("refused"), "expected no refused request without a limit: %s", play_err);
}

static struct progress run(const char *scenario, enum type type)
{
	char pool[32];
	const char *const env[] = {pool, "GPUPOOL_LIMIT=" LIMIT, NULL};

	snprintf(pool, sizeof(pool), "GPUPOOL_POOL=%s", types[type]);
	play_run(&(struct play){.program = "app_short",
		.words = {scenario},
		.env = env,
		.preload = play_library,
		.at_pause = take_oom});
	ck_assert_int_eq(play_status, 0);
	return (struct progress){play_fact("served"), play_fact("live"), play_fact("refused")};
}

/* Returns the type that the message recommends, or N_TYPES. */
static enum type recommended(void)
{
	static const char variable[] = "GPUPOOL_POOL=";
	const char *name = strstr(play_err, variable);

	for (enum type type = 0; name && type < N_TYPES; type++)
		if (!strncmp(name + strlen(variable), types[type], strlen(types[type])))
			return type;
	ck_assert_msg(!name, "%s", play_err);
	return N_TYPES;
}

static bool is_further(const struct progress *progress, const struct progress *than)
{
	return progress->n_served * 100 > than->n_served * (100 + MARGIN_PERCENT) &&
	       progress->live_bytes * 100 > than->live_bytes * (100 + MARGIN_PERCENT);
}

static void check_against(const struct progress all[static N_TYPES], enum type type, const char *cause)
{
	enum type better = recommended();
	bool is_shared = !strcmp(cause, "fragmented");

	if (better != N_TYPES) {
		ck_assert_msg(all[better].n_served > all[type].n_served || !all[better].is_refused,
			"%s served %lu, and %s, which is recommended, %lu", types[type], all[type].n_served,
			types[better], all[better].n_served);
		return;
	}
	if (!strcmp(cause, "rounded")) {
		ck_assert_msg(
			strstr(play_err, "gpupool-stat replay"), "expected 'gpupool-stat replay' in: %s", play_err);
		return;
	}
	for (enum type other = is_shared ? SPLIT : 0; other < N_TYPES; other++)
		ck_assert_msg(!is_further(&all[other], &all[type]),
			"%s served %lu allocations, %s %lu, and nothing is recommended: %s", types[type],
			all[type].n_served, types[other], all[other].n_served, play_err);
}

/* The cause under each type, or NULL if no request is refused there. */
static const struct program {
	const char *scenario;
	const char *causes[N_TYPES];
	const char *recommended; /* under split */
	bool is_close;           /* vmm nearly helps, so the message may recommend it or not */
} programs[] = {
	{"leak", {"rounded", "rounded", "fragmented", "limited"}, "vmm"},
	{"leak-beside-work", {"limited", "rounded", "fragmented", "limited"}, "vmm"},
	{"leak-small", {"limited", "rounded", "limited", "limited"}, NULL},
	{"too-large", {"limited", "limited", "limited", "limited"}, NULL},
	{"sieve", {NULL, NULL, "fragmented", NULL}, "vmm"},
	{"sieve-odd", {NULL, NULL, "fragmented", "fragmented"}, NULL},
	{"small-survivors", {NULL, NULL, "fragmented", "fragmented"}, NULL},
	{"training", {"rounded", "rounded", "fragmented", "limited"}, .is_close = true},
	{"growing-inputs", {"rounded", "rounded", "fragmented", "limited"}, NULL},
	{"doubling", {"limited", "limited", "limited", "limited"}, NULL},
	{"mixed", {"rounded", "rounded", "fragmented", "limited"}, NULL},
	{"mixed-survivors", {"rounded", "rounded", "fragmented", "fragmented"}, "vmm"},
	{"above-classes", {"rounded", "rounded", "fragmented", "limited"}, "vmm"},
	{"managed", {"limited", "limited", "limited", "limited"}, NULL},
	{"region", {"limited", "limited", "limited", "limited"}, NULL},
	{"other-context", {"limited", "limited", "limited", "limited"}, NULL},
};

static void check_type(const struct program *program, const struct progress all[static N_TYPES], enum type type)
{
	struct progress progress = run(program->scenario, type);
	const char *cause = program->causes[type];
	const json_t *last;
	json_t *object;

	ck_assert_msg(progress.is_refused == !!cause, "%s under %s: expected a refusal only with a cause: %s",
		program->scenario, types[type], play_err);
	if (!cause)
		return;
	/*
	 * A replay takes no memory from other pools of the context, so leave out regions. The margin allows for the
	 * time that memory takes in a process to return to the driver.
	 */
	if (strcmp(program->scenario, "region"))
		ck_assert(!is_further(&progress, &all[type]) && !is_further(&all[type], &progress));
	object = parse(answer);
	last = json_object_get(object, "last");
	check_against(all, type, json_string_value(json_object_get(last, "cause")));
	ck_assert_str_eq(json_string_value(json_object_get(last, "cause")), cause);
	if (type == SPLIT && program->is_close)
		;
	else if (type == SPLIT && program->recommended)
		ck_assert_pstr_eq(json_string_value(json_object_get(last, "better_pool")), program->recommended);
	else
		ck_assert(json_is_null(json_object_get(last, "better_pool")));
	json_decref(object);
}

START_TEST(a_replay_confirms_the_advice_of_an_out_of_memory_message)
{
	const struct program *program = &programs[_i];
	struct progress all[N_TYPES];

	record(program->scenario);
	for (enum type type = 0; type < N_TYPES; type++)
		all[type] = replay(type);
	for (enum type type = 0; type < N_TYPES; type++)
		check_type(program, all, type);
}
END_TEST

/* If the device and not a limit sets the bound, the driver's own slabs count, too: no type serves more than another. */
START_TEST(small_surviving_blocks_limit_pool_types_without_slabs_just_as_much)
{
	static const char *const all[] = {"none", "simple", "binned", "split", "vmm"};
	struct progress least = {.n_served = UINT64_MAX, .live_bytes = UINT64_MAX}, most = {0};

	for (size_t i = 0; i < LENGTH(all); i++) {
		char pool[32];
		const char *const env[] = {pool, "SIMGPU_MEMORY=204MiB", "GPUPOOL_RESERVE=0", NULL};

		snprintf(pool, sizeof(pool), "GPUPOOL_POOL=%s", all[i]);
		play_run(&(struct play){
			.program = "app_short", .words = {"small-survivors"}, .env = env, .preload = play_library});
		ck_assert(play_fact("refused"));
		least.n_served = play_fact("served") < least.n_served ? play_fact("served") : least.n_served;
		least.live_bytes = play_fact("live") < least.live_bytes ? play_fact("live") : least.live_bytes;
		most.n_served = play_fact("served") > most.n_served ? play_fact("served") : most.n_served;
		most.live_bytes = play_fact("live") > most.live_bytes ? play_fact("live") : most.live_bytes;
	}
	ck_assert(!is_further(&most, &least));
}
END_TEST

static const struct {
	const char *env[4], *scenario, *cause, *texts[2];
} messages[] = {
	{{"SIMGPU_MEMORY=204MiB", "GPUPOOL_POOL=vmm"}, "leak", "full",
		{"cause: the device is full: the program itself holds 198 MiB of the ",
			"; the largest holder, with 198 MiB, is app_short\n"}},
	{{"SIMGPU_MEMORY=204MiB", "GPUPOOL_POOL=vmm", "GPUPOOL_STACKS=8"}, "leak", "full",
		{"cause: the device is full: the program itself holds 198 MiB of the ",
			"; the largest call site, with 198 MiB, is app_short+0x"}},
	{{"GPUPOOL_LIMIT=" LIMIT}, "too-large", "limited",
		{"cause: the limit is reached: 70.0 MiB short even if all available memory were contiguous; the "
		 "largest "
		 "holder, with 120 MiB, is app_short\n",
			" for details; GPUPOOL_LIMIT sets the limit\n"}},
	{{"SIMGPU_MEMORY=500MiB", "SIMGPU_CONTEXT_MEMORY=300MiB", "GPUPOOL_POOL=vmm"}, "leak", "others",
		{"cause: the device is full: other processes, or CUDA itself, use 300 MiB; the program holds "
		 "198 MiB\n",
			" for details; nvidia-smi lists the processes on the device\n"}},
	{{"SIMGPU_FAULT=cuMemAlloc_v2:3+=2"}, "leak", "refused",
		{"cause: the driver refused the request although 16.0", " GiB are free\n"}},
	{{"GPUPOOL_LIMIT=" LIMIT, "GPUPOOL_POOL=binned"}, "leak", "rounded",
		{"cause: rounding: pool type binned uses 49.8 MiB more than the program requested\n",
			" for details; to compare the pool types, record a run with GPUPOOL_RECORD=FILE and run "
			"gpupool-stat replay FILE\n"}},
	{{"GPUPOOL_LIMIT=" LIMIT}, "sieve", "fragmented",
		{"cause: fragmentation: 22.0 MiB are cached between blocks that the program holds, but the largest "
		 "unused "
		 "block has 4.00 MiB, 4.00 KiB too little\n",
			" to see the blocks in the way; GPUPOOL_POOL=vmm can combine scattered unused memory\n"}},
	{{"GPUPOOL_LIMIT=" LIMIT}, "leak-beside-work", "fragmented",
		{"cause: fragmentation: 36.5 MiB are cached between blocks that the program holds, but the largest "
		 "unused "
		 "block has 14.5 MiB, and is reserved for other sizes\n",
			" to see the blocks in the way; GPUPOOL_POOL=vmm can combine scattered unused memory\n"}},
	{{"GPUPOOL_LIMIT=" LIMIT}, "small-survivors", "fragmented", {" to see the blocks in the way\n", "next: "}},
	/* The device cannot map memory, so vmm is not recommended. */
	{{"GPUPOOL_LIMIT=" LIMIT, "SIMGPU_LACKS=102"}, "sieve", "fragmented",
		{" to see the blocks in the way\n", "cause: fragmentation: "}},
};

START_TEST(an_out_of_memory_message_names_its_cause_and_a_remedy)
{
	char cause[64];

	play_run(&(struct play){.program = "app_short",
		.words = {messages[_i].scenario},
		.env = messages[_i].env,
		.preload = play_library,
		.at_pause = take_oom});
	ck_assert(play_fact("refused"));
	snprintf(cause, sizeof(cause), "\"cause\":\"%s\"", messages[_i].cause);
	ck_assert_msg(strstr(answer, cause), "expected '%s' in: %s", cause, answer);
	for (size_t i = 0; i < LENGTH(messages[_i].texts); i++)
		ck_assert_msg(strstr(play_err, messages[_i].texts[i]), "expected '%s' in: %s", messages[_i].texts[i],
			play_err);
}
END_TEST

static void add(TCase *tc)
{
	tcase_add_loop_test(tc, a_replay_confirms_the_advice_of_an_out_of_memory_message, 0, (int)LENGTH(programs));
	tcase_add_test(tc, small_surviving_blocks_limit_pool_types_without_slabs_just_as_much);
	tcase_add_loop_test(tc, an_out_of_memory_message_names_its_cause_and_a_remedy, 0, (int)LENGTH(messages));
}

int main(int argc, char **argv)
{
	return play_main(argc, argv, &(struct play_tests){"short", add}, 1);
}
