/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "sleep_policy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "shim/base/clock.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/base/own_thread.h"
#include "shim/base/slow_path.h"
#include "shim/context/device.h"
#include "shim/ctl/ctl_request.h"
#include "shim/driver/submit.h"
#include "shim/reclaim/reclaim.h"

#define MS_NS UINT64_C(1000000)

/* The watcher looks 4 times in the time after which the process sleeps, within these bounds. */
enum { LOOKS = 4, LOOK_MIN_MS = 2, LOOK_MAX_MS = 250, LOOK_ASLEEP_MS = 1000 };

/* A process that another one asks to sleep has been idle for that long, and awake for AWAKE_NS since it last slept. */
#define REST_IDLE_NS UINT64_C(250000000)
#define AWAKE_NS     UINT64_C(10000000000)

/* The GPU may take that long to finish. A thread of the program that submits work meanwhile ends the sleep at once. */
#define GPU_NS UINT64_C(100000000)

/*
 * After a sleep that failed, the next one begins no sooner. If the process was not merely busy, each further failure
 * doubles the time: an attempt for which host memory is short pins much of it before it fails.
 */
#define AGAIN_NS UINT64_C(1000000000)
enum { DOUBLED_MAX = 6 };

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF); /* guards the next ones */
static uint64_t seen_epoch, busy_ns;                       /* when the process was last seen at work */
static uint64_t seen_wakes, woken_ns;                      /* when it was first seen awake after a sleep; 0: never */
static uint64_t not_before_ns;
static unsigned n_failed; /* in a row, for other reasons than that the process was busy */
static uint64_t n_idle, n_asked;
static bool is_for_other; /* the thread that puts the process to sleep does so for another process */
static char why[GP_QUIET_WHY_MAX], logged_why[GP_QUIET_WHY_MAX];

static _Atomic bool is_going; /* a thread puts the process to sleep */

static bool is_on(void)
{
	return gp_state.config.sleep_idle_ms != GP_CONFIG_SLEEP_OFF;
}

static bool has_time(void)
{
	return is_on() && gp_state.config.sleep_idle_ms != GP_CONFIG_SLEEP_ASKED;
}

/* The other thread may have set the time after this one has read the clock. */
static bool is_past(uint64_t now_ns, uint64_t then_ns, uint64_t ns)
{
	return now_ns >= then_ns && now_ns - then_ns >= ns;
}

/* Looks whether the process has worked since the last look. */
static void look_locked(uint64_t now_ns, const struct gp_sleep_status *status)
{
	uint64_t epoch = gp_submission_look(&gp_submitted);

	if (status->n_wakes != seen_wakes) {
		seen_wakes = status->n_wakes;
		woken_ns = busy_ns = now_ns;
	}
	/* If submissions go unseen, the process cannot sleep, and an attempt says so. */
	if (gp_submission_is_unseen(&gp_submitted))
		return;
	if (!busy_ns || epoch == GP_SUBMISSION_NO_EPOCH || epoch != seen_epoch || gp_reclaim_was_short())
		busy_ns = now_ns;
	seen_epoch = epoch;
}

static uint64_t pooled_bytes(const struct gp_device *device)
{
	uint64_t charged = atomic_load(&device->budget.charged_bytes);

	return charged - gp_min(gp_device_unpooled_bytes(device), charged);
}

static bool has_pooled(void)
{
	for (int i = 0; i < GP_DEVICES_MAX; i++)
		if (gp_device_if_used(i) && pooled_bytes(gp_device_if_used(i)))
			return true;
	return false;
}

/* Only the first failure of its kind is news. A busy process is none. */
static void note_failure_locked(const struct gp_quiet_refusal *refusal, char news[static GP_QUIET_WHY_MAX])
{
	snprintf(why, sizeof(why), "%s", refusal->why);
	n_failed = refusal->error == -EBUSY ? 0 : n_failed + 1;
	not_before_ns = gp_clock_now_ns(NULL) + (AGAIN_NS << gp_min(n_failed, (unsigned)DOUBLED_MAX));
	busy_ns = gp_clock_now_ns(NULL);
	if (refusal->error == -EBUSY || strcmp(why, logged_why) == 0)
		return;
	memcpy(logged_why, why, sizeof(why));
	memcpy(news, why, sizeof(why));
}

static void *go(void *unused)
{
	char news[GP_QUIET_WHY_MAX] = "";
	struct gp_sleep_result result;
	bool is_asleep = gp_sleep(GPU_NS, &result);

	gp_mutex_lock(&lock);
	if (!is_asleep) {
		note_failure_locked(&result.refusal, news);
	} else if (!result.was_so) {
		why[0] = '\0';
		n_failed = 0;
	}
	n_asked += is_asleep && !result.was_so && is_for_other;
	n_idle += is_asleep && !result.was_so && !is_for_other;
	gp_mutex_unlock(&lock);
	atomic_store(&is_going, false);
	if (*news)
		gp_log(GP_LOG_WARN, "GPUPOOL_SLEEP: the idle process stays awake: %s", news);
	return NULL;
}

/* Begins to put the process to sleep. Returns false if another thread does so already, or there can be no thread. */
static bool begin(bool for_other)
{
	if (atomic_exchange(&is_going, true))
		return false;
	is_for_other = for_other;
	if (gp_own_thread_start(go, NULL, GP_STACK_SMALL) == 0)
		return true;
	atomic_store(&is_going, false);
	return false;
}

bool gp_sleep_is_watched(void)
{
	return is_on();
}

static int interval_ms(enum gp_sleep_state state)
{
	uint64_t ms = has_time() ? gp_state.config.sleep_idle_ms / LOOKS : LOOK_MAX_MS;

	if (state == GP_SLEEP_ASLEEP)
		return LOOK_ASLEEP_MS;
	return (int)gp_min(gp_max(ms, (uint64_t)LOOK_MIN_MS), (uint64_t)LOOK_MAX_MS);
}

int gp_sleep_watch(void)
{
	struct gp_sleep_status status = gp_sleep_status();
	uint64_t now_ns = gp_clock_now_ns(NULL);
	bool is_due;

	gp_mutex_lock(&lock);
	look_locked(now_ns, &status);
	is_due = has_time() && is_past(now_ns, busy_ns, gp_state.config.sleep_idle_ms * MS_NS) &&
		 now_ns >= not_before_ns;
	gp_mutex_unlock(&lock);
	if (is_due && status.state == GP_SLEEP_AWAKE && has_pooled())
		(void)begin(false);
	return interval_ms(status.state);
}

static void *watch(void *unused)
{
	while (!gp_slow_path_is_any(GP_SLOW_PATH_BYPASS | GP_SLOW_PATH_END))
		gp_clock_sleep((uint64_t)gp_sleep_watch() * MS_NS);
	return NULL;
}

void gp_sleep_watch_alone(void)
{
	(void)gp_own_thread_start(watch, NULL, GP_STACK_SMALL);
}

/* Returns the bytes that the device would gain if the process slept now, or gains as it falls asleep. */
static uint64_t rest_bytes_locked(const struct gp_device *device, uint64_t now_ns, const struct gp_sleep_status *status)
{
	uint64_t idle_ns = gp_min(REST_IDLE_NS, gp_state.config.sleep_idle_ms * (has_time() ? MS_NS : 1));

	if (atomic_load(&is_going))
		return pooled_bytes(device);
	if (status->state != GP_SLEEP_AWAKE || !is_past(now_ns, busy_ns, idle_ns) || now_ns < not_before_ns ||
		(woken_ns && !is_past(now_ns, woken_ns, AWAKE_NS)) || atomic_load(&device->kind) != GP_KIND_VMM)
		return 0;
	return pooled_bytes(device);
}

int gp_rest_answer(int argc, char **argv, struct gp_json *out)
{
	const struct gp_device *device = gp_reclaim_find_device(argv[1]);
	struct gp_sleep_status status = gp_sleep_status();
	uint64_t now_ns = gp_clock_now_ns(NULL), want, bytes = 0, idle_ms;
	struct gp_text_error error;

	if (!is_on())
		return gp_ctl_error(out, GP_CTL_PERMISSION, "GPUPOOL_SLEEP is off");
	if (gp_size_parse(argv[2], &want, &error))
		return gp_ctl_error(out, GP_CTL_USAGE, "'%.32s' %s", argv[2], error.why);
	gp_mutex_lock(&lock);
	look_locked(now_ns, &status);
	if (device)
		bytes = rest_bytes_locked(device, now_ns, &status);
	idle_ms = (now_ns - gp_min(busy_ns, now_ns)) / MS_NS;
	gp_mutex_unlock(&lock);
	if (bytes && want && !atomic_load(&is_going) && !begin(true))
		bytes = 0;
	gp_ctl_answer_begin(out, GP_CTL_rest);
	gp_json_u64(out, "released_bytes", 0);
	gp_json_u64(out, "held_bytes", bytes);
	gp_json_u64(out, "idle_ms", idle_ms);
	gp_json_object_end(out);
	return 0;
}

struct gp_sleep_policy gp_sleep_policy_status(void)
{
	struct gp_sleep_policy policy = {0};

	gp_mutex_lock(&lock);
	if (is_on() && busy_ns)
		policy.idle_ns = gp_clock_now_ns(NULL) - busy_ns;
	policy.n_idle = n_idle;
	policy.n_asked = n_asked;
	memcpy(policy.why, why, sizeof(why));
	gp_mutex_unlock(&lock);
	return policy;
}

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
	atomic_store(&is_going, false);
	busy_ns = woken_ns = not_before_ns = 0;
}

void gp_sleep_policy_start(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};

	if (is_on())
		gp_fork_on_child(&child);
}
