/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Which runtime is meant. Programs that are linked with a shared CUDA runtime call cudaMalloc by name, and the loader
 * gives them ours. What it would have given them without us depends on the object that calls: it looks in the global
 * scope for the version that the object was linked with, and then among what the object brought along, which nobody
 * else may see. A process can have several runtimes so. The object is known by the return address; what was found for
 * it is kept by each thread for itself, and found again when anything has been unloaded since, as its place may be
 * another's now. The loader is asked for that before anything of a runtime is called; a hit calls nothing, and asks
 * only if dlsym has been called since.
 *
 * A runtime is served only in threads and contexts in which a call of its own has succeeded before. So its lazy
 * initialisation, the context that it makes current, and every error are its own; and what the current context is
 * needs no runtime to tell, from version 12 on.
 */

#include "runtime.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>

#include "../pool/lock.h"
#include "compat.h"
#include "log.h"
#include "real.h"
#include "state.h"
#include "thread.h"

enum {
	VERSION_MIN = 12000, /* before, cudaSetDevice did not yet make the context current */
	RUNTIMES_MAX = 32,   /* bits */
	CALLERS_MAX = 32,    /* that threads to come need not look for */
	VERSION_SIZE = 64,
};

#define NAME_START "libcudart.so"

_Thread_local struct gp_runtime_caller gp_runtime_callers[GP_RUNTIME_CALLERS]
	__attribute__((tls_model("initial-exec")));
_Atomic unsigned gp_runtime_lookups;

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_LEAF);
static struct gp_runtime known[RUNTIMES_MAX]; /* that have a bit; all of this under the lock */
static unsigned n_known;
static struct gp_runtime_caller callers[CALLERS_MAX]; /* as some thread found them; later ones take the place of older */
static unsigned n_callers;

static const struct row {
	const char *symbol;
	void *hook;
	size_t offset;
} rows[] = {
#define RUNTIME(symbol_, parameters, arguments)                                                                        \
	{.symbol = #symbol_, .hook = (void *)symbol_, .offset = offsetof(struct gp_runtime, symbol_)},
#include "runtime.def"
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static void **function_of(struct gp_runtime *runtime, int index)
{
	return (void **)((char *)runtime + rows[index].offset);
}

/* Where a lookup for a caller goes. */
struct view {
	uintptr_t caller;
	struct gp_runtime_caller *found;
	char name[PATH_MAX];	    /* of the object; empty: the program itself, or no object */
	char version[VERSION_SIZE]; /* of the runtime that it was linked with; empty: of none */
};

static void copy_text(char *to, const char *from, size_t size)
{
	size_t n = strnlen(from, size);

	/* Half a name is another's. */
	memcpy(to, from, n < size ? n : 0);
	to[n < size ? n : 0] = '\0';
}

/* The loader has added the base to some of these addresses, and not to others. */
static uintptr_t address_of(const struct dl_phdr_info *info, const ElfW(Dyn) * entry)
{
	return entry->d_un.d_ptr < info->dlpi_addr ? entry->d_un.d_ptr + info->dlpi_addr : entry->d_un.d_ptr;
}

static void read_version(const struct dl_phdr_info *info, const ElfW(Dyn) * entry, char *version)
{
	uintptr_t strings = 0, needs = 0;
	size_t n = 0;

	for (; entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_STRTAB)
			strings = address_of(info, entry);
		else if (entry->d_tag == DT_VERNEED)
			needs = address_of(info, entry);
		else if (entry->d_tag == DT_VERNEEDNUM)
			n = entry->d_un.d_val;
	}
	while (strings && needs && n--) {
		const ElfW(Verneed) *need = (const void *)needs;
		const ElfW(Vernaux) *aux = (const void *)(needs + need->vn_aux);

		if (strncmp((const char *)strings + need->vn_file, NAME_START, strlen(NAME_START)) == 0)
			copy_text(version, (const char *)strings + aux->vna_name, VERSION_SIZE);
		needs += need->vn_next;
	}
}

static bool is_part(const struct dl_phdr_info *info, const ElfW(Phdr) * part, struct view *view)
{
	uintptr_t begin = info->dlpi_addr + part->p_vaddr;

	if (part->p_type != PT_LOAD || view->caller - begin >= part->p_memsz)
		return false;
	view->found->begin = begin;
	view->found->bytes = part->p_memsz;
	return true;
}

/* Called back with the loader's lock held: looks, and asks the loader nothing. */
static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Phdr) *end = info->dlpi_phdr + info->dlpi_phnum, *part = info->dlpi_phdr;
	struct view *view = arg;

	view->found->n_unloads = info->dlpi_subs;
	while (part < end && !is_part(info, part, view))
		part++;
	if (part == end)
		return 0;
	copy_text(view->name, info->dlpi_name ? info->dlpi_name : "", sizeof(view->name));
	for (part = info->dlpi_phdr; part < end; part++)
		if (part->p_type == PT_DYNAMIC)
			read_version(info, (const void *)(info->dlpi_addr + part->p_vaddr), view->version);
	view->found->is_lasting = !view->name[0] && view->version[0];
	return 1;
}

static int count_unloads(struct dl_phdr_info *info, size_t size, void *n)
{
	*(unsigned long long *)n = info->dlpi_subs;
	return 1;
}

static unsigned long long unloads_now(void)
{
	unsigned long long n = 0;

	dl_iterate_phdr(count_unloads, &n);
	return n;
}

static bool is_ours(const void *address)
{
	for (int i = 0; i < N_ROWS; i++)
		if (rows[i].hook == address)
			return true;
	return false;
}

static void *look_up_in(void *scope, const char *name)
{
	void *found = gp_real_dlsym_call(scope, name);

	return is_ours(found) ? NULL : found;
}

/* What the global scope has behind us. */
static void *look_up_globally(const char *version, const char *name)
{
	return *version ? dlvsym(RTLD_NEXT, name, version) : look_up_in(RTLD_NEXT, name);
}

struct nth {
	unsigned left;
	char name[PATH_MAX];
};

static int take_nth(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct nth *nth = arg;

	if (nth->left--)
		return 0;
	copy_text(nth->name, info->dlpi_name ? info->dlpi_name : "", sizeof(nth->name));
	return 1;
}

/*
 * A scope with a runtime in it: the first object that sees one. For callers that have none of their own, since a
 * function was entered by a jump, or through a pointer. To be closed; NULL if there is no runtime.
 */
static void *any_scope(void)
{
	struct nth nth;

	for (unsigned i = 0;; i++) {
		void *scope;

		nth.left = i;
		if (!dl_iterate_phdr(take_nth, &nth))
			return NULL;
		scope = nth.name[0] ? dlopen(nth.name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
		if (scope && look_up_in(scope, rows[0].symbol))
			return scope;
		if (scope)
			dlclose(scope);
	}
}

static void *base_of(void *address)
{
	Dl_info info;

	return address && dladdr(address, &info) ? info.dli_fbase : NULL;
}

/* Somebody else who stands in the way of these functions is no runtime, and wants to see every call. */
static bool is_of_one_object(struct gp_runtime *runtime)
{
	void *base = base_of((void *)runtime->get_version);

	for (int i = 0; i < N_ROWS; i++)
		if (!base || base_of(*function_of(runtime, i)) != base)
			return false;
	return true;
}

static void find_functions(const struct view *view, void *scope, struct gp_runtime *runtime)
{
	for (int i = 0; i < N_ROWS; i++) {
		void **function = function_of(runtime, i);

		*function = look_up_globally(view->version, rows[i].symbol);
		if (!*function && scope)
			*function = look_up_in(scope, rows[i].symbol);
	}
	*(void **)&runtime->get_version = look_up_globally(view->version, "cudaRuntimeGetVersion");
	if (!runtime->get_version && scope)
		*(void **)&runtime->get_version = gp_real_dlsym_call(scope, "cudaRuntimeGetVersion");
	if (!is_of_one_object(runtime))
		runtime->get_version = NULL;
}

static bool is_in(const struct gp_runtime_caller *part, uintptr_t caller)
{
	return caller - part->begin < part->bytes;
}

/* What other threads have found. */
static bool recall(uintptr_t caller, struct gp_runtime_caller *ret)
{
	bool is_found = false;

	gp_mutex_lock(&lock);
	for (unsigned i = 0; i < CALLERS_MAX && !is_found; i++) {
		is_found = is_in(&callers[i], caller);
		if (is_found)
			*ret = callers[i];
	}
	gp_mutex_unlock(&lock);
	return is_found;
}

static void keep(const struct gp_runtime_caller *found)
{
	unsigned i = 0;

	gp_mutex_lock(&lock);
	while (i < CALLERS_MAX && !is_in(&callers[i], found->begin))
		i++;
	callers[i < CALLERS_MAX ? i : n_callers++ % CALLERS_MAX] = *found;
	gp_mutex_unlock(&lock);
}

static void resolve(uintptr_t caller, struct gp_runtime_caller *found)
{
	struct view view = {.caller = caller, .found = found};
	void *scope;

	/* Code that is in no object is known by its very address. */
	*found = (struct gp_runtime_caller){.begin = caller, .bytes = 1};
	if (!gp_real_dlsym_resolve())
		return;
	dl_iterate_phdr(look_at, &view);
	scope = view.name[0] ? dlopen(view.name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	find_functions(&view, scope, &found->runtime);
	if (scope)
		dlclose(scope);
	scope = found->runtime.cudaMalloc ? NULL : any_scope();
	if (scope) {
		find_functions(&view, scope, &found->runtime);
		dlclose(scope);
	}
	/* Not an error of the program's: dlerror must not tell it. */
	(void)dlerror();
}

/* The thread's entry for a caller becomes the first; NULL if it has none. */
static struct gp_runtime_caller *to_front(uintptr_t caller)
{
	struct gp_runtime_caller *mine = gp_runtime_callers, found;
	int i = 0;

	while (i < GP_RUNTIME_CALLERS && !is_in(&mine[i], caller))
		i++;
	if (i == GP_RUNTIME_CALLERS)
		return NULL;
	found = mine[i];
	memmove(&mine[1], &mine[0], (size_t)i * sizeof(found));
	mine[0] = found;
	return &mine[0];
}

/* Whether what was found is still there. */
static bool is_still(struct gp_runtime_caller *found)
{
	unsigned n_lookups = atomic_load(&gp_runtime_lookups);

	/* In a forked child the loader's lock may be held by nobody who is left. */
	if (!found->is_lasting && !atomic_load(&gp_bypass) && found->n_unloads != unloads_now())
		return false;
	found->n_lookups = n_lookups;
	return true;
}

unsigned gp_runtime_bit_slow(uintptr_t caller)
{
	struct gp_runtime_caller *first = to_front(caller);

	return first && (gp_runtime_is_sure(first) || is_still(first)) ? first->runtime.bit : 0;
}

struct gp_runtime gp_runtime_of(uintptr_t caller)
{
	struct gp_runtime_caller *mine = gp_runtime_callers, *first = to_front(caller);
	unsigned n_lookups = atomic_load(&gp_runtime_lookups);

	/* Where there was no runtime one may have come. */
	if (first && first->runtime.cudaMalloc && is_still(first))
		return first->runtime;
	if (!first)
		memmove(&mine[1], &mine[0], (GP_RUNTIME_CALLERS - 1) * sizeof(mine[0]));
	if (recall(caller, &mine[0]) && mine[0].runtime.cudaMalloc && is_still(&mine[0]))
		return mine[0].runtime;
	resolve(caller, &mine[0]);
	mine[0].n_lookups = n_lookups;
	keep(&mine[0]);
	return mine[0].runtime;
}

static bool is_same(struct gp_runtime *a, struct gp_runtime *b)
{
	for (int i = 0; i < N_ROWS; i++)
		if (*function_of(a, i) != *function_of(b, i))
			return false;
	return true;
}

/* 0 if there are too many. */
static unsigned bit_of(struct gp_runtime *runtime, int version)
{
	bool is_new;
	unsigned i = 0;

	gp_mutex_lock(&lock);
	while (i < n_known && !is_same(&known[i], runtime))
		i++;
	is_new = i == n_known && i < RUNTIMES_MAX;
	if (is_new)
		known[n_known++] = *runtime;
	i = i < n_known ? 1U << i : 0;
	gp_mutex_unlock(&lock);
	if (is_new)
		gp_log(GP_LOG_INFO, "a shared runtime, version %d: what the pool has is had without it", version);
	return i;
}

/* Once the program itself has called it with success, the question for its version starts nothing. */
static unsigned ask_for_bit(struct gp_runtime runtime)
{
	int version = 0;

	if (!gp_state_is_enabled() || !gp_state.config.is_runtime_served || !runtime.get_version)
		return 0;
	if (runtime.get_version(&version) || version < VERSION_MIN)
		return 0;
	return bit_of(&runtime, version);
}

static unsigned get_to_know(uintptr_t caller)
{
	struct gp_runtime_caller *first = to_front(caller);
	unsigned bit;

	if (gp_likely(!first || first->runtime.is_known))
		return first ? first->runtime.bit : 0;
	bit = ask_for_bit(first->runtime);
	/* Who listens to the runtime's calls may have made some in between. */
	first = to_front(caller);
	if (first) {
		first->runtime.is_known = true;
		first->runtime.bit = bit;
		keep(first);
	}
	return bit;
}

void gp_runtime_succeeded(uintptr_t caller)
{
	struct gp_thread *self = gp_thread_self;
	CUcontext handle = NULL;
	unsigned bit;

	if (!self || atomic_load(&gp_bypass))
		return;
	bit = get_to_know(caller);
	if (!bit || (self->caches[0].runtimes & bit))
		return;
	if (!gp_real.cuCtxGetCurrent(&handle) && handle && gp_thread_is_usable(&self->caches[0], handle))
		self->caches[0].runtimes |= bit;
}

int gp_runtime_index(const char *symbol)
{
	for (int i = 0; i < N_ROWS; i++)
		if (strcmp(rows[i].symbol, symbol) == 0)
			return i;
	return -1;
}

void *gp_runtime_hook(int index)
{
	return rows[index].hook;
}

void *gp_runtime_behind(int index)
{
	return look_up_globally("", rows[index].symbol);
}

void *gp_runtime_anywhere(int index)
{
	void *scope = any_scope(), *found = scope ? look_up_in(scope, rows[index].symbol) : NULL;

	if (scope)
		dlclose(scope);
	return found;
}

void gp_runtime_after_fork_child(void)
{
	gp_mutex_init(&lock, GP_RANK_LEAF);
}
