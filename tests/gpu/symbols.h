/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Finds functions of a loaded library in its symbol table. dlsym does not serve here: under the preload gpupool answers
 * it, with its hook.
 */

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parts of a library that its dynamic section refers to. A table that it lacks is NULL. */
struct symbols {
	const ElfW(Sym) * table;
	const char *names;
	const uint32_t *hash, *gnu_hash;
	const char *soname; /* the name by which others are linked to it; "" */
};

struct symbol_search {
	const char *library, *name;
	void *found;
};

/* A C library adds the library's base to these addresses, or leaves them as they are in the file. */
static inline const void *symbols_at(ElfW(Addr) base, ElfW(Addr) addr)
{
	return (const void *)(addr < base ? base + addr : addr);
}

static inline struct symbols symbols_of(ElfW(Addr) base, const ElfW(Dyn) * dynamic)
{
	struct symbols symbols = {.soname = ""};
	const ElfW(Dyn) *soname = NULL;

	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		const void *found = symbols_at(base, dynamic->d_un.d_ptr);

		if (dynamic->d_tag == DT_SYMTAB)
			symbols.table = (const ElfW(Sym) *)found;
		else if (dynamic->d_tag == DT_STRTAB)
			symbols.names = (const char *)found;
		else if (dynamic->d_tag == DT_HASH)
			symbols.hash = (const uint32_t *)found;
		else if (dynamic->d_tag == DT_GNU_HASH)
			symbols.gnu_hash = (const uint32_t *)found;
		else if (dynamic->d_tag == DT_SONAME)
			soname = dynamic;
	}
	if (soname && symbols.names)
		symbols.soname = symbols.names + soname->d_un.d_val;
	return symbols;
}

/*
 * The number of symbols, which only the hash tables tell. A System V table has it as its second word. A GNU table has
 * the first symbol of each bucket's chain, and the last hash of a chain is odd: the last chain ends with the last symbol.
 */
static inline uint32_t count_symbols(const struct symbols *symbols)
{
	const uint32_t *head = symbols->gnu_hash, *buckets, *hashes;
	uint32_t first, last = 0;

	if (symbols->hash)
		return symbols->hash[1];
	if (!head)
		return 0;
	first = head[1];
	buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	hashes = buckets + head[0];
	for (uint32_t i = 0; i < head[0]; i++)
		if (buckets[i] > last)
			last = buckets[i];
	if (last < first)
		return first;
	while (!(hashes[last - first] & 1))
		last++;
	return last + 1;
}

static inline int search_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct symbol_search *search = (struct symbol_search *)arg;
	struct symbols symbols = {.soname = ""};
	uint32_t n;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			symbols = symbols_of(
				info->dlpi_addr, (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
	if (strcmp(symbols.soname, search->library) != 0)
		return 0;
	n = symbols.table ? count_symbols(&symbols) : 0;
	for (uint32_t i = 0; i < n; i++) {
		const ElfW(Sym) *symbol = &symbols.table[i];

		if (symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
			strcmp(symbols.names + symbol->st_name, search->name) == 0)
			search->found = (void *)(info->dlpi_addr + symbol->st_value);
	}
	return 1;
}

/* library: its soname. Returns NULL if no such library is loaded, or if it does not have the function itself. */
static inline void *function_in(const char *library, const char *name)
{
	struct symbol_search search = {library, name, NULL};

	dl_iterate_phdr(search_library, &search);
	return search.found;
}

/* The same, and ends the program with status 2 if the function is not found. */
static inline void *must_find(const char *library, const char *name)
{
	void *found = function_in(library, name);

	if (!found) {
		fprintf(stderr, "error: no function %s in the symbol table of a loaded %s\n", name, library);
		exit(2);
	}
	return found;
}
