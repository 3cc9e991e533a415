/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A build without elfutils finds no names. */

#include "stat_symbols.h"

struct stat_symbols *stat_symbols_new(const json_t *objects, pid_t pid, uid_t uid)
{
	return NULL;
}

void stat_symbols_free(struct stat_symbols *symbols)
{
}

bool stat_symbols_at(struct stat_symbols *symbols, size_t object, uint64_t address, char *text, size_t size)
{
	return false;
}

const char *stat_symbols_problem(const struct stat_symbols *symbols)
{
	return NULL;
}
