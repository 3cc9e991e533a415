/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A test at compile time: shim/driver/hooks.def and shim/driver/cuda_abi.h agree with the toolkit's cuda.h, which
 * abi_header.py turns into abi_cuda.h. Only the last check is left for run time.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Declare all functions under the names by which they are exported. */
#define __CUDA_API_VERSION_INTERNAL
#include "abi_cuda.h"
#undef cuGetProcAddress_v2

#include "abi_asserted.h"

#define HOOKS_WITHOUT_LATER

#define IS_SAME(symbol, parameters) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), CUresult(*) parameters), #symbol);
#define HOOK(symbol, name, version, flags, parameters, arguments) IS_SAME(symbol, parameters)
#define CALL(symbol, parameters)                                  IS_SAME(symbol, parameters)
#include "shim/driver/hooks.def"

#define AT(type, member, offset) _Static_assert(offsetof(type, member) == (offset), #type "." #member);
AT(CUDA_ARRAY_DESCRIPTOR, Width, 0)
AT(CUDA_ARRAY_DESCRIPTOR, Height, 8)
AT(CUDA_ARRAY_DESCRIPTOR, Format, 16)
AT(CUDA_ARRAY_DESCRIPTOR, NumChannels, 20)
AT(CUDA_ARRAY3D_DESCRIPTOR, Width, 0)
AT(CUDA_ARRAY3D_DESCRIPTOR, Height, 8)
AT(CUDA_ARRAY3D_DESCRIPTOR, Depth, 16)
AT(CUDA_ARRAY3D_DESCRIPTOR, Format, 24)
AT(CUDA_ARRAY3D_DESCRIPTOR, NumChannels, 28)
AT(CUDA_ARRAY3D_DESCRIPTOR, Flags, 32)
/* struct gp_memory_head in shim/driver/cuda_abi.h */
AT(CUmemAllocationProp, type, 0)
AT(CUmemAllocationProp, location, 8)
AT(CUmemAllocationProp, requestedHandleTypes, 4)
AT(CUmemAllocationProp, allocFlags, 24)
AT(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable, 25)
AT(CUmemAccessDesc, location, 0)
AT(CUmemAccessDesc, flags, 8)
AT(CUmemPoolProps, allocType, 0)
AT(CUmemPoolProps, location, 8)
AT(CUmemPoolProps, maxSize, 24)
AT(CUmemPoolProps, usage, 32)
AT(CUmemLocation, type, 0)
AT(CUmemLocation, id, 4)
AT(CUgraphNodeParams, type, 0)
AT(CUgraphNodeParams, memcpy.copyCtx, 24)
AT(CUgraphNodeParams, memcpy.copyParams.srcDevice, 80)
AT(CUgraphNodeParams, memcpy.copyParams.dstDevice, 168)
AT(CUgraphNodeParams, memcpy.copyParams.Depth, 224)
AT(CUgraphNodeParams, memset.width, 40)
AT(CUgraphNodeParams, memset.ctx, 56)
_Static_assert(sizeof(CUmemPoolProps) == 88, "CUmemPoolProps");
_Static_assert(sizeof(CUgraphNodeParams) == 256, "CUgraphNodeParams");
_Static_assert(sizeof(CUipcMemHandle) == 64, "CUipcMemHandle");

/* A program asks cuGetProcAddress for the symbol's name without its version suffix. */
static const struct {
	const char *symbol, *name;
} rows[] = {
#define HOOK(symbol, name, version, flags, parameters, arguments) {#symbol, name},
#include "shim/driver/hooks.def"
};

int main(void)
{
	int failed = 0;

	printf("1..%zu\n", sizeof(rows) / sizeof(rows[0]));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *s = rows[i].symbol, *n = rows[i].name;

		while (*n && *s == *n) {
			s++;
			n++;
		}
		printf("%s %zu - %s\n", *n || (*s && *s != '_') ? "not ok" : "ok", i + 1, rows[i].symbol);
		failed += *n || (*s && *s != '_');
	}
	return failed != 0;
}
