/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "sleep_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim/backend/sleep.h"
#include "shim/backend/sleep_policy.h"
#include "shim/base/state.h"
#include "shim/context/device.h"
#include "shim/ctl/ctl_request.h"

/* A sleep waits for the GPU, a wake for memory. The longest wait keeps other clients of the socket waiting, too. */
enum { SLEEP_MS = 1000, WAKE_MS = 10000, LONGEST_MS = 600000 };

static bool read_timeout(const char *word, uint64_t *ret_ns)
{
	char *end;
	long ms;

	errno = 0;
	ms = strtol(word, &end, 10);
	if (errno || end == word || *end || ms < 0 || ms > LONGEST_MS)
		return false;
	*ret_ns = (uint64_t)ms * UINT64_C(1000000);
	return true;
}

static int answer(int argc, char **argv, struct gp_json *out, enum gp_ctl_command command, int ms,
	bool (*fn)(uint64_t timeout_ns, struct gp_sleep_result *ret_result))
{
	uint64_t timeout_ns = (uint64_t)ms * UINT64_C(1000000);
	struct gp_sleep_result result;

	if (argc > 1 && !read_timeout(argv[1], &timeout_ns))
		return gp_ctl_error(
			out, GP_CTL_USAGE, "'%s' is not a number of milliseconds up to %d", argv[1], LONGEST_MS);
	if (!fn(timeout_ns, &result))
		return gp_ctl_error(out, GP_CTL_FAILED, "%s", result.why);
	gp_ctl_answer_begin(out, command);
	gp_json_i64(out, "pid", getpid());
	gp_json_bool(out, "was_so", result.was_so);
	gp_json_u64(out, "device_bytes", result.device_bytes);
	gp_json_u64(out, "host_bytes", result.host_bytes);
	gp_json_u64(out, "ns", result.ns);
	gp_json_object_end(out);
	return 0;
}

int gp_sleep_answer(int argc, char **argv, struct gp_json *out)
{
	return answer(argc, argv, out, GP_CTL_sleep, SLEEP_MS, gp_sleep);
}

int gp_wake_answer(int argc, char **argv, struct gp_json *out)
{
	return answer(argc, argv, out, GP_CTL_wake, WAKE_MS, gp_wake);
}

static void write_stay(struct gp_json *out, const char *what, uint64_t bytes, const char *why)
{
	gp_json_object_begin(out, NULL);
	gp_json_string(out, "what", what);
	gp_json_amount(out, "bytes", bytes);
	gp_json_string(out, "why", why);
	gp_json_object_end(out);
}

/* Writes what a process that is asleep keeps. */
static void write_stays(struct gp_json *out)
{
	uint64_t unpooled = 0, pinned = atomic_load(&gp_state.pinned_budget.charged_bytes);

	for (int i = 0; i < GP_DEVICES_MAX; i++)
		if (gp_device_if_used(i))
			unpooled += atomic_load(&gp_device_if_used(i)->unpooled_bytes);
	gp_json_array_begin(out, "stays");
	write_stay(
		out, "context", UINT64_MAX, "code, stacks and buffers of CUDA, whose size the driver does not report");
	if (unpooled)
		write_stay(out, "unpooled", unpooled,
			"managed memory, arrays and other memory that gpupool did not map, and so cannot move");
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
	gp_json_u64(out, "host_bytes", status.host_bytes);
	gp_json_u64(out, "empty_bytes", status.device_bytes - gp_min(status.host_bytes, status.device_bytes));
	gp_json_u64(out, "kept_host_bytes", status.kept_bytes);
	gp_json_u64(out, "asleep_ns", status.since_ns);
	gp_json_u64(out, "sleeps", status.n_sleeps);
	gp_json_u64(out, "wakes", status.n_wakes);
	gp_json_string(out, "setting", gp_state.config.text[GP_OPTION_SLEEP]);
	gp_json_u64(out, "idle_ns", policy.idle_ns);
	gp_json_u64(out, "idle_sleeps", policy.n_idle);
	gp_json_u64(out, "asked_sleeps", policy.n_asked);
	gp_json_string(out, "refusal", *policy.why ? policy.why : NULL);
	if (status.state == GP_SLEEP_ASLEEP)
		write_stays(out);
	gp_json_object_end(out);
}
