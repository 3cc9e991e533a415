/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/* The page around the data of a report. */

#include <jansson.h>

#include "tools/text/stat_say.h"
#include "report_events.h"

/* Returns the facts of a page with these texts, without figures. source: what the page is made of. */
json_t *report_page_facts(const char *title, const char *source, const char *summary);

/* Writes the beginning of the page. The events of the map follow, if there is one. */
void report_page_begin(FILE *out, struct report_events *events);

/* Writes the rest of the page. Returns STAT_FAILED after a message if zlib has failed. */
enum stat_exit report_page_end(FILE *out, struct report_events *events, json_t *facts);
