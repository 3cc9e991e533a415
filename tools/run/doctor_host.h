/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The checks of --doctor on the machine: the driver, the preloaded library, and the surroundings of the process. */

#include "common/config.h"
#include "doctor_say.h"
#include "run_probe.h"

void doctor_driver(struct doctor *doctor, const struct run_probe *probe);

/* Checks that the library is in a program that this one starts, and serves an allocation there. */
void doctor_preload(struct doctor *doctor, const char *library, const struct run_probe *probe);

/* Compares the version of gpupool-stat beside this program. */
void doctor_versions(struct doctor *doctor);

/* Checks the other preloaded libraries. */
void doctor_others(struct doctor *doctor, const char *library);

void doctor_socket(struct doctor *doctor, const struct gp_config *config);
void doctor_limits(struct doctor *doctor);
void doctor_container(struct doctor *doctor);
