/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * void *dlsym(void *handle, const char *name)
 *
 * Asks gp_dlsym_route (lookup.c), and where it has no answer jumps to the C library's dlsym as if the caller had
 * called that: same arguments, same stack, same return address.
 */

	.text
	.globl dlsym
	.type dlsym, %function

#if defined(__x86_64__)

dlsym:
	.cfi_startproc
	endbr64
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	subq $8, %rsp
	.cfi_adjust_cfa_offset 8
	call gp_dlsym_route
	addq $8, %rsp
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	testq %rax, %rax
	jnz 1f
	jmp *gp_real_dlsym(%rip)
1:	movq %rdx, %rax
	ret
	.cfi_endproc

#elif defined(__aarch64__)

dlsym:
	.cfi_startproc
	hint #34 /* bti c */
	stp x29, x30, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	stp x0, x1, [sp, #16]
	mov x29, sp
	bl gp_dlsym_route
	mov x2, x0
	mov x3, x1
	ldp x0, x1, [sp, #16]
	ldp x29, x30, [sp], #32
	.cfi_adjust_cfa_offset -32
	.cfi_restore x29
	.cfi_restore x30
	cbnz x2, 1f
	adrp x16, gp_real_dlsym
	ldr x16, [x16, #:lo12:gp_real_dlsym]
	br x16
1:	mov x0, x3
	ret
	.cfi_endproc

#else
#error "dlsym needs a tail jump for this architecture"
#endif

	.size dlsym, . - dlsym
	.section .note.GNU-stack, "", %progbits
