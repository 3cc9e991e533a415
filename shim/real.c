/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Finding the driver. libcuda is looked for by its name and only if it is in the process already (RTLD_NOLOAD), so a
 * process that makes no CUDA call never loads it on our account.
 *
 * gpupool's functions replace the driver's by identity of address, for every way in: what the driver or the loader
 * answers is compared with the addresses of the hooked functions. That needs no table of versions and
 * flags, as long as cuGetProcAddress gives the very addresses that dlsym gives (measured: it does). If a
 * driver ever answers otherwise, nothing is hooked.
 *
 * All is looked up without a lock of ours and published under one. The loader has a lock of its own, which a thread
 * holds while the constructors of what it loads run, and these may make CUDA calls. So two threads may look everything
 * up, and what the first one found is used.
 */

#include "real.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "../pool/lock.h"
#include "compat.h"
#include "in_order.h"
#include "log.h"
#include "state.h"
#include "thread.h"

struct gp_real gp_real;
_Atomic bool gp_real_is_ready;

_Atomic(gp_dlsym_fn *) gp_real_dlsym;
_Atomic(void *) gp_real_dlopen;

/* What programs are to meet under these names: ours (loader.S), which a test that is linked with the rest has not. */
__attribute__((weak)) void *gp_door_dlsym(void *handle, const char *name);
__attribute__((weak)) void *gp_door_dlopen(const char *file, int mode);

/* The results of one thread's lookup, before they are published. */
struct found {
	struct gp_real real;
	bool is_trusted;
	bool sees_work, sees_current; /* all that submits; all that changes a thread's context */
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static bool sees_work;

/* The exported functions (entry.c), under names of ours so that the linker binds them locally. */
#define HOOK(symbol, name, version, flags, parameters, arguments) CUresult symbol parameters;
#include "hooks.def"

static const struct row {
	const char *symbol, *name;
	int version, flags;
	enum role { ANSWERED, SEEN, SUBMITS } role;
	void *hook;
	size_t original; /* where in struct gp_real */
} rows[] = {
#define ROW(symbol_, name_, version_, flags_, role_)                                                                   \
	{.symbol = #symbol_,                                                                                           \
		.name = name_,                                                                                         \
		.version = version_,                                                                                   \
		.flags = flags_,                                                                                       \
		.role = role_,                                                                                         \
		.hook = (void *)symbol_,                                                                               \
		.original = offsetof(struct gp_real, symbol_)},
#define HOOK(symbol, name, version, flags, parameters, arguments)         ROW(symbol, name, version, flags, ANSWERED)
#define HOOK_SEEN(symbol, name, version, flags, parameters, arguments)    ROW(symbol, name, version, flags, SEEN)
#define WORK(symbol, name, version, flags, parameters, arguments, stream) ROW(symbol, name, version, flags, SUBMITS)
#include "hooks.def"
};

static const struct {
	const char *symbol;
	size_t original;
} calls[] = {
#define CALL(symbol_, parameters) {#symbol_, offsetof(struct gp_real, symbol_)},
#include "hooks.def"
};

/* The latest driver of which work.def has all that submits, and hooks.def all that changes a thread's context. */
enum { KNOWN_VERSION = 13020 };

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]), N_CALLS = sizeof(calls) / sizeof(calls[0]) };

void *gp_real_dlsym_call(void *handle, const char *name)
{
	/* GCC loads an atomic pointer that is called by its name as if it were none. */
	gp_dlsym_fn *call = atomic_load_explicit(&gp_real_dlsym, memory_order_relaxed);

	return call(handle, name);
}

int gp_real_index(const char *symbol)
{
	for (int i = 0; i < N_ROWS; i++)
		if (strcmp(rows[i].symbol, symbol) == 0)
			return i;
	return -1;
}

bool gp_real_is_work(int index)
{
	return rows[index].role == SUBMITS;
}

void *gp_real_hook(int index)
{
	return rows[index].hook;
}

static void **original_in(struct gp_real *real, size_t original)
{
	return (void **)((char *)real + original);
}

void *gp_real_original(int index)
{
	return *original_in(&gp_real, rows[index].original);
}

static void *replace_by(struct gp_real *real, void *address)
{
	for (int i = 0; address && i < N_ROWS; i++)
		if (*original_in(real, rows[i].original) == address)
			return rows[i].hook;
	return address;
}

void *gp_real_replace(void *address)
{
	return replace_by(&gp_real, address);
}

/*
 * Whether cuGetProcAddress gives the address that dlsym gave, for a row whose function the driver has. For one that it
 * has not, an older version of the same may come, which has a row of its own.
 */
static bool is_row_trusted(struct gp_real *real, const struct row *row)
{
	void *original = *original_in(real, row->original), *address = NULL;
	CUresult r;

	if (!original && row->role == ANSWERED)
		return true;
	if (real->cuGetProcAddress_v2)
		r = real->cuGetProcAddress_v2(row->name, &address, row->version, (uint64_t)row->flags, NULL);
	else
		r = real->cuGetProcAddress(row->name, &address, row->version, (uint64_t)row->flags);
	/* Not known at that version is no contradiction; another function is. */
	return r || !address || address == original || (!original && replace_by(real, address) != address);
}

static bool is_driver_trusted(struct gp_real *real, enum role role)
{
	if (!real->cuGetProcAddress_v2 && !real->cuGetProcAddress)
		return true;
	for (int i = 0; i < N_ROWS; i++)
		if (rows[i].role == role && !is_row_trusted(real, &rows[i]))
			return false;
	return true;
}

static bool is_version_known(const struct gp_real *real)
{
	int version;

	return real->cuDriverGetVersion && !real->cuDriverGetVersion(&version) && version <= KNOWN_VERSION;
}

bool gp_real_sees_work(void)
{
	return sees_work;
}

/* What a driver exports and does not answer for is not there: then no context fences, as before CUDA 12.5. */
static void check_context_fences(struct gp_real *real)
{
	void *address = NULL;

#ifndef GP_HIDE_FENCES /* but in a test build, which runs on a newer driver as if it were an old one */
	if (!real->cuGetProcAddress_v2)
		return;
	(void)real->cuGetProcAddress_v2("cuCtxRecordEvent", &address, 12050, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
#endif
	if (address)
		return;
	real->cuCtxRecordEvent = NULL; /* the other is the program's, too */
}

/*
 * Whoever stands behind us in the way of what is passed on (a tracer, a limiter) is called for it, as if we were none;
 * then the driver's own address is not ours to replace.
 */
static void find_behind(struct gp_real *real, const struct row *row)
{
	void **original = original_in(real, row->original), *behind;

	if (row->role == ANSWERED || !*original)
		return;
	behind = gp_real_dlsym_call(RTLD_NEXT, row->symbol);
	if (behind)
		*original = behind;
}

/* Somebody who is met first may answer without us. */
static bool is_door_first(const char *name, void *door)
{
	return !door || gp_real_dlsym_call(RTLD_DEFAULT, name) == door;
}

/* False while libcuda is not in the process. No lock may be held. */
static bool look_up(struct found *found)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	struct gp_real *real = &found->real;
	bool is_known;

	if (!libcuda)
		return false;
	for (int i = 0; i < N_ROWS; i++) {
		*original_in(real, rows[i].original) = gp_real_dlsym_call(libcuda, rows[i].symbol);
		find_behind(real, &rows[i]);
	}
	for (int i = 0; i < N_CALLS; i++)
		*original_in(real, calls[i].original) = gp_real_dlsym_call(libcuda, calls[i].symbol);
	/* Not an error of the program's: dlerror must not tell it. */
	(void)dlerror();
	check_context_fences(real);
	is_known = is_version_known(real);
	found->is_trusted = real->cuMemAlloc_v2 && real->cuMemFree_v2 && real->cuCtxGetCurrent &&
			    is_driver_trusted(real, ANSWERED);
	/* What is passed on, but has to be seen for what is concluded from it. */
	found->sees_work = is_known && is_driver_trusted(real, SUBMITS);
	found->sees_current = is_known && is_driver_trusted(real, SEEN);
	return true;
}

/* For the first thread that has found it all; true if that is this one. */
static bool publish(const struct found *found)
{
	bool is_first;

	gp_mutex_lock(&lock);
	is_first = !atomic_load(&gp_real_is_ready);
	if (is_first) {
		gp_real = found->real;
		sees_work = found->sees_work;
		if (!found->is_trusted)
			gp_set_unusual(GP_UNUSUAL_BYPASS);
		if (!found->sees_work)
			gp_work_lose(&gp_submitted);
		if (!found->sees_current)
			gp_set_unusual(GP_UNUSUAL_CURRENT);
		atomic_store_explicit(&gp_real_is_ready, true, memory_order_release);
	}
	gp_mutex_unlock(&lock);
	return is_first;
}

/* The driver may look things up itself while it is being asked (WSL's does): that is not for us. */
static _Thread_local bool is_finding __attribute__((tls_model("initial-exec")));

void gp_real_after_fork_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

bool gp_real_find(void)
{
	struct found found = {0};
	bool is_found, is_first = false;

	if (is_finding || !gp_real_dlsym_resolve())
		return false;
	if (gp_real_is_found())
		return true;
	gp_state_watch_forks();
	is_finding = true;
	is_found = look_up(&found);
	/* Before any thread can use the results. */
	if (is_found &&
		(!is_door_first("dlsym", (void *)gp_door_dlsym) || !is_door_first("dlopen", (void *)gp_door_dlopen)))
		gp_in_order_lose_sight("another library in the way of dlsym or dlopen");
	if (is_found)
		is_first = publish(&found);
	is_finding = false;
	/* There will be no first allocation to open the log at. */
	if (is_first && !found.is_trusted && gp_state_is_enabled()) {
		gp_log_open(gp_state.config.log_level, gp_state.config.log_file);
		gp_log(GP_LOG_WARN, "this driver's cuGetProcAddress and dlsym disagree: gpupool does nothing");
	}
	return is_found;
}
