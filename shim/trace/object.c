/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "object.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NT_GNU_BUILD_ID of <elf.h>, which some C libraries lack. */
enum { NOTE_BUILD_ID = 3 };

static uintptr_t align_up(uintptr_t value, uintptr_t alignment)
{
	return (value + alignment - 1) & ~(alignment - 1);
}

/* The notes are read from mapped memory. */
static void read_build_id(struct gp_object *object, const ElfW(Phdr) * header)
{
	uintptr_t at = object->base + header->p_vaddr, end = at + header->p_memsz;
	uintptr_t alignment = header->p_align == 8 ? 8 : 4;

	while (!object->build_id_bytes && end - at > sizeof(ElfW(Nhdr))) {
		const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
		uintptr_t name = at + sizeof(*note), data = align_up(name + note->n_namesz, alignment);

		at = align_up(data + note->n_descsz, alignment);
		if (at > end || at < data)
			return;
		if (note->n_type != NOTE_BUILD_ID || note->n_namesz != 4 || memcmp((const char *)name, "GNU", 4) ||
			note->n_descsz > GP_OBJECT_ID_MAX)
			continue;
		memcpy(object->build_id, (const void *)data, note->n_descsz);
		object->build_id_bytes = note->n_descsz;
	}
}

static void set_bounds(struct gp_object *object, const struct dl_phdr_info *info)
{
	object->base = info->dlpi_addr;
	object->start = UINTPTR_MAX;
	object->end = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		uintptr_t start = object->base + header->p_vaddr, end = start + header->p_memsz;

		if (header->p_type == PT_LOAD && start < object->start)
			object->start = start;
		if (header->p_type == PT_LOAD && end > object->end)
			object->end = end;
	}
}

static void set_path(struct gp_object *object, const struct dl_phdr_info *info)
{
	const char *path = info->dlpi_name ? info->dlpi_name : "";

	object->is_program = !*path;
	object->build_id_bytes = 0;
	snprintf(object->path, sizeof(object->path), "%s", path);
}

static void read_notes(struct gp_object *object, const struct dl_phdr_info *info)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		uintptr_t start = object->base + header->p_vaddr;

		if (header->p_type == PT_NOTE && start >= object->start && start + header->p_memsz <= object->end)
			read_build_id(object, header);
	}
}

/* The loader reports an empty name for the program. */
static void set_program_path(struct gp_object *object)
{
	ssize_t n;

	if (!object->is_program)
		return;
	n = readlink("/proc/self/exe", object->path, sizeof(object->path) - 1);
	object->path[n > 0 ? n : 0] = '\0';
}

struct search {
	uintptr_t address;
	bool reads_id;
	struct gp_object *found;
};

static int find_in_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;

	set_bounds(search->found, info);
	if (search->address < search->found->start || search->address >= search->found->end)
		return 0;
	set_path(search->found, info);
	if (search->reads_id)
		read_notes(search->found, info);
	return 1;
}

static bool search_objects(struct search search)
{
	if (dl_iterate_phdr(find_in_object, &search) == 0)
		return false;
	set_program_path(search.found);
	return true;
}

bool gp_object_find(uintptr_t address, struct gp_object *ret)
{
	return search_objects((struct search){.address = address, .found = ret});
}

bool gp_object_identify(uintptr_t address, struct gp_object *ret)
{
	return search_objects((struct search){.address = address, .found = ret, .reads_id = true});
}

struct list {
	struct gp_object *objects;
	size_t n, max;
};

static int add_to_list(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct list *list = arg;

	if (list->n == list->max)
		return 1;
	set_bounds(&list->objects[list->n], info);
	set_path(&list->objects[list->n], info);
	if (list->objects[list->n].start < list->objects[list->n].end)
		read_notes(&list->objects[list->n++], info);
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct gp_object *one = a, *other = b;

	return (one->start > other->start) - (one->start < other->start);
}

size_t gp_objects_list(struct gp_object *objects, size_t max)
{
	struct list list = {objects, 0, max};

	dl_iterate_phdr(add_to_list, &list);
	for (size_t i = 0; i < list.n; i++)
		set_program_path(&objects[i]);
	qsort(objects, list.n, sizeof(*objects), compare);
	return list.n;
}

const struct gp_object *gp_objects_find(const struct gp_object *list, size_t n, uintptr_t address)
{
	size_t low = 0;

	while (low < n) {
		size_t middle = low + (n - low) / 2;

		if (address < list[middle].start)
			n = middle;
		else if (address >= list[middle].end)
			low = middle + 1;
		else
			return &list[middle];
	}
	return NULL;
}

const char *gp_object_name(const struct gp_object *object)
{
	const char *slash = strrchr(object->path, '/');

	return slash ? slash + 1 : object->path;
}

bool gp_object_is_cuda(const char *name)
{
	static const char *const starts[] = {"libcudart.so", "libcuda.so"};

	for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
		if (strncmp(name, starts[i], strlen(starts[i])) == 0)
			return true;
	return false;
}

static int count_unloads(struct dl_phdr_info *info, size_t size, void *n)
{
	*(unsigned long long *)n = info->dlpi_subs;
	return 1;
}

unsigned long long gp_object_unloads(void)
{
	unsigned long long n = 0;

	dl_iterate_phdr(count_unloads, &n);
	return n;
}
