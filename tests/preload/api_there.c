/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "api_here.h"

const char *ask_there(void)
{
	return gpupool_version();
}
