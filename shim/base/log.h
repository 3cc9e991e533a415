/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Log lines of gpupool in the program's process: single lines "gpupool[pid]: warn: ...", each with one write, to
 * stderr or to a file. Any thread may log at any time, also right after fork. It should hold no lock of gpupool, since
 * a terminal may block. (There is one exception: driver_call.c logs rare errors while locks of the context are held.)
 * errno, stdio and the program's descriptors stay as they are, and a line that cannot be written is dropped.
 */

#include <stdatomic.h>

#include "common/log_level.h"

/* Each log statement in the code has one of these. The statement logs GP_LOG_REPEATS lines, and then stops. */
#define GP_LOG_REPEATS 16
struct gp_log_site {
	_Atomic unsigned lines;
};

/*
 * Opens the log; before the first call nothing is logged. The path may have the letters of file.h. NULL, "" and
 * "stderr" mean stderr, and so does a path that is too long. The file is opened for each line, so a relative path
 * refers to the working directory at that moment.
 */
void gp_log_open(enum gp_log_level level, const char *path_template);

/*
 * Notes which file is stderr. To be called at the first call of the library: later the program may give the descriptor
 * to another file.
 */
void gp_log_note_stderr(void);

enum gp_log_level gp_log_level(void);

void gp_log_write(struct gp_log_site *site, enum gp_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Logs a line that the user has asked for, at every level, even at "off". */
void gp_log_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define gp_log(level, ...)                                                 \
	do {                                                               \
		static struct gp_log_site gp_log_site_;                    \
		if ((level) <= gp_log_level())                             \
			gp_log_write(&gp_log_site_, (level), __VA_ARGS__); \
	} while (0)
