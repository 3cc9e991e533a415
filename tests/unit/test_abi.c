/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The compiler's test: what shim/hooks.def and shim/cuda_abi.h say is what the toolkit's cuda.h says. abi_cuda.h is
 * that, by abi_header.py. Only the last check is left for the run.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* All functions under the names that they are exported by. */
#define __CUDA_API_VERSION_INTERNAL
#include "abi_cuda.h"
#undef cuGetProcAddress_v2

#include "abi_asserted.h"

#define HOOKS_WITHOUT_LATER

#define IS_SAME(symbol, parameters)                                                                                    \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), CUresult(*) parameters), #symbol);
#define HOOK(symbol, name, version, flags, parameters, arguments) IS_SAME(symbol, parameters)
#define CALL(symbol, parameters) IS_SAME(symbol, parameters)
#include "shim/hooks.def"

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
/* What shim/cuda_abi.h calls struct CUmemPlace. */
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
_Static_assert(sizeof(CUmemPoolProps) == 88, "CUmemPoolProps");
_Static_assert(sizeof(CUipcMemHandle) == 64, "CUipcMemHandle");

/* The name that a program asks cuGetProcAddress for is the symbol's without its version. */
static const struct {
	const char *symbol, *name;
} rows[] = {
#define HOOK(symbol, name, version, flags, parameters, arguments) {#symbol, name},
#include "shim/hooks.def"
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
