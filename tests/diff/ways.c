/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A stand-in for -lcuda: a program that calls the driver by name becomes one that looks the driver up at run time. Each
 * function here jumps to the address that was found at start, by dlsym or by cuGetProcAddress (DIFF_GET_PROC), there
 * with the legacy or the per-thread default stream (DIFF_PER_THREAD). The names are hidden: no other library sees them.
 */

#include <dlfcn.h>
#include <stddef.h>

#include "tests/sim/abi.h"

#ifdef DIFF_GET_PROC
enum { BY_DLSYM = 0 };
#else
enum { BY_DLSYM = 1 };
#endif

#ifdef DIFF_PER_THREAD
enum { PER_THREAD = 1 };
#else
enum { PER_THREAD = 0 };
#endif

enum { PER_THREAD_VERSION = 7000 }; /* the driver version that introduced the per-thread twins */

#if defined(__x86_64__)
#define JUMP(name) "jmp *way_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) "adrp x16, way_" #name "\nldr x16, [x16, :lo12:way_" #name "]\nbr x16\n"
#endif

#define LABEL(name) ".globl " #name "\n.hidden " #name "\n.type " #name ", %function\n" #name ":\n"
#define WAY(name)                                               \
	__attribute__((visibility("hidden"))) void *way_##name; \
	__asm__(".pushsection .text\n" LABEL(name) JUMP(name) ".popsection\n");
#define SIM_FN(name, public, version, ns, params)                WAY(name)
#define SIM_STREAM_FN(name, suffix, public, version, ns, params) WAY(name)
#include "tests/sim/functions.def"
#undef SIM_FN
#undef SIM_STREAM_FN

static const struct way {
	void **slot;
	const char *name, *twin, *public; /* twin: with the per-thread default stream */
	int version;
} ways[] = {
#define SIM_FN(name, public, version, ns, params)                {&way_##name, #name, NULL, #public, version},
#define SIM_STREAM_FN(name, suffix, public, version, ns, params) {&way_##name, #name, #name #suffix, #public, version},
#include "tests/sim/functions.def"
#undef SIM_FN
#undef SIM_STREAM_FN
};

typedef CUresult (*get_proc_fn)(const char *symbol, void **pfn, int version, uint64_t flags, int *status);

static CUresult is_missing(void)
{
	return CUDA_ERROR_NOT_FOUND;
}

static void *ask(get_proc_fn get_proc, const struct way *way)
{
	int version = PER_THREAD && way->twin && way->version < PER_THREAD_VERSION ? PER_THREAD_VERSION : way->version;
	uint64_t flags = PER_THREAD && way->twin ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
	void *found = NULL;

	return get_proc && !get_proc(way->public, &found, version, flags, NULL) ? found : NULL;
}

__attribute__((constructor)) static void find_all(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	get_proc_fn get_proc = driver ? (get_proc_fn)dlsym(driver, "cuGetProcAddress_v2") : NULL;

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		const struct way *way = &ways[i];
		void *found = NULL;

		if (BY_DLSYM && driver)
			found = dlsym(driver, PER_THREAD && way->twin ? way->twin : way->name);
		else if (!BY_DLSYM)
			found = ask(get_proc, way);
		*way->slot = found ? found : (void *)is_missing;
	}
}
