/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Versions of answers. Processes and files of an older release have older answers. They get the present names as
 * soon as they are parsed, so that all commands, and the JSON that they print, know only those.
 */

#include <jansson.h>

/* Returns the version of "gpupool.NAME/VERSION" in this release. A list "NAME-list" has the version of its answers. */
unsigned stat_schema_version(const char *name);

/* Renames the members of an older answer of that name, in place, and sets its schema to the present version. */
void stat_schema_update(json_t *reply, const char *name);
