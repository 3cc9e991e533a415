/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

#include "context.h"

/*
 * Makes the structure of a context that the program can work in, if it has none, since no memory was allocated there.
 * False if there is none afterwards: the context has ended, the end of another one is under way, or it cannot be made.
 */
bool gp_context_adopt(CUcontext handle);
