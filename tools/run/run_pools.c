/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * All switches are checked before the first is set. CuPy and RMM have no variable: Python's own start-up file,
 * sitecustomize, turns their pools off in each Python process that inherits PYTHONPATH (tools/run/python/).
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/own_pools.h"
#include "run_pools.h"
#include "run_preload.h"

#define PYTHON_PATH "PYTHONPATH"

/* Returns the value that turns the pool off. It stays valid until the next call. */
static const char *value_of(const struct gp_own_pool *row)
{
	static char value[64];

	snprintf(value, sizeof(value), "%.*s", (int)gp_own_pool_value_length(row), row->values);
	return value;
}

/* The hook needs its variable, too. */
static bool is_to_be_set(const struct gp_own_pool *row)
{
	return row->how != GP_OWN_POOL_NEVER;
}

/* A variable that is empty counts as not set. */
static bool is_set(const struct gp_own_pool *row)
{
	const char *value = getenv(row->variable);

	return value && *value;
}

static enum run_status check_switches(void)
{
	for (int i = 0; i < GP_OWN_POOL_COUNT; i++) {
		const struct gp_own_pool *row = &gp_own_pools[i];

		if (!is_to_be_set(row) || !is_set(row) || gp_own_pool_is_off(row, getenv(row->variable)))
			continue;
		run_error("unset it, or leave out --own-pools=off.",
			"--own-pools=off needs %s=%s for %s, but it is set to '%s'.", row->variable, value_of(row),
			row->framework, getenv(row->variable));
		return RUN_USAGE;
	}
	return RUN_OK;
}

static enum run_status set_variable(const char *name, const char *value)
{
	if (setenv(name, value, 1) == 0)
		return RUN_OK;
	run_error(NULL, "cannot set %s: %s.", name, strerror(errno));
	return RUN_FAILED;
}

static enum run_status set_switches(void)
{
	enum run_status status = RUN_OK;

	for (int i = 0; status == RUN_OK && i < GP_OWN_POOL_COUNT; i++)
		if (is_to_be_set(&gp_own_pools[i]) && !is_set(&gp_own_pools[i]))
			status = set_variable(gp_own_pools[i].variable, value_of(&gp_own_pools[i]));
	return status;
}

/* True if the list of directories begins with that path. */
static bool begins_with(const char *list, const char *path)
{
	size_t n = strlen(path);

	return strncmp(list, path, n) == 0 && (list[n] == ':' || !list[n]);
}

/* Puts the hook first, so that Python's start-up file is found there. An empty PYTHONPATH names no directory. */
static enum run_status add_to_python_path(const char *hook)
{
	const char *before = getenv(PYTHON_PATH);
	enum run_status status;
	char *value;

	if (!before || !*before)
		return set_variable(PYTHON_PATH, hook);
	if (begins_with(before, hook))
		return RUN_OK;
	if (asprintf(&value, "%s:%s", hook, before) < 0) {
		run_error(NULL, "out of memory.");
		return RUN_FAILED;
	}
	status = set_variable(PYTHON_PATH, value);
	free(value);
	return status;
}

static enum run_status set_hook(void)
{
	char *hook = run_hook_default();
	enum run_status status = RUN_FAILED;

	if (strchr(hook, ':'))
		run_error("install gpupool in a folder without a colon.",
			"cannot turn off the pools of CuPy and RMM: PYTHONPATH cannot name %s.", hook);
	else if (access(hook, R_OK) < 0)
		run_error("install gpupool again, or leave out --own-pools=off.",
			"cannot turn off the pools of CuPy and RMM: %s: %s.", hook, strerror(errno));
	else
		status = add_to_python_path(hook);
	free(hook);
	return status;
}

/* Appends the names of the frameworks whose pools are turned off in that way. */
static void append_frameworks(char *text, size_t size, enum gp_own_pool_how how)
{
	size_t n = strlen(text), first = n;

	for (int i = 0; i < GP_OWN_POOL_COUNT && n < size; i++)
		if (gp_own_pools[i].how == how && gp_own_pool_is_first(&gp_own_pools[i]))
			n += (size_t)snprintf(
				text + n, size - n, "%s%s", n == first ? "" : ", ", gp_own_pools[i].framework);
}

void run_pools_say(void)
{
	char by_variable[256] = "", in_python[64] = "", kept[64] = "";

	append_frameworks(by_variable, sizeof(by_variable), GP_OWN_POOL_VARIABLE);
	append_frameworks(in_python, sizeof(in_python), GP_OWN_POOL_PYTHON);
	append_frameworks(kept, sizeof(kept), GP_OWN_POOL_NEVER);
	run_warn(NULL,
		"own memory pools are turned off by variables for %s, and in Python for %s; kept, but growing as "
		"needed: "
		"%s.",
		by_variable, in_python, kept);
}

enum run_status run_pools_off(void)
{
	enum run_status status = check_switches();

	if (status == RUN_OK)
		status = set_hook();
	if (status == RUN_OK)
		status = set_switches();
	return status;
}

void run_pools_print(void (*print)(const char *name, const char *value))
{
	for (int i = 0; i < GP_OWN_POOL_COUNT; i++)
		if (gp_own_pools[i].how == GP_OWN_POOL_VARIABLE)
			print(gp_own_pools[i].variable, getenv(gp_own_pools[i].variable));
	print(PYTHON_PATH, getenv(PYTHON_PATH));
}

void run_pools_help(void)
{
	puts("--own-pools=off sets these variables, and PYTHONPATH for CuPy and RMM:");
	for (int i = 0; i < GP_OWN_POOL_COUNT; i++)
		if (is_to_be_set(&gp_own_pools[i]))
			printf("  %-12s %s=%s\n", gp_own_pools[i].framework, gp_own_pools[i].variable,
				value_of(&gp_own_pools[i]));
}
