/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* A file may be hostile: every read has a bounded size and a checked offset. */

#include <elf.h>
#include <endian.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "run_elf.h"

/* Bounds of program headers and of entries of the dynamic section: more than any linker makes. */
#define HEADERS_MAX 256
#define ENTRIES_MAX 4096

#if __BYTE_ORDER == __LITTLE_ENDIAN
#define NATIVE_DATA ELFDATA2LSB
#else
#define NATIVE_DATA ELFDATA2MSB
#endif

/* The fields that both ELF classes have, in the sizes of the larger class. */
struct headers {
	uint64_t offset;
	uint16_t size;
	uint16_t count;
};

struct segment {
	uint32_t type;
	uint64_t offset;
	uint64_t size;
};

static int read_at(int fd, void *buffer, size_t size, uint64_t offset)
{
	ssize_t n;

	if (offset > INT64_MAX - size)
		return -EINVAL;
	n = pread(fd, buffer, size, (off_t)offset);
	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -EINVAL;
}

static int read_header(int fd, struct run_elf *elf, struct headers *ret)
{
	union {
		Elf32_Ehdr h32;
		Elf64_Ehdr h64;
	} header;
	bool is_64 = elf->class == ELFCLASS64;
	int r = read_at(fd, &header, is_64 ? sizeof(header.h64) : sizeof(header.h32), 0);

	if (r < 0)
		return r;
	/* Type and machine have the same offsets in both classes. */
	elf->type = header.h64.e_type;
	elf->machine = header.h64.e_machine;
	if (is_64)
		*ret = (struct headers){header.h64.e_phoff, header.h64.e_phentsize, header.h64.e_phnum};
	else
		*ret = (struct headers){header.h32.e_phoff, header.h32.e_phentsize, header.h32.e_phnum};
	return 0;
}

static int read_segment(int fd, bool is_64, uint64_t offset, struct segment *ret)
{
	union {
		Elf32_Phdr p32;
		Elf64_Phdr p64;
	} header;
	int r = read_at(fd, &header, is_64 ? sizeof(header.p64) : sizeof(header.p32), offset);

	if (r < 0)
		return r;
	if (is_64)
		*ret = (struct segment){header.p64.p_type, header.p64.p_offset, header.p64.p_filesz};
	else
		*ret = (struct segment){header.p32.p_type, header.p32.p_offset, header.p32.p_filesz};
	return 0;
}

static int read_loader(int fd, const struct segment *segment, struct run_elf *elf)
{
	int r;

	if (segment->size < 2 || segment->size > sizeof(elf->loader))
		return -EINVAL;
	r = read_at(fd, elf->loader, segment->size, segment->offset);
	if (r < 0)
		return r;
	if (elf->loader[segment->size - 1] != '\0')
		return -EINVAL;
	elf->has_loader = true;
	return 0;
}

static int read_segments(int fd, const struct headers *headers, struct run_elf *elf)
{
	bool is_64 = elf->class == ELFCLASS64;

	if (headers->count > HEADERS_MAX || headers->size != (is_64 ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr)))
		return headers->count ? -EINVAL : 0;
	for (unsigned i = 0; i < headers->count; i++) {
		struct segment segment;
		int r;
		if (headers->offset > INT64_MAX)
			return -EINVAL;
		r = read_segment(fd, is_64, headers->offset + i * headers->size, &segment);
		if (r < 0)
			return r;
		if (segment.type == PT_INTERP)
			return read_loader(fd, &segment, elf);
	}
	return 0;
}

int run_elf_read(int fd, struct run_elf *ret_elf)
{
	struct run_elf elf = {.has_loader = false};
	unsigned char ident[EI_NIDENT];
	struct headers headers;
	int r = read_at(fd, ident, sizeof(ident), 0);

	if (r < 0)
		return r == -EINVAL ? -ENOEXEC : r;
	if (memcmp(ident, ELFMAG, SELFMAG))
		return -ENOEXEC;
	elf.class = ident[EI_CLASS];
	elf.data = ident[EI_DATA];
	if (elf.class != ELFCLASS32 && elf.class != ELFCLASS64)
		return -EINVAL;
	if (elf.data == NATIVE_DATA) {
		r = read_header(fd, &elf, &headers);
		if (r == 0)
			r = read_segments(fd, &headers, &elf);
		if (r < 0)
			return r;
	}
	*ret_elf = elf;
	return 0;
}

/* The dynamic section of a file, and the program headers, which translate addresses into offsets. */
struct dynamic {
	int fd;
	ElfW(Phdr) segments[HEADERS_MAX];
	unsigned n_segments;
	uint64_t offset, count; /* of the section's entries; the offset is that in the file */
};

static bool find_dynamic(int fd, struct dynamic *ret)
{
	ElfW(Ehdr) header;

	*ret = (struct dynamic){.fd = fd};
	if (read_at(fd, &header, sizeof(header), 0) < 0 || header.e_phentsize != sizeof(ret->segments[0]) ||
		header.e_phnum > HEADERS_MAX ||
		read_at(fd, ret->segments, header.e_phnum * sizeof(ret->segments[0]), header.e_phoff) < 0)
		return false;
	ret->n_segments = header.e_phnum;
	for (unsigned i = 0; i < ret->n_segments; i++) {
		const ElfW(Phdr) *segment = &ret->segments[i];

		if (segment->p_type != PT_DYNAMIC)
			continue;
		ret->offset = segment->p_offset;
		ret->count = segment->p_filesz / sizeof(ElfW(Dyn));
	}
	return ret->count && ret->count <= ENTRIES_MAX && ret->offset <= INT64_MAX / 2;
}

/* Finds the next entry with that tag, from *index on, and moves *index behind it. */
static bool next_entry(const struct dynamic *dynamic, int64_t tag, uint64_t *index, uint64_t *ret_value)
{
	for (ElfW(Dyn) entry; *index < dynamic->count; (*index)++) {
		if (read_at(dynamic->fd, &entry, sizeof(entry), dynamic->offset + *index * sizeof(entry)) < 0 ||
			entry.d_tag == DT_NULL)
			return false;
		if (entry.d_tag == tag) {
			(*index)++;
			*ret_value = entry.d_un.d_val;
			return true;
		}
	}
	return false;
}

/* Translates an address into an offset in the file. */
static bool find_offset(const struct dynamic *dynamic, uint64_t address, uint64_t *ret_offset)
{
	for (unsigned i = 0; i < dynamic->n_segments; i++) {
		const ElfW(Phdr) *segment = &dynamic->segments[i];

		if (segment->p_type != PT_LOAD || address < segment->p_vaddr ||
			address - segment->p_vaddr >= segment->p_filesz)
			continue;
		return !__builtin_add_overflow(segment->p_offset, address - segment->p_vaddr, ret_offset);
	}
	return false;
}

/* Finds the dynamic section and the offset of its strings, in a file of this program's class and byte order. */
static bool find_strings(int fd, const struct run_elf *elf, struct dynamic *ret_dynamic, uint64_t *ret_offset)
{
	uint64_t index = 0, address;

	return elf->class == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) && elf->data == NATIVE_DATA &&
	       find_dynamic(fd, ret_dynamic) && next_entry(ret_dynamic, DT_STRTAB, &index, &address) &&
	       find_offset(ret_dynamic, address, ret_offset);
}

/* Reads the string at an offset among the strings. False if it is longer than size - 1, or if the file ends in it. */
static bool read_string(int fd, uint64_t strings, uint64_t at, char *text, size_t size)
{
	uint64_t offset;
	ssize_t n;

	if (__builtin_add_overflow(strings, at, &offset) || offset > INT64_MAX - size)
		return false;
	n = pread(fd, text, size, (off_t)offset);
	return n > 0 && memchr(text, '\0', (size_t)n);
}

bool run_elf_find_needed(int fd, const struct run_elf *elf, const char *beginning, char name[static RUN_ELF_NAME_MAX])
{
	uint64_t index = 0, strings, at;
	struct dynamic dynamic;

	if (!find_strings(fd, elf, &dynamic, &strings))
		return false;
	while (next_entry(&dynamic, DT_NEEDED, &index, &at))
		if (read_string(fd, strings, at, name, RUN_ELF_NAME_MAX) &&
			strncmp(name, beginning, strlen(beginning)) == 0)
			return true;
	return false;
}

bool run_elf_needs(int fd, const struct run_elf *elf, const char *beginning)
{
	char name[RUN_ELF_NAME_MAX];

	return run_elf_find_needed(fd, elf, beginning, name);
}

bool run_elf_read_run_path(int fd, const struct run_elf *elf, char *text, size_t size)
{
	static const int64_t tags[] = {DT_RUNPATH, DT_RPATH};
	uint64_t strings, at;
	struct dynamic dynamic;

	if (!find_strings(fd, elf, &dynamic, &strings))
		return false;
	for (size_t i = 0; i < sizeof(tags) / sizeof(*tags); i++) {
		uint64_t index = 0;

		if (next_entry(&dynamic, tags[i], &index, &at))
			return read_string(fd, strings, at, text, size);
	}
	return false;
}

bool run_elf_is_compatible(const struct run_elf *a, const struct run_elf *b)
{
	return a->class == b->class && a->data == b->data && a->machine == b->machine;
}

const char *run_elf_describe(const struct run_elf *elf, char text[static 32])
{
	static const struct {
		uint16_t machine;
		const char *name;
	} machines[] = {
		{EM_386, "x86"},
		{EM_X86_64, "x86-64"},
		{EM_ARM, "arm"},
		{EM_AARCH64, "aarch64"},
		{EM_PPC64, "ppc64"},
		{EM_RISCV, "riscv"},
	};
	int bits = elf->class == ELFCLASS64 ? 64 : 32;

	snprintf(text, 32, "%d-bit machine %u", bits, elf->machine);
	if (elf->data != NATIVE_DATA)
		snprintf(text, 32, "%d-bit, other byte order", bits);
	for (size_t i = 0; i < sizeof(machines) / sizeof(*machines); i++)
		if (elf->machine == machines[i].machine)
			snprintf(text, 32, "%d-bit %s", bits, machines[i].name);
	return text;
}
