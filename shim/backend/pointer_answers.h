/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The driver's answers about attributes of pointers to mapped memory, for queries that come while the memory is away.
 * They are the same for all pooled memory of a device, except for those that gpupool answers itself (hook_query.c). The
 * driver does not tell how large the value of an attribute is, so gpupool finds out what the driver writes.
 */

#include "shim/context/context.h"

/* Asks the driver about each attribute, once for each device. The address must be in mapped memory of the context. */
void gp_pointer_answers_learn(struct gp_context *context, CUdeviceptr ptr);

/*
 * True if the driver's answer is known: of cuPointerGetAttributes (is_of_list), or of cuPointerGetAttribute. Stores it
 * in *data, unless data is NULL.
 */
bool gp_pointer_answer(int device, int attribute, bool is_of_list, void *data);
