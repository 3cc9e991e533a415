/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A thread reads only its own frames. They do not change meanwhile, and they keep their code objects and names alive,
 * whether or not the thread holds the interpreter's lock. (Most callers of CUDA have released it.) The only functions
 * of the interpreter that are called here read a single variable, and nothing is written.
 *
 * No frames are read from a version without a row in python.def. The same holds for an interpreter without a lock
 * (free-threading) or with traced references, whose objects have another layout. A frame whose code is not a code
 * object ends the walk.
 */

#include "python.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "location.h"
#include "pool/base.h"
#include "shim/driver/dlsym.h"

enum {
	/* Offsets that are the same in all versions. */
	OBJECT_TYPE = 8,
	BYTES_COUNT = 16,
	BYTES_DATA = 32,
	TEXT_COUNT = 16,
	TEXT_STATE = 32,
	CODE_FILE = 112,
	CODE_NAME = 120,
	CODE_QUALIFIED_NAME = 128,
	CODE_LINES = 136,
	OWNED_BY_C = 3, /* owner of a frame that stands for C code between two Python frames */
	WALK_MAX = 512,
};

static const struct version {
	unsigned minor, state_frames;
	bool is_direct;
	unsigned frames_first, frame_code, frame_previous, frame_instruction, frame_owner;
	unsigned code_first_line, code_start, ascii_bytes, compact_bytes;
} versions[] = {
#define PYTHON(...) {__VA_ARGS__},
#include "python.def"
};

static _Atomic(const struct version *) version;
static const void *(*this_thread)(void);
static int (*is_finalizing)(void); /* during finalization the interpreter frees the threads' states */
static uintptr_t code_type, loop;

static void *symbol(const char *name)
{
	return gp_real_dlsym_call(RTLD_DEFAULT, name);
}

/* True if objects have the usual header: the interpreter has a lock, and was built without traced references. */
static bool has_usual_layout(void)
{
	const char *(*get_version)(void) = (const char *(*)(void))symbol("Py_GetVersion");

	return get_version && !strstr(get_version(), "free-threading") && !symbol("PyModule_Create2TraceRefs");
}

void gp_python_find(void)
{
	const unsigned long *number = symbol("Py_Version"); /* since 3.11 */
	unsigned minor = number && *number >> 24 == 3 ? (unsigned)(*number >> 16 & 0xff) : 0;

	if (!minor || sizeof(void *) != 8 || atomic_load(&version) || !has_usual_layout() || gp_location_init())
		return;
	this_thread = (const void *(*)(void))symbol("PyGILState_GetThisThreadState");
	is_finalizing = (int (*)(void))symbol(minor < 13 ? "_Py_IsFinalizing" : "Py_IsFinalizing");
	code_type = (uintptr_t)symbol("PyCode_Type");
	loop = (uintptr_t)symbol("_PyEval_EvalFrameDefault");
	for (size_t i = 0; this_thread && is_finalizing && code_type && i < sizeof(versions) / sizeof(*versions); i++)
		if (versions[i].minor == minor)
			atomic_store(&version, &versions[i]);
}

uintptr_t gp_python_loop(void)
{
	return atomic_load_explicit(&version, memory_order_acquire) ? loop : 0;
}

static uintptr_t word_at(uintptr_t address, unsigned offset)
{
	return *(const uintptr_t *)(address + offset);
}

static const uint8_t *bytes_at(uintptr_t address, unsigned offset)
{
	return (const uint8_t *)(address + offset);
}

static size_t put_utf8(char *text, uint32_t c)
{
	if (c < 0x80) {
		text[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		text[0] = (char)(0xc0 | c >> 6);
		text[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		text[0] = (char)(0xe0 | c >> 12);
		text[1] = (char)(0x80 | (c >> 6 & 0x3f));
		text[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	text[0] = (char)(0xf0 | c >> 18);
	text[1] = (char)(0x80 | (c >> 12 & 0x3f));
	text[2] = (char)(0x80 | (c >> 6 & 0x3f));
	text[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

static uint32_t get_character(const uint8_t *data, unsigned kind, size_t i)
{
	return kind == 1   ? data[i]
	       : kind == 2 ? ((const uint16_t *)(const void *)data)[i]
			   : ((const uint32_t *)(const void *)data)[i];
}

/* Converts a Python string to UTF-8. A long string is cut at its start, since the end of a path says more. */
static void read_text(const struct version *v, uintptr_t object, char text[static GP_LOCATION_TEXT_MAX])
{
	uint32_t state = object ? *(const uint32_t *)(object + TEXT_STATE) : 0;
	unsigned kind = state >> 2 & 7, is_compact = state >> 5 & 1, is_ascii = state >> 6 & 1;
	size_t count = is_compact ? word_at(object, TEXT_COUNT) : 0, used = 0;
	const uint8_t *data = bytes_at(object, is_ascii ? v->ascii_bytes : v->compact_bytes);
	size_t most = (GP_LOCATION_TEXT_MAX - 1) / (is_ascii ? 1 : 4);

	for (size_t i = count > most ? count - most : 0; i < count; i++)
		used += put_utf8(text + used, get_character(data, is_ascii ? 1 : kind, i));
	text[used] = '\0';
}

/* A reader of a line table. Each entry covers a number of instructions. */
struct lines {
	const uint8_t *data;
	size_t n, i;
};

static unsigned read_number(struct lines *lines)
{
	unsigned value = 0;

	for (unsigned shift = 0; lines->i < lines->n && shift < 32; shift += 6) {
		uint8_t byte = lines->data[lines->i++];

		value |= (unsigned)(byte & 63) << shift;
		if (!(byte & 64))
			break;
	}
	return value;
}

static int read_signed(struct lines *lines)
{
	unsigned value = read_number(lines);

	return value & 1 ? -(int)(value >> 1) : (int)(value >> 1);
}

/* Returns the difference between the line of this entry and that of the previous entry. */
static int read_step(struct lines *lines, unsigned kind)
{
	int step = 0;

	switch (kind) {
	case 15: /* no line */
		break;
	case 14: /* also has the last line and two columns, which are skipped */
		step = read_signed(lines);
		for (int i = 0; i < 3; i++)
			(void)read_number(lines);
		break;
	case 13:
		step = read_signed(lines);
		break;
	case 12:
	case 11:
	case 10:
		step = (int)kind - 10;
		lines->i += 2;
		break;
	default:
		lines->i += 1;
	}
	return step;
}

/* Returns the line of the instruction with that number, or 0 if it has none. */
static unsigned find_line(const struct version *v, uintptr_t code, uint32_t at)
{
	uintptr_t table = word_at(code, CODE_LINES);
	struct lines lines = {bytes_at(table, BYTES_DATA), word_at(table, BYTES_COUNT), 0};
	int line = *(const int *)(code + v->code_first_line);
	uint64_t end = 0;

	while (lines.i < lines.n) {
		uint8_t head = lines.data[lines.i++];
		unsigned kind = head >> 3 & 15;

		line += read_step(&lines, kind);
		end += (head & 7) + 1;
		if (at < end)
			return kind == 15 || line < 0 ? 0 : (unsigned)line;
	}
	return 0;
}

static uint32_t intern_function(const struct version *v, uintptr_t code)
{
	struct gp_function function = {{code, word_at(code, CODE_FILE), word_at(code, CODE_NAME),
		word_at(code, CODE_LINES), (uintptr_t) * (const int *)(code + v->code_first_line)}};
	uint32_t number = gp_function_find(&function);
	char file[GP_LOCATION_TEXT_MAX], name[GP_LOCATION_TEXT_MAX];

	if (gp_likely(number))
		return number;
	read_text(v, word_at(code, CODE_FILE), file);
	read_text(v, word_at(code, CODE_QUALIFIED_NAME), name);
	return gp_function_add(&function, file, name);
}

static uintptr_t location_of(const struct version *v, uintptr_t code, uintptr_t instruction)
{
	uint32_t at = (uint32_t)((instruction - (code + v->code_start)) / 2);
	uint32_t function = intern_function(v, code);
	uintptr_t location = function ? gp_location_find(function, at) : 0;

	if (gp_likely(location || !function))
		return location;
	return gp_location_add(function, at, find_line(v, code, at));
}

unsigned gp_python_take(uintptr_t *frames, unsigned max)
{
	const struct version *v = atomic_load_explicit(&version, memory_order_acquire);
	uintptr_t state = v && !is_finalizing() ? (uintptr_t)this_thread() : 0, frame;
	unsigned n = 0;

	if (!state)
		return 0;
	frame = word_at(state, v->state_frames);
	if (!v->is_direct && frame)
		frame = word_at(frame, v->frames_first);
	for (int i = 0; frame && n < max && i < WALK_MAX; i++) {
		uintptr_t code = word_at(frame, v->frame_code), location = 0;

		if (*bytes_at(frame, v->frame_owner) < OWNED_BY_C) {
			if (!code || word_at(code, OBJECT_TYPE) != code_type)
				break;
			location = location_of(v, code, word_at(frame, v->frame_instruction));
		}
		if (location)
			frames[n++] = location;
		frame = word_at(frame, v->frame_previous);
	}
	return n;
}
