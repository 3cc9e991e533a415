/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool's dlsym, through which programs find the driver. All lookups of other names leave by a true tail jump in
 * assembly (loader.S), because RTLD_NEXT and RTLD_DEFAULT depend on the caller, and a C wrapper would itself be the
 * caller. gpupool's dlopen notices plug-ins that find the driver without gpupool's dlsym.
 *
 * For names in driver/hooks.def the C library is asked first, and its answer is replaced only if it is the driver's
 * function. Constructors of other libraries may call these functions before any other code of gpupool has run, so they
 * assume no initialised state.
 */

#include <ctype.h>
#include <dlfcn.h>
#include <stddef.h>

#include "common/compat.h"
#include "runtime_find.h"
#include "shim/base/state.h"
#include "shim/context/libraries.h"
#include "shim/context/serial.h"
#include "shim/driver/driver_table.h"

/* Returned in two registers, which loader.S reads. */
struct gp_route {
	uintptr_t is_handled;
	void *address;
};

struct gp_route gp_dlsym_route(void *handle, const char *name);
struct gp_route gp_dlopen_route(const char *file, int mode);

/*
 * Returns the function behind gpupool's export, or NULL. In the global scope (RTLD_DEFAULT, or a handle of the program
 * itself) the loader finds gpupool's exports, but the program means the functions behind them. Without a driver the
 * answer must be NULL: programs find out in this way whether there is CUDA.
 */
static void *find_behind_export(const char *name, int index)
{
	void *address = gp_real_dlsym_call(RTLD_NEXT, name);

	if (!address && gp_real_ready())
		address = gp_real_original(index);
	/* The repeated lookup makes dlerror report this name. */
	return address ? address : gp_real_dlsym_call(RTLD_NEXT, name);
}

/*
 * Returns true if a lookup with RTLD_NEXT must find nothing: there is no driver, and no library behind gpupool has the
 * name. In all other cases the C library answers, since only it knows which library follows the caller.
 */
static bool is_missing_behind(const char *name)
{
	return !gp_real_ready() && !gp_real_dlsym_call(RTLD_NEXT, name);
}

/*
 * Answers lookups of functions of the runtime. Through a handle of a runtime a program gets that runtime's own
 * function, since gpupool's function could not tell which handle was meant. In the global scope the loader finds
 * gpupool's function, which is right for a program that is linked with a runtime. If the process has no runtime, the
 * answer must be NULL.
 */
static struct gp_route route_runtime(void *handle, const char *name, int index)
{
	struct gp_route route = {0, NULL};
	bool is_any;

	if (handle == RTLD_NEXT) {
		route.is_handled = !gp_runtime_behind(index) && !gp_runtime_anywhere(index);
	} else {
		route.address = gp_real_dlsym_call(handle, name);
		route.is_handled = 1;
		if (route.address != gp_runtime_hook(index) || gp_runtime_behind(index))
			return route;
		route.address = gp_runtime_anywhere(index);
	}
	is_any = route.address || !route.is_handled;
	/* Makes dlerror report no error, or the lookup of this name. */
	if (is_any)
		(void)dlerror();
	else
		(void)gp_real_dlsym_call(RTLD_NEXT, name);
	return route;
}

static void *replace(void *address)
{
	if (!address || !gp_state_is_enabled() || gp_slow_path_is_any(GP_SLOW_PATH_BYPASS))
		return address;
	return gp_real_ready() ? gp_real_replace(address) : address;
}

struct gp_route gp_dlsym_route(void *handle, const char *name)
{
	struct gp_route route = {0, NULL};
	int index;

	gp_libraries_opened();
	atomic_fetch_add_explicit(&gp_dlsym_calls, 1, memory_order_relaxed);
	if (!gp_real_dlsym_resolve()) {
		/* The C library's dlsym was not found. This should not happen: answer "not found" rather than crash. */
		route.is_handled = 1;
		return route;
	}
	if (!name || name[0] != 'c' || name[1] != 'u')
		return route;
	if (name[2] == 'd' && (index = gp_runtime_index(name)) >= 0)
		return route_runtime(handle, name, index);
	if (!isupper((unsigned char)name[2]))
		return route;
	index = gp_real_index(name);
	if (index < 0)
		return route;
	if (handle == RTLD_NEXT) {
		/* The caller intercepts this function itself. It gets the driver's, and its calls bypass gpupool. */
		if (gp_driver_is_submitting(index))
			gp_serial_lose_sight("another library intercepts functions that submit work");
		gp_slow_path_lose_contexts();
		route.is_handled = is_missing_behind(name);
		return route;
	}
	route.is_handled = 1;
	route.address = gp_real_dlsym_call(handle, name);
	if (route.address == gp_real_hook(index))
		route.address = find_behind_export(name, index);
	route.address = replace(route.address);
	return route;
}

/* With RTLD_DEEPBIND a plug-in resolves libcuda and dlsym in its own scope first, and bypasses gpupool's hooks. */
struct gp_route gp_dlopen_route(const char *file, int mode)
{
	void *found = atomic_load_explicit(&gp_real_dlopen, memory_order_relaxed);

	if (gp_unlikely(!found)) {
		found = gp_real_dlsym_next("dlopen");
		atomic_store_explicit(&gp_real_dlopen, found, memory_order_relaxed);
	}
	gp_libraries_opened();
	if (file && !(mode & RTLD_NOLOAD)) {
		if (mode & RTLD_DEEPBIND)
			gp_serial_lose_sight("a plug-in opened with RTLD_DEEPBIND");
		gp_libraries_opening();
	}
	/* No other library has dlopen: return NULL, as in dlsym. */
	return (struct gp_route){!found, NULL};
}

CUresult hook_cuGetExportTable(const void **table, const void *id)
{
	if (id)
		gp_serial_note_private(id);
	return gp_real.cuGetExportTable(table, id);
}

CUresult hook_cuGetProcAddress(const char *name, void **pfn, int version, uint64_t flags)
{
	CUresult r = gp_real.cuGetProcAddress(name, pfn, version, flags);

	if (r == CUDA_SUCCESS && pfn)
		*pfn = gp_real_replace(*pfn);
	return r;
}

CUresult hook_cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags, int *status)
{
	CUresult r = gp_real.cuGetProcAddress_v2(name, pfn, version, flags, status);

	if (r == CUDA_SUCCESS && pfn)
		*pfn = gp_real_replace(*pfn);
	return r;
}
