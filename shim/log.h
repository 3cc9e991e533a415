/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What gpupool says while it lives in somebody else's process: single lines "gpupool[pid]: warn:
 * ...", each with one write, to stderr or to a file. Any thread may log at any time, also right
 * after fork, as long as it holds no lock of gpupool (a terminal may block). errno, stdio and the
 * program's descriptors are left alone, and a line that cannot be written is dropped.
 */

#include <stdatomic.h>

enum gp_log_level {
	GP_LOG_OFF,
	GP_LOG_ERROR,
	GP_LOG_WARN,
	GP_LOG_INFO,
	GP_LOG_DEBUG,
};

/* One for each place in the code that logs: it is heard GP_LOG_REPEATS times, and then cut. */
#define GP_LOG_REPEATS 16
struct gp_log_site {
	_Atomic unsigned lines;
};

/*
 * Before the first call nothing is logged. The path may hold %p (the process id) and %%; NULL, ""
 * and "stderr" mean stderr. It is opened for each line, so that gpupool keeps no descriptor that
 * the program could close, or inherit over a fork; a relative path is one of the moment. A path
 * that does not fit falls back to stderr.
 */
void gp_log_open(enum gp_log_level level, const char *path_template);

/*
 * Notes which file is stderr, at the first call of the library: the earlier, the less likely has the program put
 * another file in its place.
 */
void gp_log_note_stderr(void);

enum gp_log_level gp_log_level(void);

void gp_log_write(struct gp_log_site *site, enum gp_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* A line that somebody asked for: whatever the level. */
void gp_log_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define gp_log(level, ...)                                                                         \
	do {                                                                                       \
		static struct gp_log_site gp_log_site_;                                            \
		if ((level) <= gp_log_level())                                                     \
			gp_log_write(&gp_log_site_, (level), __VA_ARGS__);                         \
	} while (0)
