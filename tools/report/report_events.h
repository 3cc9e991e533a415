/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Packs the events for the map of a report. An event consists of
 * - its kind and the number of its memory, a byte each,
 * - the time since the event before, in nanoseconds,
 * - the address, as a folded difference from that of the event before,
 * - at the beginning of a segment or block also its size and the requested bytes.
 * Addresses and sizes are in units of 512 bytes, numbers are varints. The events are compressed and written in base64.
 * report_data.js unpacks them.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <zlib.h>

enum report_event_kind {
	REPORT_SEGMENT_NEW,
	REPORT_SEGMENT_RELEASED,
	REPORT_BLOCK_NEW,
	REPORT_BLOCK_FREED,
	REPORT_PENDING_NEW, /* a pending block: freed by the program, but the GPU may still use it */
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

/* Writes the rest. False if zlib has failed. */
bool report_events_end(struct report_events *events);
