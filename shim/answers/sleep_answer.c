/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "sleep_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "region_answer.h"
#include "shim/backend/backend_sleep.h"
#include "shim/backend/deep.h"
#include "shim/backend/sleep.h"
#include "shim/backend/sleep_policy.h"
#include "shim/base/state.h"
#include "shim/context/device.h"
#include "shim/context/region.h"
#include "shim/ctl/ctl_request.h"

/* A sleep waits for the GPU, a wake for memory. The longest wait keeps other clients of the socket waiting, too. */
enum { SLEEP_MS = 1000, WAKE_MS = 10000, LONGEST_MS = 600000 };

#define NS_PER_MS UINT64_C(1000000)

static bool read_number(const char *word, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(word, &end, 10);
	return !errno && *word >= '0' && *word <= '9' && !*end;
}

static bool read_timeout(const char *word, uint64_t *ret_ns, struct gp_json *out)
{
	uint64_t ms;

	if (!read_number(word, &ms) || ms > LONGEST_MS) {
		gp_ctl_error(out, GP_CTL_USAGE, "'%s' is not a number of milliseconds up to %d", word, LONGEST_MS);
		return false;
	}
	*ret_ns = ms * NS_PER_MS;
	return true;
}

/* Reads the names of regions, which are separated by commas. */
static bool read_regions(char *names, uint64_t *ret_regions, struct gp_json *out)
{
	*ret_regions = 0;
	for (char *name = names, *next; name; name = next) {
		int id;

		next = strchr(name, ',');
		if (next)
			*next++ = '\0';
		gp_region_decode(name);
		id = gp_region_find(name);
		if (id == GP_REGION_NONE) {
			gp_ctl_error(out, GP_CTL_USAGE, "there is no region '%.63s'", name);
			return false;
		}
		*ret_regions |= GP_SLEEPERS_REGION(id);
	}
	return true;
}

/* Returns what follows the key in the word, or NULL. */
static char *value_of(char *word, const char *key)
{
	size_t length = strlen(key);

	return strncmp(word, key, length) == 0 ? word + length : NULL;
}

static bool read_word(char *word, struct gp_sleep_request *request, struct gp_json *out)
{
	char *value;

	if ((value = value_of(word, "drop=")))
		return read_regions(value, &request->drops.regions, out);
	if ((value = value_of(word, "to=")) && (strcmp(value, "host") == 0 || strcmp(value, "none") == 0)) {
		request->drops.is_all = strcmp(value, "none") == 0;
		return true;
	}
	if ((value = value_of(word, "before=")) && read_number(value, &request->before_ns) && request->before_ns)
		return true;
	gp_ctl_error(out, GP_CTL_USAGE, "'%.63s' is not a word of this request; it has: %s", word,
		gp_ctl_commands[GP_CTL_sleep].synopsis);
	return false;
}

static int answer(struct gp_json *out, enum gp_ctl_command command, bool is_done, const struct gp_sleep_result *result)
{
	if (!is_done)
		return gp_ctl_error(out, GP_CTL_FAILED, "%s", result->refusal.why);
	gp_ctl_answer_begin(out, command);
	gp_json_i64(out, "pid", getpid());
	gp_json_bool(out, "was_so", result->was_so);
	gp_json_u64(out, "device_bytes", result->device_bytes);
	gp_json_u64(out, "dropped_bytes", result->dropped_bytes);
	gp_json_u64(out, "host_bytes", result->host_bytes);
	gp_json_u64(out, "ns", result->ns);
	gp_json_object_end(out);
	return 0;
}

int gp_sleep_answer(int argc, char **argv, struct gp_json *out)
{
	struct gp_sleep_request request = {.timeout_ns = SLEEP_MS * NS_PER_MS};
	struct gp_sleep_result result;
	bool has_timeout = argc > 1 && !strchr(argv[1], '=');

	if (has_timeout && !read_timeout(argv[1], &request.timeout_ns, out))
		return -EINVAL;
	for (int i = 1 + has_timeout; i < argc; i++)
		if (!read_word(argv[i], &request, out))
			return -EINVAL;
	return answer(out, GP_CTL_sleep, gp_sleep_as(&request, &result), &result);
}

int gp_wake_answer(int argc, char **argv, struct gp_json *out)
{
	uint64_t timeout_ns = WAKE_MS * NS_PER_MS;
	struct gp_sleep_result result;

	if (argc > 1 && !read_timeout(argv[1], &timeout_ns, out))
		return -EINVAL;
	return answer(out, GP_CTL_wake, gp_wake(timeout_ns, &result), &result);
}

/* Reads numbers that are separated by commas, one for each device in use. */
static bool note_taken(char *word)
{
	char *next = word;

	for (int i = 0; i < GP_DEVICES_MAX; i++) {
		uint64_t bytes;

		if (!gp_device_if_used(i))
			continue;
		word = next;
		next = word ? strchr(word, ',') : NULL;
		if (next)
			*next++ = '\0';
		if (!word || !read_number(word, &bytes))
			return false;
		gp_deep_set_bytes(i, bytes);
	}
	return !next;
}

int gp_deep_answer(int argc, char **argv, struct gp_json *out)
{
	struct gp_sleep_result result = {0};
	bool is_done;

	if (strcmp(argv[1], "begin") == 0 && argc == 2)
		is_done = gp_deepen(&result);
	else if (strcmp(argv[1], "end") == 0 && argc == 2)
		is_done = gp_deep_undo(&result);
	else if (strcmp(argv[1], "taken") == 0 && argc == 3 && note_taken(argv[2]))
		is_done = true;
	else
		return gp_ctl_error(out, GP_CTL_USAGE, "usage: deep %s", gp_ctl_commands[GP_CTL_deep].synopsis);
	return answer(out, GP_CTL_deep, is_done, &result);
}

int gp_deep_refuse(struct gp_json *out)
{
	if (!gp_deep_is())
		return 0;
	return gp_ctl_error(
		out, GP_CTL_FAILED, "the process is deep asleep; wake it first: gpupool-stat wake %d", (int)getpid());
}

static void write_stay(struct gp_json *out, const char *what, uint64_t bytes, const char *why)
{
	gp_json_object_begin(out, NULL);
	gp_json_string(out, "what", what);
	gp_json_amount(out, "bytes", bytes);
	gp_json_string(out, "why", why);
	gp_json_object_end(out);
}

/* The GPU's page tables have 8 bytes for each 4 KiB of pinned memory. */
enum { PINNED_PER_TABLE = 512 };

/* Writes what a process that is asleep keeps. */
static void write_stays(struct gp_json *out)
{
	uint64_t unpooled = 0, pinned = atomic_load(&gp_state.pinned_budget.charged_bytes);
	uint64_t tables = gp_sleep_pinned_bytes() / PINNED_PER_TABLE;

	for (int i = 0; i < GP_DEVICES_MAX; i++)
		if (gp_device_if_used(i))
			unpooled += gp_device_unpooled_bytes(gp_device_if_used(i));
	gp_json_array_begin(out, "stays");
	write_stay(
		out, "context", UINT64_MAX, "code, stacks and buffers of CUDA, whose size the driver does not report");
	if (unpooled)
		write_stay(out, "unpooled", unpooled,
			"managed memory, arrays and other memory that gpupool did not map, and so cannot move");
	if (tables)
		write_stay(
			out, "tables", tables, "the driver's tables for the pinned host memory that has the content");
	if (pinned)
		write_stay(out, "pinned", pinned, "pinned memory is in the host already");
	gp_json_array_end(out);
}

void gp_sleep_write_status(struct gp_json *out)
{
	struct gp_sleep_policy policy = gp_sleep_policy_status();
	struct gp_sleep_status status = gp_sleep_status();

	gp_json_object_begin(out, "sleep");
	gp_json_string(out, "state", gp_sleep_state_name(status.state));
	gp_json_u64(out, "asleep_bytes", status.device_bytes);
	gp_json_u64(out, "dropped_bytes", status.dropped_bytes);
	gp_json_u64(out, "host_bytes", status.host_bytes);
	gp_json_u64(out, "empty_bytes", status.device_bytes - gp_min(status.host_bytes, status.device_bytes));
	gp_json_u64(out, "kept_host_bytes", status.kept_bytes);
	gp_json_u64(out, "asleep_ns", status.since_ns);
	gp_json_bool(out, "deep", status.is_deep);
	gp_json_u64(out, "deep_ns", status.deep_ns);
	gp_json_u64(out, "sleeps", status.n_sleeps);
	gp_json_u64(out, "wakes", status.n_wakes);
	gp_json_string(out, "setting", gp_state.config.text[GP_OPTION_SLEEP]);
	gp_json_u64(out, "idle_ns", policy.idle_ns);
	gp_json_u64(out, "idle_sleeps", policy.n_idle);
	gp_json_u64(out, "asked_sleeps", policy.n_asked);
	gp_json_string(out, "refusal", *policy.why ? policy.why : NULL);
	if (status.state == GP_SLEEP_ASLEEP && !status.is_deep)
		write_stays(out);
	gp_json_object_end(out);
}
