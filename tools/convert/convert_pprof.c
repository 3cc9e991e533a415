/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/* Writes a heap profile in pprof's format: profile.proto, through protobuf-c and zlib. */

#include <profile.pb-c.h> /* made of profile.proto */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "tools/answer/stat_sites.h"
#include "convert_formats.h"

typedef Perftools__Profiles__Profile Profile;
typedef Perftools__Profiles__ValueType ValueType;
typedef Perftools__Profiles__Sample Sample;
typedef Perftools__Profiles__Location Location;
typedef Perftools__Profiles__Line Line;
typedef Perftools__Profiles__Function Function;

enum { N_VALUES = 4, GZIP_WINDOW = 15 + 16, GZIP_MEMORY = 8 };

/* The names of Go's heap profiles, which pprof recognises. */
static const char *const value_types[N_VALUES][2] = {
	{"alloc_objects", "count"},
	{"alloc_space", "bytes"},
	{"inuse_objects", "count"},
	{"inuse_space", "bytes"},
};

struct builder {
	Profile profile;
	json_t *texts, *locations, *functions; /* the number of each, by its contents */
};

/* Makes room for one more entry in a list of n. The list doubles when it is full, which is when n is a power of two. */
static void *grow(void *list, size_t n)
{
	return n & (n - 1) ? list : stat_alloc(reallocarray(list, n ? n * 2 : 1, sizeof(void *)));
}

static int64_t string_index(struct builder *b, const char *text, size_t length)
{
	char *copy = stat_alloc(strndup(text, length));
	json_t *known = json_object_get(b->texts, copy);
	Profile *p = &b->profile;

	if (known) {
		free(copy);
		return json_integer_value(known);
	}
	json_object_set_new(b->texts, copy, json_integer((json_int_t)p->n_string_table));
	p->string_table = grow(p->string_table, p->n_string_table);
	p->string_table[p->n_string_table] = copy;
	return (int64_t)p->n_string_table++;
}

static int64_t literal_index(struct builder *b, const char *word)
{
	return string_index(b, word, strlen(word));
}

static uint64_t function_number(struct builder *b, const struct stat_frame *frame)
{
	int64_t name = string_index(b, frame->name, (size_t)frame->name_length);
	int64_t file = string_index(b, frame->file, (size_t)frame->file_length);
	Profile *p = &b->profile;
	Function *function;
	char key[48];
	json_t *known;

	snprintf(key, sizeof(key), "%lld %lld", (long long)name, (long long)file);
	known = json_object_get(b->functions, key);
	if (known)
		return (uint64_t)json_integer_value(known);
	function = stat_alloc(malloc(sizeof(*function)));
	perftools__profiles__function__init(function);
	function->id = p->n_function + 1;
	function->name = function->system_name = name;
	function->filename = file;
	p->function = grow(p->function, p->n_function);
	p->function[p->n_function++] = function;
	json_object_set_new(b->functions, key, json_integer((json_int_t)function->id));
	return function->id;
}

static uint64_t location_number(struct builder *b, const char *text)
{
	json_t *known = json_object_get(b->locations, text);
	struct stat_frame frame = stat_frame_parse(text);
	Profile *p = &b->profile;
	Location *location;
	Line *line;

	if (known)
		return (uint64_t)json_integer_value(known);
	location = stat_alloc(malloc(sizeof(*location)));
	perftools__profiles__location__init(location);
	location->id = p->n_location + 1;
	location->line = stat_alloc(calloc(1, sizeof(*location->line)));
	location->n_line = 1;
	line = stat_alloc(malloc(sizeof(*line)));
	perftools__profiles__line__init(line);
	line->function_id = function_number(b, &frame);
	line->line = (int64_t)frame.line;
	location->line[0] = line;
	p->location = grow(p->location, p->n_location);
	p->location[p->n_location++] = location;
	json_object_set_new(b->locations, text, json_integer((json_int_t)location->id));
	return location->id;
}

static ValueType *new_type(struct builder *b, const char *const names[2])
{
	ValueType *type = stat_alloc(malloc(sizeof(*type)));

	perftools__profiles__value_type__init(type);
	type->type = literal_index(b, names[0]);
	type->unit = literal_index(b, names[1]);
	return type;
}

static void add_sample(struct builder *b, const struct stat_site *site)
{
	const uint64_t values[N_VALUES] = {site->allocs, site->alloc_bytes, site->blocks, site->bytes};
	Profile *p = &b->profile;
	Sample *sample = stat_alloc(malloc(sizeof(*sample)));

	perftools__profiles__sample__init(sample);
	sample->location_id = stat_alloc(calloc(site->n_frames, sizeof(*sample->location_id)));
	for (size_t i = 0; i < site->n_frames; i++)
		sample->location_id[sample->n_location_id++] = location_number(b, site->frames[i]);
	sample->value = stat_alloc(calloc(N_VALUES, sizeof(*sample->value)));
	for (size_t i = 0; i < N_VALUES; i++)
		sample->value[sample->n_value++] = (int64_t)values[i];
	p->sample = grow(p->sample, p->n_sample);
	p->sample[p->n_sample++] = sample;
}

static void add_head(struct builder *b, const struct stat_source *source)
{
	static const char *const period[] = {"space", "bytes"};
	Profile *p = &b->profile;
	struct timespec now;

	p->sample_type = stat_alloc(calloc(N_VALUES, sizeof(*p->sample_type)));
	for (size_t i = 0; i < N_VALUES; i++)
		p->sample_type[p->n_sample_type++] = new_type(b, value_types[i]);
	p->period_type = new_type(b, period);
	p->period = 1;
	p->default_sample_type = literal_index(b, value_types[N_VALUES - 1][0]);
	p->comment = stat_alloc(calloc(1, sizeof(*p->comment)));
	p->comment[p->n_comment++] = literal_index(b, "gpupool-stat " GPUPOOL_VERSION);
	if (source->kind == STAT_SOURCE_RECORDING)
		p->time_nanos =
			(int64_t)((source->contents.start_s * UINT64_C(1000000000) + source->held_ns) & INT64_MAX);
	if (source->kind != STAT_SOURCE_PROCESS)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	p->time_nanos = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void init(struct builder *b)
{
	*b = (struct builder){
		.texts = stat_alloc(json_object()),
		.locations = stat_alloc(json_object()),
		.functions = stat_alloc(json_object()),
	};
	perftools__profiles__profile__init(&b->profile);
	(void)literal_index(b, "");
}

/* Frees the profile; protobuf-c frees only messages that it has unpacked itself. */
static void deinit(struct builder *b)
{
	Profile *p = &b->profile;

	for (size_t i = 0; i < p->n_string_table; i++)
		free(p->string_table[i]);
	for (size_t i = 0; i < p->n_function; i++)
		free(p->function[i]);
	for (size_t i = 0; i < p->n_location; i++) {
		free(p->location[i]->line[0]);
		free(p->location[i]->line);
		free(p->location[i]);
	}
	for (size_t i = 0; i < p->n_sample; i++) {
		free(p->sample[i]->location_id);
		free(p->sample[i]->value);
		free(p->sample[i]);
	}
	for (size_t i = 0; i < p->n_sample_type; i++)
		free(p->sample_type[i]);
	free(p->sample_type);
	free(p->period_type);
	free(p->comment);
	free(p->string_table);
	free(p->function);
	free(p->location);
	free(p->sample);
	json_decref(b->texts);
	json_decref(b->locations);
	json_decref(b->functions);
}

/* Compresses the profile in one call: it has a few megabytes at most. */
static bool write_gzip(FILE *out, const uint8_t *bytes, size_t length)
{
	z_stream z = {0};
	uint8_t *packed;
	size_t room;
	bool is_good;

	if (deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY, Z_DEFAULT_STRATEGY) != Z_OK)
		return false;
	room = deflateBound(&z, length);
	packed = stat_alloc(malloc(room));
	z.next_in = (uint8_t *)(uintptr_t)bytes;
	z.avail_in = (uInt)length;
	z.next_out = packed;
	z.avail_out = (uInt)room;
	is_good = deflate(&z, Z_FINISH) == Z_STREAM_END;
	if (is_good)
		fwrite(packed, 1, z.total_out, out);
	(void)deflateEnd(&z);
	free(packed);
	return is_good;
}

enum stat_exit convert_pprof(FILE *out, const struct stat_source *source, uint64_t n_max)
{
	struct stat_sites sites;
	struct builder builder;
	uint8_t *bytes;
	size_t length;
	bool is_good;

	init(&builder);
	stat_sites_make(&sites, source->leaks, source->pid, source->uid);
	add_head(&builder, source);
	for (size_t i = 0; i < sites.n; i++)
		add_sample(&builder, &sites.list[i]);
	length = perftools__profiles__profile__get_packed_size(&builder.profile);
	bytes = stat_alloc(malloc(length));
	(void)perftools__profiles__profile__pack(&builder.profile, bytes);
	is_good = write_gzip(out, bytes, length);
	free(bytes);
	stat_sites_free(&sites);
	deinit(&builder);
	if (is_good)
		return STAT_OK;
	stat_error(NULL, "cannot compress the profile: zlib failed.");
	return STAT_FAILED;
}
