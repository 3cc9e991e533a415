/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Finds the functions that the loader would have given to a caller without gpupool. The loader first looks in the
 * global scope, for the symbol version that the caller's object was linked with. Then it looks in the object's local
 * scope, which other objects may not see.
 */

#include "runtime_find.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>

#include "common/compat.h"
#include "shim/base/libc.h"
#include "shim/trace/module.h"

#define NAME_START "libcudart.so"

enum { VERSION_SIZE = 64 };

static const struct row {
	const char *symbol;
	void *hook;
	size_t offset;
} rows[] = {
#define RUNTIME(symbol_, parameters, arguments) \
	{.symbol = #symbol_, .hook = (void *)symbol_, .offset = offsetof(struct gp_runtime, symbol_)},
#include "runtime.def"
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static void **function_of(struct gp_runtime *runtime, int index)
{
	return (void **)((char *)runtime + rows[index].offset);
}

/* The caller whose runtime is looked up, and the data of its object. */
struct view {
	uintptr_t caller;
	struct gp_runtime_caller *found;
	char name[PATH_MAX];        /* of the object; empty: the program itself, or no object */
	char version[VERSION_SIZE]; /* symbol version of the runtime that it was linked with; empty: none */
};

static void copy_text(char *to, const char *from, size_t size)
{
	size_t n = strnlen(from, size);

	/* A truncated name would be another name, so a name that does not fit becomes empty. */
	memcpy(to, from, n < size ? n : 0);
	to[n < size ? n : 0] = '\0';
}

/* The loader has added the base to some of these addresses and not to others. */
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

static bool set_if_part(const struct dl_phdr_info *info, const ElfW(Phdr) * part, struct view *view)
{
	uintptr_t begin = info->dlpi_addr + part->p_vaddr;

	if (part->p_type != PT_LOAD || view->caller - begin >= part->p_memsz)
		return false;
	view->found->begin = begin;
	view->found->bytes = part->p_memsz;
	return true;
}

/* Runs with the loader's lock held, so it must not call the loader. */
static int find_caller(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Phdr) *end = info->dlpi_phdr + info->dlpi_phnum, *part = info->dlpi_phdr;
	struct view *view = arg;

	view->found->n_unloads = info->dlpi_subs;
	while (part < end && !set_if_part(info, part, view))
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

static bool is_own_hook(const void *address)
{
	for (int i = 0; i < N_ROWS; i++)
		if (rows[i].hook == address)
			return true;
	return false;
}

static void *look_up_in(void *scope, const char *name)
{
	void *found = gp_real_dlsym_call(scope, name);

	return is_own_hook(found) ? NULL : found;
}

/* Looks up a name in the global scope behind gpupool. */
static void *look_up_globally(const char *version, const char *name)
{
	return *version && gp_libc_is_glibc() ? dlvsym(RTLD_NEXT, name, version) : look_up_in(RTLD_NEXT, name);
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
 * Opens the scope of the first object that has a runtime in it, or returns NULL. The caller closes it by dlclose. This
 * serves callers without a runtime: the exported function may have been entered by a jump or through a pointer.
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

/* False if another library intercepts some of the functions. It must see every call, so gpupool serves none. */
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

void gp_runtime_find(uintptr_t caller, struct gp_runtime_caller *found)
{
	struct view view = {.caller = caller, .found = found};
	void *scope;

	/* Code outside all objects is identified by the exact address. */
	*found = (struct gp_runtime_caller){.begin = caller, .bytes = 1};
	if (!gp_real_dlsym_resolve())
		return;
	dl_iterate_phdr(find_caller, &view);
	found->number = gp_module_number(caller);
	scope = view.name[0] ? dlopen(view.name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	find_functions(&view, scope, &found->runtime);
	if (scope)
		dlclose(scope);
	scope = found->runtime.cudaMalloc ? NULL : any_scope();
	if (scope) {
		find_functions(&view, scope, &found->runtime);
		dlclose(scope);
	}
	/* Clears errors of these lookups: dlerror must not report them to the program. */
	(void)dlerror();
}

bool gp_runtime_is_same(struct gp_runtime *a, struct gp_runtime *b)
{
	for (int i = 0; i < N_ROWS; i++)
		if (*function_of(a, i) != *function_of(b, i))
			return false;
	return true;
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
