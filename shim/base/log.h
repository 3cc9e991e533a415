/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Log lines of gpupool in the program's process: single lines "gpupool[pid]: warn: ...", each with one write, to
 * stderr or to a file. Any thread may log at any time, also right after fork, as long as it holds no lock of gpupool
 * (a terminal may block). errno, stdio and the program's descriptors are left alone, and a line that cannot be
 * written is dropped.
 */

#include <stdatomic.h>

#include "common/log_level.h"

/* One for each log statement in the code: it logs GP_LOG_REPEATS times, and then stops. */
#define GP_LOG_REPEATS 16
struct gp_log_site {
	_Atomic unsigned lines;
};

/*
 * Before the first call nothing is logged. The path may hold the letters of file.h; NULL, "" and "stderr" mean
 * stderr. The file is opened for each line, so that gpupool keeps no descriptor that the program could close, or
 * inherit over a fork. A relative path refers to the working directory at that moment. A path that does not fit falls
 * back to stderr.
 */
void gp_log_open(enum gp_log_level level, const char *path_template);

/*
 * Notes which file is stderr, at the first call of the library: later the program may have put another file in its
 * place.
 */
void gp_log_note_stderr(void);

enum gp_log_level gp_log_level(void);

void gp_log_write(struct gp_log_site *site, enum gp_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Logs a line that the user has asked for, whatever the level. */
void gp_log_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define gp_log(level, ...)                                                 \
	do {                                                               \
		static struct gp_log_site gp_log_site_;                    \
		if ((level) <= gp_log_level())                             \
			gp_log_write(&gp_log_site_, (level), __VA_ARGS__); \
	} while (0)
