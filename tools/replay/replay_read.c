/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "replay_read.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tools/text/stat_say.h"
#include "replay_map.h"

enum { BUFFER_SIZE = 1 << 16, FIELDS_MAX = 64, LINE_MAX_BYTES = 100, KIND_NUMBER_MAX = 1023 };

#define SPACES      " \t\r\v\f"
#define KIND_MAX    4
#define GRANULE_MIN UINT64_C(512)
#define GRANULE_MAX (UINT64_C(1) << 40)
#define BLOCK_ALIGN UINT64_C(512)
#define ADDRESS_MAX (UINT64_C(1) << 59)

/*
 * Bounds of device memory. The pool type vmm has a table entry for each granule, so the table would be large if
 * granules were small.
 */
#define DEVICE_GRANULE_MIN (UINT64_C(2) << 20)

/* The pool of a trace: a large device, and the default settings of gpupool (common/config.def). */
#define TEXT_GRANULE      (UINT64_C(2) << 20)
#define TEXT_CAPACITY     (UINT64_C(128) << 30)
#define TEXT_RESERVE      (UINT64_C(256) << 20)
#define TEXT_THREAD_CACHE (UINT64_C(64) << 20)
#define TEXT_PAGE         UINT64_C(4096)

static const char *const fields_of[] = {
#define RECORD(number, name, fields, help) [number] = fields,
#include "common/record.def"
};

struct replay_file {
	gzFile gz;
	bool is_text, is_cut, has_stacks, has_long_records;
	const char *broken; /* why reading failed; NULL: it did not */
	uint64_t offset;    /* of the next byte, uncompressed */
	uint64_t start;     /* offset of the last event */
	size_t at, length;
	struct replay_event last;
	uint64_t n_events; /* events are read up to this position; 0: up to the end of the file */
	uint64_t last_block, last_segment;
	uint32_t n_pools, n_answers;
	struct replay_map caches; /* thread caches that are open */
	struct replay_stacks stacks;
	uint8_t body[GP_RECORD_BODY_MAX]; /* of the last long record */
	size_t body_length;
	char command[GP_RECORD_COMMAND_MAX]; /* see replay_command_of() */
	size_t command_length;
	uint64_t refused;              /* position of the event that replay_refuse() was called for */
	const char *refused_why, *why; /* why: the reason for which an event is invalid, or NULL */
	unsigned char buffer[BUFFER_SIZE];
};

static void set_error(char error[static REPLAY_ERROR_MAX], const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void set_error(char error[static REPLAY_ERROR_MAX], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error, REPLAY_ERROR_MAX, format, args);
	va_end(args);
}

/* Called when no byte was read. Compressed data that stops in the middle ends the file, and is not an error. */
static void note_end(struct replay_file *file, int n)
{
	int code;

	(void)gzerror(file->gz, &code);
	file->is_cut = file->is_cut || code == Z_BUF_ERROR;
	if (n < 0 && code != Z_BUF_ERROR)
		file->broken = code == Z_ERRNO ? strerror(errno) : "its compressed data is damaged";
}

/* Returns the next byte, or -1 at the end. */
static int next_byte(struct replay_file *file)
{
	int n;

	if (file->at == file->length) {
		n = gzread(file->gz, file->buffer, BUFFER_SIZE);
		if (n <= 0)
			note_end(file, n);
		file->at = 0;
		file->length = n > 0 ? (size_t)n : 0;
	}
	if (file->at == file->length)
		return -1;
	file->offset++;
	return file->buffer[file->at++];
}

enum read_result { READ_END = -2, READ_INVALID = -1, READ_OK = 0 };

static enum read_result next_varint(struct replay_file *file, uint64_t *ret_value)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < GP_RECORD_VARINT_MAX; i++) {
		int byte = next_byte(file);

		if (byte < 0)
			return READ_END;
		value |= (uint64_t)(byte & 127) << (7 * i);
		if (byte < 128) {
			*ret_value = value;
			return READ_OK;
		}
	}
	return READ_INVALID;
}

/* Returns the letters of a record's fields, or NULL if the kind is unknown. */
static const char *letters_of(enum gp_record_kind kind)
{
	return (size_t)kind < sizeof(fields_of) / sizeof(*fields_of) ? fields_of[kind] : NULL;
}

static uint64_t decode(struct replay_file *file, char letter, uint64_t encoded)
{
	uint64_t *last = letter == 'b' ? &file->last_block : &file->last_segment;

	if (letter == 'u')
		return encoded;
	if (letter == 's')
		return gp_record_unfold(encoded);
	*last += gp_record_unfold(encoded);
	return *last;
}

/* Reads the n fields of a record. Known fields that are missing are 0; fields behind the known ones are skipped. */
static enum read_result next_fields(struct replay_file *file, struct replay_event *event, uint64_t n)
{
	const char *letters = letters_of(event->kind) ? letters_of(event->kind) : "";
	size_t n_known = strlen(letters);
	uint64_t encoded;

	for (uint64_t i = 0; i < n || i < n_known; i++) {
		encoded = 0;
		if (i < n) {
			enum read_result result = next_varint(file, &encoded);

			if (result)
				return result;
		}
		if (i < n_known)
			event->values[i] = decode(file, letters[i], encoded);
	}
	return READ_OK;
}

static enum read_result next_body(struct replay_file *file, uint64_t length)
{
	if (length > sizeof(file->body))
		return READ_INVALID;
	for (file->body_length = 0; file->body_length < length; file->body_length++) {
		int byte = next_byte(file);

		if (byte < 0)
			return READ_END;
		file->body[file->body_length] = (uint8_t)byte;
	}
	return READ_OK;
}

/* Reads a long record behind its tag. */
static enum read_result next_long_record(struct replay_file *file, struct replay_event *event)
{
	uint64_t kind, ns, length;
	enum read_result result = next_varint(file, &kind);

	if (!result && (kind < GP_RECORD_LONG || kind > KIND_NUMBER_MAX))
		result = READ_INVALID;
	if (!result)
		result = next_varint(file, &ns);
	if (!result)
		result = next_varint(file, &length);
	if (!result)
		result = next_body(file, length);
	if (result)
		return result;
	event->kind = (enum gp_record_kind)kind;
	event->ns += ns;
	file->is_cut = false;
	return READ_OK;
}

static enum read_result next_record(struct replay_file *file, struct replay_event *event)
{
	int tag = next_byte(file);
	uint64_t n, ns;
	enum read_result result = READ_OK;

	if (tag < 0)
		return READ_END;
	file->is_cut = true; /* until the record is complete */
	if (file->has_long_records && tag == GP_RECORD_LONG)
		return next_long_record(file, event);
	event->kind = (enum gp_record_kind)(tag & GP_RECORD_KIND_MASK);
	n = (unsigned)tag >> GP_RECORD_COUNT_SHIFT;
	if (n == GP_RECORD_COUNT_MORE)
		result = next_varint(file, &n);
	if (!result && n > FIELDS_MAX)
		result = READ_INVALID;
	if (!result)
		result = next_varint(file, &ns);
	if (!result)
		result = next_fields(file, event, n);
	if (result)
		return result;
	event->ns += ns;
	file->is_cut = false;
	return READ_OK;
}

/* Reads a line without its end. Returns READ_INVALID if it is too long, READ_END if there is none. */
static enum read_result next_line(struct replay_file *file, char line[static LINE_MAX_BYTES])
{
	size_t n = 0;
	int byte;

	while ((byte = next_byte(file)) >= 0 && byte != '\n') {
		line[n++] = (char)byte;
		if (n == LINE_MAX_BYTES)
			return READ_INVALID;
	}
	line[n] = '\0';
	return n || byte == '\n' ? READ_OK : READ_END;
}

/* Reads a number of a line. Returns false if there is none. */
static bool next_number(char **at, int base, uint64_t *ret_number)
{
	char *end;

	*at += strspn(*at, SPACES);
	if (!isxdigit((unsigned char)**at))
		return false;
	*ret_number = strtoull(*at, &end, base);
	if (end == *at)
		return false;
	*at = end;
	return true;
}

static enum read_result next_operation(struct replay_file *file, struct replay_event *event)
{
	char line[LINE_MAX_BYTES], *at = line, action;
	uint64_t address, bytes = 0;
	enum read_result result = next_line(file, line);

	if (result)
		return result;
	at += strspn(at, SPACES);
	action = *at ? *at++ : '\0';
	if (!next_number(&at, 16, &address) || (action == 'a' && (!next_number(&at, 10, &bytes) || !bytes)))
		return READ_INVALID;
	if ((action != 'a' && action != 'f') || at[strspn(at, SPACES)])
		return READ_INVALID;
	event->kind = action == 'a' ? GP_RECORD_ALLOC : GP_RECORD_FREE;
	memset(event->values, 0, sizeof(event->values));
	event->values[0] = address;
	event->values[1] = bytes;
	/* The calls of one thread, between which nothing is submitted: a trace does not know the GPU's work. */
	event->values[3] = GP_RECORD_CALL_BY_THREAD | (action == 'f' ? GP_RECORD_CALL_CALM : 0);
	return READ_OK;
}

static void make_text_pool(struct replay_event *event)
{
	event->kind = GP_RECORD_POOL;
	memcpy(event->values,
		(const uint64_t[GP_RECORD_FIELDS_MAX]){0, 0, 0, 3, TEXT_GRANULE, TEXT_CAPACITY, UINT64_MAX,
			TEXT_CAPACITY / 5, UINT64_MAX, TEXT_RESERVE, 0, GP_RECORD_POOL_BEHIND | GP_RECORD_POOL_SEES, 0,
			TEXT_THREAD_CACHE, TEXT_PAGE},
		sizeof(event->values));
	event->pool = 0;
}

/* True if n is within its bound; otherwise keeps the reason for the message. */
static bool is_within(struct replay_file *file, uint64_t n, uint64_t n_max, const char *why)
{
	if (n > n_max)
		file->why = why;
	return n <= n_max;
}

/* Checks the values of a POOL event that the allocator relies on. Managed memory has the capacity UINT64_MAX. */
static bool is_pool_valid(const struct replay_file *file, const uint64_t *values)
{
	uint64_t granule = values[4], capacity = values[5];
	bool is_pinned = values[2] != 0;

	return values[0] == file->n_pools && values[12] <= file->n_pools && values[3] <= KIND_MAX &&
	       granule >= (is_pinned ? GRANULE_MIN : DEVICE_GRANULE_MIN) && granule <= GRANULE_MAX &&
	       !(granule & (granule - 1)) && (capacity <= REPLAY_CAPACITY_MAX || capacity == UINT64_MAX);
}

/* Counts the driver's answers since the program's last call. */
static bool count_answers(struct replay_file *file, const struct replay_event *event)
{
	if (replay_is_call(event->kind))
		file->n_answers = 0;
	file->n_answers += replay_is_answer(event->kind);
	return is_within(file, file->n_answers, REPLAY_ANSWERS_MAX,
		REPLAY_MORE_THAN(REPLAY_ANSWERS_MAX) "answers of the driver to one call");
}

static bool track_cache(struct replay_file *file, const struct replay_event *event)
{
	struct replay_entry cache = {.key = replay_cache_key(event), .pool = event->pool};
	struct replay_entry *open = replay_map_find(&file->caches, cache.key);

	if (event->values[0])
		replay_map_put(&file->caches, cache);
	else if (open)
		replay_map_remove(&file->caches, open);
	return is_within(
		file, file->caches.n, REPLAY_CACHES_MAX, REPLAY_MORE_THAN(REPLAY_CACHES_MAX) "thread caches at a time");
}

static bool is_range_valid(uint64_t addr, uint64_t bytes)
{
	return addr % BLOCK_ALIGN == 0 && addr <= ADDRESS_MAX && bytes && bytes <= ADDRESS_MAX;
}

/* Keeps a command line that is whole. */
static bool accept_command(struct replay_file *file)
{
	const char *words;
	size_t length;

	if (!replay_command_parse(file->body, file->body_length, &words, &length))
		return false;
	if (length)
		memcpy(file->command, words, length);
	file->command_length = length;
	return true;
}

/* Updates the state of the reader by an event. False if the event is invalid here. */
static bool accept_event(struct replay_file *file, struct replay_event *event)
{
	if (!count_answers(file, event))
		return false;
	switch (event->kind) {
	case GP_RECORD_THREAD:
		event->thread = (uint32_t)event->values[0];
		return true;
	case GP_RECORD_POOL:
		if (!is_pool_valid(file, event->values))
			return false;
		return is_within(file, ++file->n_pools, REPLAY_POOLS_MAX, REPLAY_MORE_THAN(REPLAY_POOLS_MAX) "pools");
	case GP_RECORD_USE:
		event->pool = (uint32_t)event->values[0];
		return event->values[0] < file->n_pools;
	case GP_RECORD_PROCESS:
	case GP_RECORD_FREE:
	case GP_RECORD_EXPORT:
	case GP_RECORD_UNPOOLED:
	case GP_RECORD_DEFER:
	case GP_RECORD_EXIT:
		return true;
	case GP_RECORD_ALLOC:
	case GP_RECORD_RESERVE:
		return event->pool != REPLAY_NO_POOL &&
		       is_range_valid(event->values[2] ? 0 : event->values[0], event->values[1]);
	case GP_RECORD_CACHE:
		return event->pool != REPLAY_NO_POOL && track_cache(file, event);
	case GP_RECORD_OBJECT:
	case GP_RECORD_PLACE:
	case GP_RECORD_STACK:
		return replay_stacks_add(&file->stacks, event->kind, file->body, file->body_length);
	case GP_RECORD_COMMAND:
		return accept_command(file);
	default:
		return event->pool != REPLAY_NO_POOL || !letters_of(event->kind);
	}
}

/* Writes the message about an invalid event, which begins at file->start. */
static void set_damage(const struct replay_file *file, uint64_t position, char error[static REPLAY_ERROR_MAX])
{
	const char *colon = file->why ? ": " : "", *why = file->why ? file->why : "";

	if (!file->is_text)
		set_error(error, "it is damaged at byte %llu%s%s", (unsigned long long)file->start, colon, why);
	else if (file->why)
		set_error(error, "line %llu: %s", (unsigned long long)position - 1, why);
	else
		set_error(error, "line %llu is neither 'a ADDRESS BYTES' nor 'f ADDRESS'",
			(unsigned long long)position - 1);
}

int replay_next(struct replay_file *file, struct replay_event *event, char error[static REPLAY_ERROR_MAX])
{
	enum read_result result = READ_OK;

	if (file->n_events && file->last.position == file->n_events) {
		file->is_cut = true;
		return 0;
	}
	file->start = file->offset;
	*event = file->last;
	event->position++;
	if (file->is_text && event->position == 1)
		make_text_pool(event);
	else
		result = file->is_text ? next_operation(file, event) : next_record(file, event);
	if (!result && event->position == file->refused)
		file->why = file->refused_why;
	if (!result && (event->position == file->refused || !accept_event(file, event)))
		result = READ_INVALID;
	if (file->broken)
		set_error(error, "%s", file->broken);
	else if (result == READ_INVALID)
		set_damage(file, event->position, error);
	if (file->broken || result == READ_INVALID)
		return -1;
	if (result == READ_END)
		return 0;
	file->last = *event;
	return 1;
}

int replay_refuse(struct replay_file *file, const char *why, char error[static REPLAY_ERROR_MAX])
{
	file->refused = file->last.position;
	file->refused_why = file->why = why;
	set_damage(file, file->refused, error);
	return -1;
}

void replay_end_here(struct replay_file *file)
{
	replay_end_at(file, file->last.position);
}

void replay_end_at(struct replay_file *file, uint64_t position)
{
	file->n_events = position;
}

/* Skips the title of a recording, and finds out the format. Returns 0, or -1 with the reason in error. */
static int begin(struct replay_file *file, char error[static REPLAY_ERROR_MAX])
{
	static const char title[] = GP_RECORD_TITLE;
	char line[sizeof(title)] = "";
	size_t n = 0;
	int byte;

	while (n < strlen(title) && (byte = next_byte(file)) >= 0)
		line[n++] = (char)byte;
	file->has_stacks = strcmp(line, GP_RECORD_TITLE_STACKS) == 0;
	file->has_long_records = file->has_stacks || strcmp(line, GP_RECORD_TITLE_PLAIN) == 0;
	if (file->broken)
		set_error(error, "%s", file->broken);
	else if (!n)
		set_error(error, "it is empty");
	else if (n < strlen(title) && strncmp(line, title, n) == 0)
		set_error(error, "it ends before its first record");
	else if (strcmp(line, title) == 0 || file->has_long_records)
		return 0;
	else if (strncmp(line, title, strlen(title) - 2) == 0)
		set_error(error, "a newer gpupool recorded it; read it with the gpupool-stat of that version");
	else if (line[0] != 'a' && line[0] != 'f')
		set_error(error, "it is neither a recording nor a trace");
	else
		file->is_text = true;
	return file->is_text ? 0 : -1;
}

void replay_rewind(struct replay_file *file)
{
	char unused[REPLAY_ERROR_MAX];

	(void)gzrewind(file->gz);
	file->at = file->length = 0;
	file->offset = 0;
	file->is_cut = false;
	file->broken = NULL;
	file->last = (struct replay_event){.pool = REPLAY_NO_POOL};
	file->last_block = file->last_segment = 0;
	file->n_pools = file->n_answers = 0;
	file->command_length = 0;
	file->why = NULL;
	replay_map_deinit(&file->caches);
	replay_stacks_deinit(&file->stacks);
	if (!file->is_text)
		(void)begin(file, unused);
}

struct replay_file *replay_open(const char *path, char error[static REPLAY_ERROR_MAX])
{
	struct replay_file *file = stat_alloc(calloc(1, sizeof(*file)));

	errno = 0;
	file->gz = gzopen(path, "rbe");
	if (!file->gz) {
		set_error(error, "%s", strerror(errno ? errno : ENOMEM));
		free(file);
		return NULL;
	}
	if (begin(file, error)) {
		replay_close(file);
		return NULL;
	}
	replay_rewind(file);
	return file;
}

void replay_close(struct replay_file *file)
{
	(void)gzclose_r(file->gz);
	replay_map_deinit(&file->caches);
	replay_stacks_deinit(&file->stacks);
	free(file);
}

bool replay_is_text(const struct replay_file *file)
{
	return file->is_text;
}

bool replay_has_stacks(const struct replay_file *file)
{
	return file->has_stacks;
}

const char *replay_command_of(const struct replay_file *file, size_t *ret_length)
{
	*ret_length = file->command_length;
	return file->command;
}

const struct replay_stacks *replay_stacks_of(const struct replay_file *file)
{
	return &file->stacks;
}

bool replay_is_cut(const struct replay_file *file)
{
	return file->is_cut;
}
