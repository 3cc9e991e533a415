/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* Reads from the headers of an ELF file whether a library can be preloaded into it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RUN_ELF_NAME_MAX = 256 };

struct run_elf {
	uint8_t class;    /* ELFCLASS32, ELFCLASS64 */
	uint8_t data;     /* byte order: ELFDATA2LSB, ELFDATA2MSB */
	uint16_t type;    /* ET_EXEC, ET_DYN; this and the fields below are read only in the machine's byte order */
	uint16_t machine; /* EM_... */
	bool has_loader;
	char loader[256]; /* PT_INTERP */
};

/* Returns 0, -ENOEXEC if the file is not an ELF file, -EINVAL if its headers are damaged, or another -errno. */
int run_elf_read(int fd, struct run_elf *ret_elf);

/*
 * True if a file that was read needs a library (DT_NEEDED) whose name has that beginning. Also false for a
 * damaged file, and for a file of another class or byte order, whose needs are not read.
 */
bool run_elf_needs(int fd, const struct run_elf *elf, const char *beginning);

/* As run_elf_needs; also returns the whole name. */
bool run_elf_find_needed(int fd, const struct run_elf *elf, const char *beginning, char name[static RUN_ELF_NAME_MAX]);

/* Reads the directories that the file names for its libraries (DT_RUNPATH, or DT_RPATH). False if it names none. */
bool run_elf_read_run_path(int fd, const struct run_elf *elf, char *text, size_t size);

/* True if both files can be loaded into one process: same class, byte order and machine. */
bool run_elf_is_compatible(const struct run_elf *a, const struct run_elf *b);

/* Returns a text such as "64-bit x86-64". */
const char *run_elf_describe(const struct run_elf *elf, char text[static 32]);
