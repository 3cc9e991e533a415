/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * Replays a recorded trace through a pool of each kind, with a GPU that is some operations behind, and prints the
 * memory and the driver calls of each. The trace is text on stdin with an operation on each line: `a ADDRESS BYTES` or
 * `f ADDRESS`, where an address only names a block.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_backend.h"
#include "pool/pool.h"

#define DEVICE_BYTES (128 * GP_GIB)

struct operation {
	bool is_alloc;
	uint32_t name; /* index of the block */
	uint64_t bytes;
};

struct trace {
	struct operation *operations;
	size_t n, size;
	uint32_t n_names;
	uint64_t peak_live_bytes; /* unit: GP_ALIGN */
};

/* Maps addresses of the trace to names; holds the live blocks. */
struct names {
	struct name {
		uint64_t address, bytes;
		uint32_t name;
		bool is_live;
	} * slots;
	size_t size, n; /* a power of two */
};

static const struct mode {
	const char *name;
	bool overlap, completion_only;
} modes[] = {
	{"ordered, one stream", false, false},
	{"ordered, overlap", true, false},
	{"completion only", true, true},
};

static const unsigned lags[] = {0, 64, 1024};

static void *check_memory(void *memory)
{
	if (!memory) {
		fputs("bench_traces: out of memory\n", stderr);
		exit(EXIT_FAILURE);
	}
	return memory;
}

static struct name *slot_of(const struct names *names, uint64_t address)
{
	size_t i = (address / GP_ALIGN * UINT64_C(0x9e3779b97f4a7c15)) >> 20;

	for (;; i++) {
		struct name *slot = &names->slots[i & (names->size - 1)];

		if (!slot->address || slot->address == address)
			return slot;
	}
}

static void grow_names(struct names *names)
{
	struct names larger = {.size = names->size ? names->size * 2 : 1024, .n = names->n};

	larger.slots = check_memory(calloc(larger.size, sizeof(*larger.slots)));
	for (size_t i = 0; i < names->size; i++)
		if (names->slots[i].address)
			*slot_of(&larger, names->slots[i].address) = names->slots[i];
	free(names->slots);
	*names = larger;
}

static struct name *name_of(struct names *names, uint64_t address)
{
	struct name *slot;

	if (names->n * 2 >= names->size)
		grow_names(names);
	slot = slot_of(names, address);
	names->n += !slot->address;
	slot->address = address;
	return slot;
}

static void add_operation(struct trace *trace, struct operation operation)
{
	if (trace->n == trace->size) {
		trace->size = trace->size * 2 + 1024;
		trace->operations = check_memory(realloc(trace->operations, trace->size * sizeof(*trace->operations)));
	}
	trace->operations[trace->n++] = operation;
}

/* Returns false at the first malformed line. */
static bool read_trace(struct trace *trace)
{
	struct names names = {0};
	uint64_t live = 0, address, bytes;
	char line[100], what;
	bool is_good = true;

	while (is_good && fgets(line, sizeof(line), stdin)) {
		int n = sscanf(line, " %c %" SCNx64 " %" SCNu64, &what, &address, &bytes);
		struct name *name = n >= 2 ? name_of(&names, address) : NULL;

		if (n == 3 && what == 'a' && !name->is_live) {
			name->is_live = true;
			name->name = trace->n_names++;
			name->bytes = gp_round_up(bytes, GP_ALIGN);
			live += name->bytes;
			trace->peak_live_bytes = gp_max(trace->peak_live_bytes, live);
			add_operation(trace, (struct operation){true, name->name, bytes});
		} else if (n == 2 && what == 'f') {
			/* Ignore the free of a block that was allocated before the recording began. */
			if (name->is_live)
				add_operation(trace, (struct operation){false, name->name, 0});
			live -= name->is_live ? name->bytes : 0;
			name->is_live = false;
		} else {
			is_good = false;
		}
	}
	free(names.slots);
	return is_good;
}

static void replay(struct gp_pool *pool, struct fake *fake, const struct trace *trace, unsigned lag)
{
	uint64_t *addresses = check_memory(calloc(trace->n_names + 1, sizeof(*addresses)));
	struct gp_addrmap *map = fake->hook_arg;

	for (size_t i = 0; i < trace->n; i++) {
		const struct operation *o = &trace->operations[i];
		uint64_t work = fake_submit(fake, 1);
		int r = 0;

		if (work > lag)
			fake_complete(fake, work - lag);
		if (o->is_alloc) {
			r = gp_pool_alloc(pool, o->bytes, 0, &addresses[o->name]);
		} else {
			fake_note_free(fake, addresses[o->name], 0, FAKE_FREED);
			r = gp_pool_free(map, addresses[o->name], GP_FREE_NORMAL);
		}
		if (r) {
			fprintf(stderr, "bench_traces: operation %zu returned %d\n", i, r);
			exit(EXIT_FAILURE);
		}
	}
	free(addresses);
}

static void run(const struct trace *trace, enum gp_kind kind, const struct mode *mode, unsigned lag)
{
	static struct fake fake;
	struct gp_addrmap map;
	struct gp_budget budget;
	struct gp_pool_options options = {
		.kind = kind,
		.backend = fake_backend(&fake),
		.map = &map,
		.budget = &budget,
		.capacity_bytes = DEVICE_BYTES,
		.granule = 2 * GP_MIB,
		.page_bytes = 4 * GP_KIB,
		.pending_bytes_max = DEVICE_BYTES / 5,
		.pending_count_max = kind == GP_KIND_NONE ? 10 : UINT64_MAX,
		.completion_only = mode->completion_only,
	};
	struct gp_pool *pool;
	struct gp_stats stats;

	fake_init(&fake, DEVICE_BYTES);
	fake.has_one_stream = !mode->overlap;
	fake.hook_arg = &map;
	gp_addrmap_init(&map);
	gp_budget_init(&budget, GP_NO_LIMIT);
	if (gp_pool_new(&options, &pool))
		check_memory(NULL);
	gp_pool_set_overlap(pool, mode->overlap);
	replay(pool, &fake, trace, lag);
	gp_pool_stats(pool, &stats);
	printf("%-20s %5u  %-7s %10.1f %7.3f %9" PRIu64 " %9" PRIu64 " %9" PRIu64 " %10" PRIu64 "\n", mode->name, lag,
		gp_kind_name(kind), (double)stats.peak_total_bytes / GP_MIB,
		(double)stats.peak_total_bytes / (double)trace->peak_live_bytes,
		stats.driver_allocs + stats.driver_frees, stats.hits, stats.fence_orders, stats.fence_waits);
	if (atomic_load(&fake.breach)) {
		fprintf(stderr, "bench_traces: %s\n", atomic_load(&fake.breach));
		exit(EXIT_FAILURE);
	}
	gp_pool_drop(pool);
	gp_pool_put(pool);
	gp_addrmap_deinit(&map);
	fake_deinit(&fake);
}

int main(void)
{
	struct trace trace = {0};

	if (!read_trace(&trace) || !trace.peak_live_bytes) {
		fputs("bench_traces: stdin is not a trace\n", stderr);
		free(trace.operations);
		return EXIT_FAILURE;
	}
	printf("%zu operations, peak live %.1f MiB\n", trace.n, (double)trace.peak_live_bytes / GP_MIB);
	printf("%-20s %5s  %-7s %10s %7s %9s %9s %9s %10s\n", "mode", "lag", "kind", "peak MiB", "/ live", "driver",
		"hits", "GPU waits", "host waits");
	for (size_t m = 0; m < sizeof(modes) / sizeof(*modes); m++)
		for (size_t l = 0; l < sizeof(lags) / sizeof(*lags); l++)
			for (int kind = 0; kind < GP_N_KINDS; kind++)
				run(&trace, (enum gp_kind)kind, &modes[m], lags[l]);
	free(trace.operations);
	return EXIT_SUCCESS;
}
