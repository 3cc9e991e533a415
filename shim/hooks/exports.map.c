/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Expands to the linker's version script: dlsym, dlopen, the entry point of NVTX, and the rows of the tables. */
{
global:
	dlsym;
	dlopen;
	InitializeInjectionNvtx2;
#define HOOK(symbol, name, version, flags, parameters, arguments) symbol;
#include "shim/driver/hooks.def"
#define RUNTIME(symbol, parameters, arguments) symbol;
#include "runtime.def"
local:
	*;
};
