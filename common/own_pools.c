/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "own_pools.h"

#include <string.h>

const struct gp_own_pool gp_own_pools[GP_OWN_POOL_COUNT] = {
#define OWN_POOL(framework, module, library, seen, when, how, variable, values) \
	{framework, module, library, GP_OWN_POOL_##seen, GP_OWN_POOL_##when, GP_OWN_POOL_##how, variable, values},
#include "own_pools.def"
};

const char *gp_own_pool_remedy(const char *framework)
{
	for (int i = 0; i < GP_OWN_POOL_COUNT; i++)
		if (strcmp(gp_own_pools[i].framework, framework) == 0)
			return gp_own_pools[i].how == GP_OWN_POOL_NEVER ? ""
									: " (gpupool-run --own-pools=off turns it off)";
	return "";
}

bool gp_own_pool_is_first(const struct gp_own_pool *row)
{
	return row == gp_own_pools || strcmp(row[-1].framework, row->framework) != 0;
}

bool gp_own_pool_is_off(const struct gp_own_pool *row, const char *value)
{
	size_t length = strlen(value);

	for (const char *word = row->values; *word; word += *word == '|') {
		size_t n = strcspn(word, "|");

		if (n == length && memcmp(word, value, n) == 0)
			return true;
		word += n;
	}
	return false;
}

size_t gp_own_pool_value_length(const struct gp_own_pool *row)
{
	return strcspn(row->values, "|");
}

bool gp_own_pool_is_library(const struct gp_own_pool *row, const char *path)
{
	for (const char *part = row->library; *part; part += *part == '|') {
		size_t n = strcspn(part, "|");

		if (memmem(path, strlen(path), part, n))
			return true;
		part += n;
	}
	return false;
}
