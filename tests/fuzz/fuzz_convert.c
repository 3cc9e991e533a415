/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat convert and report, with a hostile file. Depending on its first byte, the input is the whole file, or
 * the part after the title of a recording. The history must be consistent after each event of the recording, and the
 * size of the output must be bounded.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "tools/convert/convert_formats.h"
#include "tools/replay/replay_history.h"
#include "tools/report/report.h"

enum { HAS_TITLE = 1, N_FORMATS = 4, WRITTEN_BASE = 64 << 10, WRITTEN_FACTOR = 4096 };

static size_t n_written;

static void check_segments(const struct history *h)
{
	uint64_t n_blocks = 0, end = 0;

	for (struct history_segment s = {0}; history_next(h, &s); end = s.addr + s.bytes) {
		FUZZ_CHECK(s.bytes && s.addr + s.bytes > s.addr, "segment %llx is empty", (unsigned long long)s.addr);
		FUZZ_CHECK(s.addr >= end, "segment %llx overlaps", (unsigned long long)s.addr);
		FUZZ_CHECK(!s.is_own || s.n_blocks <= 1, "a segment for one block has %zu", (size_t)s.n_blocks);
		n_blocks += s.n_blocks;
	}
	FUZZ_CHECK(n_blocks <= h->blocks.n, "the segments have %zu blocks, but there are only %zu", (size_t)n_blocks,
		h->blocks.n);
}

static void check_sums(const struct history *h)
{
	uint64_t used[HISTORY_MEMORIES_MAX] = {0}, reserved[HISTORY_MEMORIES_MAX] = {0};
	const struct replay_entry *entry = NULL;

	while ((entry = replay_map_next(&h->blocks, entry)))
		used[h->pools[entry->pool].memory] += entry->bytes;
	while ((entry = replay_map_next(&h->handles, entry)))
		reserved[h->pools[entry->pool].memory] += entry->bytes;
	for (struct history_segment s = {0}; history_next(h, &s);)
		if (!s.is_own)
			reserved[h->pools[s.pool].memory] += s.bytes;
	for (unsigned i = 0; i < HISTORY_MEMORIES_MAX; i++) {
		FUZZ_CHECK(used[i] == h->memories[i].used_bytes, "memory %u: wrong sum of used bytes", i);
		FUZZ_CHECK(reserved[i] == h->memories[i].reserved_bytes, "memory %u: wrong sum of reserved bytes", i);
	}
}

/* Called for each event. A new block must lie in a segment. */
static void take(void *arg, const struct history *h, const struct history_event *event)
{
	struct history_segment segment = {0};

	check_segments(h);
	check_sums(h);
	if (event->kind != HISTORY_BLOCK_NEW)
		return;
	FUZZ_CHECK(history_find(h, event->addr, &segment), "a new block lies in no segment");
	FUZZ_CHECK(segment.addr + segment.bytes >= event->addr + event->bytes, "a new block exceeds its segment");
}

static void check_blocks(const struct history *h)
{
	struct history_block *blocks;
	size_t n = history_blocks(h, &blocks);

	for (size_t i = 1; i < n; i++)
		FUZZ_CHECK(blocks[i - 1].addr + blocks[i - 1].bytes <= blocks[i].addr, "blocks overlap");
	free(blocks);
}

static ssize_t count_bytes(void *cookie, const char *bytes, size_t n)
{
	n_written += n;
	return (ssize_t)n;
}

static void convert(const struct stat_source *source, size_t size)
{
	static enum stat_exit (*const formats[N_FORMATS])(FILE *, const struct stat_source *, uint64_t) = {
		convert_torch, convert_chrome, convert_rmm, report_write};

	for (unsigned i = 0; i < N_FORMATS; i++) {
		FILE *out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = count_bytes});

		fuzz_require(out != NULL, "no stream");
		n_written = 0;
		(void)formats[i](out, source, i & 1 ? 7 : UINT64_MAX);
		fclose(out);
		FUZZ_CHECK(n_written <= WRITTEN_BASE + size * WRITTEN_FACTOR, "an input of %zu bytes gives %zu bytes",
			size, n_written);
	}
}

static void inspect(const char *path, size_t size)
{
	struct stat_options options = {.file = path};
	struct history history = {.take = take};
	char error[REPLAY_ERROR_MAX];
	struct stat_source source;

	if (stat_source_open(&source, &options) != STAT_OK)
		return;
	if (source.kind == STAT_SOURCE_RECORDING) {
		FUZZ_CHECK(history_run(&history, source.file, source.contents.n_events, error) == 0, "%s", error);
		check_blocks(&history);
		history_deinit(&history);
		convert(&source, size);
	}
	stat_source_close(&source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	FILE *own_err = stderr, *nowhere = fopen("/dev/null", "w");
	bool has_title = fuzz_byte(&in) & HAS_TITLE;
	int fd = memfd_create("input", MFD_CLOEXEC);
	char path[64];

	fuzz_require(fd >= 0 && nowhere, "no file");
	if (has_title)
		fuzz_require(write(fd, GP_RECORD_TITLE, strlen(GP_RECORD_TITLE)) > 0, "no room");
	fuzz_require(write(fd, in.at, (size_t)(in.end - in.at)) == in.end - in.at, "no room");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	stderr = nowhere;
	inspect(path, size);
	stderr = own_err;
	fclose(nowhere);
	close(fd);
	return 0;
}
