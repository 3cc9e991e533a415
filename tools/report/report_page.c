/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Writes the page: the first part of report.html, two blocks of data, the last part. The blocks are the packed events,
 * and all other facts as JSON, in which '<' is escaped so that no text can end the block.
 */

#include "report_page.h"

#include <report_html.h> /* made by embed.py */
#include <stdlib.h>
#include <string.h>

static void put_facts(FILE *out, const json_t *facts)
{
	char *text = stat_alloc(json_dumps(facts, JSON_COMPACT | JSON_ENSURE_ASCII));

	fputs("<script type=\"application/json\" id=\"facts\">", out);
	for (const char *part = text;; part++) {
		size_t length = strcspn(part, "<");

		fwrite(part, 1, length, out);
		part += length;
		if (!*part)
			break;
		fputs("\\u003c", out);
	}
	fputs("</script>\n", out);
	free(text);
}

json_t *report_page_facts(const char *title, const char *source, const char *summary)
{
	return stat_alloc(json_pack("{s:s, s:s, s:s, s:s, s:[], s:[], s:[], s:[], s:[], s:[], s:I}", "schema",
		"gpupool.report/1", "title", title, "source", source, "summary", summary, "notes", "memories",
		"figures", "refused", "episodes", "recordings", "duration_ns", (json_int_t)0));
}

void report_page_begin(FILE *out, struct report_events *events)
{
	fwrite(page_head, 1, sizeof(page_head), out);
	fputs("<script type=\"text/plain\" id=\"events\">", out);
	report_events_begin(events, out);
}

enum stat_exit report_page_end(FILE *out, struct report_events *events, json_t *facts)
{
	bool is_packed = report_events_end(events);

	if (!is_packed)
		stat_error(NULL, "cannot compress the report: zlib failed.");
	fputs("</script>\n", out);
	json_object_set_new(facts, "n_events", json_integer((json_int_t)events->n));
	put_facts(out, facts);
	fwrite(page_tail, 1, sizeof(page_tail), out);
	return is_packed ? STAT_OK : STAT_FAILED;
}
