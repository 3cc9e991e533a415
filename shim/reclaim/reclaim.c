/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "reclaim.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/broker.h"
#include "common/oom_words.h"
#include "common/uuid.h"
#include "pool/pool_control.h"
#include "shim/base/clock.h"
#include "shim/base/log.h"
#include "shim/context/context.h"
#include "shim/context/group.h"
#include "shim/context/kept.h"
#include "shim/ctl/ctl_ask.h"
#include "shim/ctl/ctl_request.h"
#include "shim/record/record.h"

/* The bound is long, since a stall that ends is better than an out-of-memory error (pool/rounds.c). */
#define SIBLINGS_WAIT_NS UINT64_C(60000000000)

/* The answers of other processes to this thread's last request for memory. */
static _Thread_local struct gp_processes answers __attribute__((tls_model("initial-exec")));

/* The last time that a thread of this process asked other processes. */
static _Atomic uint64_t short_ns;

struct search {
	const struct gp_device *device;
	const struct gp_context *excluded;   /* not asked; NULL: every context is asked */
	const struct gp_pool *excluded_pool; /* likewise */
	uint64_t want, given;                /* bytes to give back, and bytes given back so far */
	uint64_t end_ns;                     /* deadline of waits */
};

static bool is_usable(struct gp_context *context)
{
	return !gp_context_is(context, GP_CONTEXT_DEAD | GP_CONTEXT_ENDING | GP_CONTEXT_BROKEN);
}

static void trim(void *arg, struct gp_pool *pool)
{
	struct search *search = arg;

	if (pool == search->excluded_pool || search->given >= search->want)
		return;
	gp_record(pool, SHRINK, search->want - search->given);
	search->given += gp_pool_trim(pool, search->want - search->given);
}

static void trim_context(void *arg, struct gp_context *context)
{
	struct search *search = arg;

	if (context != search->excluded && context->device == search->device && is_usable(context))
		gp_context_each_pool(context, trim, search);
}

static void trim_pinned(void *arg, struct gp_context *context)
{
	if (is_usable(context))
		gp_context_each_pinned(context, trim, arg);
}

uint64_t gp_reclaim_from_contexts(struct gp_context *context, uint64_t bytes)
{
	struct search search = {.device = context->device, .excluded = context, .want = bytes};

	answers = (struct gp_processes){0}; /* this is the step before other processes are asked */
	gp_context_each(trim_context, &search);
	return search.given;
}

static void await_unfenced(void *arg, struct gp_pool *pool)
{
	const struct search *search = arg;

	if (search->given < search->want && gp_clock_now_ns(NULL) < search->end_ns)
		gp_pool_await_unfenced(pool);
}

/*
 * Waits until returning memory has reached the driver. All pools of a context give memory back on one stream, where it
 * may be queued behind waits for other work.
 */
static void await_returning(void *arg, struct gp_pool *pool)
{
	const struct search *search = arg;
	uint64_t now_ns = gp_clock_now_ns(NULL);

	if (now_ns < search->end_ns)
		gp_pool_await_returning(pool, search->end_ns - now_ns);
}

/* The walk includes the pool that asks. That costs nothing: it has given back its own cached memory before. */
uint64_t gp_reclaim_from_siblings(struct gp_context *context, uint64_t bytes, bool may_wait)
{
	struct search search = {.want = bytes, .end_ns = gp_clock_now_ns(NULL) + SIBLINGS_WAIT_NS};

	if (!gp_context_has_siblings(context) || !is_usable(context))
		return 0;
	if (may_wait)
		gp_context_each_pool(context, await_unfenced, &search);
	gp_context_each_pool(context, trim, &search);
	if (may_wait)
		gp_context_each_pool(context, await_returning, &search);
	return search.given;
}

uint64_t gp_reclaim_from_pinned(struct gp_pool *pool, uint64_t bytes)
{
	struct search search = {.excluded_pool = pool, .want = bytes};

	gp_context_each(trim_pinned, &search);
	return search.given;
}

bool gp_reclaim_can_ask(const struct gp_context *context)
{
	return gp_state.config.yield != GP_CONFIG_YIELD_OFF && gp_state.config.has_socket && context->device->has_uuid;
}

static void format_request(char request[static GP_PROCESS_REQUEST_MAX], const struct gp_context *context,
	const char *command, uint64_t bytes)
{
	char uuid[GP_UUID_TEXT_MAX];

	snprintf(request, GP_PROCESS_REQUEST_MAX, "%s %s %" PRIu64 "\n", command,
		gp_uuid_format(uuid, context->device->uuid, GP_UUID_SENT), bytes);
}

/* A user who names a directory means the processes in it. */
static void ask_broker(const struct gp_context *context, const char *request, int max_ms, struct gp_broker_answer *ret)
{
	int cancel_state, fd;

	*ret = (struct gp_broker_answer){GP_BROKER_NONE, 0, 0};
	if (gp_ask_is_dir_named())
		return;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	fd = gp_broker_open(GP_BROKER_DIR, ret);
	if (fd >= 0) {
		gp_device_show(context->device); /* the broker checks that the process uses the device */
		gp_broker_ask(fd, request, max_ms, ret);
	}
	pthread_setcancelstate(cancel_state, NULL);
}

void gp_reclaim_ask(struct gp_context *context, const char *command, uint64_t bytes, gp_processes_filter filter,
	const void *arg, int max_ms, struct gp_processes *ret)
{
	bool are_all = !filter && gp_state.config.yield == GP_CONFIG_YIELD_ALL && geteuid() == 0;
	bool is_wait = strcmp(command, "wanted") == 0;
	char request[GP_PROCESS_REQUEST_MAX];

	format_request(request, context, command, bytes);
	atomic_store(&short_ns, gp_clock_now_ns(NULL));
	gp_processes_ask(request, are_all, filter, arg, max_ms, ret);
	if (!filter && (is_wait || ret->bytes < bytes))
		ask_broker(context, request, gp_min(max_ms, GP_BROKER_ASK_MS), &ret->broker);
	atomic_store(&short_ns, gp_clock_now_ns(NULL));
}

bool gp_reclaim_was_short(void)
{
	uint64_t ns = atomic_load(&short_ns);

	return ns && gp_clock_now_ns(NULL) - ns < GP_SHORT_NS;
}

static uint64_t ask_to_yield(struct gp_context *context, uint64_t bytes, gp_processes_filter filter)
{
	if (!gp_reclaim_can_ask(context))
		return 0;
	gp_reclaim_ask(context, "yield", bytes, filter, NULL, GP_PROCESSES_ASK_MS, &answers);
	if (answers.n)
		gp_log(GP_LOG_INFO,
			"asked %u other processes for %" PRIu64 " bytes of device %d: they released %" PRIu64,
			answers.n, bytes, context->device->index, answers.bytes);
	if (answers.broker.state != GP_BROKER_NONE)
		gp_log(GP_LOG_INFO,
			"asked the exporter for %" PRIu64 " bytes of device %d: " GP_OOM_BROKER_WORDS
			" released %" PRIu64,
			bytes, context->device->index, answers.broker.bytes);
	return answers.bytes + answers.broker.bytes;
}

uint64_t gp_reclaim_from_processes(struct gp_context *context, uint64_t bytes)
{
	return ask_to_yield(context, bytes, NULL);
}

static bool is_in_group(const void *unused, pid_t pid, uint64_t start_ticks)
{
	return gp_group_is_shared_with(pid, start_ticks);
}

uint64_t gp_reclaim_from_group(struct gp_context *context, uint64_t bytes)
{
	return ask_to_yield(context, bytes, is_in_group);
}

/* Adds a later answer of a process to its earlier ones, or to the list if there is room. */
static void add_answer(const struct gp_process *later)
{
	unsigned i = 0, n = gp_min(answers.n, GP_PROCESSES_SHOWN);

	while (i < n && answers.shown[i].pid != later->pid)
		i++;
	if (i < n) {
		answers.shown[i].error = later->error;
		answers.shown[i].bytes += later->bytes;
		answers.shown[i].held_bytes = later->held_bytes;
	} else if (n < GP_PROCESSES_SHOWN) {
		answers.shown[n] = *later;
		answers.n++;
	}
}

/* A broker that was busy or late tells nothing new, and one that has ended knows of no memory. */
static void add_broker(const struct gp_broker_answer *later)
{
	struct gp_broker_answer *so_far = &answers.broker;
	bool is_known = so_far->state == GP_BROKER_ANSWERED;

	if (is_known && later->state == GP_BROKER_NONE)
		so_far->held_bytes = 0;
	if (later->state == GP_BROKER_NONE ||
		(is_known && (later->state == GP_BROKER_IS_BUSY || later->state == GP_BROKER_SILENT)))
		return;
	*so_far = (struct gp_broker_answer){later->state, so_far->bytes + later->bytes, later->held_bytes};
}

uint64_t gp_reclaim_want(struct gp_context *context, uint64_t bytes, int max_ms)
{
	struct gp_processes later;

	gp_reclaim_ask(context, "wanted", bytes, NULL, NULL, max_ms, &later);
	for (unsigned i = 0; i < gp_min(answers.n, GP_PROCESSES_SHOWN); i++)
		answers.shown[i].held_bytes = 0; /* of a process that has ended meanwhile */
	for (unsigned i = 0; i < gp_min(later.n, GP_PROCESSES_SHOWN); i++)
		add_answer(&later.shown[i]);
	answers.bytes += later.bytes;
	answers.held_bytes = later.held_bytes;
	add_broker(&later.broker);
	/* The broker's sum includes the processes that this one has asked itself. */
	return gp_max(later.held_bytes, answers.broker.held_bytes);
}

void gp_reclaim_note_wait(enum gp_processes_wait wait)
{
	answers.wait = wait;
}

const struct gp_processes *gp_reclaim_last_answers(void)
{
	return &answers;
}

struct gp_device *gp_reclaim_find_device(const char *text)
{
	char uuid[GP_UUID_TEXT_MAX];

	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		struct gp_device *device = gp_device_if_used(i);

		if (device && device->has_uuid && strcmp(gp_uuid_format(uuid, device->uuid, GP_UUID_SENT), text) == 0)
			return device;
	}
	return NULL;
}

static void press(void *arg, struct gp_pool *pool)
{
	gp_pool_press(pool);
}

static void press_context(void *arg, struct gp_context *context)
{
	if (context->device == arg && is_usable(context))
		gp_context_each_pool(context, press, NULL);
}

/*
 * The other process waits for memory even so. Memory that is freed in the next moment goes back to the driver at once:
 * otherwise the process would have to ask again after each free.
 */
static void let_nothing_stay_cached(struct gp_device *device)
{
	atomic_store(&device->wanted_until_ns, gp_clock_now_ns(NULL) + GP_WANTED_NS);
	gp_context_each(press_context, device);
}

bool gp_reclaim_is_wanted(const struct gp_context *context)
{
	uint64_t until_ns = atomic_load_explicit(&context->device->wanted_until_ns, memory_order_relaxed);

	return until_ns && gp_clock_now_ns(NULL) < until_ns;
}

static uint64_t give_to_process(struct gp_device *device, uint64_t want, bool is_waiting)
{
	struct search search = {.device = device, .want = want};

	search.given = gp_kept_trim(device->index, want);
	gp_context_each(trim_context, &search);
	atomic_fetch_add(&device->n_yields, search.given != 0);
	atomic_fetch_add(&device->yielded_bytes, search.given);
	if (is_waiting)
		let_nothing_stay_cached(device);
	return search.given;
}

static int answer(enum gp_ctl_command command, char **argv, struct gp_json *out)
{
	struct gp_device *device = gp_reclaim_find_device(argv[1]);
	struct gp_text_error error;
	uint64_t want, given = 0;

	if (gp_state.config.yield == GP_CONFIG_YIELD_OFF)
		return gp_ctl_error(out, GP_CTL_PERMISSION, "GPUPOOL_YIELD is off");
	if (gp_size_parse(argv[2], &want, &error))
		return gp_ctl_error(out, GP_CTL_USAGE, "'%.32s' %s", argv[2], error.why);
	/* If this process does not use that GPU, it releases 0 bytes. */
	if (device)
		given = give_to_process(device, want, command == GP_CTL_wanted);
	gp_ctl_answer_begin(out, command);
	gp_json_u64(out, "released_bytes", given);
	if (command == GP_CTL_wanted)
		gp_json_u64(out, "held_bytes", device ? atomic_load(&device->budget.charged_bytes) : 0);
	gp_json_object_end(out);
	return 0;
}

int gp_reclaim_answer(int argc, char **argv, struct gp_json *out)
{
	return answer(GP_CTL_yield, argv, out);
}

int gp_reclaim_answer_wanted(int argc, char **argv, struct gp_json *out)
{
	return answer(GP_CTL_wanted, argv, out);
}
