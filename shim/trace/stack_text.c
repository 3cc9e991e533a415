/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "stack_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "call_site.h"
#include "location.h"
#include "object.h"
#include "pool/base.h"

static int write_frame(char *text, size_t size, uintptr_t pc, const char *before)
{
	struct gp_location_info location;
	struct gp_object object;

	if (gp_location_is(pc)) {
		const char *slash;

		gp_location_info(pc, &location);
		slash = strrchr(location.file, '/');
		return snprintf(text, size, "%s%s:%u", before, slash ? slash + 1 : location.file, location.line);
	}
	if (gp_object_find(pc - 1, &object))
		return snprintf(text, size, "%s%s+0x%" PRIxPTR, before, gp_object_name(&object), pc - object.base);
	return snprintf(text, size, "%s0x%" PRIxPTR, before, pc);
}

const char *gp_stack_text(char text[static GP_STACK_TEXT_MAX], uint32_t site)
{
	struct gp_site_info info;
	size_t used = 0;

	gp_site_info(site, &info);
	text[0] = '\0';
	for (unsigned i = 0; i < info.n_frames; i++) {
		size_t room = GP_STACK_TEXT_MAX - used;
		int n = write_frame(text + used, room, info.frames[i], i ? " < " : "");

		if (n < 0 || (size_t)n >= room) {
			text[used] = '\0';
			break;
		}
		used += (size_t)n;
	}
	return text;
}

const char *gp_yield_text(char text[static GP_AMOUNT_TEXT_MAX], uint64_t bytes)
{
	return gp_amount_text(text, bytes < GP_ALIGN ? 0 : bytes);
}
