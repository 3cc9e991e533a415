/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stat_cause.h"

#include <stdbool.h>
#include <string.h>

#include "common/oom_words.h"
#include "tools/ask/stat_reply.h"

static const struct {
	const char *name, *words, *pinned;
} causes[] = {
#define GP_OOM_CAUSE(id, name, words, pinned) {name, words, pinned},
#include "common/oom_cause.def"
};

const char *stat_cause_text(const json_t *oom)
{
	const char *name = stat_reply_text(oom, "cause");
	bool is_pinned = strcmp(stat_reply_text(oom, "kind"), "pinned") == 0;

	for (size_t i = 0; i < sizeof(causes) / sizeof(*causes); i++)
		if (strcmp(causes[i].name, name) == 0)
			return is_pinned ? causes[i].pinned : causes[i].words;
	return "unknown";
}
