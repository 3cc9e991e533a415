/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * What the environment asks for. Parsing is pure: it walks the environment it is given, calls
 * nobody but the report function, allocates nothing and prints nothing; the library does it once,
 * and gpupool-run does the same before it starts a program. The result is used as it is whatever
 * was wrong:
 *
 *	a limit that cannot be read is a limit of nothing, since its author believes it holds
 *	any other value that cannot be read leaves the default
 *	a variable that is set to nothing counts as not set
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config_debug.h"
#include "config_regions.h"
#include "config_stacks.h"
#include "log.h"
#include "size.h"

/* A longer value is refused. */
#define GP_CONFIG_VALUE_SIZE   1024
#define GP_CONFIG_MESSAGE_SIZE 512

enum gp_option {
#define GP_OPTION(symbol, ...) GP_OPTION_##symbol,
#include "config.def"
	GP_OPTION_COUNT
};

enum gp_config_pool {
	GP_CONFIG_POOL_NONE,
	GP_CONFIG_POOL_SIMPLE,
	GP_CONFIG_POOL_BINNED,
	GP_CONFIG_POOL_SPLIT,
	GP_CONFIG_POOL_VMM,
};

/* What the memory of a pool is, below the pool. */
enum gp_config_backend { GP_CONFIG_BACKEND_DEVICE, GP_CONFIG_BACKEND_MANAGED, GP_CONFIG_BACKEND_ASYNC };

enum gp_config_reuse { GP_CONFIG_REUSE_AUTO, GP_CONFIG_REUSE_ORDERED, GP_CONFIG_REUSE_COMPLETED };

/* Whom this process asks for memory: the user's other processes, or all users'. It gives its own but for the first. */
enum gp_config_yield { GP_CONFIG_YIELD_OFF, GP_CONFIG_YIELD_ON, GP_CONFIG_YIELD_ALL };

enum gp_config_source { GP_CONFIG_DEFAULT, GP_CONFIG_ENVIRONMENT };

struct gp_config {
	bool is_enabled, is_pinned_pooled;
	enum gp_config_pool pool;
	enum gp_config_backend backend;
	struct gp_limit_list limit;
	struct gp_limit pinned_limit; /* a share is of the machine's memory */
	uint64_t reserve_bytes, thread_cache_bytes, oom_wait_ms;
	uint64_t pending_count; /* UINT64_MAX: unlimited */
	double pending_ratio;
	enum gp_config_reuse reuse;
	enum gp_config_yield yield;
	bool is_free_synchronous, is_runtime_served;
	bool has_socket; /* else gpupool makes no socket at all, nor connects to one */
	enum gp_log_level log_level;
	char log_file[GP_CONFIG_VALUE_SIZE];    /* as gp_log_open() takes it */
	char record_file[GP_CONFIG_VALUE_SIZE]; /* as gp_record_init() takes it; empty if not set */
	struct gp_config_stacks stacks;
	struct gp_config_debug debug;
	struct gp_config_regions regions;
	char report[GP_CONFIG_VALUE_SIZE]; /* "exit", or "exit:" and a file as gp_record_init() takes it; or empty */
	char oom_file[GP_CONFIG_VALUE_SIZE]; /* "auto", "off", or a file as gp_file_expand() takes it */
	char runtime_dir[GP_CONFIG_VALUE_SIZE]; /* empty if not set */

	/* Why the limit is one of nothing, in one line; or empty */
	char limit_error[GP_CONFIG_MESSAGE_SIZE], pinned_limit_error[GP_CONFIG_MESSAGE_SIZE];

	enum gp_config_source source[GP_OPTION_COUNT];
	char text[GP_OPTION_COUNT][GP_CONFIG_VALUE_SIZE]; /* what is in force, as typed */
};

/* How a value is read. */
enum gp_config_type {
	GP_CONFIG_BOOL,
	GP_CONFIG_WORD,
	GP_CONFIG_LIMITS,
	GP_CONFIG_LIMIT,
	GP_CONFIG_SIZE,
	GP_CONFIG_COUNT,
	GP_CONFIG_RATIO,
	GP_CONFIG_MILLISECONDS,
	GP_CONFIG_YIELD,
	GP_CONFIG_PATH,
	GP_CONFIG_STACKS,
	GP_CONFIG_DEBUG,
	GP_CONFIG_REGIONS,
	GP_CONFIG_REPORT, GP_CONFIG_OOM_FILE,
	GP_CONFIG_DIRECTORY,
};

/* A row of config.def. */
struct gp_config_option {
	const char *variable, *option;
	enum gp_config_type type;
	const char *default_text, *values, *help;
};

extern const struct gp_config_option gp_config_options[GP_OPTION_COUNT];

enum gp_config_problem {
	GP_CONFIG_FAILS_CLOSED, /* a limit cannot be read: nothing can be allocated */
	GP_CONFIG_USES_DEFAULT, GP_CONFIG_UNKNOWN_NAME, GP_CONFIG_ABSENT_DEVICE,
};

/* Valid during the call only. */
struct gp_config_report {
	enum gp_config_problem problem;
	const char *variable, *value;
	struct gp_text_error error; /* without an offset that means something for the last two problems */
};

typedef void (*gp_config_report_fn)(void *arg, const struct gp_config_report *report);

/* The process's own environment, or an empty one where it must not be trusted (setuid programs). */
char **gp_config_environ(void);

/* A variable of that environment, or NULL: for the few that are not gpupool's own. */
const char *gp_config_variable(const char *name);

/* 0, or -EINVAL if a value could not be read; the configuration can be used in both cases. */
int gp_config_parse(struct gp_config *config, char *const *environment, gp_config_report_fn report, void *arg);

/* Whether a text is a value of the option: 0 or -EINVAL. Here an empty text is a bad one. */
int gp_config_check(enum gp_option option, const char *text, struct gp_text_error *error);

/* Reports every device that the limit names and the machine has not. */
void gp_config_check_devices(const struct gp_config *config, int device_count, gp_config_report_fn report, void *arg);

/* The limit of a device in bytes; UINT64_MAX if it has none. */
void gp_config_limit_for(
	const struct gp_limit_list *limits, int device, uint64_t device_total_bytes, uint64_t *ret_bytes);

/* The value in force, as one would type it. Returns its length, as snprintf() does. */
int gp_config_value_text(const struct gp_config *config, enum gp_option option, char *buffer, size_t size);

const char *gp_config_source_text(const struct gp_config *config, enum gp_option option); /* "default", "environment" */

/* The whole report in one line, for a log. Returns its length, as snprintf() does. */
int gp_config_report_format(const struct gp_config_report *report, char *buffer, size_t size);
