/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_commands.h"

#include <stdint.h>

#include "tools/convert/convert.h"
#include "tools/export/stat_export.h"
#include "tools/export/stat_metrics.h"
#include "tools/replay/replay.h"
#include "tools/report/report.h"
#include "tools/top/stat_top.h"
#include "stat_change.h"
#include "stat_check.h"
#include "stat_debug.h"
#include "stat_leaks.h"
#include "stat_list.h"
#include "stat_map_show.h"
#include "stat_oom.h"
#include "stat_show.h"
#include "stat_status.h"

enum {
	SMALL_ANSWER = 1 << 20,
	LARGE_ANSWER = 8 << 20,
};

const struct stat_command stat_commands[] = {
	{"status", "[PID...]", "memory, limits and counters", SIZE_MAX, STAT_TAKES_QUERY, stat_status_run,
		stat_status_show, SMALL_ANSWER, NULL, true},
	{"list", "", "one line for each process", 0, STAT_TAKES_QUIET | STAT_TAKES_QUERY, stat_list_run, NULL,
		SMALL_ANSWER},
	{"blocks", "[PID]", "the blocks that a program holds, the largest first", 1, STAT_TAKES_MAX, stat_blocks_run,
		stat_blocks_show, LARGE_ANSWER},
	{"map", "[PID]", "a map of the segments, and the blocks that keep them in use", 1,
		STAT_TAKES_MAX | STAT_TAKES_LOOK, stat_command_read, stat_map_show, LARGE_ANSWER},
	{"reclaim", "[PID]", "give cached memory back to the driver; prints the bytes", 1,
		STAT_TAKES_DEVICE | STAT_TAKES_PINNED, stat_reclaim_run, stat_reclaim_show, SMALL_ANSWER,
		STAT_CHANGE_IS_ONCE},
	{"limit", "[PID] [get | set LIMITS]", "show the limits and what counts against them, or set them", 1,
		STAT_TAKES_VERB | STAT_TAKES_PINNED, stat_limit_run, stat_limit_show, SMALL_ANSWER},
	{"defer", "[PID] on | off", "defer flushes of freed memory, or stop deferring them", 1, STAT_TAKES_VERB,
		stat_defer_run, stat_defer_show, SMALL_ANSWER, STAT_CHANGE_IS_ONCE},
	{"region", "[PID] [list | invalidate NAME]", "list the named caches, or empty one of them", 1, STAT_TAKES_VERB,
		stat_region_run, stat_region_show, SMALL_ANSWER},
	{"config", "[PID]", "the settings, and the source of each", 1, 0, stat_command_read, stat_config_show,
		SMALL_ANSWER},
	{"leaks", "[PID...]", "the blocks that a program holds, by call site", SIZE_MAX,
		STAT_TAKES_MAX | STAT_TAKES_BY | STAT_TAKES_MIN | STAT_TAKES_OLDER | STAT_TAKES_DIFF | STAT_TAKES_FROM,
		stat_leaks_run, stat_leaks_show, LARGE_ANSWER},
	{"stacks", "PID [on [DEPTH] [sample=N] | off]", "switch the recording of call stacks on or off", 1,
		STAT_TAKES_WORDS, stat_stacks_run, stat_stacks_show, SMALL_ANSWER},
	{"oom", "[PID...|FILE]", "the last out-of-memory error and its cause; also saved ones", SIZE_MAX,
		STAT_TAKES_SAVED, stat_oom_run, stat_oom_show, SMALL_ANSWER},
	{"debug", "[PID...]", "writes past a block or after its free (GPUPOOL_DEBUG)", SIZE_MAX, STAT_TAKES_CHECK,
		stat_debug_run, stat_debug_show, SMALL_ANSWER},
	{"metrics", "[PID...]", "the counters, in the OpenMetrics format", SIZE_MAX, STAT_TAKES_TO | STAT_HAS_NO_JSON,
		stat_metrics_run, NULL, SMALL_ANSWER},
	{"export", "", "serve the metrics of all processes over HTTP", 0, STAT_TAKES_LISTEN | STAT_HAS_NO_JSON,
		stat_export_run, NULL, SMALL_ANSWER, "it asks the processes at each HTTP request"},
	{"convert", "FILE|PID", "write a file that PyTorch, Perfetto, RMM or pprof reads", 0,
		STAT_TAKES_FILE | STAT_TAKES_TO | STAT_TAKES_OUTPUT | STAT_TAKES_MAX | STAT_HAS_NO_JSON,
		convert_command, NULL, 0, "it writes one file"},
	{"report", "FILE|PID", "write an HTML report with all details, for a browser", 0,
		STAT_TAKES_FILE | STAT_TAKES_OUTPUT | STAT_TAKES_MAX | STAT_HAS_NO_JSON, report_command, NULL, 0,
		"it writes one file"},
	{"top", "[PID...]", "devices and processes, live", SIZE_MAX,
		STAT_TAKES_LOOK | STAT_TAKES_CHANGES | STAT_HAS_NO_JSON, stat_top_run, NULL, SMALL_ANSWER},
	{"check", "[PID...]", "one line and an exit code, for monitoring systems", SIZE_MAX, STAT_TAKES_LEVELS,
		stat_check_run, NULL, SMALL_ANSWER},
	{"replay", "FILE", "run a recording again, with other pool types and limits", 0,
		STAT_TAKES_FILE | STAT_TAKES_POOL | STAT_TAKES_LIMIT | STAT_TAKES_REUSE, replay_command, NULL, 0,
		STAT_FILE_IS_ONCE},
	{NULL},
};
