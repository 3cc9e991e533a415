/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The levels of log lines. At a level, lines of the levels before it are logged, too. */
enum gp_log_level {
	GP_LOG_OFF,
	GP_LOG_ERROR,
	GP_LOG_WARN,
	GP_LOG_INFO,
	GP_LOG_DEBUG,
};
