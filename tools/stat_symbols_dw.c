/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The files that a process names are opened only if they are plain files, by root only if they are root's, and believed
 * only if they are the ones that the process has loaded: it may run for longer than they last. They are read by
 * elfutils as a debugger would; nothing in them is run, and no server is asked, which may take minutes.
 */

#include "stat_symbols.h"

#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* It is declared already. */
#define HAVE_DECL_BASENAME 1
#include <libiberty/demangle.h>

#include "stat_reply.h"

enum {
	PATH_SIZE = 4200,
	NAME_MAX_BYTES = 4096, /* of a name before it is taken apart */
	ID_MAX = 64,
	OBJECTS_MAX = 4096,
	PLACE_MAX = 320,
};

/* Each file has so much room among the addresses. */
#define SPACING (UINT64_C(1) << 36)

struct stat_symbols {
	Dwfl *dwfl;
	size_t n;
	Dwfl_Module *modules[]; /* NULL: not to be had */
};

static char *debuginfo_path;

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
	.debuginfo_path = &debuginfo_path,
};

static int open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0)
		return -1;
	/* A user's own processes run what is in them; root's eyes are worth more. */
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_uid == 0 || geteuid() != 0))
		return fd;
	close(fd);
	return -1;
}

/* As the process sees it; a process that is gone, or another's, may have seen the same. */
static int open_object(const char *path, pid_t pid)
{
	char full[PATH_SIZE];
	int fd = -1;

	if (path[0] != '/')
		return -1;
	if (pid && (size_t)snprintf(full, sizeof(full), "/proc/%d/root%s", (int)pid, path) < sizeof(full))
		fd = open_file(full);
	return fd >= 0 ? fd : open_file(path);
}

static bool is_same(Dwfl_Module *module, const char *wanted)
{
	const unsigned char *bits;
	GElf_Addr where;
	int n = dwfl_module_build_id(module, &bits, &where);
	char text[2 * ID_MAX + 1] = "";

	for (int i = 0; i < n && n <= ID_MAX; i++)
		snprintf(text + 2 * i, 3, "%02x", bits[i]);
	return strcmp(text, wanted) == 0;
}

static Dwfl_Module *report(Dwfl *dwfl, const json_t *object, size_t nth, pid_t pid)
{
	const char *path = json_string_value(json_object_get(object, "path"));
	const char *id = json_string_value(json_object_get(object, "build_id"));
	int fd = path ? open_object(path, pid) : -1;
	Dwfl_Module *module;
	GElf_Addr bias;
	char name[32];

	if (fd < 0)
		return NULL;
	snprintf(name, sizeof(name), "%zu", nth);
	module = dwfl_report_elf(dwfl, name, path, fd, (nth + 1) * SPACING, true);
	if (!module)
		close(fd);
	/* Building the identity needs the file's own headers. */
	if (!module || !dwfl_module_getelf(module, &bias) || (id && !is_same(module, id)))
		return NULL;
	return module;
}

struct stat_symbols *stat_symbols_new(const json_t *objects, pid_t pid)
{
	size_t n = json_array_size(objects) < OBJECTS_MAX ? json_array_size(objects) : OBJECTS_MAX;
	struct stat_symbols *symbols = stat_alloc(calloc(1, sizeof(*symbols) + n * sizeof(*symbols->modules)));

	unsetenv("DEBUGINFOD_URLS");
	symbols->dwfl = dwfl_begin(&callbacks);
	if (!symbols->dwfl)
		return symbols;
	dwfl_report_begin(symbols->dwfl);
	for (; symbols->n < n; symbols->n++)
		symbols->modules[symbols->n] =
			report(symbols->dwfl, json_array_get(objects, symbols->n), symbols->n, pid);
	dwfl_report_end(symbols->dwfl, NULL, NULL);
	return symbols;
}

void stat_symbols_free(struct stat_symbols *symbols)
{
	if (symbols && symbols->dwfl)
		dwfl_end(symbols->dwfl);
	free(symbols);
}

/* A line of text that grows up to its size. */
struct text {
	char *text;
	size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void append(struct text *text, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text->text + text->used, text->size - text->used, format, args);
	va_end(args);
	if (n > 0)
		text->used = text->used + (size_t)n < text->size ? text->used + (size_t)n : text->size - 1;
}

/* "NAME (FILE:LINE)" and what follows it, whole or with "..." for the end of the name, or not at all. */
static void append_frame(struct text *text, const char *name, const char *file, int line, const char *after)
{
	char *readable = strlen(name) < NAME_MAX_BYTES ? cplus_demangle(name, DMGL_NO_OPTS) : NULL;
	const char *slash = file ? strrchr(file, '/') : NULL, *shown = readable ? readable : name;
	size_t room = text->size - text->used, length = strlen(shown), rest;
	char place[PLACE_MAX] = "";

	if (file && line > 0)
		snprintf(place, sizeof(place), " (%.*s:%d)", PLACE_MAX - 32, slash ? slash + 1 : file, line);
	rest = strlen(place) + strlen(after) + sizeof("...");
	room = rest < room ? room - rest : 0;
	if (length <= room)
		append(text, "%s%s%s", shown, place, after);
	else if (room)
		append(text, "%.*s...%s%s", (int)room, shown, place, after);
	free(readable);
}

static const char *name_of(Dwarf_Die *function)
{
	static const unsigned linkage[] = {DW_AT_linkage_name, DW_AT_MIPS_linkage_name};
	Dwarf_Attribute attribute;

	for (size_t i = 0; i < sizeof(linkage) / sizeof(*linkage); i++)
		if (dwarf_attr_integrate(function, linkage[i], &attribute))
			return dwarf_formstring(&attribute);
	return dwarf_diename(function);
}

static int number_of(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attribute;
	Dwarf_Word value;

	if (!dwarf_attr(die, name, &attribute) || dwarf_formudata(&attribute, &value) || value > INT32_MAX)
		return 0;
	return (int)value;
}

static const char *call_file_of(Dwarf_Die *cu, Dwarf_Die *die)
{
	int number = number_of(die, DW_AT_call_file);
	Dwarf_Files *files;
	size_t n;

	if (!number || dwarf_getsrcfiles(cu, &files, &n) || (size_t)number >= n)
		return NULL;
	return dwarf_filesrc(files, (size_t)number, NULL, NULL);
}

static bool is_function(Dwarf_Die *die)
{
	return dwarf_tag(die) == DW_TAG_inlined_subroutine || dwarf_tag(die) == DW_TAG_subprogram;
}

/* The functions that were put into others at this address, and where; *file and *line are then those of the last. */
static void append_inlined(
	struct text *text, Dwarf_Die *cu, Dwarf_Addr address, const char **file, int *line)
{
	Dwarf_Die *scopes = NULL, *parents = NULL;
	int n = dwarf_getscopes(cu, address, &scopes), first = 0, n_parents = 0;

	while (first < n && !is_function(&scopes[first]))
		first++;
	if (first < n)
		n_parents = dwarf_getscopes_die(&scopes[first], &parents);
	for (int i = 0; i < n_parents && dwarf_tag(&parents[i]) != DW_TAG_subprogram; i++) {
		const char *name = name_of(&parents[i]);

		if (dwarf_tag(&parents[i]) != DW_TAG_inlined_subroutine)
			continue;
		append_frame(text, name ? name : "?", *file, *line, STAT_FRAMES_BETWEEN);
		*file = call_file_of(cu, &parents[i]);
		*line = number_of(&parents[i], DW_AT_call_line);
	}
	free(scopes);
	free(parents);
}

bool stat_symbols_at(struct stat_symbols *symbols, size_t object, uint64_t address, char *text, size_t size)
{
	Dwfl_Module *module = symbols && object < symbols->n ? symbols->modules[object] : NULL;
	struct text line_of = {text, size - size / 4, 0}; /* the rest is for the function that is not inlined */
	GElf_Addr bias = 0;
	Dwarf_Addr dwarf_bias = 0;
	const char *name, *file = NULL;
	Dwfl_Line *at;
	Dwarf_Die *cu;
	int line = 0;

	text[0] = '\0';
	if (!module || address >= SPACING || !dwfl_module_getelf(module, &bias))
		return false;
	address += bias;
	name = dwfl_module_addrname(module, address);
	at = dwfl_module_getsrc(module, address);
	if (at)
		file = dwfl_lineinfo(at, NULL, &line, NULL, NULL, NULL);
	cu = dwfl_module_addrdie(module, address, &dwarf_bias);
	if (cu)
		append_inlined(&line_of, cu, address - dwarf_bias, &file, &line);
	if (!name)
		return false;
	line_of.size = size;
	append_frame(&line_of, name, file, line, "");
	return true;
}
