/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* What the headers of an ELF file say about whether a library can be preloaded into it. */

#include <stdbool.h>
#include <stdint.h>

struct run_elf {
	uint8_t class;    /* ELFCLASS32, ELFCLASS64 */
	uint8_t data;     /* byte order: ELFDATA2LSB, ELFDATA2MSB */
	uint16_t type;    /* ET_EXEC, ET_DYN; this and the rest only in our own byte order */
	uint16_t machine; /* EM_... */
	bool has_loader;
	char loader[256]; /* PT_INTERP */
};

/* 0, -ENOEXEC if it is no ELF file, -EINVAL if it is a broken one, or another -errno. */
int run_elf_read(int fd, struct run_elf *ret_elf);

/*
 * Whether a file that was read needs a library (DT_NEEDED) whose name begins like that. False also where that cannot be
 * seen: in a damaged file, or one of another class or byte order.
 */
bool run_elf_needs(int fd, const struct run_elf *elf, const char *beginning);

/* Whether objects of both kinds can live in one process. */
bool run_elf_is_compatible(const struct run_elf *a, const struct run_elf *b);

/* "64-bit x86-64" */
const char *run_elf_describe(const struct run_elf *elf, char text[static 32]);
