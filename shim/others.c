/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "others.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../pool/pool_control.h"
#include "backend.h"
#include "ctl_request.h"
#include "driver.h"
#include "log.h"
#include "record.h"

/* An error is worse than a stall that ends (pool/rounds.c). */
#define SIBLINGS_WAIT_NS UINT64_C(60000000000)

enum { UUID_TEXT = 2 * sizeof(((struct gp_device *)0)->uuid) + 1 };

struct search {
	const struct gp_device *device;
	const struct gp_context *but; /* NULL: none */
	const struct gp_pool *but_pool;
	uint64_t want, given;
	uint64_t end_ns; /* of waiting */
};

static bool is_well(struct gp_context *context)
{
	return !gp_context_is(context, GP_CONTEXT_DEAD | GP_CONTEXT_ENDING | GP_CONTEXT_BROKEN);
}

static void trim(void *arg, struct gp_pool *pool)
{
	struct search *search = arg;

	if (pool == search->but_pool || search->given >= search->want)
		return;
	gp_record(pool, SHRINK, search->want - search->given);
	search->given += gp_pool_trim(pool, search->want - search->given);
}

static void trim_context(void *arg, struct gp_context *context)
{
	struct search *search = arg;

	if (context != search->but && context->device == search->device && is_well(context))
		gp_context_each_pool(context, trim, search);
}

static void trim_pinned(void *arg, struct gp_context *context)
{
	if (is_well(context))
		gp_pinned_each(context, trim, arg);
}

uint64_t gp_others_contexts(struct gp_context *context, uint64_t bytes)
{
	struct search search = {.device = context->device, .but = context, .want = bytes};

	gp_context_each(trim_context, &search);
	return search.given;
}

static void await(void *arg, struct gp_pool *pool)
{
	const struct search *search = arg;

	if (search->given < search->want && gp_driver_now_ns(NULL) < search->end_ns)
		gp_pool_await_late(pool);
}

/* All of them give back on one stream of the context's, where later work may have been made to wait for other work. */
static void await_returning(void *arg, struct gp_pool *pool)
{
	const struct search *search = arg;
	uint64_t now_ns = gp_driver_now_ns(NULL);

	if (now_ns < search->end_ns)
		gp_pool_await_returning(pool, search->end_ns - now_ns);
}

/* Who asks is asked, too, and has nothing left. */
uint64_t gp_others_siblings(struct gp_context *context, uint64_t bytes, bool may_wait)
{
	struct search search = {.want = bytes, .end_ns = gp_driver_now_ns(NULL) + SIBLINGS_WAIT_NS};

	if (!gp_context_has_regions(context) || !is_well(context))
		return 0;
	if (may_wait)
		gp_context_each_pool(context, await, &search);
	gp_context_each_pool(context, trim, &search);
	if (may_wait)
		gp_context_each_pool(context, await_returning, &search);
	return search.given;
}

uint64_t gp_others_pinned(struct gp_pool *pool, uint64_t bytes)
{
	struct search search = {.but_pool = pool, .want = bytes};

	gp_context_each(trim_pinned, &search);
	return search.given;
}

static void write_uuid(char text[static UUID_TEXT], const struct gp_device *device)
{
	for (size_t i = 0; i < sizeof(device->uuid); i++)
		snprintf(text + 2 * i, 3, "%02x", device->uuid[i]);
}

static _Thread_local struct gp_peers answers __attribute__((tls_model("initial-exec")));

uint64_t gp_others_processes(struct gp_context *context, uint64_t bytes)
{
	const struct gp_device *device = context->device;
	char uuid[UUID_TEXT], request[GP_PEER_REQUEST_MAX];

	answers = (struct gp_peers){0};
	if (gp_state.config.yield == GP_CONFIG_YIELD_OFF || !gp_state.config.has_socket || !device->has_uuid)
		return 0;
	write_uuid(uuid, device);
	snprintf(request, sizeof(request), "yield %s %" PRIu64 "\n", uuid, bytes);
	gp_peers_ask(request, gp_state.config.yield == GP_CONFIG_YIELD_ALL && geteuid() == 0, &answers);
	if (answers.n)
		gp_log(GP_LOG_INFO, "asked %u other processes for %" PRIu64 " bytes of device %d: they gave %" PRIu64,
			answers.n, bytes, device->index, answers.bytes);
	return answers.bytes;
}

const struct gp_peers *gp_others_answers(void)
{
	return &answers;
}

static struct gp_device *find_device(const char *text)
{
	char uuid[UUID_TEXT];

	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		struct gp_device *device = gp_state_device_if_used(i);

		if (!device || !device->has_uuid)
			continue;
		write_uuid(uuid, device);
		if (strcmp(uuid, text) == 0)
			return device;
	}
	return NULL;
}

int gp_others_answer(int argc, char **argv, struct gp_json *out)
{
	struct gp_device *device = find_device(argv[1]);
	struct search search = {.device = device};
	struct gp_text_error error;

	if (gp_state.config.yield == GP_CONFIG_YIELD_OFF)
		return gp_ctl_error(out, GP_CTL_PERMISSION, "GPUPOOL_YIELD is off");
	if (gp_size_parse(argv[2], &search.want, &error))
		return gp_ctl_error(out, GP_CTL_USAGE, "'%.32s' %s", argv[2], error.why);
	/* That GPU may well be one that this process does not use. */
	if (device) {
		gp_context_each(trim_context, &search);
		atomic_fetch_add(&device->n_yields, search.given != 0);
		atomic_fetch_add(&device->yielded_bytes, search.given);
	}
	gp_ctl_answer_begin(out, GP_CTL_yield);
	gp_json_u64(out, "released_bytes", search.given);
	gp_json_object_end(out);
	return 0;
}
