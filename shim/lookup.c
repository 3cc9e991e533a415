/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * dlsym, the door through which programs look for the driver. Everything that is not the driver's leaves through a
 * true tail jump in assembly (loader.S), because RTLD_NEXT and RTLD_DEFAULT mean "seen from the caller", whom a C
 * wrapper would replace by itself. And dlopen, where plug-ins come in that find the driver without this door.
 *
 * For names in hooks.def the C library is asked first, and only if it answers with the driver's function is
 * ours given instead. Constructors of other libraries may arrive here before anything of ours ran: nothing is
 * assumed to be initialised.
 */

#include <ctype.h>
#include <dlfcn.h>
#include <stddef.h>

#include "compat.h"
#include "in_order.h"
#include "libraries.h"
#include "libc.h"
#include "real.h"
#include "runtime.h"
#include "state.h"
#include "thread.h"

/* Returned in two registers, which loader.S reads. */
struct gp_route {
	uintptr_t is_handled;
	void *address;
};

struct gp_route gp_dlsym_route(void *handle, const char *name);
struct gp_route gp_dlopen_route(const char *file, int mode);

/*
 * The version that every C library has. To ask for one that it has not would allocate, for an error, and whoever stands
 * in the way of malloc may be asking us for the real one.
 */
static void *next_of(const char *name)
{
	return gp_libc_is_glibc() ? dlvsym(RTLD_NEXT, name, GP_GLIBC) : gp_libc_function(name);
}

bool gp_real_dlsym_resolve(void)
{
	void *found;

	if (gp_likely(atomic_load_explicit(&gp_real_dlsym, memory_order_relaxed) != NULL))
		return true;
	found = next_of("dlsym");
	atomic_store_explicit(&gp_real_dlsym, (gp_dlsym_fn *)found, memory_order_relaxed);
	return found != NULL;
}

/*
 * In the global scope (RTLD_DEFAULT, or a handle of the program itself) the loader finds our own exports. What is
 * behind them is what the program means, and where there is no driver, it must be told so: programs look for CUDA in
 * this way.
 */
static void *behind_us(const char *name, int index)
{
	void *address = gp_real_dlsym_call(RTLD_NEXT, name);

	if (!address && gp_real_ready())
		address = gp_real_original(index);
	/* Once more, so that dlerror speaks of this name. */
	return address ? address : gp_real_dlsym_call(RTLD_NEXT, name);
}

/* What follows the caller is the C library's to say, unless ours is all that it could find. */
static bool is_nobody_next(const char *name)
{
	return !gp_real_ready() && !gp_real_dlsym_call(RTLD_NEXT, name);
}

/*
 * Functions of the runtime. Through a handle of a runtime a program gets that runtime's own: ours would not know which
 * was meant, when it is called from anywhere. In the global scope the loader finds ours, which is what a program means
 * that is linked with a runtime; where it has none it must be told so.
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
	/* So that dlerror speaks of this name, or of nothing. */
	if (is_any)
		(void)dlerror();
	else
		(void)gp_real_dlsym_call(RTLD_NEXT, name);
	return route;
}

static void *replace(void *address)
{
	if (!address || !gp_state_is_enabled() || gp_is_unusual(GP_UNUSUAL_BYPASS))
		return address;
	return gp_real_ready() ? gp_real_replace(address) : address;
}

struct gp_route gp_dlsym_route(void *handle, const char *name)
{
	struct gp_route route = {0, NULL};
	int index;

	gp_libraries_opened();
	atomic_fetch_add_explicit(&gp_runtime_lookups, 1, memory_order_relaxed);
	if (!gp_real_dlsym_resolve()) {
		/* No dlsym below us: unheard of, and better answered with "not found" than with a crash. */
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
		/* Who comes after us is given the driver's own, and we do not see what goes there. */
		if (gp_real_is_work(index))
			gp_in_order_lose_sight("somebody else in the way of what is submitted");
		gp_set_unusual(GP_UNUSUAL_CURRENT);
		route.is_handled = is_nobody_next(name);
		return route;
	}
	route.is_handled = 1;
	route.address = gp_real_dlsym_call(handle, name);
	if (route.address == gp_real_hook(index))
		route.address = behind_us(name, index);
	route.address = replace(route.address);
	return route;
}

/* Who looks at his own libraries first finds the driver, and the C library's dlsym, without meeting us. */
struct gp_route gp_dlopen_route(const char *file, int mode)
{
	void *found = atomic_load_explicit(&gp_real_dlopen, memory_order_relaxed);

	if (gp_unlikely(!found)) {
		found = next_of("dlopen");
		atomic_store_explicit(&gp_real_dlopen, found, memory_order_relaxed);
	}
	gp_libraries_opened();
	if (file && !(mode & RTLD_NOLOAD)) {
		if (mode & RTLD_DEEPBIND)
			gp_in_order_lose_sight("a plug-in opened with RTLD_DEEPBIND");
		gp_libraries_opening();
	}
	/* No dlopen below us: as with dlsym. */
	return (struct gp_route){!found, NULL};
}

CUresult hook_cuGetExportTable(const void **table, const void *id)
{
	if (id)
		gp_in_order_note_private(id);
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
