/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * A random program that maps memory itself, also in wrong and unusual ways. It knows what it holds and what each piece
 * of memory contains. It prints each result, so that runs without and with the library can be compared.
 *
 *   APP_SEED=N    another program (1)
 */

#include <pthread.h>
#include <unistd.h>

#include "api/gpupool.h"
#include "app_driver.h"
#include "tests/sim/abi.h"

enum { N_RANGES = 5, N_PIECES = 5, N_MAPS = 10, GRANULES_MAX = 4, STEPS = 3000, TRIES = 40 };

#define GRANULE (2 * MIB)
#define WORDS   (4 * KIB) /* bytes at the start of memory that have its value */

struct range {
	CUdeviceptr ptr; /* 0: not reserved */
	size_t bytes;
};

struct piece {
	CUmemGenericAllocationHandle handle;
	size_t bytes;
	unsigned n_handles;
	uint32_t value; /* 0: not written yet */
};

struct map {
	CUdeviceptr ptr;
	size_t bytes;
	struct piece *piece; /* NULL: nothing is mapped */
	bool is_accessible;
};

/* Each thread has a program of its own. */
static _Thread_local struct range ranges[N_RANGES];
static _Thread_local struct piece pieces[N_PIECES];
static _Thread_local struct map maps[N_MAPS];
static _Thread_local unsigned state = 1;
static _Thread_local uint32_t n_values;
static _Thread_local uint64_t n_wrong;
static _Thread_local FILE *out;
static bool is_quiet; /* calls fail now and then: results are not printed */

static unsigned below(unsigned n)
{
	return app_random(&state) % n;
}

static bool one_in(unsigned n)
{
	return below(n) == 0;
}

static size_t some_bytes(void)
{
	return (1 + below(GRANULES_MAX)) * GRANULE;
}

static void say(const char *call, long result)
{
	if (!is_quiet)
		fprintf(out, "%s: %ld\n", call, result);
}

static bool is_mapped(const struct piece *piece)
{
	for (unsigned i = 0; i < N_MAPS; i++)
		if (maps[i].piece == piece)
			return true;
	return false;
}

static bool is_held(const struct piece *piece)
{
	return piece->n_handles || is_mapped(piece);
}

static struct map *map_at(CUdeviceptr ptr)
{
	for (unsigned i = 0; i < N_MAPS; i++)
		if (maps[i].piece && ptr - maps[i].ptr < maps[i].bytes)
			return &maps[i];
	return NULL;
}

static CUmemAllocationProp some_properties(void)
{
	CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	if (one_in(4))
		p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	if (one_in(8))
		p.allocFlags.compressionType = 1;
	if (one_in(20))
		p.location.id = 1;
	if (one_in(40))
		p.location.id = 70;
	return p;
}

static void create(void)
{
	struct piece *piece = &pieces[below(N_PIECES)];
	CUmemAllocationProp p = some_properties();
	size_t bytes = some_bytes() + (one_in(30) ? 1 : 0);
	CUmemGenericAllocationHandle handle = 0;
	CUresult r;

	if (is_held(piece))
		return;
	r = cuMemCreate(&handle, bytes, one_in(40) ? NULL : &p, one_in(40) ? 1 : 0);
	say("create", r);
	if (!r)
		*piece = (struct piece){.handle = handle, .bytes = bytes, .n_handles = 1};
}

static void reserve(void)
{
	struct range *range = &ranges[below(N_RANGES)];
	size_t bytes = some_bytes() + (one_in(30) ? 1 : 0), alignment = below(5) * GRANULE;
	CUdeviceptr ptr = 0;
	CUresult r;

	if (range->ptr)
		return;
	r = cuMemAddressReserve(&ptr, bytes, alignment, 0, one_in(40) ? 1 : 0);
	say("reserve", r);
	if (!r)
		*range = (struct range){ptr, bytes};
}

static struct range *some_range(void)
{
	struct range *range = &ranges[below(N_RANGES)];

	return range->ptr ? range : NULL;
}

static void free_addresses(void)
{
	struct range *range = some_range();
	CUresult r;

	if (!range)
		return;
	r = cuMemAddressFree(range->ptr, range->bytes - (one_in(8) ? GRANULE : 0));
	say("free the addresses", r);
	if (!r)
		range->ptr = 0;
}

static struct map *some_place_for_a_map(void)
{
	for (unsigned i = 0; i < N_MAPS; i++)
		if (!maps[i].piece)
			return &maps[i];
	return NULL;
}

static void map(void)
{
	struct map *place = some_place_for_a_map();
	struct range *range = some_range();
	struct piece *piece = &pieces[below(N_PIECES)];
	size_t bytes = piece->bytes, skip = 0;
	CUresult r;

	/* A handle that was released is no longer known to be wrong. */
	if (!range || !place || !is_held(piece))
		return;
	if (one_in(6))
		bytes = some_bytes();
	/* Behind the addresses of the range there may be others, or not. */
	if (one_in(3))
		skip = below((unsigned)(range->bytes / GRANULE)) * GRANULE;
	r = cuMemMap(range->ptr + skip, bytes, one_in(30) ? GRANULE : 0, piece->handle, one_in(30) ? 1 : 0);
	say("map", r);
	if (!r)
		*place = (struct map){range->ptr + skip, bytes, piece, false};
}

/* Returns true if the addresses are those of whole mappings. */
static bool is_whole(CUdeviceptr ptr, size_t bytes)
{
	CUdeviceptr at = ptr;

	while (at - ptr < bytes) {
		struct map *m = map_at(at);

		if (!m || m->ptr != at)
			return false;
		at += m->bytes;
	}
	return bytes && at - ptr == bytes;
}

static bool is_in_range(CUdeviceptr ptr, size_t bytes)
{
	for (unsigned i = 0; i < N_RANGES; i++)
		if (ranges[i].ptr && ptr - ranges[i].ptr < ranges[i].bytes &&
			ptr + bytes - ranges[i].ptr <= ranges[i].bytes)
			return true;
	return false;
}

/* Chooses the addresses of a mapping, or of a part of it, or of more in the same range. */
static bool some_addresses(CUdeviceptr *ptr, size_t *bytes)
{
	const struct map *m = &maps[below(N_MAPS)];
	const struct range *range = some_range();

	if (one_in(8) && range) {
		*ptr = range->ptr;
		*bytes = range->bytes;
		return true;
	}
	if (!m->piece)
		return false;
	*ptr = m->ptr;
	*bytes = m->bytes;
	if (one_in(8))
		*ptr += GRANULE;
	if (one_in(8))
		*bytes += GRANULE;
	if (one_in(8))
		*bytes -= GRANULE;
	return is_in_range(*ptr, *bytes);
}

static void allow(void)
{
	CUmemAccessDesc access[2] = {{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
		{{CU_MEM_LOCATION_TYPE_DEVICE, one_in(2) ? 1 : 40}, 0}};
	size_t bytes, n = one_in(10) ? 2 : 1;
	CUdeviceptr ptr;
	CUresult r;

	if (!some_addresses(&ptr, &bytes))
		return;
	if (one_in(6))
		access[0].flags = 0;
	if (one_in(12))
		access[0].location.id = 1;
	if (one_in(12))
		access[0].location.id = 40;
	r = cuMemSetAccess(ptr, bytes, one_in(60) ? NULL : access, one_in(60) ? 0 : n);
	say("access", r);
	for (CUdeviceptr at = ptr; !r && at - ptr < bytes;) {
		struct map *m = map_at(at);

		if (access[0].location.id == 0)
			m->is_accessible = access[0].flags != 0;
		at = m->ptr + m->bytes;
	}
}

static void unmap(void)
{
	CUdeviceptr ptr;
	size_t bytes;
	CUresult r;

	if (!some_addresses(&ptr, &bytes))
		return;
	APP_MUST(cuCtxSynchronize());
	r = cuMemUnmap(ptr, bytes);
	say("unmap", r);
	if (!r != is_whole(ptr, bytes))
		say("the unmap is wrong", r);
	for (unsigned i = 0; !r && i < N_MAPS; i++)
		if (maps[i].piece && maps[i].ptr - ptr < bytes)
			maps[i].piece = NULL;
}

static void release(void)
{
	struct piece *piece = &pieces[below(N_PIECES)];
	CUresult r;

	if (!is_held(piece))
		return;
	r = cuMemRelease(piece->handle);
	say("release", r);
	if (!r)
		piece->n_handles--;
}

static void retain(void)
{
	CUmemGenericAllocationHandle handle = 0;
	struct map *m;
	CUdeviceptr ptr;
	size_t bytes;
	CUresult r;

	if (!some_addresses(&ptr, &bytes))
		return;
	m = map_at(ptr + 5);
	r = cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(ptr + 5));
	say("retain", r);
	if (!r && m) {
		m->piece->handle = handle;
		m->piece->n_handles++;
	}
}

static void ask(void)
{
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	unsigned long long flags = 77;
	uint64_t words[2] = {0};
	CUdeviceptr ptr, base = 0;
	size_t bytes, size = 0;

	if (!some_addresses(&ptr, &bytes))
		return;
	switch (below(4)) {
	case 0:
		say("get the access", cuMemGetAccess(&flags, &location, ptr));
		say("flags", (long)flags);
		break;
	case 1:
		say("range", cuMemGetAddressRange_v2(&base, &size, ptr));
		say("bytes", (long)size);
		break;
	case 2:
		say("attribute", cuPointerGetAttribute(words, CU_POINTER_ATTRIBUTE_RANGE_SIZE, ptr));
		say("size", (long)words[0]);
		break;
	default:
		say("attribute", cuPointerGetAttribute(words, CU_POINTER_ATTRIBUTE_MAPPED, ptr));
		say("mapped", (long)words[0]);
	}
}

static void ask_handle(void)
{
	const struct piece *piece = &pieces[below(N_PIECES)];
	CUmemAllocationProp p;
	CUresult r;

	if (!is_held(piece))
		return;
	r = cuMemGetAllocationPropertiesFromHandle(&p, piece->handle);
	say("properties", r);
	say("types", r ? 0 : p.requestedHandleTypes);
}

static void export(void)
{
	const struct piece *piece = &pieces[below(N_PIECES)];
	CUresult r;
	int fd = -1;

	if (!is_held(piece) || !one_in(4))
		return;
	r = cuMemExportToShareableHandle(&fd, piece->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	say("export", r);
	if (!r)
		close(fd);
}

static void check(const struct map *m)
{
	if (m->piece->value)
		n_wrong += app_count_wrong(NULL, m->ptr, WORDS, m->piece->value);
}

static void use(void)
{
	struct map *m = &maps[below(N_MAPS)];

	if (!m->piece || !m->is_accessible)
		return;
	check(m);
	if (one_in(2)) {
		m->piece->value = ++n_values;
		app_fill(NULL, m->ptr, WORDS, m->piece->value);
	}
}

/* An array as XLA makes and destroys it, in a range and a piece that are free. */
static void whole_array(void)
{
	const CUmemAllocationProp p = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	struct range *range = &ranges[below(N_RANGES)];
	struct piece *piece = &pieces[below(N_PIECES)];
	struct map *place = some_place_for_a_map();
	size_t bytes = some_bytes();
	CUresult r;

	if (range->ptr || is_held(piece) || !place)
		return;
	if (cuMemCreate(&piece->handle, bytes, &p, 0))
		return;
	*piece = (struct piece){.handle = piece->handle, .bytes = bytes, .n_handles = 1};
	if (cuMemAddressReserve(&range->ptr, bytes, 0, 0, 0)) {
		range->ptr = 0;
		return;
	}
	range->bytes = bytes;
	r = cuMemMap(range->ptr, bytes, 0, piece->handle, 0);
	say("map", r);
	if (r)
		return;
	*place = (struct map){range->ptr, bytes, piece, false};
	r = cuMemSetAccess(range->ptr, bytes, &access, 1);
	say("access", r);
	place->is_accessible = !r;
}

static void destroy_whole_array(void)
{
	struct map *m = &maps[below(N_MAPS)];

	if (!m->piece)
		return;
	for (unsigned i = 0; i < N_RANGES; i++) {
		if (ranges[i].ptr != m->ptr || ranges[i].bytes != m->bytes)
			continue;
		APP_MUST(cuCtxSynchronize());
		if (cuMemUnmap(m->ptr, m->bytes))
			return;
		if (m->piece->n_handles && !cuMemRelease(m->piece->handle))
			m->piece->n_handles--;
		m->piece = NULL;
		if (!cuMemAddressFree(ranges[i].ptr, ranges[i].bytes))
			ranges[i].ptr = 0;
		return;
	}
}

static void step(void)
{
	static void (*const steps[])(void) = {create, reserve, map, map, allow, allow, unmap, unmap, release, retain,
		free_addresses, ask, ask_handle, export, use, use, whole_array, whole_array, whole_array,
		destroy_whole_array, destroy_whole_array, destroy_whole_array};

	steps[below(LENGTH(steps))]();
}

/* Tries a call until it succeeds. */
#define TRY(call)                                            \
	do {                                                 \
		CUresult r = CUDA_ERROR_INVALID_VALUE;       \
		for (unsigned i_ = 0; r && i_ < TRIES; i_++) \
			r = call;                            \
		app_must(r, #call);                          \
	} while (0)

static void drop_all(void)
{
	APP_MUST(cuCtxSynchronize());
	for (unsigned i = 0; i < N_MAPS; i++) {
		if (maps[i].piece)
			TRY(cuMemUnmap(maps[i].ptr, maps[i].bytes));
		maps[i].piece = NULL;
	}
	for (unsigned i = 0; i < N_PIECES; i++)
		for (; pieces[i].n_handles; pieces[i].n_handles--)
			TRY(cuMemRelease(pieces[i].handle));
	for (unsigned i = 0; i < N_RANGES; i++) {
		if (ranges[i].ptr)
			TRY(cuMemAddressFree(ranges[i].ptr, ranges[i].bytes));
		ranges[i].ptr = 0;
	}
}

static void run_steps(unsigned seed)
{
	state = seed;
	for (unsigned i = 0; i < STEPS; i++)
		step();
	drop_all();
	fprintf(out, "wrong words: %llu\n", (unsigned long long)n_wrong);
}

static unsigned seed(void)
{
	const char *text = getenv("APP_SEED");

	return text ? (unsigned)atoi(text) : 1;
}

static size_t before;

static size_t allocated(void)
{
	size_t (*bytes)(int) = (size_t(*)(int))app_simulator("simgpu_allocated_bytes");

	return bytes ? bytes(0) : 0;
}

static void start(void)
{
	app_start();
	before = allocated();
	APP_MUST(cuMemFree_v2(app_alloc(MIB)));
	out = stdout;
}

static void end(void)
{
	app_pause("end");
	app_fact("bytes that stay", allocated() - before);
	app_report_driver();
}

static void compared(void)
{
	start();
	run_steps(seed());
	end();
}

static void faults(void)
{
	is_quiet = true;
	compared();
}

struct thread {
	pthread_t id;
	unsigned seed;
	char *text;
	size_t size;
};

static void *run_thread(void *arg)
{
	struct thread *thread = arg;

	APP_MUST(cuCtxSetCurrent(app_ctx));
	out = open_memstream(&thread->text, &thread->size);
	run_steps(thread->seed);
	fclose(out);
	return NULL;
}

static _Atomic bool is_over;

/* Takes what is unused away, over and over. */
static void *take_away(void *unused)
{
	(void)unused;
	while (!is_over) {
		(void)gpupool_reclaim(GPUPOOL_ALL_DEVICES);
		usleep(100);
	}
	return NULL;
}

static void threads(void)
{
	struct thread all[4];
	pthread_t taker;

	start();
	pthread_create(&taker, NULL, take_away, NULL);
	for (unsigned i = 0; i < LENGTH(all); i++) {
		all[i] = (struct thread){.seed = 10 * seed() + i};
		pthread_create(&all[i].id, NULL, run_thread, &all[i]);
	}
	for (unsigned i = 0; i < LENGTH(all); i++) {
		pthread_join(all[i].id, NULL);
		fwrite(all[i].text, 1, all[i].size, stdout);
		free(all[i].text);
	}
	is_over = true;
	pthread_join(taker, NULL);
	end();
}

const struct app_scenario app_scenarios[] = {
	{"compared", compared},
	{"faults", faults},
	{"threads", threads},
	{0},
};
