/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Events for the map of a report, packed: for each its kind, the number of its memory, the time since the one before in
 * nanoseconds, and the way from the address before, folded; where something begins, its size and the bytes asked for.
 * Addresses and sizes are in units of 512 bytes, numbers are varints, all of it is compressed and in base64. Reading
 * them again is report_data.js.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <zlib.h>

enum report_event_kind {
	REPORT_SEGMENT_NEW,
	REPORT_SEGMENT_GONE,
	REPORT_BLOCK_NEW,
	REPORT_BLOCK_GONE,
	REPORT_PENDING_NEW, /* a block that the program has freed */
};

struct report_event {
	enum report_event_kind kind;
	unsigned memory;
	uint64_t ns, addr, bytes, requested_bytes;
};

struct report_events {
	FILE *out;
	z_stream z;
	uint64_t n, last_ns, last_addr;
	uint8_t plain[1 << 14], packed[3 << 12];
	size_t n_plain, n_packed;
};

void report_events_begin(struct report_events *events, FILE *out);
void report_events_put(struct report_events *events, const struct report_event *event);

/* False if zlib has failed. */
bool report_events_end(struct report_events *events);
