/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "frameworks.h"

#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/config.h"
#include "common/own_pools.h"
#include "shim/trace/module.h"

_Static_assert(GP_OWN_POOL_COUNT <= 32, "a row is a bit of an unsigned");

/* A bit for each row: its switch is set; its library was loaded at the first allocation. */
static _Atomic unsigned off_rows, loaded_rows;

static int note_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	unsigned *rows = arg;

	for (unsigned i = 0; info->dlpi_name && i < GP_OWN_POOL_COUNT; i++)
		if (gp_own_pool_is_library(&gp_own_pools[i], info->dlpi_name))
			*rows |= 1u << i;
	return 0;
}

void gp_frameworks_start(void)
{
	unsigned loaded = 0, off = 0;

	dl_iterate_phdr(note_library, &loaded);
	for (unsigned i = 0; i < GP_OWN_POOL_COUNT; i++) {
		const char *value = gp_config_variable(gp_own_pools[i].variable);

		if (value && gp_own_pool_is_off(&gp_own_pools[i], value))
			off |= 1u << i;
	}
	atomic_store(&loaded_rows, loaded);
	atomic_store(&off_rows, off);
}

/* Returns the path of the framework's library among the calling modules, or NULL. */
static const char *find_calling_library(const struct gp_own_pool *row)
{
	const char *path = NULL;

	for (uint32_t number = 1; (path = gp_module_path(number)); number++)
		if (gp_own_pool_is_library(row, path))
			break;
	return path;
}

/* Returns the name of the framework's library if the framework has asked for memory, or NULL. */
static const char *find_library(unsigned i)
{
	const struct gp_own_pool *row = &gp_own_pools[i];
	const char *path, *slash;

	if (row->seen == GP_OWN_POOL_LOADED)
		return atomic_load(&loaded_rows) & 1u << i ? row->library + 1 : NULL;
	path = find_calling_library(row);
	slash = path ? strrchr(path, '/') : NULL;
	return slash ? slash + 1 : path;
}

static bool is_off(unsigned i)
{
	return atomic_load(&off_rows) & 1u << i;
}

const char *gp_frameworks_own_pool(void)
{
	const char *found = NULL;

	for (unsigned i = 0; i < GP_OWN_POOL_COUNT; i++) {
		const struct gp_own_pool *row = &gp_own_pools[i];

		if (row->when != GP_OWN_POOL_ALWAYS || is_off(i) || !find_library(i))
			continue;
		if (row->how != GP_OWN_POOL_NEVER)
			return row->framework;
		found = row->framework;
	}
	return found;
}

static void write_framework(struct gp_json *out, unsigned i, const char *library)
{
	const struct gp_own_pool *row = &gp_own_pools[i];
	char text[128];

	snprintf(text, sizeof(text), "%s=%.*s", row->variable, (int)gp_own_pool_value_length(row), row->values);
	gp_json_object_begin(out, NULL);
	gp_json_string(out, "name", row->framework);
	gp_json_string(out, "library", library);
	if (row->when != GP_OWN_POOL_ALWAYS && !is_off(i))
		gp_json_null(out, "own_pool");
	else
		gp_json_bool(out, "own_pool", !is_off(i));
	gp_json_string(out, "switch", row->how == GP_OWN_POOL_NEVER ? NULL : text);
	gp_json_object_end(out);
}

void gp_frameworks_write(struct gp_json *out)
{
	gp_json_array_begin(out, "frameworks");
	for (unsigned i = 0; i < GP_OWN_POOL_COUNT; i++) {
		const char *library = find_library(i);

		if (library)
			write_framework(out, i, library);
	}
	gp_json_array_end(out);
}
