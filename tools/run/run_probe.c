/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The driver is preloaded behind the library, since this program must also start where there is none. Its functions are
 * weak references, which the loader binds to the preloaded libraries as it would those of a CUDA program. The probe
 * prints lines of a key and a value.
 */

#include <errno.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "common/config.h"
#include "run_child.h"
#include "run_probe.h"

#define DRIVER "libcuda.so.1"
#define WEAK   __attribute__((weak))

WEAK int cuInit(unsigned flags);
WEAK int cuDriverGetVersion(int *version);
WEAK int cuGetErrorName(int error, const char **name);
WEAK int cuDeviceGetCount(int *count);
WEAK int cuDeviceGetName(char *name, int size, int device);
WEAK int cuDeviceTotalMem_v2(size_t *bytes, int device);
WEAK int cuDevicePrimaryCtxRetain(void **context, int device);
WEAK int cuDevicePrimaryCtxRelease_v2(int device);
WEAK int cuCtxSetCurrent(void *context);
WEAK int cuMemAlloc_v2(uint64_t *address, size_t bytes);
WEAK int cuMemFree_v2(uint64_t address);

enum { PROBE_BYTES = 1 << 20, OUTPUT_MAX = 16 * 1024, MISSING = 500 /* CUDA_ERROR_NOT_FOUND */ };

static int print_driver(struct dl_phdr_info *info, size_t size, void *unused)
{
	const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;

	if (!name || strncmp(name + 1, "libcuda.so", strlen("libcuda.so")) != 0)
		return 0;
	printf("driver %s\n", info->dlpi_name);
	return 1;
}

static void print_result(const char *key, int result)
{
	const char *name = NULL;

	if (cuGetErrorName)
		(void)cuGetErrorName(result, &name);
	printf("%s %d %s\n", key, result, name ? name : "");
}

static void print_devices(void)
{
	char name[128] = "";
	size_t bytes = 0;
	int n = 0;

	if (!cuDeviceGetCount || cuDeviceGetCount(&n) || n < 1)
		return;
	if (cuDeviceGetName)
		(void)cuDeviceGetName(name, sizeof(name), 0);
	if (cuDeviceTotalMem_v2)
		(void)cuDeviceTotalMem_v2(&bytes, 0);
	printf("devices %d\nbytes %zu\ndevice %s\n", n, bytes, name);
}

/*
 * Allocates in the first device's primary context, as a program with a CUDA runtime would. The counters of the pool end
 * with the context, so they are read before.
 */
static int allocate(struct gpupool_status *ret_status)
{
	uint64_t address = 0;
	void *context;
	int r;

	if (!cuDevicePrimaryCtxRetain || !cuDevicePrimaryCtxRelease_v2 || !cuCtxSetCurrent || !cuMemAlloc_v2 ||
		!cuMemFree_v2)
		return MISSING;
	r = cuDevicePrimaryCtxRetain(&context, 0);
	if (r)
		return r;
	r = cuCtxSetCurrent(context);
	if (!r)
		r = cuMemAlloc_v2(&address, PROBE_BYTES);
	if (!r)
		r = cuMemFree_v2(address);
	(void)gpupool_get_status(0, ret_status);
	(void)cuDevicePrimaryCtxRelease_v2(0);
	return r;
}

static void print_allocation(void)
{
	struct gpupool_status status = {0};

	print_result("alloc", allocate(&status));
	printf("served %" PRIu64 "\n", status.hits + status.misses);
}

/* The library reads its settings at the first call. At this level it says which pool type GPUPOOL_POOL=auto chooses. */
static void ask_for_choice(void)
{
	const char *pool = getenv("GPUPOOL_POOL");

	if (!pool || strcasecmp(pool, "auto") != 0)
		return;
	setenv("GPUPOOL_LOG", "info", 1);
	unsetenv("GPUPOOL_LOG_FILE");
}

int run_probe_main(char **words)
{
	int version = 0, r;

	if (gpupool_version())
		printf("version %s\n", gpupool_version());
	dl_iterate_phdr(print_driver, NULL);
	if (cuDriverGetVersion && cuDriverGetVersion(&version) == 0)
		printf("driver_version %d\n", version);
	/* These lines are kept if the driver crashes. */
	fflush(stdout);
	if (!cuInit)
		return 0;
	ask_for_choice();
	r = cuInit(0);
	print_result("init", r);
	if (r == 0)
		print_devices();
	fflush(stdout);
	if (r == 0 && words[0] && !strcmp(words[0], "allocate"))
		print_allocation();
	return fflush(stdout) ? 1 : 0;
}

static void copy(char *text, size_t size, const char *value)
{
	snprintf(text, size, "%s", value);
}

/* Splits "NUMBER NAME". */
static void read_result(const char *value, int *ret_result, char *name, size_t size)
{
	char *end;

	*ret_result = (int)strtol(value, &end, 10);
	copy(name, size, *end ? end + 1 : "");
}

/* "object 'NAME' from LD_PRELOAD cannot be preloaded (REASON): ignored." Only the probe preloads the driver. */
static void read_loader_error(struct run_probe *probe, const char *text)
{
	const char *reason = strchr(text, '(');

	if (!strstr(text, "'" DRIVER "'"))
		copy(probe->error, sizeof(probe->error), text);
	else if (reason)
		snprintf(probe->driver_error, sizeof(probe->driver_error), "%.*s", (int)strcspn(reason + 1, ")"),
			reason + 1);
}

static void read_line(struct run_probe *probe, char *line)
{
	static const char loader[] = "ERROR: ld.so: ";
	char *value = strchr(line, ' ');

	if (strstr(line, ": " GP_CONFIG_CHOICE)) {
		copy(probe->pool, sizeof(probe->pool), strstr(line, GP_CONFIG_CHOICE) + strlen(GP_CONFIG_CHOICE));
		return;
	}
	if (!strncmp(line, loader, strlen(loader))) {
		read_loader_error(probe, line + strlen(loader));
		return;
	}
	if (!value)
		return;
	*value++ = '\0';
	if (!strcmp(line, "version"))
		copy(probe->version, sizeof(probe->version), value);
	else if (!strcmp(line, "driver"))
		copy(probe->driver, sizeof(probe->driver), value);
	else if (!strcmp(line, "driver_version"))
		probe->driver_version = atoi(value);
	else if (!strcmp(line, "init"))
		read_result(value, &probe->init, probe->init_name, sizeof(probe->init_name));
	else if (!strcmp(line, "devices"))
		probe->n_devices = atoi(value);
	else if (!strcmp(line, "bytes"))
		probe->device_bytes = strtoull(value, NULL, 10);
	else if (!strcmp(line, "device"))
		copy(probe->device, sizeof(probe->device), value);
	else if (!strcmp(line, "alloc"))
		read_result(value, &probe->alloc, probe->alloc_name, sizeof(probe->alloc_name));
	else if (!strcmp(line, "served"))
		probe->served = strtoull(value, NULL, 10);
}

void run_probe(const char *preload, bool is_allocating, struct run_probe *ret)
{
	static char output[OUTPUT_MAX];
	const char *const words[] = {RUN_PROBE_NAME, is_allocating ? "allocate" : NULL, NULL};
	char self[PATH_MAX], *setting, *rest;
	const char *pool = getenv("GPUPOOL_POOL");
	bool is_auto = pool && strcasecmp(pool, "auto") == 0;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	*ret = (struct run_probe){.alloc = -1};
	self[n > 0 ? n : 0] = '\0';
	if (asprintf(&setting, "LD_PRELOAD=%s%s" DRIVER, preload, *preload ? ":" : "") < 0) {
		ret->status = -ENOMEM;
		return;
	}
	/* The probe leaves no file behind, unless the pool type depends on the socket. */
	ret->status = run_child(self, words,
		(const char *const[]){setting, "GPUPOOL_RECORD=", "GPUPOOL_REPORT=", "GPUPOOL_LOG_FILE=",
			"GPUPOOL_OOM_FILE=off", "GPUPOOL_STACKS=", is_auto ? NULL : "GPUPOOL_SOCKET=off", NULL},
		output, sizeof(output));
	for (char *line = strtok_r(output, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		read_line(ret, line);
	free(setting);
}
