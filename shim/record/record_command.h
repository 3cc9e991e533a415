/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Writes the command line of this process into the recording. Does nothing if it cannot be read. */
void gp_record_command(void);
