/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "oom_hook.h"

#include <errno.h>

#include "pool/pool_control.h"
#include "shim/trace/module.h"

_Atomic bool gp_oom_hook_exists;

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static gp_oom_hook_fn *hook; /* guarded by lock */
static void *hook_arg;       /* likewise */

static _Thread_local bool is_inside __attribute__((tls_model("initial-exec")));

void gp_oom_hook_set(gp_oom_hook_fn *fn, void *arg)
{
	gp_mutex_lock(&lock);
	hook = fn;
	hook_arg = arg;
	atomic_store(&gp_oom_hook_exists, fn != NULL);
	gp_mutex_unlock(&lock);
}

bool gp_oom_hook_call(struct gp_pool *pool, int device, uint64_t bytes)
{
	gp_oom_hook_fn *fn;
	struct gp_module_saved saved;
	int saved_errno = errno;
	bool should_retry;
	void *arg;

	gp_mutex_lock(&lock);
	fn = hook;
	arg = hook_arg;
	gp_mutex_unlock(&lock);
	if (!fn || is_inside)
		return false;
	is_inside = true;
	saved = gp_module_leave();
	should_retry = fn(arg, device, bytes) != 0;
	gp_module_return(saved);
	is_inside = false;
	if (should_retry && pool)
		gp_pool_uncount_oom(pool);
	errno = saved_errno;
	return should_retry;
}
