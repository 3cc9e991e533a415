/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#ifndef API_HERE_H
#define API_HERE_H

/* Some programs also include the loader's header. */
#ifdef API_WITH_LINK_H
#include <link.h>
#endif
#include "api/gpupool.h"

#ifdef __cplusplus
extern "C"
#endif
	const char *
	ask_there(void);

#endif
