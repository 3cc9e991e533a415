/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "libc.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/compat.h"

bool gp_libc_is_glibc(void)
{
	return dlvsym != NULL;
}

/* The dynamic symbols of an object. */
struct symbols {
	uintptr_t base;
	const ElfW(Sym) * table;
	const char *names;
	const uint32_t *hash, *gnu_hash; /* NULL: there is none */
};

/*
 * Returns the memory for an address in the dynamic section. Some C libraries leave these addresses as they are in the
 * file, others add the base.
 */
static const void *at(const struct symbols *symbols, ElfW(Addr) addr)
{
	return (const void *)(addr < symbols->base ? symbols->base + addr : addr);
}

static bool read_dynamic(struct symbols *symbols, const ElfW(Dyn) * dynamic)
{
	for (; dynamic->d_tag != DT_NULL; dynamic++) {
		const void *found = at(symbols, dynamic->d_un.d_ptr);

		if (dynamic->d_tag == DT_SYMTAB)
			symbols->table = (const ElfW(Sym) *)found;
		else if (dynamic->d_tag == DT_STRTAB)
			symbols->names = (const char *)found;
		else if (dynamic->d_tag == DT_HASH)
			symbols->hash = (const uint32_t *)found;
		else if (dynamic->d_tag == DT_GNU_HASH)
			symbols->gnu_hash = (const uint32_t *)found;
	}
	return symbols->table && symbols->names;
}

static void *function_at(const struct symbols *symbols, uint32_t index, const char *name)
{
	const ElfW(Sym) *symbol = &symbols->table[index];

	if (symbol->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
		return NULL;
	if (strcmp(symbols->names + symbol->st_name, name) != 0)
		return NULL;
	return (void *)(symbols->base + symbol->st_value);
}

/* Searches the System V hash table: buckets of chains, and a chain entry for each symbol. */
static void *find_by_hash(const struct symbols *symbols, const char *name)
{
	const uint32_t *buckets = symbols->hash + 2, *chains = buckets + symbols->hash[0];
	uint32_t hash = 0;
	void *found = NULL;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
		hash = (hash << 4) + *c;
		hash ^= hash >> 24 & 0xf0;
	}
	for (uint32_t i = buckets[(hash & 0xfffffff) % symbols->hash[0]]; i && !found; i = chains[i])
		found = function_at(symbols, i, name);
	return found;
}

/*
 * Searches the GNU hash table: a filter, buckets, and the hash of each hashed symbol. The last hash of a chain is odd.
 */
static void *find_by_gnu_hash(const struct symbols *symbols, const char *name)
{
	const uint32_t *head = symbols->gnu_hash, n_buckets = head[0], first = head[1];
	const uint32_t *buckets = head + 4 + head[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
	const uint32_t *hashes = buckets + n_buckets;
	uint32_t hash = 5381, i;
	void *found = NULL;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		hash = hash * 33 + *c;
	i = n_buckets ? buckets[hash % n_buckets] : 0;
	if (i < first || !i)
		return NULL;
	do {
		if ((hashes[i - first] | 1) == (hash | 1))
			found = function_at(symbols, i, name);
	} while (!found && !(hashes[i++ - first] & 1));
	return found;
}

struct search {
	const char *name;
	bool is_behind; /* the search has passed the library itself */
	void *found;
};

static bool is_our_own(const struct dl_phdr_info *info)
{
	uintptr_t here = (uintptr_t)gp_libc_function;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];

		if (part->p_type == PT_LOAD && here - info->dlpi_addr - part->p_vaddr < part->p_memsz)
			return true;
	}
	return false;
}

static int look_into(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct symbols symbols = {.base = info->dlpi_addr};
	struct search *search = arg;
	const ElfW(Dyn) *dynamic = NULL;

	if (!search->is_behind) {
		search->is_behind = is_our_own(info);
		return 0;
	}
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	if (!dynamic || !read_dynamic(&symbols, dynamic))
		return 0;
	if (symbols.gnu_hash)
		search->found = find_by_gnu_hash(&symbols, search->name);
	else if (symbols.hash)
		search->found = find_by_hash(&symbols, search->name);
	return search->found != NULL;
}

void *gp_libc_function(const char *name)
{
	struct search search = {.name = name};

	dl_iterate_phdr(look_into, &search);
	return search.found;
}
