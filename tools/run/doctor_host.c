/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/ctl_proto.h"
#include "common/size.h"
#include "doctor_host.h"
#include "run_child.h"
#include "run_preload.h"

/* Errors of cuInit that have a remedy (cuda.h). */
enum { NO_DEVICE = 100, SYSTEM_DRIVER_MISMATCH = 803 };

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static const char *remedy_of(int error)
{
	switch (error) {
	case NO_DEVICE:
		return "run it on a machine with a GPU, and check CUDA_VISIBLE_DEVICES.";
	case SYSTEM_DRIVER_MISMATCH:
		return "restart the machine: libcuda and the kernel's module are of different versions.";
	default:
		return "see what nvidia-smi says.";
	}
}

void doctor_driver(struct doctor *doctor, const struct run_probe *probe)
{
	char bytes[GP_AMOUNT_TEXT_MAX];
	int major = probe->driver_version / 1000, minor = probe->driver_version % 1000 / 10;

	if (!*probe->driver)
		doctor_todo(doctor, "driver",
			"install NVIDIA's driver; start a container with its GPUs, as in: docker run --gpus all.",
			"the loader cannot load libcuda.so.1: %s. So no program can use a GPU here.",
			probe->driver_error);
	else if (strstr(probe->driver, "/stubs/"))
		doctor_todo(doctor, "driver", "take its directory out of LD_LIBRARY_PATH.",
			"%s is the stub that programs are linked with, not a driver.", probe->driver);
	else if (probe->init)
		doctor_todo(doctor, "driver", remedy_of(probe->init), "cuInit fails with %s (%d): %s", probe->init_name,
			probe->init, probe->driver);
	else if (probe->status)
		doctor_todo(doctor, "driver", "see what nvidia-smi says.",
			"a program that asks for the devices ends with %d: %s", probe->status, probe->driver);
	else if (!probe->n_devices)
		doctor_todo(doctor, "driver", remedy_of(NO_DEVICE), "CUDA %d.%d, but there is no device: %s", major,
			minor, probe->driver);
	else
		doctor_good(doctor, "driver", "CUDA %d.%d, %d device%s, the first is: %s, %s; %s", major, minor,
			probe->n_devices, plural((uint64_t)probe->n_devices), probe->device,
			gp_amount_text(bytes, probe->device_bytes), probe->driver);
}

static void check_allocation(struct doctor *doctor, const struct run_probe *probe)
{
	if (probe->alloc > 0)
		doctor_todo(doctor, "pool", "see GPUPOOL_LIMIT, and what other programs hold (nvidia-smi).",
			"an allocation of 1 MiB fails with %s (%d).", probe->alloc_name, probe->alloc);
	else if (probe->alloc == 0 && !probe->served)
		doctor_todo(doctor, "pool", "look for another preloaded library that catches cuMemAlloc.",
			"an allocation of 1 MiB did not reach gpupool.");
	else if (probe->alloc == 0 && *probe->pool)
		doctor_good(doctor, "pool", "served an allocation of 1 MiB; %s", probe->pool);
	else if (probe->alloc == 0)
		doctor_good(doctor, "pool", "served an allocation of 1 MiB");
}

void doctor_preload(struct doctor *doctor, const char *library, const struct run_probe *probe)
{
	if (!*probe->version) {
		doctor_todo(doctor, "preload",
			*probe->error ? "install a build of gpupool for this system."
				      : "see whether a security policy forbids LD_PRELOAD.",
			"the loader does not load %s: %s", library,
			*probe->error ? probe->error : "it gives no reason.");
		return;
	}
	if (strcmp(probe->version, GPUPOOL_VERSION) != 0)
		doctor_todo(doctor, "preload", "use gpupool-run and the library of one installation.",
			"the library is of version %s, and gpupool-run of version " GPUPOOL_VERSION ": %s",
			probe->version, library);
	else if (probe->status)
		doctor_todo(doctor, "preload", "see whether the same program runs without gpupool.",
			"a program with the library ends with %d.", probe->status);
	else
		doctor_good(doctor, "preload", "gpupool %s is in programs that gpupool-run starts", probe->version);
	check_allocation(doctor, probe);
}

void doctor_versions(struct doctor *doctor)
{
	static const char name[] = "gpupool-stat";
	char path[PATH_MAX], output[256], *slash;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof(name));
	int r;

	path[n > 0 ? n : 0] = '\0';
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, name);
	if (access(path, X_OK) < 0) {
		doctor_good(doctor, "versions", "gpupool-run " GPUPOOL_VERSION ", without gpupool-stat beside it");
		return;
	}
	r = run_child(path, (const char *const[]){name, "--version", NULL}, (const char *const[]){"LD_PRELOAD=", NULL},
		output, sizeof(output));
	output[strcspn(output, "\n")] = '\0';
	if (r)
		doctor_todo(
			doctor, "versions", "install gpupool again.", "%s cannot be started (%d): %s", path, r, output);
	else if (strcmp(output, "gpupool-stat " GPUPOOL_VERSION) != 0)
		doctor_todo(doctor, "versions", "use the programs of one installation.",
			"gpupool-run " GPUPOOL_VERSION ", but %s says: %s", path, output);
	else
		doctor_good(doctor, "versions", "gpupool-run and gpupool-stat " GPUPOOL_VERSION);
}

/* Finds entries of LD_PRELOAD that the loader cannot find. An entry without a slash is looked up by the loader. */
static bool check_entries(struct doctor *doctor, char *list, unsigned *ret_n)
{
	bool is_good = true;
	char *rest;

	*ret_n = 0;
	for (char *entry = strtok_r(list, " :", &rest); entry; entry = strtok_r(NULL, " :", &rest)) {
		++*ret_n;
		if (!strchr(entry, '/') || access(entry, R_OK) == 0)
			continue;
		doctor_todo(doctor, "others", "take it out of LD_PRELOAD.", "%s in LD_PRELOAD: %s.", entry,
			strerror(errno));
		is_good = false;
	}
	return is_good;
}

static bool has_system_preload(void)
{
	char text[256];
	FILE *file = fopen("/etc/ld.so.preload", "re");
	bool is_filled = false;

	while (file && !is_filled && fgets(text, sizeof(text), file))
		is_filled = text[strspn(text, " \t\n")] && text[strspn(text, " \t")] != '#';
	if (file)
		fclose(file);
	return is_filled;
}

void doctor_others(struct doctor *doctor, const char *library)
{
	char *value, *list;
	bool is_good;
	unsigned n;

	doctor_listen(doctor, "others");
	value = run_preload_value(library, getenv("LD_PRELOAD"));
	is_good = doctor_heard_nothing(doctor);
	list = value + strlen(library);
	is_good &= check_entries(doctor, list, &n);
	if (is_good && has_system_preload())
		doctor_good(doctor, "others", "libraries of /etc/ld.so.preload come after gpupool");
	if (is_good && n)
		doctor_good(
			doctor, "others", "LD_PRELOAD has %u more librar%s, after gpupool", n, n == 1 ? "y" : "ies");
	else if (is_good)
		doctor_good(doctor, "others", "LD_PRELOAD has no other library");
	free(value);
}

void doctor_socket(struct doctor *doctor, const struct gp_config *config)
{
	struct gp_ctl_dirs dirs = {
		.runtime_dir = config->runtime_dir,
		.xdg_runtime_dir = getenv("XDG_RUNTIME_DIR"),
		.tmp_dir = getenv("TMPDIR"),
		.uid = geteuid(),
		.run_dir = gp_ctl_run_dir(GP_CTL_RUN_DIR, geteuid()),
	};
	char path[GP_CTL_PATH_MAX], why[GP_CTL_PROBLEMS_MAX];
	int fd;

	if (!config->has_socket) {
		doctor_good(doctor, "socket", "off by GPUPOOL_SOCKET: gpupool-stat cannot see the program");
		return;
	}
	fd = gp_ctl_dir_find(&dirs, path, sizeof(path));
	if (fd < 0) {
		gp_ctl_dir_explain(path, dirs.uid, fd, why, sizeof(why));
		doctor_todo(doctor, "socket", "name a directory of your own in GPUPOOL_RUNTIME_DIR.",
			"no directory can hold the control socket: %s", why);
		return;
	}
	close(fd);
	if (*config->runtime_dir && strcmp(path, config->runtime_dir) != 0) {
		fd = gp_ctl_dir_open(config->runtime_dir, dirs.uid, false);
		gp_ctl_dir_explain(config->runtime_dir, dirs.uid, fd, why, sizeof(why));
		doctor_todo(doctor, "socket", "correct the directory, or unset GPUPOOL_RUNTIME_DIR.",
			"%s; the control socket would go to %s.", why, path);
		if (fd >= 0)
			close(fd);
		return;
	}
	doctor_good(doctor, "socket", "gpupool-stat finds programs in %s", path);
}

/* Reads a number of bytes from a file of the control groups; UINT64_MAX: no limit, or no such file. */
static uint64_t read_bytes(const char *path)
{
	uint64_t bytes = UINT64_MAX;
	FILE *file = fopen(path, "re");

	if (!file)
		return bytes;
	if (fscanf(file, "%" SCNu64, &bytes) != 1)
		bytes = UINT64_MAX;
	fclose(file);
	return bytes;
}

/* Returns the least limit of the process's control group and of those above it, in the second version. */
static uint64_t group_limit(void)
{
	char line[PATH_MAX] = "", path[2 * PATH_MAX];
	FILE *file = fopen("/proc/self/cgroup", "re");
	uint64_t least = read_bytes("/sys/fs/cgroup/memory.max"), bytes;

	while (file && fgets(line, sizeof(line), file) && strncmp(line, "0::", 3) != 0)
		line[0] = '\0';
	if (file)
		fclose(file);
	line[strcspn(line, "\n")] = '\0';
	if (strncmp(line, "0::", 3) != 0)
		return least;
	for (char *slash = line + strlen(line); slash; slash = strrchr(line + 3, '/')) {
		*slash = '\0';
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line + 3);
		bytes = read_bytes(path);
		least = bytes < least ? bytes : least;
	}
	return least;
}

void doctor_limits(struct doctor *doctor)
{
	char locked[GP_AMOUNT_TEXT_MAX] = "unlimited", group[GP_AMOUNT_TEXT_MAX];
	uint64_t bytes = group_limit();
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
		doctor_todo(doctor, "limits", "ulimit -v unlimited",
			"the address space is limited to %s: CUDA reserves more than the memory of all devices.",
			gp_amount_text(locked, limit.rlim_cur));
		return;
	}
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		gp_amount_text(locked, limit.rlim_cur);
	if (bytes == UINT64_MAX)
		doctor_good(doctor, "limits",
			"locked memory: %s (InfiniBand needs it unlimited); host memory: no control group limits it",
			locked);
	else
		doctor_good(doctor, "limits",
			"locked memory: %s (InfiniBand needs it unlimited); host memory, pinned memory too: %s by the "
			"control group",
			locked, gp_amount_text(group, bytes));
}

void doctor_container(struct doctor *doctor)
{
	static const struct {
		const char *path, *name;
	} files[] = {{"/.dockerenv", "docker"}, {"/run/.containerenv", "podman"}, {"/.singularity.d", "apptainer"}};

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		if (access(files[i].path, F_OK) < 0)
			continue;
		doctor_good(doctor, "container",
			"%s; gpupool-stat sees the program from inside, or where the directory of the socket is shared",
			files[i].name);
		return;
	}
	doctor_good(doctor, "container", "none is known");
}
