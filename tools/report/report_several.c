/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Makes the facts of each recording as for a page of its own, without the map, and merges them: a memory of a recording
 * gets a number that no other one has, and the name of the file in front.
 */

#include "report_several.h"

#include <stdlib.h>
#include <string.h>

#include "tools/convert/convert.h"
#include "tools/text/stat_text.h"
#include "report_page.h"
#include "report_recording.h"

enum { RECORDINGS_MAX = 256, NAME_MAX_BYTES = 256, LINE_MAX_BYTES = 1024 };

static json_t *new_page_facts(size_t n)
{
	char title[64];

	snprintf(title, sizeof(title), "%zu recordings", n);
	return report_page_facts(title, "recordings",
		"memory of several processes; the time of each is that since its own recording began");
}

/* Puts the name of the recording in front of a text of an object, or of an element of a list. */
static json_t *with_name(const char *name, const json_t *text)
{
	char line[LINE_MAX_BYTES], clean[LINE_MAX_BYTES];
	const char *old = json_string_value(text);

	snprintf(line, sizeof(line), "%s: %s", name, old ? old : "");
	stat_clean(clean, sizeof(clean), line); /* it may have been cut within a character */
	return stat_alloc(json_string(clean));
}

/* Adds an offset to the number of the memory in each object of a list, and moves the objects into the page's list. */
static void move_list(json_t *page, json_t *facts, const char *key, const char *number, int offset, const char *name)
{
	json_t *list = json_object_get(page, key), *from = json_object_get(facts, key), *entry;
	size_t i;

	json_array_foreach(from, i, entry) {
		json_t *named = json_object_get(entry, name ? name : "");

		if (number)
			json_object_set_new(entry, number,
				json_integer(json_integer_value(json_object_get(entry, number)) + offset));
		if (named)
			json_object_set_new(
				entry, name, with_name(json_string_value(json_object_get(facts, "title")), named));
		json_array_append(list, entry);
	}
}

static void merge(json_t *page, json_t *facts, size_t nth)
{
	const char *title = json_string_value(json_object_get(facts, "title"));
	json_int_t duration = json_integer_value(json_object_get(facts, "duration_ns"));
	json_t *notes = json_object_get(page, "notes"), *note;
	int offset = (int)nth * HISTORY_MEMORIES_MAX;
	size_t i;

	move_list(page, facts, "memories", "number", offset, "name");
	move_list(page, facts, "figures", "number", offset, "name");
	move_list(page, facts, "refused", "memory", offset, NULL);
	move_list(page, facts, "episodes", NULL, 0, "memory");
	json_array_foreach(json_object_get(facts, "notes"), i, note)
		json_array_append_new(notes, with_name(title, note));
	json_array_append_new(json_object_get(page, "recordings"), with_name(title, json_object_get(facts, "summary")));
	if (duration > json_integer_value(json_object_get(page, "duration_ns")))
		json_object_set_new(page, "duration_ns", json_integer(duration));
	if (json_object_get(facts, "oom") && !json_object_get(page, "oom"))
		json_object_set_new(page, "oom", with_name(title, json_object_get(facts, "oom")));
}

static bool is_recording(const struct stat_source *source)
{
	if (source->kind == STAT_SOURCE_RECORDING && !source->contents.is_text)
		return true;
	stat_error("name recordings, which gpupool-run --record=FILE writes, or one file.",
		"a report of several files needs recordings, and %s is %s.", source->name,
		source->kind == STAT_SOURCE_PROCESS ? "a process"
		: source->kind == STAT_SOURCE_SAVED ? "an answer"
						    : "a trace");
	return false;
}

/* Adds one recording to the page. Sets *damaged if only a part of it could be read. */
static enum stat_exit add_recording(
	json_t *page, const struct stat_options *options, size_t nth, enum stat_exit *damaged)
{
	struct stat_options one = *options;
	char clean[NAME_MAX_BYTES];
	struct stat_source source;
	enum stat_exit result;
	json_t *facts;

	one.file = options->files[nth];
	result = stat_source_open(&source, &one);
	if (result != STAT_OK)
		return result;
	if (!is_recording(&source)) {
		stat_source_close(&source);
		return STAT_USAGE;
	}
	stat_clean(clean, sizeof(clean), source.name);
	facts = report_page_facts(clean, "recording", "");
	result = report_recording_curves(facts, &source);
	if (result == STAT_OK) {
		merge(page, facts, nth);
		if (replay_survey_end(source.name, &source.contents) != STAT_OK)
			*damaged = STAT_FAILED;
	}
	json_decref(facts);
	stat_source_close(&source);
	return result;
}

static bool check(const struct stat_options *options)
{
	if (options->n_files > RECORDINGS_MAX)
		stat_error("make several reports.", "a report has room for %d recordings.", RECORDINGS_MAX);
	else if (stat_source_chooses(options) || options->max_blocks != UINT64_MAX)
		stat_error("name one file.",
			"--at, --device, --pinned and -n are for the report of one file: that of several has no map.");
	else
		return true;
	return false;
}

/* Refuses to overwrite any of the inputs. */
static FILE *open_output(const struct stat_options *options)
{
	for (size_t i = 0; options->output && i < options->n_files; i++)
		if (!convert_check_output(options->files[i], options->output))
			return NULL;
	return convert_open(&(struct stat_source){.name = options->files[0]}, options->output, true);
}

enum stat_exit report_several(const struct stat_options *options)
{
	enum stat_exit result = STAT_OK, damaged = STAT_OK;
	struct report_events events;
	json_t *page;
	FILE *out;

	if (!check(options))
		return STAT_USAGE;
	out = open_output(options);
	if (!out)
		return STAT_FAILED;
	page = new_page_facts(options->n_files);
	for (size_t i = 0; i < options->n_files && result == STAT_OK; i++)
		result = add_recording(page, options, i, &damaged);
	if (result == STAT_OK) {
		report_page_begin(out, &events);
		result = report_page_end(out, &events, page);
	}
	result = convert_close(out, options->output, result);
	json_decref(page);
	return result == STAT_OK ? damaged : result;
}
