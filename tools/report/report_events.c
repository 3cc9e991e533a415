/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "report_events.h"

#include <string.h>

#include "common/record_format.h"
#include "tools/text/stat_say.h"

enum { UNIT = 512, EVENT_MAX = 2 + 4 * GP_RECORD_VARINT_MAX };

static void put_base64(struct report_events *e, const uint8_t *bytes, size_t n)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < n; i += 3) {
		uint32_t all = (uint32_t)bytes[i] << 16;
		char text[4];

		all |= i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0;
		all |= i + 2 < n ? bytes[i + 2] : 0;
		for (unsigned k = 0; k < 4; k++)
			text[k] = i + k > n ? '=' : letters[all >> (18 - 6 * k) & 63];
		fwrite(text, 1, sizeof(text), e->out);
	}
}

/* Compresses and writes in multiples of three bytes, which base64 encodes without padding. The rest is kept. */
static void drain(struct report_events *e, int flush)
{
	int code;

	e->z.next_in = e->plain;
	e->z.avail_in = (uInt)e->n_plain;
	do {
		size_t whole;

		e->z.next_out = e->packed + e->n_packed;
		e->z.avail_out = (uInt)(sizeof(e->packed) - e->n_packed);
		code = deflate(&e->z, flush);
		e->n_packed = sizeof(e->packed) - e->z.avail_out;
		whole = e->n_packed / 3 * 3;
		put_base64(e, e->packed, whole);
		memmove(e->packed, e->packed + whole, e->n_packed - whole);
		e->n_packed -= whole;
	} while (code == Z_OK && (e->z.avail_out == 0 || flush == Z_FINISH));
	e->n_plain = 0;
}

static void put_varint(struct report_events *e, uint64_t value)
{
	for (; value > 127; value >>= 7)
		e->plain[e->n_plain++] = (uint8_t)(value | 128);
	e->plain[e->n_plain++] = (uint8_t)value;
}

void report_events_begin(struct report_events *e, FILE *out)
{
	*e = (struct report_events){.out = out};
	if (deflateInit(&e->z, Z_BEST_COMPRESSION) != Z_OK)
		stat_alloc(NULL);
}

/* Events of several threads may be slightly out of order: an earlier time is packed as the last one. */
void report_events_put(struct report_events *e, const struct report_event *event)
{
	uint64_t addr = event->addr / UNIT;
	bool is_new = event->kind != REPORT_SEGMENT_RELEASED && event->kind != REPORT_BLOCK_FREED;

	if (sizeof(e->plain) - e->n_plain < EVENT_MAX)
		drain(e, Z_NO_FLUSH);
	e->plain[e->n_plain++] = (uint8_t)event->kind;
	e->plain[e->n_plain++] = (uint8_t)event->memory;
	put_varint(e, event->ns > e->last_ns ? event->ns - e->last_ns : 0);
	put_varint(e, gp_record_fold(addr - e->last_addr));
	if (is_new) {
		put_varint(e, (event->bytes + UNIT - 1) / UNIT);
		put_varint(e, event->requested_bytes);
	}
	e->last_ns = event->ns > e->last_ns ? event->ns : e->last_ns;
	e->last_addr = addr;
	e->n++;
}

bool report_events_end(struct report_events *e)
{
	drain(e, Z_FINISH);
	put_base64(e, e->packed, e->n_packed);
	return deflateEnd(&e->z) == Z_OK;
}
