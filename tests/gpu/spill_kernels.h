/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Kernels of spill_probe.c, as PTX text. The simulated GPU does not know them.
 *
 *   step(u64 ptr, u64 quads)      reads each 32-bit word and writes 3 times the word plus 1; 4 words at a time
 *   sum(u64 ptr, u64 quads, u64 result_ptr)
 *                                 reads, and adds the sum of all words to the u64 at result_ptr
 *   atomics(u64 ptr)              every thread makes one atomic access of each kind
 *   atomic128(u64 ptr)            every thread adds 1 to the 128-bit integer at ptr
 */

#include "tests/apps/kernels.h"

/* clang-format off */

#define SPILL_QUADS(label, body)                                                                         \
	KERNELS_GRID_POSITION                                                                            \
	label ":\n"                                                                                      \
	      "	setp.ge.u64 %p1, %rd10, %rd2;\n"                                                         \
	      "	@%p1 bra " label "_END;\n"                                                               \
	      "	shl.b64 %rd3, %rd10, 4;\n"                                                               \
	      "	add.u64 %rd3, %rd1, %rd3;\n"                                                             \
	      "	ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd3];\n" body "	add.u64 %rd10, %rd10, %rd11;\n" \
	      "	bra " label ";\n" label "_END:\n"

#define SPILL_LOOP_REGISTERS \
	KERNELS_REGISTERS "	.reg .b16 %h<8>;\n	.reg .f32 %f<4>;\n	.reg .f64 %d<4>;\n"

static const char spill_ptx[] =
	".version 6.4\n"
	".target sm_70\n"
	".address_size 64\n"

	".visible .entry step(.param .u64 ptr, .param .u64 quads)\n"
	"{\n" KERNELS_REGISTERS "	ld.param.u64 %rd1, [ptr];\n"
	"	ld.param.u64 %rd2, [quads];\n" SPILL_QUADS("STEP",
		"	mad.lo.u32 %r1, %r1, 3, 1;\n"
		"	mad.lo.u32 %r2, %r2, 3, 1;\n"
		"	mad.lo.u32 %r3, %r3, 3, 1;\n"
		"	mad.lo.u32 %r4, %r4, 3, 1;\n"
		"	st.global.v4.u32 [%rd3], {%r1, %r2, %r3, %r4};\n") "	ret;\n"
									   "}\n"

									   ".visible .entry sum(.param .u64 ptr, "
									   ".param .u64 quads, .param .u64 result)\n"
									   "{\n" KERNELS_REGISTERS
									   "	ld.param.u64 %rd1, [ptr];\n"
									   "	ld.param.u64 %rd2, [quads];\n"
									   "	ld.param.u64 %rd4, [result];\n"
									   "	mov.u64 %rd5, 0;\n" SPILL_QUADS(
										   "SUM", "	add.u32 %r1, %r1, "
											  "%r2;\n"
											  "	add.u32 %r3, %r3, "
											  "%r4;\n"
											  "	add.u32 %r1, %r1, "
											  "%r3;\n"
											  "	cvt.u64.u32 %rd6, "
											  "%r1;\n"
											  "	add.u64 %rd5, %rd5, "
											  "%rd6;\n") "	red.global.add."
												     "u64 [%rd4], "
												     "%rd5;\n"
												     "	ret;\n"
												     "}\n"

												     ".visible .entry "
												     "atomics(.param "
												     ".u64 ptr)\n"
												     "{"
												     "\n" SPILL_LOOP_REGISTERS
												     "	ld.param.u64 "
												     "%rd1, "
												     "[ptr];"
												     "\n" KERNELS_GRID_POSITION
												     "	cvt.u32.u64 "
												     "%r1, %rd10;\n"
												     "	mov.u32 %r2, "
												     "1;\n"
												     "	mov.u64 %rd2, "
												     "1;\n"
												     "	mov.f32 %f1, "
												     "0f3F800000;\n"
												     "	mov.f64 %d1, "
												     "0d3FF000000000000"
												     "0;\n"
												     "	atom.global."
												     "add.u32 %r3, "
												     "[%rd1], %r2;\n"
												     "	atom.global."
												     "add.u64 %rd3, "
												     "[%rd1+8], %rd2;\n"
												     "	atom.global."
												     "add.f32 %f2, "
												     "[%rd1+16], %f1;\n"
												     "	atom.global."
												     "add.f64 %d2, "
												     "[%rd1+24], %d1;\n"
												     "	ld.global.u32 "
												     "%r3, [%rd1+32];\n"
												     "CAS32:\n"
												     "	mov.u32 %r4, "
												     "%r3;\n"
												     "	add.u32 %r5, "
												     "%r4, 1;\n"
												     "	atom.global."
												     "cas.b32 %r3, "
												     "[%rd1+32], %r4, "
												     "%r5;\n"
												     "	setp.ne.u32 "
												     "%p1, %r3, %r4;\n"
												     "	@%p1 bra "
												     "CAS32;\n"
												     "	ld.global.u64 "
												     "%rd3, "
												     "[%rd1+40];\n"
												     "CAS64:\n"
												     "	mov.u64 %rd4, "
												     "%rd3;\n"
												     "	add.u64 %rd5, "
												     "%rd4, 1;\n"
												     "	atom.global."
												     "cas.b64 %rd3, "
												     "[%rd1+40], %rd4, "
												     "%rd5;\n"
												     "	setp.ne.u64 "
												     "%p1, %rd3, "
												     "%rd4;\n"
												     "	@%p1 bra "
												     "CAS64;\n"
												     "	ld.global.u16 "
												     "%h1, [%rd1+48];\n"
												     "CAS16:\n"
												     "	mov.u16 %h2, "
												     "%h1;\n"
												     "	add.u16 %h3, "
												     "%h2, 1;\n"
												     "	atom.global."
												     "cas.b16 %h1, "
												     "[%rd1+48], %h2, "
												     "%h3;\n"
												     "	setp.ne.u16 "
												     "%p1, %h1, %h2;\n"
												     "	@%p1 bra "
												     "CAS16;\n"
												     "	atom.global."
												     "max.u32 %r3, "
												     "[%rd1+56], %r1;\n"
												     "	atom.global."
												     "min.s32 %r3, "
												     "[%rd1+60], %r1;\n"
												     "	and.b32 %r6, "
												     "%r1, 31;\n"
												     "	shl.b32 %r6, "
												     "%r2, %r6;\n"
												     "	atom.global.or."
												     "b32 %r3, "
												     "[%rd1+64], %r6;\n"
												     "	atom.global."
												     "xor.b32 %r3, "
												     "[%rd1+68], %r2;\n"
												     "	mov.u32 %r7, "
												     "0xffffffff;\n"
												     "	atom.global."
												     "inc.u32 %r3, "
												     "[%rd1+72], %r7;\n"
												     "	not.b32 %r8, "
												     "%r6;\n"
												     "	atom.global."
												     "and.b32 %r3, "
												     "[%rd1+76], %r8;\n"
												     "	atom.global."
												     "exch.b32 %r3, "
												     "[%rd1+80], %r7;\n"
												     "	ret;\n"
												     "}\n";

static const char spill_wide_ptx[] = ".version 8.3\n"
				     ".target sm_90\n"
				     ".address_size 64\n"

				     ".visible .entry atomic128(.param .u64 ptr)\n"
				     "{\n"
				     "	.reg .pred %p<4>;\n"
				     "	.reg .b64 %rd<16>;\n"
				     "	.reg .b128 %q<8>;\n"
				     "	ld.param.u64 %rd1, [ptr];\n"
				     "	mov.u64 %rd2, 0;\n"
				     "	mov.u64 %rd3, 0;\n"
				     "AGAIN:\n"
				     "	add.cc.u64 %rd4, %rd2, 1;\n"
				     "	addc.u64 %rd5, %rd3, 0;\n"
				     "	mov.b128 %q1, {%rd2, %rd3};\n"
				     "	mov.b128 %q2, {%rd4, %rd5};\n"
				     "	atom.global.cas.b128 %q3, [%rd1], %q1, %q2;\n"
				     "	mov.b128 {%rd6, %rd7}, %q3;\n"
				     "	setp.ne.u64 %p1, %rd6, %rd2;\n"
				     "	setp.ne.or.u64 %p1, %rd7, %rd3, %p1;\n"
				     "	mov.u64 %rd2, %rd6;\n"
				     "	mov.u64 %rd3, %rd7;\n"
				     "	@%p1 bra AGAIN;\n"
				     "	ret;\n"
				     "}\n";
