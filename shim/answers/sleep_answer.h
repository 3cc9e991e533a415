/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "shim/base/json.h"

/* Answer the requests "sleep" and "wake". */
int gp_sleep_answer(int argc, char **argv, struct gp_json *out);
int gp_wake_answer(int argc, char **argv, struct gp_json *out);

/* Answers the request "deep". */
int gp_deep_answer(int argc, char **argv, struct gp_json *out);

/* Answers, with an error, a request that needs the driver while the process is deep asleep. Returns 0 if it is not. */
int gp_deep_refuse(struct gp_json *out);

/* Writes what is asleep, for the answer to "status". */
void gp_sleep_write_status(struct gp_json *out);
