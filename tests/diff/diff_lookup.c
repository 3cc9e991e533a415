/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Every way to look up a function finds the same one, or returns the same error. */

#include "tests/preload/app.h"

#include <dlfcn.h>
#include <unistd.h>

typedef CUresult (*get_proc_fn)(const char *symbol, void **pfn, int version, uint64_t flags, int *status);
typedef CUresult (*get_proc_v1_fn)(const char *symbol, void **pfn, int version, uint64_t flags);

enum { PER_THREAD = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };

static const struct row {
	const char *symbol;
	int version;
	unsigned flags;
	const char *exported;
} rows[] = {
/* Every function that the library hooks, in each of its versions. */
#define HOOK(symbol, name, version, flags, parameters, arguments) {name, version, flags, #symbol},
#include "shim/driver/hooks.def"
	/* Other functions, and other versions. */
	{"cuMemAlloc", 12000, 0, "cuMemAlloc_v2"},
	{"cuMemAlloc", 13000, PER_THREAD, "cuMemAlloc_v2"},
	{"cuMemAlloc", 2000, 0, "cuMemAlloc"},
	{"cuMemFree", 2000, 0, "cuMemFree"},
	{"cuLaunchKernel", 4000, 0, "cuLaunchKernel"},
	{"cuCtxSynchronize", 2000, 0, "cuCtxSynchronize"},
	/* Names and versions that do not exist. */
	{"cuMemAlloc", 1000, 0, "cuMemAlloc_v1"},
	{"cuMemAlloc_v2", 3020, 0, "cuMemAlloc_v3"},
	{"cuNoSuchThing", 12000, 0, "cuNoSuchThing"},
	{"", 0, 0, ""},
	{"cuMemAlloc", 3020, 99, "cuMemAlloc_v99"},
};

static void *driver;

static void report(const char *way, get_proc_fn get_proc)
{
	for (size_t i = 0; i < LENGTH(rows); i++) {
		const struct row *row = &rows[i];
		void *untouched = &driver, *found = untouched;
		int status = -1;
		CUresult r = get_proc(row->symbol, &found, row->version, row->flags, &status);

		printf("%s, '%s' of %d, flags %u: %d, status %d, same %d, NULL %d\n", way, row->symbol, row->version,
			row->flags, r, status, found == dlsym(driver, row->exported), found == NULL);
		found = untouched;
		r = get_proc(row->symbol, &found, row->version, row->flags, NULL);
		printf("%s, '%s' of %d, flags %u, no status: %d, same %d, NULL %d\n", way, row->symbol, row->version,
			row->flags, r, found == dlsym(driver, row->exported), found == NULL);
	}
}

static get_proc_fn open_driver(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	if (!driver)
		exit(71);
	return (get_proc_fn)dlsym(driver, "cuGetProcAddress_v2");
}

static void by_name(void)
{
	report("dlsym", open_driver());
}

static void through_itself(void)
{
	get_proc_fn get_proc = open_driver();
	void *found = NULL;

	for (unsigned i = 0; i < 3; i++) {
		app_result("itself", get_proc("cuGetProcAddress", &found, 12000, 0, NULL));
		printf("the same: %d\n", found == (void *)get_proc);
		get_proc = (get_proc_fn)found;
	}
	report("itself", get_proc);
}

static void first_version(void)
{
	get_proc_v1_fn get_proc = (get_proc_v1_fn)(open_driver() ? dlsym(driver, "cuGetProcAddress") : NULL);

	for (size_t i = 0; i < LENGTH(rows); i++) {
		void *found = &driver;
		CUresult r = get_proc(rows[i].symbol, &found, rows[i].version, rows[i].flags);

		printf("'%s' of %d, flags %u: %d, same %d, NULL %d\n", rows[i].symbol, rows[i].version, rows[i].flags,
			r, found == dlsym(driver, rows[i].exported), found == NULL);
	}
}

/* dlsym sets dlerror as without the library. */
static void dlerrors(void)
{
	char *text;

	open_driver();
	printf("finds an unknown name: %d\n", dlsym(driver, "cuNoSuchThing") != NULL);
	text = dlerror();
	printf("dlerror names it: %d\n", text && strstr(text, "cuNoSuchThing") != NULL);
	printf("dlerror is cleared: %d\n", dlerror() == NULL);
	printf("finds a driver function: %d\n", dlsym(driver, "cuMemAlloc_v2") != NULL);
	printf("no error afterwards: %d\n", dlerror() == NULL);
	printf("finds an unknown name: %d\n", dlsym(driver, "cuNoSuchThing") != NULL);
	printf("finds a driver function: %d\n", dlsym(driver, "cuMemFree_v2") != NULL);
	printf("no error afterwards: %d\n", dlerror() == NULL);
	printf("finds a function of the C library: %d\n", dlsym(RTLD_DEFAULT, "strlen") != NULL);
	app_result("close", dlclose(driver));
}

/* Lookups in the default scope. This program is not linked to the driver. */
static void default_scope(void)
{
	static const char *const names[] = {"cuMemAlloc_v2", "cuEventCreate"};

	printf("before it is opened, hooked: %d\n", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
	printf("before it is opened, not hooked: %d\n", dlsym(RTLD_DEFAULT, "cuEventCreate") != NULL);
	open_driver();
	printf("opened with RTLD_LOCAL, hooked: %d\n", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
	printf("opened with RTLD_LOCAL, not hooked: %d\n", dlsym(RTLD_DEFAULT, "cuEventCreate") != NULL);
	printf("opened with RTLD_GLOBAL: %d\n", dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL);
	for (size_t i = 0; i < LENGTH(names); i++)
		printf("%s, the same: %d\n", names[i], dlsym(RTLD_DEFAULT, names[i]) == dlsym(driver, names[i]));
}

/* cuGetExportTable returns the driver's private tables, which the runtime uses. */
static void export_table(void)
{
	static const unsigned char ids[][16] = {
		{0x6e, 0x16, 0x3f, 0xbe, 0xb9, 0x58, 0x44, 0x4d, 0x83, 0x5c, 0xe1, 0x82, 0xaf, 0xf1, 0x99, 0x1e},
		{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
		{0},
	};
	CUresult (*get_table)(const void **table, const void *id);
	char *start, *end;
	FILE *maps;

	open_driver();
	get_table = (CUresult(*)(const void **, const void *))dlsym(driver, "cuGetExportTable");
	for (size_t i = 0; i < LENGTH(ids); i++) {
		const void *table = NULL;
		char line[512];
		bool is_drivers = false;

		printf("table %zu: %d\n", i, get_table(&table, ids[i]));
		maps = fopen("/proc/self/maps", "r");
		while (table && maps && fgets(line, sizeof(line), maps)) {
			start = (char *)strtoul(line, &end, 16);
			end = (char *)strtoul(end + 1, NULL, 16);
			if ((const char *)table >= start && (const char *)table < end)
				is_drivers = strstr(line, "libcuda.so") != NULL;
		}
		if (maps)
			fclose(maps);
		printf("table %zu is in the driver: %d\n", i, is_drivers);
	}
}

static void null_arguments(void)
{
	get_proc_fn get_proc = open_driver();
	void *found = NULL;

	app_result("without an output", get_proc("cuMemAlloc", NULL, 3020, 0, NULL));
	app_result("without a name", get_proc(NULL, &found, 3020, 0, NULL));
}

/* Functions found by dlsym and functions found by cuGetProcAddress can be mixed. */
static void use(void)
{
	get_proc_fn get_proc = open_driver();
	CUresult (*init)(unsigned) = (CUresult(*)(unsigned))dlsym(driver, "cuInit");
	CUresult (*retain)(CUcontext *, CUdevice) =
		(CUresult(*)(CUcontext *, CUdevice))dlsym(driver, "cuDevicePrimaryCtxRetain");
	CUresult (*set)(CUcontext) = (CUresult(*)(CUcontext))dlsym(driver, "cuCtxSetCurrent");
	CUresult (*alloc)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))dlsym(driver, "cuMemAlloc_v2");
	CUresult (*free_block)(CUdeviceptr);
	CUdeviceptr ptr = 0;
	void *found = NULL;
	CUcontext ctx;

	APP_MUST(get_proc("cuMemFree", &found, 3020, 0, NULL));
	free_block = (CUresult(*)(CUdeviceptr))found;
	APP_MUST(init(0));
	APP_MUST(retain(&ctx, 0));
	APP_MUST(set(ctx));
	for (unsigned i = 0; i < 4; i++) {
		app_result("malloc", alloc(&ptr, MIB));
		app_result("free", free_block(ptr));
		app_result("free again", free_block(ptr));
	}
}

static uint64_t hash_environment(void)
{
	uint64_t hash = UINT64_C(14695981039346656037);

	for (char **variable = environ; *variable; variable++)
		for (const char *c = *variable; *c; c++)
			hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
	return hash;
}

/* The library sets no environment variables, for profilers or otherwise. */
static void environment(void)
{
	uint64_t before = hash_environment();

	printf("NVTX_INJECTION64_PATH is set: %d\n", getenv("NVTX_INJECTION64_PATH") != NULL);
	use();
	printf("NVTX_INJECTION64_PATH is set: %d\n", getenv("NVTX_INJECTION64_PATH") != NULL);
	printf("the same environment: %d\n", before == hash_environment());
}

const struct app_scenario app_scenarios[] = {
	{"by-name", by_name, APP_TOGETHER},
	{"through-itself", through_itself, APP_TOGETHER},
	{"first-version", first_version, APP_TOGETHER},
	{"dlerror", dlerrors, APP_TOGETHER},
	{"export-table", export_table, APP_TOGETHER},
	{"default-scope", default_scope},
	{"use", use},
	{"environment", environment},
	{"null-arguments", null_arguments},
	{0},
};
