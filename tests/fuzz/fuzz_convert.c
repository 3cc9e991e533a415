/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * gpupool-stat convert and report, with a hostile file. Depending on its first byte, the input is the whole file, or
 * the part after the title of a recording, without or with stacks. The history must be consistent after each event of
 * the recording, the holders of memory must add up, and the size of the output must be bounded.
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

enum { HAS_TITLE = 1, HAS_STACKS = 2, N_FORMATS = 5, WRITTEN_BASE = 64 << 10, WRITTEN_FACTOR = 4096 };

static size_t n_written;
static uint64_t device_bytes, peak_bytes; /* used memory of all devices: now, and the most so far */

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
		FUZZ_CHECK(reserved[i] == h->memories[i].total_bytes, "memory %u: wrong sum of reserved bytes", i);
	}
}

/* Called for each event. A new block must lie in a segment. */
static void check_event(void *arg, const struct history *h, const struct history_event *event)
{
	struct history_segment segment = {0};

	check_segments(h);
	check_sums(h);
	device_bytes = 0;
	for (unsigned i = 0; i < HISTORY_DEVICES_MAX; i++)
		device_bytes += h->memories[i].used_bytes;
	peak_bytes = gp_max(peak_bytes, device_bytes);
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
		convert_torch, convert_chrome, convert_rmm, report_write, convert_folded};

	for (unsigned i = 0; i < N_FORMATS - !source->leaks; i++) {
		FILE *out = fopencookie(NULL, "w", (cookie_io_functions_t){.write = count_bytes});

		fuzz_require(out != NULL, "no stream");
		n_written = 0;
		(void)formats[i](out, source, i & 1 ? 7 : UINT64_MAX);
		fclose(out);
		FUZZ_CHECK(n_written <= WRITTEN_BASE + size * WRITTEN_FACTOR, "an input of %zu bytes gives %zu bytes",
			size, n_written);
	}
}

static void check_holders(const struct stat_source *source, enum replay_at at, uint64_t expected)
{
	struct replay_moment moment = {.at = at, .memory = REPLAY_ALL_DEVICES};
	struct replay_holders holders;
	char error[REPLAY_ERROR_MAX];
	uint64_t bytes = 0, blocks = 0;

	FUZZ_CHECK(replay_holders_make(&holders, source->file, &source->contents, &moment, error) == 0, "%s", error);
	for (size_t i = 0; i < holders.n; i++) {
		FUZZ_CHECK(holders.list[i].blocks <= holders.list[i].allocs, "a stack holds more than it allocated");
		bytes += holders.list[i].bytes;
		blocks += holders.list[i].blocks;
	}
	FUZZ_CHECK(bytes == holders.bytes && blocks == holders.blocks, "the holders do not add up");
	FUZZ_CHECK(bytes == expected, "the holders have %llu bytes, but the history %llu", (unsigned long long)bytes,
		(unsigned long long)expected);
	replay_holders_free(&holders);
}

static void inspect(const char *path, size_t size)
{
	struct stat_options options = {.file = path};
	struct history history = {.on_change = check_event};
	char error[REPLAY_ERROR_MAX];
	struct stat_source source;

	device_bytes = peak_bytes = 0;
	if (stat_source_open(&source, &options) != STAT_OK)
		return;
	if (source.kind == STAT_SOURCE_RECORDING) {
		FUZZ_CHECK(history_run(&history, source.file, source.contents.n_events, error) == 0, "%s", error);
		check_blocks(&history);
		history_deinit(&history);
		check_holders(&source, REPLAY_AT_PEAK, peak_bytes);
		check_holders(&source, REPLAY_AT_END, device_bytes);
		if (replay_has_stacks(source.file))
			FUZZ_CHECK(stat_source_hold(&source, &options) == STAT_OK, "the holders are refused");
		convert(&source, size);
	}
	stat_source_close(&source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, data + size};
	FILE *program_stderr = stderr, *null_file = fopen("/dev/null", "w");
	unsigned choice = fuzz_byte(&in);
	const char *title = choice & HAS_STACKS ? GP_RECORD_TITLE_STACKS : GP_RECORD_TITLE;
	int fd = memfd_create("input", MFD_CLOEXEC);
	char path[64];

	fuzz_require(fd >= 0 && null_file, "no file");
	if (choice & HAS_TITLE)
		fuzz_require(write(fd, title, strlen(title)) > 0, "no room");
	fuzz_require(write(fd, in.at, (size_t)(in.end - in.at)) == in.end - in.at, "no room");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	stderr = null_file;
	inspect(path, size);
	stderr = program_stderr;
	fclose(null_file);
	close(fd);
	return 0;
}
