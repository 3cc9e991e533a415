/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "report.h"

#include <stdlib.h>
#include <string.h>

#include "tools/answer/stat_sites.h"
#include "tools/convert/convert.h"
#include "tools/text/stat_name.h"
#include "report_page.h"
#include "report_process.h"
#include "report_recording.h"
#include "report_several.h"

enum { EVENTS_DEFAULT = 1000000 };

static json_t *make_site(const struct stat_site *site)
{
	json_t *frames = stat_alloc(json_array());

	for (size_t i = site->n_frames; i--;) {
		stat_name_shorten(site->frames[i]);
		json_array_append_new(frames, json_string(site->frames[i]));
	}
	return stat_alloc(json_pack("{s:o, s:I, s:I}", "frames", frames, "bytes", (json_int_t)site->bytes, "blocks",
		(json_int_t)site->blocks));
}

static void add_sites(json_t *facts, const struct stat_source *source)
{
	json_t *list = stat_alloc(json_array());
	struct stat_sites sites;

	if (source->kind == STAT_SOURCE_RECORDING)
		json_object_set_new(facts, "held", json_string(source->held));
	stat_sites_make(&sites, source->leaks, source->pid, source->uid);
	for (size_t i = 0; i < sites.n; i++)
		json_array_append_new(list, make_site(&sites.list[i]));
	stat_sites_free(&sites);
	json_object_set_new(facts, "sites", list);
}

static json_t *new_facts(const struct stat_source *source)
{
	static const char *const kinds[] = {
		[STAT_SOURCE_RECORDING] = "recording",
		[STAT_SOURCE_SAVED] = "saved",
		[STAT_SOURCE_PROCESS] = "process",
	};
	char title[512], clean[512];

	stat_source_describe(source, title, sizeof(title));
	stat_clean(clean, sizeof(clean), title);
	return report_page_facts(clean, kinds[source->kind], "call sites that hold memory");
}

enum stat_exit report_write(FILE *out, const struct stat_source *source, uint64_t n_max)
{
	json_t *facts = new_facts(source);
	struct report_events events;
	enum stat_exit result = STAT_OK, written;

	report_page_begin(out, &events);
	if (source->kind == STAT_SOURCE_RECORDING)
		result = report_recording(&events, facts, source, n_max == UINT64_MAX ? EVENTS_DEFAULT : n_max);
	if (source->leaks)
		add_sites(facts, source);
	if (source->kind == STAT_SOURCE_PROCESS)
		result = report_process(&events, facts, source);
	written = report_page_end(out, &events, facts);
	json_decref(facts);
	return result == STAT_OK ? written : result;
}

/* Finds the memory that a recording's program held at the moment that the user has chosen. */
static enum stat_exit hold(struct stat_source *source, const struct stat_options *options)
{
	if (source->kind == STAT_SOURCE_RECORDING && replay_has_stacks(source->file))
		return stat_source_hold(source, options);
	if (!stat_source_chooses(options))
		return STAT_OK;
	stat_error("record the program with: gpupool-run --record=FILE --stacks COMMAND",
		"--at, --device and --pinned are for recordings with stacks.");
	return STAT_USAGE;
}

/* Opens the output like that of a binary format, which is refused on a terminal: a page is not readable there. */
enum stat_exit report_command(const struct stat_command *command, const struct stat_options *options)
{
	struct stat_source source;
	enum stat_exit result;
	FILE *out;

	if (options->n_files > 1)
		return report_several(options);
	result = stat_source_open(&source, options);
	if (result != STAT_OK)
		return result;
	result = hold(&source, options);
	out = result == STAT_OK ? convert_open(&source, options->output, true) : NULL;
	if (out)
		result = convert_close(out, options->output, report_write(out, &source, options->max_blocks));
	else if (result == STAT_OK)
		result = STAT_FAILED;
	if (result == STAT_OK)
		result = replay_survey_end(source.name, &source.contents);
	stat_source_close(&source);
	return result;
}
