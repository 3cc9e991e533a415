/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * void *dlsym(void *handle, const char *name)
 * void *dlopen(const char *file, int mode)
 *
 * Each calls its route function (lookup.c). If the route function has no answer, it jumps to the C library's function
 * as if the caller had called that: same arguments, same stack, same return address. gp_door_dlsym and gp_door_dlopen
 * are names of the same functions that only gpupool sees (driver/driver_table.c).
 */

	.text

#if defined(__x86_64__)

	.macro ask_or_jump route, real
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	subq $8, %rsp
	.cfi_adjust_cfa_offset 8
	call \route
	addq $8, %rsp
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	testq %rax, %rax
	jnz 1f
	jmp *\real(%rip)
1:	movq %rdx, %rax
	ret
	.endm

#elif defined(__aarch64__)

	.macro ask_or_jump route, real
	hint #34 /* bti c */
	stp x29, x30, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	stp x0, x1, [sp, #16]
	mov x29, sp
	bl \route
	mov x2, x0
	mov x3, x1
	ldp x0, x1, [sp, #16]
	ldp x29, x30, [sp], #32
	.cfi_adjust_cfa_offset -32
	.cfi_restore x29
	.cfi_restore x30
	cbnz x2, 1f
	adrp x16, \real
	ldr x16, [x16, #:lo12:\real]
	br x16
1:	mov x0, x3
	ret
	.endm

#else
#error "write ask_or_jump, a call and a tail jump, for this architecture"
#endif

	.macro door name, route, real
	.globl \name, gp_door_\name
	.hidden gp_door_\name
	.type \name, %function
	.type gp_door_\name, %function
gp_door_\name:
\name:
	.cfi_startproc
	ask_or_jump \route, \real
	.cfi_endproc
	.size \name, . - \name
	.size gp_door_\name, . - \name
	.endm

	door dlsym, gp_dlsym_route, gp_real_dlsym
	door dlopen, gp_dlopen_route, gp_real_dlopen

	.section .note.GNU-stack, "", %progbits
