/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The kernels of the test programs, as PTX text for cuModuleLoadData. A real driver compiles them;
 * the simulated driver recognises the entries by name. Kernels marked "one thread" must be launched
 * with one thread, the others with any grid.
 *
 *   fill(u64 ptr, u64 words, u32 value)
 *   spin(u64 nanoseconds)                                     one thread
 *   spin_fill(u64 ptr, u64 words, u32 value, u64 nanoseconds) spins first, then fills
 *   count_wrong(u64 ptr, u64 words, u32 expected, u64 result_ptr)
 *                                                             adds to the u64 at result_ptr
 *   set_flag(u64 ptr, u32 value)                              one thread
 *   wait_flag(u64 ptr, u32 value)                             one thread; spins until equal. On a real
 *                                                             GPU it fails after 3 s; on the simulated GPU
 *                                                             it fails when nothing can end the wait
 *   trap(u64 nanoseconds)                                     one thread; spins first, then fails
 */

/* %rd10 = the thread's number in the grid, %rd11 = threads in the grid */
#define KERNELS_GRID_POSITION                   \
	"	mov.u32 %r10, %ctaid.x;\n"            \
	"	mov.u32 %r11, %ntid.x;\n"             \
	"	mov.u32 %r12, %tid.x;\n"              \
	"	mov.u32 %r13, %nctaid.x;\n"           \
	"	mad.wide.u32 %rd10, %r10, %r11, 0;\n" \
	"	cvt.u64.u32 %rd12, %r12;\n"           \
	"	add.u64 %rd10, %rd10, %rd12;\n"       \
	"	mul.wide.u32 %rd11, %r11, %r13;\n"

/* Spins for %rd20 nanoseconds. */
#define KERNELS_SPIN                        \
	"	mov.u64 %rd21, %globaltimer;\n"   \
	"SPIN:\n"                           \
	"	mov.u64 %rd22, %globaltimer;\n"   \
	"	sub.u64 %rd22, %rd22, %rd21;\n"   \
	"	setp.lt.u64 %p1, %rd22, %rd20;\n" \
	"	@%p1 bra SPIN;\n"

/* Stores %r1 to the %rd2 words at %rd1. */
#define KERNELS_FILL                       \
	KERNELS_GRID_POSITION              \
	"FILL:\n"                          \
	"	setp.ge.u64 %p2, %rd10, %rd2;\n" \
	"	@%p2 bra DONE;\n"                \
	"	shl.b64 %rd3, %rd10, 2;\n"       \
	"	add.u64 %rd3, %rd1, %rd3;\n"     \
	"	st.global.u32 [%rd3], %r1;\n"    \
	"	add.u64 %rd10, %rd10, %rd11;\n"  \
	"	bra FILL;\n"                     \
	"DONE:\n"                          \
	"	ret;\n"

#define KERNELS_REGISTERS      \
	"	.reg .pred %p<8>;\n" \
	"	.reg .b32 %r<32>;\n" \
	"	.reg .b64 %rd<32>;\n"

static const char kernels_ptx[] =
	".version 6.4\n"
	".target sm_52\n"
	".address_size 64\n"

	".visible .entry fill(.param .u64 ptr, .param .u64 words, .param .u32 value)\n"
	"{\n" KERNELS_REGISTERS "	ld.param.u64 %rd1, [ptr];\n"
	"	ld.param.u64 %rd2, [words];\n"
	"	ld.param.u32 %r1, [value];\n" KERNELS_FILL "}\n"

	".visible .entry spin(.param .u64 ns)\n"
	"{\n" KERNELS_REGISTERS "	ld.param.u64 %rd20, [ns];\n" KERNELS_SPIN "	ret;\n"
	"}\n"

	".visible .entry spin_fill(.param .u64 ptr, .param .u64 words, .param .u32 value,\n"
	"	.param .u64 ns)\n"
	"{\n" KERNELS_REGISTERS "	ld.param.u64 %rd1, [ptr];\n"
	"	ld.param.u64 %rd2, [words];\n"
	"	ld.param.u32 %r1, [value];\n"
	"	ld.param.u64 %rd20, [ns];\n" KERNELS_SPIN KERNELS_FILL "}\n"

	".visible .entry count_wrong(.param .u64 ptr, .param .u64 words, .param .u32 expected,\n"
	"	.param .u64 result)\n"
	"{\n" KERNELS_REGISTERS "	ld.param.u64 %rd1, [ptr];\n"
	"	ld.param.u64 %rd2, [words];\n"
	"	ld.param.u32 %r1, [expected];\n"
	"	ld.param.u64 %rd4, [result];\n"
	"	mov.u64 %rd5, 0;\n" KERNELS_GRID_POSITION "COUNT:\n"
	"	setp.ge.u64 %p2, %rd10, %rd2;\n"
	"	@%p2 bra DONE;\n"
	"	shl.b64 %rd3, %rd10, 2;\n"
	"	add.u64 %rd3, %rd1, %rd3;\n"
	"	ld.global.u32 %r2, [%rd3];\n"
	"	setp.ne.u32 %p3, %r2, %r1;\n"
	"	@%p3 add.u64 %rd5, %rd5, 1;\n"
	"	add.u64 %rd10, %rd10, %rd11;\n"
	"	bra COUNT;\n"
	"DONE:\n"
	"	red.global.add.u64 [%rd4], %rd5;\n"
	"	ret;\n"
	"}\n"

	".visible .entry set_flag(.param .u64 ptr, .param .u32 value)\n"
	"{\n" KERNELS_REGISTERS "	ld.param.u64 %rd1, [ptr];\n"
	"	ld.param.u32 %r1, [value];\n"
	"	membar.sys;\n"
	"	st.volatile.global.u32 [%rd1], %r1;\n"
	"	membar.sys;\n"
	"	ret;\n"
	"}\n"

	".visible .entry wait_flag(.param .u64 ptr, .param .u32 value)\n"
	"{\n" KERNELS_REGISTERS "	ld.param.u64 %rd1, [ptr];\n"
	"	ld.param.u32 %r1, [value];\n"
	"	mov.u64 %rd21, %globaltimer;\n"
	"WAIT:\n"
	"	ld.volatile.global.u32 %r2, [%rd1];\n"
	"	setp.eq.u32 %p1, %r2, %r1;\n"
	"	@%p1 bra DONE;\n"
	"	mov.u64 %rd22, %globaltimer;\n"
	"	sub.u64 %rd22, %rd22, %rd21;\n"
	"	setp.lt.u64 %p2, %rd22, 3000000000;\n"
	"	@%p2 bra WAIT;\n"
	"	trap;\n"
	"DONE:\n"
	"	membar.sys;\n"
	"	ret;\n"
	"}\n"

	".visible .entry trap(.param .u64 ns)\n"
	"{\n" KERNELS_REGISTERS "	ld.param.u64 %rd20, [ns];\n" KERNELS_SPIN "	trap;\n"
	"	ret;\n"
	"}\n";
