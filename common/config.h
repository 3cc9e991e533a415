/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The settings that the environment asks for. Parsing has no side effects: it walks the environment that it is given,
 * calls only the report function, allocates nothing and prints nothing. The library parses once, and gpupool-run does
 * the same before it starts a program. The result is usable even after errors:
 *
 *   - a limit that cannot be read becomes a limit of zero bytes, since the user relies on it
 *   - any other value that cannot be read leaves the default
 *   - a variable with an empty value counts as not set
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config_debug.h"
#include "config_file.h"
#include "config_group.h"
#include "config_regions.h"
#include "config_stacks.h"
#include "log_level.h"
#include "scheduler_limits.h"
#include "size.h"

/* Size of a value with its NUL; longer ones are refused. */
#define GP_CONFIG_VALUE_SIZE   1024
#define GP_CONFIG_MESSAGE_SIZE 512

/* Begins the line of the log with the pool type that was chosen for a device. `gpupool-run --doctor` looks for it. */
#define GP_CONFIG_CHOICE "GPUPOOL_POOL=auto: "

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
	GP_CONFIG_POOL_AUTO, /* vmm where that is possible, otherwise split */
};

/* The driver's allocator below a pool. */
enum gp_config_backend { GP_CONFIG_BACKEND_DEVICE, GP_CONFIG_BACKEND_MANAGED, GP_CONFIG_BACKEND_ASYNC };

enum gp_config_reuse { GP_CONFIG_REUSE_AUTO, GP_CONFIG_REUSE_ORDERED, GP_CONFIG_REUSE_COMPLETED };

/*
 * The other processes that this one asks for memory: those of the same user (ON), or those of all users if this is
 * root's (ALL). With either it gives its own cached memory when asked.
 */
enum gp_config_yield { GP_CONFIG_YIELD_OFF, GP_CONFIG_YIELD_ON, GP_CONFIG_YIELD_ALL };

/* The memory pools of frameworks (own_pools.def). */
/* GPUPOOL_OOM_WAIT: an allocation waits only for other processes, for a bounded time. */
#define GP_CONFIG_OOM_WAIT_AUTO UINT64_MAX

enum gp_config_own_pools { GP_CONFIG_OWN_POOLS_ON, GP_CONFIG_OWN_POOLS_OFF };

/* The answer of cudaMemGetInfo under a limit. AUTO is OWN if the limit comes from a scheduler, otherwise DEVICE. */
enum gp_config_view { GP_CONFIG_VIEW_AUTO, GP_CONFIG_VIEW_OWN, GP_CONFIG_VIEW_DEVICE };

/*
 * GP_CONFIG_SCHEDULER: the limit is that of other variables (scheduler_limits.h), since GPUPOOL_LIMIT is not set.
 * GP_CONFIG_FILE: the administrator's file has it (config_file.h), and the environment does not.
 */
enum gp_config_source { GP_CONFIG_DEFAULT, GP_CONFIG_FILE, GP_CONFIG_ENVIRONMENT, GP_CONFIG_SCHEDULER };

enum { GP_CONFIG_THREADS_MAX = 64 };
#define GP_CONFIG_THREADS_AUTO UINT64_MAX

/* GPUPOOL_SLEEP: off; on, only when another process asks for it; or after that many idle milliseconds, too. */
#define GP_CONFIG_SLEEP_OFF    UINT64_C(0)
#define GP_CONFIG_SLEEP_ASKED  UINT64_MAX
#define GP_CONFIG_SLEEP_MAX_MS (UINT64_C(30) * 24 * 3600 * 1000)

struct gp_config {
	bool is_enabled, is_pinned_pooled;
	enum gp_config_pool pool;
	enum gp_config_backend backend;
	struct gp_limit_list limit;
	struct gp_config_group group;
	enum gp_config_view view;
	struct gp_limit pinned_limit; /* a percentage is of the machine's memory */
	uint64_t pinned_threads;      /* GP_CONFIG_THREADS_AUTO: by the processors that the thread may use */
	uint64_t reserve_bytes, thread_cache_bytes, oom_wait_ms;
	uint64_t sleep_idle_ms;    /* GP_CONFIG_SLEEP_... */
	uint64_t sleep_host_bytes; /* 0: as much as there is */
	uint64_t sleep_pinned_bytes;
	uint64_t spill_bytes;   /* 0: no memory goes to the host when that of the device runs out */
	uint64_t pending_count; /* UINT64_MAX: unlimited */
	double pending_ratio;
	enum gp_config_reuse reuse;
	enum gp_config_yield yield;
	bool is_free_synchronous, is_async_pooled, is_runtime_served, is_vmm_cached;
	bool is_sleep_memory_kept;
	bool has_socket; /* if not, gpupool neither creates a socket nor connects to one */
	enum gp_log_level log_level;
	char log_file[GP_CONFIG_VALUE_SIZE];    /* as gp_log_open() takes it */
	char record_file[GP_CONFIG_VALUE_SIZE]; /* as gp_record_init() takes it; empty if not set */
	struct gp_config_stacks stacks;
	struct gp_config_debug debug;
	struct gp_config_regions regions;
	char report[GP_CONFIG_VALUE_SIZE];      /* "exit" or "summary", with or without ":FILE"; or empty */
	char oom_file[GP_CONFIG_VALUE_SIZE];    /* "auto", "off", or a file as gp_file_expand() takes it */
	char runtime_dir[GP_CONFIG_VALUE_SIZE]; /* empty if not set */
	char config_dir[GP_CONFIG_VALUE_SIZE];
	enum gp_config_own_pools own_pools;

	/* The reason, in one line, for a limit of zero because its text could not be read; or empty. */
	char limit_error[GP_CONFIG_MESSAGE_SIZE], pinned_limit_error[GP_CONFIG_MESSAGE_SIZE];
	char group_error[GP_CONFIG_MESSAGE_SIZE];

	char limit_variables[GP_SCHEDULER_NAMES_MAX]; /* of GP_CONFIG_SCHEDULER, separated by spaces; or empty */
	enum gp_config_source source[GP_OPTION_COUNT];
	char text[GP_OPTION_COUNT][GP_CONFIG_VALUE_SIZE];   /* the value in force, as typed */
	char origin[GP_OPTION_COUNT][GP_CONFIG_ORIGIN_MAX]; /* of GP_CONFIG_FILE: "FILE:LINE" */
};

/* The syntax of a value. */
enum gp_config_type {
	GP_CONFIG_BOOL,
	GP_CONFIG_WORD,
	GP_CONFIG_LIMITS,
	GP_CONFIG_LIMIT,
	GP_CONFIG_GROUP,
	GP_CONFIG_SIZE,
	GP_CONFIG_COUNT,
	GP_CONFIG_RATIO,
	GP_CONFIG_WAIT,
	GP_CONFIG_THREADS,
	GP_CONFIG_SLEEP,
	GP_CONFIG_YIELD,
	GP_CONFIG_PATH,
	GP_CONFIG_STACKS,
	GP_CONFIG_DEBUG,
	GP_CONFIG_REGIONS,
	GP_CONFIG_REPORT,
	GP_CONFIG_OOM_FILE,
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
	GP_CONFIG_FAILS_CLOSED, /* a limit cannot be read: allocations fail */
	GP_CONFIG_USES_DEFAULT,
	GP_CONFIG_UNKNOWN_NAME,
	GP_CONFIG_ABSENT_DEVICE,
	GP_CONFIG_IGNORED_LINE, /* of a file; variable is the place, "FILE:LINE" */
	GP_CONFIG_IGNORED_FILE, /* variable is the file */
};

/* A report is valid only during the call of the report function. */
struct gp_config_report {
	enum gp_config_problem problem;
	const char *variable, *value;
	struct gp_text_error error; /* the offset is that of a value only */
	const char *origin;         /* "FILE:LINE" of a value in a file; NULL: it is in the environment */
};

typedef void (*gp_config_report_fn)(void *arg, const struct gp_config_report *report);

/* Returns the process's environment, or an empty one if it must not be trusted (setuid programs). */
char **gp_config_environ(void);

/* Returns a variable of that environment, or NULL: for the few variables that do not belong to gpupool. */
const char *gp_config_variable(const char *name);

/* Returns 0, or -EINVAL if a value could not be read. The configuration is usable in both cases. */
int gp_config_parse(struct gp_config *config, char *const *environment, gp_config_report_fn report, void *arg);

/*
 * As gp_config_parse, with the settings of the administrator's files below those of the environment. A file's problem
 * is reported, but is not an error of the environment.
 */
int gp_config_load(struct gp_config *config, char *const *environment, gp_config_report_fn report, void *arg);

/* Returns 0 if the text is a valid value of the option, or -EINVAL. An empty text is invalid here. */
int gp_config_check(enum gp_option option, const char *text, struct gp_text_error *error);

/* Reports every device that the limit names and the machine lacks. */
void gp_config_check_devices(const struct gp_config *config, int device_count, gp_config_report_fn report, void *arg);

/* Returns the limit of a device in bytes; UINT64_MAX if it has none. */
void gp_config_limit_for(
	const struct gp_limit_list *limits, int device, uint64_t device_total_bytes, uint64_t *ret_bytes);

/* Writes the value in force, as a user would type it. Returns its length, as snprintf() does. */
int gp_config_value_text(const struct gp_config *config, enum gp_option option, char *buffer, size_t size);

/* Returns "default", "environment", "FILE:LINE" or, for a limit of a scheduler, the names of its variables. */
const char *gp_config_source_text(const struct gp_config *config, enum gp_option option);

/* Writes the whole report as one line for a log. Returns its length, as snprintf() does. */
int gp_config_report_format(const struct gp_config_report *report, char *buffer, size_t size);
