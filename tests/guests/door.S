/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Both sides of loader.S, register by register (test_door.c).
 *
 *	void *door_call(void *handle, const char *name)
 *	    puts a distinct value into each register that a callee must preserve, and calls door_tried.
 *	    Stores in door_wanted the registers that the other side must see, and in door_kept those after the call.
 *
 *	void *door_real(void *handle, const char *name)
 *	    stands for the C library's function, and stores in door_seen the registers that it sees.
 *
 * Order of struct door: stack pointer, return address, both arguments, kept registers.
 */

	.text
	.globl door_call, door_real
	.hidden door_call, door_real
	.type door_call, %function
	.type door_real, %function

#if defined(__x86_64__)

	.macro note_kept target
	movq %rbx, \target+32(%rip)
	movq %rbp, \target+40(%rip)
	movq %r12, \target+48(%rip)
	movq %r13, \target+56(%rip)
	movq %r14, \target+64(%rip)
	movq %r15, \target+72(%rip)
	.endm

door_call:
	.cfi_startproc
	.irp register, rbx, rbp, r12, r13, r14, r15
	pushq %\register
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset \register, 0
	.endr
	subq $8, %rsp
	.cfi_adjust_cfa_offset 8
	movq $0x101, %rbx
	movq $0x102, %rbp
	movq $0x103, %r12
	movq $0x104, %r13
	movq $0x105, %r14
	movq $0x106, %r15
	leaq -8(%rsp), %rax
	movq %rax, door_wanted(%rip)
	leaq 1f(%rip), %rax
	movq %rax, door_wanted+8(%rip)
	movq %rdi, door_wanted+16(%rip)
	movq %rsi, door_wanted+24(%rip)
	note_kept door_wanted
	call *door_tried(%rip)
1:	movq %rsp, door_kept(%rip)
	note_kept door_kept
	addq $8, %rsp
	.cfi_adjust_cfa_offset -8
	.irp register, r15, r14, r13, r12, rbp, rbx
	popq %\register
	.cfi_adjust_cfa_offset -8
	.cfi_restore \register
	.endr
	ret
	.cfi_endproc

door_real:
	movq %rsp, door_seen(%rip)
	movq (%rsp), %rax
	movq %rax, door_seen+8(%rip)
	movq %rdi, door_seen+16(%rip)
	movq %rsi, door_seen+24(%rip)
	note_kept door_seen
	movq $0x7357, %rax
	ret

#elif defined(__aarch64__)

	/* Leaves x0 and x1 unchanged. */
	.macro note_kept target
	adrp x9, \target
	add x9, x9, #:lo12:\target
	stp x19, x20, [x9, #32]
	stp x21, x22, [x9, #48]
	stp x23, x24, [x9, #64]
	stp x25, x26, [x9, #80]
	stp x27, x28, [x9, #96]
	str x29, [x9, #112]
	.endm

door_call:
	.cfi_startproc
	stp x29, x30, [sp, #-96]!
	.cfi_adjust_cfa_offset 96
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	stp x19, x20, [sp, #16]
	stp x21, x22, [sp, #32]
	stp x23, x24, [sp, #48]
	stp x25, x26, [sp, #64]
	stp x27, x28, [sp, #80]
	.irp number, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28
	.cfi_rel_offset x\number, (\number - 17) * 8
	mov x\number, #0x100 + \number
	.endr
	mov x29, #0x129
	note_kept door_wanted
	mov x10, sp
	adr x11, 1f
	stp x10, x11, [x9]
	stp x0, x1, [x9, #16]
	adrp x12, door_tried
	ldr x12, [x12, #:lo12:door_tried]
	blr x12
1:	note_kept door_kept
	mov x10, sp
	str x10, [x9]
	ldp x19, x20, [sp, #16]
	ldp x21, x22, [sp, #32]
	ldp x23, x24, [sp, #48]
	ldp x25, x26, [sp, #64]
	ldp x27, x28, [sp, #80]
	ldp x29, x30, [sp], #96
	.cfi_adjust_cfa_offset -96
	.irp number, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
	.cfi_restore x\number
	.endr
	ret
	.cfi_endproc

door_real:
	note_kept door_seen
	mov x10, sp
	stp x10, x30, [x9]
	stp x0, x1, [x9, #16]
	mov x0, #0x7357
	ret

#endif

	.size door_call, door_real - door_call
	.size door_real, . - door_real
	.section .note.GNU-stack, "", %progbits
