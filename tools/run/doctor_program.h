/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The checks of --doctor on CMD. */

#include "doctor_say.h"
#include "run_elf.h"

/* Checks that the library can be preloaded into the program, and that the driver serves its CUDA runtime. */
void doctor_program(struct doctor *doctor, const char *command, const struct run_elf *library, int driver_version);

/* Names the frameworks that CMD's Python has, or Julia, with the state of their switches. */
void doctor_frameworks(struct doctor *doctor, const char *command);
