/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Moving device memory while nothing uses it. Sleep and wake (sleep.h) and memory in the host (spill.h) need the same:
 * one thread that moves, a closed gate (pool/submission.h), and GPUs that are idle.
 *
 *     gp_quiet_take            from now on no other thread moves memory, and no handler of a signal runs in this one
 *       gp_sleepers_collect
 *       gp_quiet_begin         closes the gate, and waits until nothing uses the memory
 *         ...                  moves memory between gp_sleepers_enter and gp_sleepers_leave
 *       gp_quiet_open          opens the gate
 *       gp_sleepers_put
 *     gp_quiet_give
 *
 * The gate may stay closed when the thread gives the lock up: then the process is asleep. A thread that waits for the
 * lock holds no other lock of gpupool.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "sleepers.h"

enum { GP_QUIET_WHY_MAX = 256 };

/* The reason why memory does not move. */
struct gp_quiet_refusal {
	int error;                  /* -EBUSY, -EINTR, -ENOMEM, -ENOTSUP, or -EIO if the driver refused a call */
	char why[GP_QUIET_WHY_MAX]; /* as a sentence without its period */
};

/* Writes the reason. Returns false. */
bool gp_quiet_refuse(struct gp_quiet_refusal *ret_refusal, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The thread that moves memory has the set to itself, and puts off cancellation and signals. */
struct gp_quiet_hold {
	struct gp_sleepers *sleepers;
	int cancel_state;
	sigset_t signals; /* the thread's mask before */
};

/* Returns the time that lies timeout_ns ahead, and how long it is until a time. */
uint64_t gp_quiet_deadline(uint64_t timeout_ns);
uint64_t gp_quiet_left(uint64_t end_ns);

/*
 * Makes this thread the one that moves memory. gp_quiet_take returns false if another one does until end_ns.
 * gp_quiet_take_in_turn waits for as long as it takes. Meanwhile signals are delivered. After gp_quiet_take and until
 * gp_quiet_give they are blocked, but for those that an instruction of the thread causes.
 */
bool gp_quiet_take(uint64_t end_ns, struct gp_quiet_hold *ret_hold);
void gp_quiet_take_in_turn(struct gp_quiet_hold *ret_hold);
void gp_quiet_give(const struct gp_quiet_hold *hold);

/* With the lock: it will be free in some milliseconds. Threads whose time is up wait for it nevertheless. */
void gp_quiet_set_brief(bool is_brief);

/*
 * Threads at the gate make the thread that becomes quiet give up at once, or when its time is up. GP_QUIET_TO_DEVICE:
 * the latter, and only memory moves whose content is in the host. No other process can have that, so it also moves
 * after the program has exported other memory.
 */
enum gp_quiet_manner { GP_QUIET_YIELDS, GP_QUIET_PERSISTS, GP_QUIET_TO_DEVICE };

/*
 * Closes the gate, and waits until no call that submits work is under way and all GPUs are idle, at most until end_ns:
 * a kernel may wait for a thread that waits at the gate. The sleepers of the hold have been collected; they are
 * collected anew once the gate is closed. Returns false with the reason if memory cannot move, now or at all. The gate
 * is open then. -EINTR: a signal has come, whose handler runs once the thread has given the lock up.
 */
bool gp_quiet_begin(const struct gp_quiet_hold *hold, enum gp_quiet_manner manner, uint64_t end_ns,
	struct gp_quiet_refusal *ret_refusal);

void gp_quiet_open(void);

/*
 * Calls fn once the process is quiet, with all contexts and pools, which are entered. The process has to be awake, and
 * stays awake: threads at the gate go on once the lock is free. They do not make it give up before its time is up.
 * Returns false, with the reason, if fn was not called.
 */
bool gp_quiet_run(enum gp_quiet_manner manner, uint64_t timeout_ns,
	void (*fn)(void *arg, const struct gp_sleepers *sleepers), void *arg, struct gp_quiet_refusal *ret_refusal);

/*
 * With the lock: delivers signals that end or stop the process. Nothing waits for a process that ends, and its memory
 * ends with it. Returns true if the program has a handler for another signal that has come.
 */
bool gp_quiet_deliver_signals(void);

/*
 * A thread has come to the closed gate, and then leaves it. gp_quiet_arrive returns false for the thread that moves
 * memory, which has closed the gate and passes it.
 */
bool gp_quiet_arrive(void);
void gp_quiet_depart(void);

/* True if a thread of the program waits at the gate. */
bool gp_quiet_has_waiting(void);

/* The same for the functions of sleepers.h that may stop. Delivers signals first. With the lock. */
bool gp_quiet_is_awaited(void *unused);

/* Writes that a thread waits at the gate. Returns false. */
bool gp_quiet_refuse_awaited(struct gp_quiet_refusal *ret_refusal);

/* Watches forks. To be called before there is a context. */
void gp_quiet_start(void);
