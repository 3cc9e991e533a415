/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_commands.h"

#include <stdint.h>

#include "tools/answer/stat_stack.h"
#include "tools/convert/convert.h"
#include "tools/export/stat_export.h"
#include "tools/export/stat_metrics.h"
#include "tools/replay/replay.h"
#include "tools/report/report.h"
#include "tools/top/stat_top.h"
#include "stat_advise.h"
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
	{
		.name = "status",
		.synopsis = "[PID...]",
		.help = "memory, limits and counters",
		.max_pids = SIZE_MAX,
		.takes = STAT_TAKES_FIELDS,
		.run = stat_status_run,
		.show = stat_status_show,
		.has_own_title = true,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "list",
		.synopsis = "",
		.help = "one line for each process",
		.takes = STAT_TAKES_QUIET | STAT_TAKES_FIELDS,
		.run = stat_list_run,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "blocks",
		.synopsis = "[PID]",
		.help = "the blocks that a program holds, the largest first",
		.max_pids = 1,
		.takes = STAT_TAKES_MAX,
		.run = stat_blocks_run,
		.show = stat_blocks_show,
		.max_bytes = LARGE_ANSWER,
	},
	{
		.name = "map",
		.synopsis = "[PID]",
		.help = "a map of the segments, and the blocks that keep them in use",
		.max_pids = 1,
		.takes = STAT_TAKES_MAX | STAT_TAKES_LOOK,
		.run = stat_command_read,
		.show = stat_map_show,
		.max_bytes = LARGE_ANSWER,
	},
	{
		.name = "reclaim",
		.synopsis = "[PID]",
		.help = "give cached memory back to the driver; prints the bytes",
		.max_pids = 1,
		.takes = STAT_TAKES_DEVICE | STAT_TAKES_PINNED,
		.run = stat_reclaim_run,
		.show = stat_reclaim_show,
		.max_bytes = SMALL_ANSWER,
		.once = STAT_CHANGE_IS_ONCE,
	},
	{
		.name = "limit",
		.synopsis = "[PID] [get | set LIMITS]",
		.help = "show the limits and what counts against them, or set them",
		.operands = STAT_OPERAND_VERB,
		.max_pids = 1,
		.takes = STAT_TAKES_PINNED,
		.run = stat_limit_run,
		.show = stat_limit_show,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "defer",
		.synopsis = "[PID] on | off",
		.help = "defer flushes of freed memory, or stop deferring them",
		.operands = STAT_OPERAND_VERB,
		.max_pids = 1,
		.run = stat_defer_run,
		.show = stat_defer_show,
		.max_bytes = SMALL_ANSWER,
		.once = STAT_CHANGE_IS_ONCE,
	},
	{
		.name = "region",
		.synopsis = "[PID] [list | invalidate NAME]",
		.help = "list the named caches, or empty one of them",
		.operands = STAT_OPERAND_VERB,
		.max_pids = 1,
		.run = stat_region_run,
		.show = stat_region_show,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "config",
		.synopsis = "[PID]",
		.help = "the settings, and the source of each",
		.max_pids = 1,
		.run = stat_command_read,
		.show = stat_config_show,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "leaks",
		.synopsis = "[PID...]",
		.help = "the blocks that a program holds, by call site",
		.max_pids = SIZE_MAX,
		.takes = STAT_TAKES_MAX | STAT_TAKES_BY | STAT_TAKES_MIN | STAT_TAKES_OLDER | STAT_TAKES_DIFF |
			 STAT_TAKES_FROM,
		.run = stat_leaks_run,
		.show = stat_leaks_show,
		.complete = stat_stacks_complete,
		.max_bytes = LARGE_ANSWER,
	},
	{
		.name = "stacks",
		.synopsis = "PID [on [DEPTH] [sample=N] | off]",
		.help = "switch the recording of call stacks on or off",
		.operands = STAT_OPERAND_PID_WORDS,
		.max_pids = 1,
		.run = stat_stacks_run,
		.show = stat_stacks_show,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "oom",
		.synopsis = "[PID...|FILE]",
		.help = "the last out-of-memory error and its cause; also saved ones",
		.operands = STAT_OPERAND_PIDS_FILE,
		.max_pids = SIZE_MAX,
		.run = stat_oom_run,
		.show = stat_oom_show,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "debug",
		.synopsis = "[PID...]",
		.help = "writes past a block or after its free (GPUPOOL_DEBUG)",
		.max_pids = SIZE_MAX,
		.takes = STAT_TAKES_CHECK,
		.run = stat_debug_run,
		.show = stat_debug_show,
		.complete = stat_stacks_complete,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "metrics",
		.synopsis = "[PID...]",
		.help = "the counters, in the OpenMetrics format",
		.max_pids = SIZE_MAX,
		.takes = STAT_TAKES_TO,
		.has_no_json = true,
		.run = stat_metrics_run,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "export",
		.synopsis = "",
		.help = "serve the metrics of all processes over HTTP",
		.takes = STAT_TAKES_LISTEN,
		.has_no_json = true,
		.run = stat_export_run,
		.max_bytes = SMALL_ANSWER,
		.once = "it asks the processes at each HTTP request",
	},
	{
		.name = "convert",
		.synopsis = "FILE|PID",
		.help = "write a file that PyTorch, Perfetto, RMM or pprof reads",
		.operands = STAT_OPERAND_FILE,
		.takes = STAT_TAKES_TO | STAT_TAKES_OUTPUT | STAT_TAKES_MAX | STAT_TAKES_MOMENT,
		.has_no_json = true,
		.run = convert_command,
		.once = "it writes one file",
	},
	{
		.name = "report",
		.synopsis = "FILE|PID",
		.help = "write an HTML report with all details, for a browser",
		.operands = STAT_OPERAND_FILE,
		.takes = STAT_TAKES_OUTPUT | STAT_TAKES_MAX | STAT_TAKES_MOMENT,
		.has_no_json = true,
		.run = report_command,
		.once = "it writes one file",
	},
	{
		.name = "top",
		.synopsis = "[PID...]",
		.help = "devices and processes, live",
		.max_pids = SIZE_MAX,
		.takes = STAT_TAKES_LOOK | STAT_TAKES_CHANGES,
		.has_no_json = true,
		.run = stat_top_run,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "check",
		.synopsis = "[PID...]",
		.help = "one line and an exit code, for monitoring systems",
		.max_pids = SIZE_MAX,
		.takes = STAT_TAKES_LEVELS,
		.run = stat_check_run,
		.max_bytes = SMALL_ANSWER,
	},
	{
		.name = "replay",
		.synopsis = "FILE",
		.help = "run a recording again, with other pool types and limits",
		.operands = STAT_OPERAND_FILE,
		.takes = STAT_TAKES_POOL | STAT_TAKES_LIMIT | STAT_TAKES_REUSE,
		.run = replay_command,
		.once = STAT_FILE_IS_ONCE,
	},
	{
		.name = "advise",
		.synopsis = "FILE|PID",
		.help = "which pool type and limit a program needs, from a recording",
		.operands = STAT_OPERAND_FILE,
		.run = stat_advise_run,
		.once = "it advises once, on a file or on the counters so far",
	},
	{NULL},
};
