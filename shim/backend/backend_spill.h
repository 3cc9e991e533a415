/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Memory of the host that is mapped at addresses of the device, for pools that spill (pool/vmm/spill.h). */

#include "shim/context/context.h"

extern const struct gp_spill_ops gp_spill_backend;

/* True if the driver has the functions. */
bool gp_spill_backend_works(void);

/* Returns the bytes of such memory that the process has. */
uint64_t gp_spill_host_bytes(void);

/* Returns the bytes that were copied between host and device for it, which shows how fast the link is. */
uint64_t gp_spill_copied(uint64_t *ret_ns);
