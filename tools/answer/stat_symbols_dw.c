/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A file that a process names is opened when a frame needs it, if it is a regular ELF file on a file system that stores
 * files; root opens only files that root owns. If the process reported a build-id, the file must have the same one,
 * since it may have been replaced while the process runs. elfutils reads the files as a debugger does: nothing in them
 * is executed, and no debuginfod server is asked, which might take minutes.
 */

#include "stat_symbols_dw.h"

#include <dwarf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* basename() is declared already. */
#define HAVE_DECL_BASENAME 1
#include <libiberty/demangle.h>

#include "stat_symbols.h"

enum {
	PATH_SIZE = 4200,
	NAME_MAX_BYTES = 4096, /* of a name before it is demangled */
	ID_MAX = 64,
	OBJECTS_MAX = 4096,
	LOCATION_MAX = 320,
	FILES_MAX = 256,
};

#define FILES_BYTES (UINT64_C(3) << 30) /* of all files, which are mapped */

/* The address at which elfutils places a file, and a bound for the addresses in it. */
#define SPACING (UINT64_C(1) << 36)

/* A file, which is read once even if several objects name it. */
struct file {
	dev_t device;
	ino_t inode;
	Dwfl *dwfl;
	Dwfl_Module *module; /* NULL: it cannot be read */
};

struct object {
	bool is_known;
	Dwfl_Module *module; /* NULL: not available */
};

struct symbol_files {
	const json_t *list;
	pid_t pid;
	bool is_cut;
	uint64_t n_bytes;
	size_t n_files, n;
	struct file files[FILES_MAX];
	struct object objects[];
};

static char *debuginfo_path;

static const Dwfl_Callbacks callbacks = {
	.find_elf = dwfl_build_id_find_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
	.section_address = dwfl_offline_section_address,
	.debuginfo_path = &debuginfo_path,
};

/* Returns true on file systems that generate the content of files when they are read, some of them endlessly. */
static bool is_generated(int fd)
{
	static const unsigned long types[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC,
		SECURITYFS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, BPF_FS_MAGIC, DEVPTS_SUPER_MAGIC};
	struct statfs fs;

	if (fstatfs(fd, &fs) != 0)
		return true;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if ((unsigned long)fs.f_type == types[i])
			return true;
	return false;
}

/* Called before libelf reads the file, because libelf also unpacks archives. */
static bool is_elf(int fd)
{
	char magic[SELFMAG];

	return pread(fd, magic, sizeof(magic), 0) == sizeof(magic) && memcmp(magic, ELFMAG, SELFMAG) == 0;
}

/* Opens a file for reading. O_PATH comes first, because opening a device may have effects. */
static int open_file(const char *path, struct stat *ret_st)
{
	int path_fd = open(path, O_PATH | O_CLOEXEC), fd = -1;
	char again[32];

	if (path_fd < 0)
		return -1;
	/* A user's processes execute such files anyway; root must not parse files that another user wrote. */
	if (fstat(path_fd, ret_st) == 0 && S_ISREG(ret_st->st_mode) && (ret_st->st_uid == 0 || geteuid() != 0) &&
		!is_generated(path_fd)) {
		snprintf(again, sizeof(again), "/proc/self/fd/%d", path_fd);
		fd = open(again, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	}
	close(path_fd);
	if (fd < 0 || is_elf(fd))
		return fd;
	close(fd);
	return -1;
}

/* Opens a file as the process sees it. If the process has ended, or is not accessible, tries the same path here. */
static int open_object(const char *path, pid_t pid, struct stat *ret_st)
{
	char full[PATH_SIZE];
	int fd = -1;

	if (path[0] != '/')
		return -1;
	if (pid && (size_t)snprintf(full, sizeof(full), "/proc/%d/root%s", (int)pid, path) < sizeof(full))
		fd = open_file(full, ret_st);
	return fd >= 0 ? fd : open_file(path, ret_st);
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

/* Takes ownership of fd. */
static void read_file(struct file *file, const char *path, int fd)
{
	GElf_Addr bias;

	file->dwfl = dwfl_begin(&callbacks);
	if (!file->dwfl) {
		close(fd);
		return;
	}
	dwfl_report_begin(file->dwfl);
	file->module = dwfl_report_elf(file->dwfl, "file", path, fd, SPACING, true);
	if (!file->module)
		close(fd);
	dwfl_report_end(file->dwfl, NULL, NULL);
	/* The build-id can be read only after the headers of the file. */
	if (file->module && !dwfl_module_getelf(file->module, &bias))
		file->module = NULL;
}

static Dwfl_Module *find_file(struct symbol_files *files, const char *path)
{
	struct stat st;
	int fd = open_object(path, files->pid, &st);
	struct file *file;

	if (fd < 0)
		return NULL;
	for (file = files->files; file < files->files + files->n_files; file++) {
		if (file->device != st.st_dev || file->inode != st.st_ino)
			continue;
		close(fd);
		return file->module;
	}
	if (files->n_files == FILES_MAX || (uint64_t)st.st_size > FILES_BYTES - files->n_bytes) {
		files->is_cut = true;
		close(fd);
		return NULL;
	}
	files->n_files++;
	files->n_bytes += (uint64_t)st.st_size;
	*file = (struct file){.device = st.st_dev, .inode = st.st_ino};
	read_file(file, path, fd);
	return file->module;
}

static Dwfl_Module *find_module(struct symbol_files *files, size_t nth)
{
	const json_t *entry = json_array_get(files->list, nth);
	const char *path = json_string_value(json_object_get(entry, "path"));
	const char *id = json_string_value(json_object_get(entry, "build_id"));
	struct object *object = &files->objects[nth];

	if (object->is_known)
		return object->module;
	object->is_known = true;
	object->module = path ? find_file(files, path) : NULL;
	if (object->module && id && !is_same(object->module, id))
		object->module = NULL;
	return object->module;
}

struct symbol_files *symbol_files_new(const json_t *objects, pid_t pid)
{
	size_t n = json_array_size(objects) < OBJECTS_MAX ? json_array_size(objects) : OBJECTS_MAX;
	struct symbol_files *files = calloc(1, sizeof(*files) + n * sizeof(*files->objects));

	if (!files)
		return NULL;
	files->list = objects;
	files->pid = pid;
	files->n = n;
	return files;
}

bool symbol_files_are_cut(const struct symbol_files *files)
{
	return files->is_cut;
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

/* Appends "NAME (FILE:LINE)" and after. If there is too little room, cuts the name with "...", or appends nothing. */
static void append_frame(struct text *text, const char *name, const char *file, int line, const char *after)
{
	char *readable = strlen(name) < NAME_MAX_BYTES ? cplus_demangle(name, DMGL_NO_OPTS) : NULL;
	const char *slash = file ? strrchr(file, '/') : NULL, *shown = readable ? readable : name;
	size_t room = text->size - text->used, length = strlen(shown), rest;
	char location[LOCATION_MAX] = "";

	if (file && line > 0)
		snprintf(location, sizeof(location), " (%.*s:%d)", LOCATION_MAX - 32, slash ? slash + 1 : file, line);
	rest = strlen(location) + strlen(after) + sizeof("...");
	room = rest < room ? room - rest : 0;
	if (length <= room)
		append(text, "%s%s%s", shown, location, after);
	else if (room)
		append(text, "%.*s...%s%s", (int)room, shown, location, after);
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

/* Appends the functions that are inlined at this address. *file and *line become those of the outermost call. */
static void append_inlined(struct text *text, Dwarf_Die *cu, Dwarf_Addr address, const char **file, int *line)
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

bool symbol_files_at(struct symbol_files *files, size_t object, uint64_t address, char *text, size_t size)
{
	Dwfl_Module *module = object < files->n ? find_module(files, object) : NULL;
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
