/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The handlers of requests at the control socket, by row of common/ctl.def. NULL for rows that the server answers. */

#include "shim/ctl/ctl_request.h"

extern const gp_ctl_handler_fn gp_actions[GP_CTL_N_COMMANDS];
