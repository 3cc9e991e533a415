/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Sleep and wake: the process's pooled device memory goes to host memory and is back before the next work is submitted.
 * README.md has the states, the locks and the order of the steps.
 */

#include <stdbool.h>
#include <stdint.h>

#include "quiet.h"

enum gp_sleep_state {
	GP_SLEEP_AWAKE,
	GP_SLEEP_CLOSING, /* waits until nothing uses the memory; nothing has changed yet */
	GP_SLEEP_MOVING,  /* copies the memory to the host */
	GP_SLEEP_ASLEEP,
	GP_SLEEP_WAKING,
};

struct gp_sleep_result {
	bool was_so;            /* the process was asleep, or awake, already */
	uint64_t device_bytes;  /* that went back to the driver, or came from it */
	uint64_t dropped_bytes; /* of those, without their content */
	uint64_t host_bytes;    /* of the content of the others */
	uint64_t ns;
	uint64_t quiet_ns, host_ns,
		move_ns;                 /* parts of a sleep: until nothing used the memory; for host memory; to move */
	struct gp_quiet_refusal refusal; /* after a failure */
};

/*
 * Puts the process to sleep. Waits at most timeout_ns for work that is under way. Returns true if the process is
 * asleep. Otherwise it is awake, and nothing has changed but cached memory, which may have gone back to the driver.
 */
bool gp_sleep(uint64_t timeout_ns, struct gp_sleep_result *ret_result);

/*
 * The same with more to say. A request that comes too late is not carried out: the client of the socket has given up.
 * The content of regions, by their bits, or of all memory can be dropped: the memory is zero when it comes back.
 */
struct gp_sleep_request {
	uint64_t timeout_ns;
	uint64_t before_ns; /* of gp_clock_now_ns: the memory moves before then or not at all; 0: at any time */
	struct gp_sleepers_drops drops;
};
bool gp_sleep_as(const struct gp_sleep_request *request, struct gp_sleep_result *ret_result);

/*
 * Wakes the process. Waits at most timeout_ns for device memory, of which other processes may have taken too much.
 * Returns true if the process is awake. Otherwise it is asleep.
 */
bool gp_wake(uint64_t timeout_ns, struct gp_sleep_result *ret_result);

/*
 * Deep sleep: another process has the driver take the rest out of the devices (deep.h). gp_deepen keeps all threads
 * from calling the driver, before that happens. Returns false if the process is not asleep, or the driver may fail.
 * gp_deep_undo ends it, once the driver has brought back what it took. Neither calls the driver.
 */
bool gp_deepen(struct gp_sleep_result *ret_result);
bool gp_deep_undo(struct gp_sleep_result *ret_result);

struct gp_sleep_status {
	enum gp_sleep_state state;
	uint64_t device_bytes, dropped_bytes, host_bytes; /* asleep */
	uint64_t kept_bytes;                              /* host memory for the next sleep */
	uint64_t since_ns;                                /* since the process fell asleep; 0: awake */
	uint64_t n_sleeps, n_wakes;
	bool is_deep;
	uint64_t deep_ns; /* since gp_deepen; 0: not deep asleep */
};

/* Waits for nothing. */
struct gp_sleep_status gp_sleep_status(void);
const char *gp_sleep_state_name(enum gp_sleep_state state);

/*
 * Returns the bytes of a device that are asleep, and that a wake has not taken yet: the process takes them from what is
 * free.
 */
uint64_t gp_sleep_bytes_of(int device);

/* Watches the gate, forks and the ends of contexts. To be called before there is a context. */
void gp_sleep_start(void);
