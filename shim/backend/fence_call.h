/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Fences over the driver: the records of a context, and GPU waits for them. */

#include "shim/context/context.h"

/* Creates the event of a context's slot at first use. To be called between gp_context_enter and gp_context_leave. */
int gp_backend_event(struct gp_context *context, CUevent *event);

/*
 * Records all work of the context in the event, or waits for that work on the host if the driver cannot record it. To
 * be called between gp_context_enter and gp_context_leave. is_due: a GPU wait in the context may wait for this record,
 * since the program's own free would have waited for the same work.
 */
int gp_backend_record(struct gp_context *context, CUevent event, bool is_due);

/* True if a record makes the host wait. */
bool gp_backend_record_waits(void *unused);

/*
 * Makes later work of the context wait for the event. Returns CUDA_ERROR_NOT_READY, and makes no GPU wait, while a
 * record that is not due is unfinished: the GPU wait would wait for that record, too.
 */
CUresult gp_backend_gpu_wait(struct gp_context *context, CUevent event);
