/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/own_pools.h"
#include "doctor_program.h"
#include "run_child.h"
#include "run_program.h"

enum { OUTPUT_MAX = 4096 };

#define RUNTIME "libcudart.so"

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* A shared runtime runs on drivers of its own major version, and of later ones. */
static void check_runtime(
	struct doctor *doctor, const char *program, int fd, const struct run_elf *elf, int driver_version)
{
	char name[RUN_ELF_NAME_MAX];
	int major;

	if (!run_elf_find_needed(fd, elf, RUNTIME, name)) {
		doctor_good(doctor, "runtime",
			"%s is not linked with %s: its CUDA runtime is static or loaded later, or it has none", program,
			RUNTIME);
		return;
	}
	major = atoi(name + strlen(RUNTIME) + (name[strlen(RUNTIME)] == '.'));
	if (driver_version && major > driver_version / 1000)
		doctor_todo(doctor, "runtime",
			"install a newer driver, or use a build of the program for an older CUDA.",
			"%s needs %s, and the driver is for CUDA %d.%d.", program, name, driver_version / 1000,
			driver_version % 1000 / 10);
	else
		doctor_good(doctor, "runtime", "%s is linked with %s", program, name);
}

static void check_run_path(struct doctor *doctor, const char *program, int fd, const struct run_elf *elf)
{
	char path[PATH_MAX];

	if (run_elf_read_run_path(fd, elf, path, sizeof(path)) && strstr(path, "/stubs"))
		doctor_todo(doctor, "runtime", "link the program without that directory (-rpath).",
			"%s looks for libcuda.so.1 among the stubs that programs are linked with: %s", program, path);
}

void doctor_program(struct doctor *doctor, const char *command, const struct run_elf *library, int driver_version)
{
	char path[PATH_MAX], text[32];
	struct run_elf elf;
	bool has_asan;
	int fd;

	doctor_listen(doctor, "program");
	if (run_program_check(command, library, &has_asan) == RUN_OK)
		run_program_warn(command);
	if (!doctor_heard_nothing(doctor) || !run_program_find(command, path))
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || run_elf_read(fd, &elf) != 0) {
		doctor_good(doctor, "program", "%s is started by the shell or by another program", path);
	} else {
		doctor_good(doctor, "program", "%s, %s, linked dynamically", path, run_elf_describe(&elf, text));
		check_runtime(doctor, base_name(path), fd, &elf, driver_version);
		check_run_path(doctor, base_name(path), fd, &elf);
	}
	if (fd >= 0)
		close(fd);
}

static bool is_python(const char *path)
{
	const char *name = base_name(path);

	return !strncmp(name, "python", strlen("python")) &&
	       !name[strlen("python") + strspn(name + strlen("python"), "0123456789.")];
}

/* Writes a program that prints the modules of the table that exist. It imports none of them. */
static void write_search(char *text, size_t size)
{
	size_t n = (size_t)snprintf(text, size, "import importlib.util as u\nfor n in (");

	for (int i = 0; i < GP_OWN_POOL_COUNT && n < size; i++)
		if (*gp_own_pools[i].module)
			n += (size_t)snprintf(text + n, size - n, "'%s',", gp_own_pools[i].module);
	if (n < size)
		snprintf(text + n, size - n,
			"):\n"
			"  try:\n"
			"    if u.find_spec(n): print('module', n)\n"
			"  except Exception: pass\n"
			"print('end')\n");
}

/* Returns true if each switch of the row's framework is set. */
static bool is_off(const struct gp_own_pool *first)
{
	for (const struct gp_own_pool *row = first; row < gp_own_pools + GP_OWN_POOL_COUNT; row++) {
		const char *value = getenv(row->variable);

		if (row != first && gp_own_pool_is_first(row))
			break;
		if (!value || !gp_own_pool_is_off(row, value))
			return false;
	}
	return true;
}

static void say_framework(struct doctor *doctor, const struct gp_own_pool *row)
{
	if (row->how == GP_OWN_POOL_NEVER)
		doctor_good(doctor, row->framework, "keeps its own pool; with --own-pools=off it grows as needed");
	else if (is_off(row))
		doctor_good(doctor, row->framework, "its own pool is off");
	else if (row->when == GP_OWN_POOL_MAYBE)
		doctor_good(doctor, row->framework, "has no pool unless the program asks for one (--own-pools=off)");
	else if (row->when == GP_OWN_POOL_DELAYS)
		doctor_good(doctor, row->framework, "has no pool, but delays frees (--own-pools=off)");
	else
		doctor_todo(doctor, row->framework, "use --own-pools=off, unless its pool is wanted.",
			"its own pool is in front of gpupool, which then serves few and large allocations.");
}

/* Returns true if the output has the line "module NAME". */
static bool has_module(const char *output, const char *module)
{
	char line[64];

	snprintf(line, sizeof(line), "module %s\n", module);
	for (const char *at = strstr(output, line); at; at = strstr(at + 1, line))
		if (at == output || at[-1] == '\n')
			return true;
	return false;
}

static void ask_python(struct doctor *doctor, const char *path)
{
	char search[1024], output[OUTPUT_MAX];
	unsigned n = 0;
	int r;

	write_search(search, sizeof(search));
	r = run_child(path, (const char *const[]){path, "-c", search, NULL}, (const char *const[]){NULL}, output,
		sizeof(output));
	if (r || !strstr(output, "end\n")) {
		doctor_todo(doctor, "frameworks", "see what it says to: import importlib.util",
			"%s cannot be asked for its packages (%d).", path, r);
		return;
	}
	for (int i = 0; i < GP_OWN_POOL_COUNT; i++) {
		const struct gp_own_pool *row = &gp_own_pools[i];

		if (!gp_own_pool_is_first(row) || !*row->module || !has_module(output, row->module))
			continue;
		say_framework(doctor, row);
		n++;
	}
	if (!n)
		doctor_good(doctor, "frameworks", "%s has none with a pool of its own", path);
}

void doctor_frameworks(struct doctor *doctor, const char *command)
{
	char path[PATH_MAX];

	if (!run_program_find(command, path))
		return;
	if (is_python(path))
		ask_python(doctor, path);
	for (int i = 0; i < GP_OWN_POOL_COUNT; i++)
		if (gp_own_pools[i].seen == GP_OWN_POOL_LOADED && !strncmp(base_name(path), "julia", strlen("julia")))
			say_framework(doctor, &gp_own_pools[i]);
}
