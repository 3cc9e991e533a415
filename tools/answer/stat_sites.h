/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The call sites of an answer to "leaks", frame by frame, for flame graphs and profiles. */

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct stat_site {
	char **frames;   /* "Grid::grow (grid.cpp:212)", the innermost first; clean */
	size_t n_frames; /* at least 1 */
	char *text;      /* contains the frames */
	uint64_t blocks, bytes;
	uint64_t allocs, alloc_bytes; /* since stacks were switched on */
};

struct stat_sites {
	struct stat_site *list;
	size_t n;
};

/*
 * Makes the sites. All blocks without a stack are one site, and so is the rest of a long answer. pid: 0 if the answer
 * comes from a file.
 */
void stat_sites_make(struct stat_sites *sites, const json_t *leaks, pid_t pid, uid_t uid);
void stat_sites_free(struct stat_sites *sites);

/* The parts of a frame: "Grid::grow", "grid.cpp" ("" if it has none) and 212. */
struct stat_frame {
	const char *name, *file;
	int name_length, file_length;
	uint64_t line;
};

struct stat_frame stat_frame_parse(const char *text);
