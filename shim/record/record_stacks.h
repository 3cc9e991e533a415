/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * The call stacks in a recording. The number of a stack is that of its call site (trace/call_site.h). A stack is
 * written with the first allocation that has it, and before it the files and the lines of interpreted programs in it.
 * So a reader can look up functions after the process has ended.
 */

#include <stdint.h>

/*
 * Takes the stack of an allocation that the thread records next, and writes it if it is new. Returns its number; 0: the
 * recording has no stacks, or this allocation has none. addr: 0 if the allocation failed. The caller holds no lock.
 */
uint32_t gp_record_stack(uint64_t addr, uint64_t bytes);

/* Called in a forked child, which begins a new file. */
void gp_record_stacks_after_fork_child(void);
