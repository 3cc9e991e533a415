/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pointer_answers.h"

#include <string.h>

#include "shim/context/driver_call.h"
#include "shim/driver/driver_table.h"

enum { BYTES_MAX = 8, ATTRIBUTES_MAX = 18 };

/* Attributes that differ between contexts are not here, nor those that change the memory when they are asked about. */
static const unsigned char attributes[] = {
	CU_POINTER_ATTRIBUTE_CONTEXT,
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
	CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
	CU_POINTER_ATTRIBUTE_HOST_POINTER,
	CU_POINTER_ATTRIBUTE_BUFFER_ID,
	CU_POINTER_ATTRIBUTE_IS_MANAGED,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
	CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
	CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
	CU_POINTER_ATTRIBUTE_RANGE_SIZE,
	CU_POINTER_ATTRIBUTE_MAPPED,
	CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
	CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
	CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
};

struct answer {
	unsigned char n_bytes; /* 0: unknown */
	unsigned char bytes[BYTES_MAX];
};

struct device_answers {
	_Atomic bool is_learned;
	struct answer of_list[ATTRIBUTES_MAX], alone[ATTRIBUTES_MAX];
};

/* Written by the thread that puts the process to sleep, before is_learned is set. */
static struct device_answers by_device[GP_DEVICES_MAX];

static CUresult ask(void *data, int attribute, bool is_of_list, CUdeviceptr ptr)
{
	if (is_of_list)
		return gp_real.cuPointerGetAttributes(1, &attribute, &data, ptr);
	return gp_real.cuPointerGetAttribute(data, attribute, ptr);
}

/* Bytes that the driver does not write keep what was there, which differs between the two questions. */
static struct answer learn(int attribute, bool is_of_list, CUdeviceptr ptr)
{
	unsigned char first[4 * BYTES_MAX], second[4 * BYTES_MAX];
	struct answer answer = {0};
	unsigned n = 0;

	memset(first, 0xaa, sizeof(first));
	memset(second, 0x55, sizeof(second));
	if (ask(first, attribute, is_of_list, ptr) || ask(second, attribute, is_of_list, ptr))
		return answer;
	while (n < sizeof(first) && first[n] == second[n])
		n++;
	if (n > BYTES_MAX)
		return answer;
	answer.n_bytes = (unsigned char)n;
	memcpy(answer.bytes, first, n);
	return answer;
}

void gp_pointer_answers_learn(struct gp_context *context, CUdeviceptr ptr)
{
	struct device_answers *device = &by_device[context->device->index];
	struct gp_driver_scope scope;

	if (atomic_load(&device->is_learned) || !gp_real.cuPointerGetAttribute || !gp_real.cuPointerGetAttributes ||
		!gp_context_enter(context))
		return;
	if (!gp_driver_enter(&scope, context->handle)) {
		for (unsigned i = 0; i < sizeof(attributes); i++) {
			device->of_list[attributes[i]] = learn(attributes[i], true, ptr);
			device->alone[attributes[i]] = learn(attributes[i], false, ptr);
		}
		atomic_store(&device->is_learned, true);
		gp_driver_leave(&scope);
	}
	gp_context_leave(context);
}

bool gp_pointer_answer(int device, int attribute, bool is_of_list, void *data)
{
	const struct device_answers *known = &by_device[device];
	const struct answer *answer;

	if (attribute < 0 || attribute >= ATTRIBUTES_MAX || !atomic_load(&known->is_learned))
		return false;
	answer = is_of_list ? &known->of_list[attribute] : &known->alone[attribute];
	if (data)
		memcpy(data, answer->bytes, answer->n_bytes);
	return answer->n_bytes != 0;
}
