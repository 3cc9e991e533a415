/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Finds the driver's functions. libcuda is looked up by name, and only if it is already in the process (RTLD_NOLOAD),
 * so gpupool never loads it into a process that makes no CUDA call.
 *
 * A program that looks up a driver function gets the hook if the address that it would get is that of a hooked
 * function. This holds for every kind of lookup, and needs no table of versions and flags as long as cuGetProcAddress
 * returns the same addresses as dlsym (measured: it does). If a driver returns other addresses, gpupool passes all
 * calls to it.
 *
 * The functions are looked up without a lock of gpupool and published under one. The reason is the loader's lock, which
 * a thread holds while it runs the constructors of a library, and these may make CUDA calls. So several threads may
 * look up all functions at the same time. The results of the first to finish are used.
 */

#include "driver_table.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "common/compat.h"
#include "dlsym.h"
#include "pool/lock.h"
#include "shim/base/fork.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/base/state.h"
#include "submit.h"

struct gp_real gp_real;
_Atomic bool gp_real_is_ready;

/* gpupool's own dlsym and dlopen (loader.S). Weak, since some tests are linked without loader.S. */
__attribute__((weak)) void *gp_door_dlsym(void *handle, const char *name);
__attribute__((weak)) void *gp_door_dlopen(const char *file, int mode);

/* The results of one thread's lookup, before they are published. */
struct found {
	struct gp_real real;
	bool is_trusted;
	const char *why_unseen;     /* the result of gp_real_why_unseen */
	const char *why_unexamined; /* the result of gp_real_why_unexamined */
	bool sees_current;          /* every change of a thread's current context goes through a hook */
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static const char *why_unseen, *why_unexamined;

/* The exported functions (entry.c), for the rows below. */
#define HOOK(symbol, name, version, flags, parameters, arguments) CUresult symbol parameters;
#include "hooks.def"

static const struct row {
	const char *symbol, *name;
	int version, flags;
	enum role { ANSWERED, SEEN, PASSED, SUBMITS } role;
	void *hook;
	size_t original; /* offset in struct gp_real */
} rows[] = {
#define ROW(symbol_, name_, version_, flags_, role_) \
	{.symbol = #symbol_,                         \
		.name = name_,                       \
		.version = version_,                 \
		.flags = flags_,                     \
		.role = role_,                       \
		.hook = (void *)symbol_,             \
		.original = offsetof(struct gp_real, symbol_)},
#define HOOK(symbol, name, version, flags, parameters, arguments)         ROW(symbol, name, version, flags, ANSWERED)
#define HOOK_SEEN(symbol, name, version, flags, parameters, arguments)    ROW(symbol, name, version, flags, SEEN)
#define HOOK_PASSED(symbol, name, version, flags, parameters, arguments)  ROW(symbol, name, version, flags, PASSED)
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

/*
 * The latest driver for which submit.def lists all functions that submit work, and hooks.def all that change a thread's
 * current context.
 */
enum { KNOWN_VERSION = 13020 };

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]), N_CALLS = sizeof(calls) / sizeof(calls[0]) };

int gp_real_index(const char *symbol)
{
	for (int i = 0; i < N_ROWS; i++)
		if (strcmp(rows[i].symbol, symbol) == 0)
			return i;
	return -1;
}

bool gp_driver_is_submitting(int index)
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

static void *replace_in(struct gp_real *real, void *address)
{
	for (int i = 0; address && i < N_ROWS; i++)
		if (*original_in(real, rows[i].original) == address)
			return rows[i].hook;
	return address;
}

void *gp_real_replace(void *address)
{
	return replace_in(&gp_real, address);
}

/*
 * True if cuGetProcAddress returns the address that dlsym returned. For a function that the driver lacks it may return
 * an older version of the same function, which has a separate row.
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
	/* The driver may have no function of that version. It must not return another function than dlsym. */
	return r || !address || address == original || (!original && replace_in(real, address) != address);
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

const char *gp_real_why_unseen(void)
{
	return why_unseen;
}

const char *gp_real_why_unexamined(void)
{
	return why_unexamined;
}

/*
 * If another preloaded library (a tracer, a limiter) also defines a function that gpupool passes on unchanged, gpupool
 * calls that library's function instead of the driver's function, as the program would without gpupool. A program that
 * looks up the function in the driver then gets the driver's own address.
 */
static void use_interposer(struct gp_real *real, const struct row *row)
{
	void **original = original_in(real, row->original), *behind;

	if (row->role == ANSWERED || !*original)
		return;
	behind = gp_real_dlsym_call(RTLD_NEXT, row->symbol);
	if (behind)
		*original = behind;
}

/* True if the program's calls of this function reach gpupool's first, and not that of another preloaded library. */
static bool is_own_first(const char *name, void *own)
{
	return !own || gp_real_dlsym_call(RTLD_DEFAULT, name) == own;
}

/* Returns false while libcuda is not in the process. No lock may be held. */
static bool look_up_all(struct found *found)
{
	void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	struct gp_real *real = &found->real;
	bool is_known;

	if (!libcuda)
		return false;
	for (int i = 0; i < N_ROWS; i++) {
		*original_in(real, rows[i].original) = gp_real_dlsym_call(libcuda, rows[i].symbol);
		use_interposer(real, &rows[i]);
	}
	for (int i = 0; i < N_CALLS; i++)
		*original_in(real, calls[i].original) = gp_real_dlsym_call(libcuda, calls[i].symbol);
	/* Clear the errors of these lookups, so that the program's dlerror() does not report them. */
	(void)dlerror();
	if (!gp_real_answers_for_fences(real))
		real->cuCtxRecordEvent = NULL; /* the program may still use cuCtxWaitEvent */
	is_known = is_version_known(real);
	found->is_trusted =
		real->cuMemAlloc_v2 && real->cuMemFree_v2 && real->cuCtxGetCurrent && is_driver_trusted(real, ANSWERED);
	/* From calls that are passed on unchanged gpupool draws conclusions, which hold only if it sees every call. */
	if (!is_known || !is_driver_trusted(real, SUBMITS))
		found->why_unseen = "the driver is newer than CUDA 13.2, or another library intercepts its functions";
	if (!is_driver_trusted(real, PASSED))
		found->why_unexamined = "cuGetProcAddress and dlsym disagree about a function of graphs or textures";
	found->sees_current = is_known && is_driver_trusted(real, SEEN);
	if (!is_own_first("dlsym", (void *)gp_door_dlsym) || !is_own_first("dlopen", (void *)gp_door_dlopen)) {
		found->why_unseen = "another library intercepts dlsym or dlopen";
		found->sees_current = false;
	}
	return true;
}

/* Publishes the results, unless another thread has published its own. Returns true if these were published. */
static bool publish(const struct found *found)
{
	bool is_first;

	gp_mutex_lock(&lock);
	is_first = !atomic_load(&gp_real_is_ready);
	if (is_first) {
		gp_real = found->real;
		why_unseen = found->why_unseen;
		why_unexamined = found->why_unexamined;
		if (!found->is_trusted)
			gp_slow_path_add(GP_SLOW_PATH_BYPASS);
		if (found->why_unseen)
			gp_submission_lose_sight(&gp_submitted);
		if (!found->sees_current)
			gp_slow_path_lose_contexts();
		atomic_store_explicit(&gp_real_is_ready, true, memory_order_release);
	}
	gp_mutex_unlock(&lock);
	return is_first;
}

/* Set during the lookup. The driver may call dlsym meanwhile (WSL's driver does), which must not start it again. */
static _Thread_local bool is_finding __attribute__((tls_model("initial-exec")));

static void reset_in_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}

bool gp_real_find(void)
{
	static const struct gp_fork_child child = {.fn = reset_in_child};
	struct found found = {0};
	bool is_found, is_first = false;

	if (is_finding || !gp_real_dlsym_resolve())
		return false;
	if (gp_real_is_found())
		return true;
	gp_fork_on_child(&child);
	is_finding = true;
	is_found = look_up_all(&found);
	if (is_found)
		is_first = publish(&found);
	is_finding = false;
	/* gpupool will serve no allocation that would open the log, so open it here. */
	if (is_first && !found.is_trusted && gp_state_is_enabled()) {
		gp_log_open(gp_state.config.log_level, gp_state.config.log_file);
		gp_log(GP_LOG_WARN, "gpupool is disabled: cuGetProcAddress and dlsym of this driver disagree");
	}
	return is_found;
}
