/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "green.h"

#include <stdlib.h>

#include "capture.h"
#include "pool/pool_control.h"
#include "serial.h"
#include "shim/driver/driver_table.h"
#include "shim/record/record.h"

static struct gp_rwlock lock;
static struct green {
	CUgreenCtx green;
	CUcontext handle; /* the context from cuCtxFromGreenCtx; NULL before the program calls that */
	CUdevice device;
} * greens;
static unsigned n_room;
static _Atomic unsigned n_greens; /* changed under the lock */

/* Returns the entry of a green context, or NULL. */
static struct green *find_locked(CUgreenCtx green)
{
	for (unsigned i = 0; i < n_greens; i++)
		if (greens[i].green == green)
			return &greens[i];
	return NULL;
}

/* If there is no host memory for the entry, the green context stays unknown, and the driver serves it. */
static void add_locked(const struct green *entry)
{
	unsigned n = n_greens;

	if (n == n_room) {
		unsigned room = n_room ? n_room * 2 : 8;
		struct green *more = realloc(greens, room * sizeof(*more));

		if (!more)
			return;
		greens = more;
		n_room = room;
	}
	greens[n] = *entry;
	n_greens = n + 1;
}

CUcontext gp_green_primary(CUcontext handle)
{
	CUdevice device = -1;

	if (gp_likely(atomic_load_explicit(&n_greens, memory_order_relaxed) == 0))
		return NULL;
	gp_rwlock_lock_shared(&lock);
	for (unsigned i = 0; i < n_greens && device < 0; i++)
		if (greens[i].handle == handle)
			device = greens[i].device;
	gp_rwlock_unlock_shared(&lock);
	return device < 0 ? NULL : gp_context_primary(device);
}

CUcontext gp_green_find(CUcontext current)
{
	CUcontext primary = gp_green_primary(current);
	CUgreenCtx green = NULL;
	CUdevice device;

	if (primary || !gp_real.cuStreamGetGreenCtx || !gp_capture_is_none())
		return primary;
	if (gp_real.cuStreamGetGreenCtx(NULL, &green) || !green || gp_real.cuCtxGetDevice(&device))
		return NULL;
	gp_green_created(green, device);
	gp_green_converted(green, current);
	return gp_green_primary(current);
}

static void gpu_wait_again(CUdevice device)
{
	struct gp_context *context = gp_table_find(NULL, device);

	if (!context)
		return;
	gp_context_set_overlap(context);
	gp_record(context->pool, ORDER_AGAIN, 0);
	gp_pool_gpu_wait_again(context->pool);
	gp_context_put(context);
}

void gp_green_created(CUgreenCtx green, CUdevice device)
{
	gp_serial_end("a green context");
	gp_rwlock_lock(&lock);
	if (!find_locked(green))
		add_locked(&(struct green){.green = green, .device = device});
	gp_rwlock_unlock(&lock);
	/* A GPU wait from before the green context existed may not hold back its work. */
	gpu_wait_again(device);
}

void gp_green_converted(CUgreenCtx green, CUcontext handle)
{
	struct green *found;

	gp_rwlock_lock(&lock);
	found = find_locked(green);
	if (found)
		found->handle = handle;
	gp_rwlock_unlock(&lock);
}

CUdevice gp_green_device(CUgreenCtx green)
{
	const struct green *found;
	CUdevice device;

	gp_rwlock_lock_shared(&lock);
	found = find_locked(green);
	device = found ? found->device : -1;
	gp_rwlock_unlock_shared(&lock);
	return device;
}

bool gp_green_is_on(CUdevice device)
{
	bool is_on = false;

	gp_rwlock_lock_shared(&lock);
	for (unsigned i = 0; i < n_greens; i++)
		is_on |= greens[i].device == device;
	gp_rwlock_unlock_shared(&lock);
	return is_on;
}

void gp_green_destroyed(CUgreenCtx green)
{
	CUcontext handle = NULL;
	struct green *found;

	gp_rwlock_lock(&lock);
	found = find_locked(green);
	if (found) {
		handle = found->handle;
		*found = greens[n_greens - 1];
		n_greens--;
	}
	gp_rwlock_unlock(&lock);
	if (!handle)
		return;
	gp_capture_forget_context(handle);
	gp_context_forget(handle);
}
