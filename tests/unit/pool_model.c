/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "pool_model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_backend.h"
#include "pool_profiles.h"
#include "pool/kind.h"
#include "pool/pool.h"
#include "pool/pool_control.h"
#include "pool/pool_impl.h"
#include "pool/tcache.h"
#include "pool/tcache_stream.h"

#define CAPACITY (192 * GP_MIB)
#define LARGEST  (24 * GP_MIB)

enum { LIVE_MAX = 400, N_FREED = 16, N_TCACHES = 2, N_ACCOUNTS = 3, SOME_ERROR = 719 };

/* Numbers of streams. The first ones share a queue of pending blocks (pool/pending.c). */
static const unsigned streams[] = {1, 22, 43, 2, 3};

struct live {
	uint64_t addr, bytes, rounded, serial;
	unsigned account;
};

struct model {
	struct fake fake;
	struct gp_addrmap map;
	struct gp_budget budget;
	struct gp_accounts accounts;
	struct gp_pool *pool;
	struct gp_tcache *tcaches[N_TCACHES]; /* one for each simulated thread; NULL if the pool allows none */
	struct model_options options;
	const struct profile *profile;
	enum gp_kind kind;
	const char *action;
	bool is_gpu_wait_enough, is_planned, is_whole;
	unsigned growth; /* percentage of allocations among the steps that allocate or free */
	struct live live[LIVE_MAX];
	size_t n_live;
	uint64_t freed[N_FREED]; /* addresses of the last frees */
	unsigned n_freed;
	uint64_t freed_bytes; /* size of the last freed block */
	uint64_t n_asked;     /* allocations, except those above every limit */
};

#define REQUIRE(model, cond, ...)                    \
	do {                                         \
		if (!(cond))                         \
			give_up(model, __VA_ARGS__); \
	} while (0)

static void give_up(const struct model *m, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

static void give_up(const struct model *m, const char *format, ...)
{
	char text[200], line[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(
		line, sizeof(line), "%s, kind %s %s, at: %s", text, gp_kind_name(m->kind), m->profile->name, m->action);
	m->options.fail(m->options.arg, line);
	abort();
}

static uint64_t below(struct model *m, uint64_t n)
{
	return m->options.below(m->options.arg, n);
}

static uint64_t random_bytes(struct model *m)
{
	uint64_t bytes = (UINT64_C(1) << below(m, gp_log2(LARGEST) + 1));

	switch (below(m, 5)) {
	case 0:
		return bytes;
	case 1:
		return gp_max(bytes - 1, 1);
	case 2:
		if (m->freed_bytes) /* as in a loop */
			return m->freed_bytes;
		/* fallthrough */
	default:
		return gp_min(bytes + below(m, bytes), LARGEST);
	}
}

static unsigned random_stream(struct model *m)
{
	return streams[below(m, sizeof(streams) / sizeof(*streams))];
}

static void open_pool(struct model *m)
{
	const struct profile *p = m->profile;
	struct gp_pool_options options = {
		.kind = m->kind,
		.backend = fake_backend(&m->fake),
		.map = &m->map,
		.budget = &m->budget,
		.accounts = &m->accounts,
		.capacity_bytes = CAPACITY,
		.granule = 2 * GP_MIB,
		.page_bytes = GP_ALIGN << 3 * (m->options.profile % 3),
		.pending_bytes_max = p->pending_bytes_max,
		.pending_count_max = p->pending_count_max,
		.reserve_bytes = p->is_pressed_soon ? CAPACITY / 4 : 0,
		.oom_wait_ns = p->can_wait ? 20000000 : 0,
		.completion_only = p->completion_only,
		.thread_cache_bytes = p->cannot_release_behind ? 0 : 16 * GP_MIB,
	};

	m->is_gpu_wait_enough = !p->completion_only;
	m->fake.has_one_stream = true;
	m->n_asked = 0;
	REQUIRE(m, gp_pool_new(&options, &m->pool) == 0, "a pool could not be made");
	atomic_store(&m->fake.is_serial, p->is_serial);
	gp_pool_set_serial(m->pool, p->is_serial);
	for (int i = 0; i < N_TCACHES; i++)
		m->tcaches[i] = gp_tcache_new(m->pool);
}

static void end_threads(struct model *m)
{
	for (int i = 0; i < N_TCACHES; i++) {
		if (m->tcaches[i])
			gp_tcache_free(m->tcaches[i]);
		m->tcaches[i] = NULL;
	}
}

/* Returns the cache of the thread that takes the next step, or NULL for a thread without a cache. */
static struct gp_tcache *random_tcache(struct model *m)
{
	uint64_t i = below(m, N_TCACHES + 1);

	return i < N_TCACHES ? m->tcaches[i] : NULL;
}

static void open_model(struct model *m, const struct model_options *options)
{
	*m = (struct model){.options = *options, .kind = options->kind, .action = "open"};
	m->profile = &profiles[options->profile];
	m->growth = 60;
	fake_init(&m->fake, CAPACITY);
	m->fake.reports_submissions = below(m, 2);
	m->fake.cannot_release_behind = m->profile->cannot_release_behind;
	m->fake.arrives_on_drain_only = m->profile->arrives_on_drain_only;
	m->fake.is_first_release_slow = below(m, 2);
	gp_addrmap_init(&m->map);
	gp_budget_init(&m->budget, GP_NO_LIMIT);
	open_pool(m);
}

/* Returns the bytes of all accounts. */
static uint64_t check_accounts(struct model *m)
{
	uint64_t used[GP_ACCOUNTS + 1] = {0}, sum = 0;

	for (size_t i = 0; i < m->n_live; i++)
		used[m->live[i].account] += m->live[i].rounded;
	for (unsigned i = 1; i <= GP_ACCOUNTS; i++) {
		const struct gp_account *account = gp_account(&m->accounts, i);

		sum += used[i];
		REQUIRE(m, atomic_load(&account->used_bytes) == used[i],
			"account %u has %" PRIu64 " bytes, not %" PRIu64, i, atomic_load(&account->used_bytes),
			used[i]);
		REQUIRE(m, atomic_load(&account->high_bytes) >= used[i], "the mark of account %u is below it", i);
	}
	return sum;
}

/* Mappings outlive the context: takes them away and checks that none is lost. */
static void check_unmapped(struct model *m, struct gp_pool *dead)
{
	const char *lost;

	m->fake.has_ended = true;
	gp_pool_unmap(dead);
	lost = fake_check_unmapped(&m->fake);
	REQUIRE(m, !lost, "%s", lost);
}

static void close_model(struct model *m)
{
	end_threads(m);
	gp_pool_drop(m->pool);
	m->n_live = 0;
	(void)check_accounts(m);
	check_unmapped(m, m->pool);
	gp_pool_put(m->pool);
	gp_addrmap_deinit(&m->map);
	fake_deinit(&m->fake);
}

/* Checks what must hold after every step. */
static void check(struct model *m)
{
	const char *broken = gp_pool_check(m->pool), *breach = atomic_load(&m->fake.breach);
	uint64_t requested = 0, in_accounts;
	struct gp_stream_usage usage;
	struct gp_stats s;

	REQUIRE(m, !broken, "%s", broken);
	REQUIRE(m, !breach, "%s", breach);
	gp_pool_stats(m->pool, &s);
	for (size_t i = 0; i < m->n_live; i++)
		requested += m->live[i].bytes;
	REQUIRE(m, s.requested_bytes == requested, "requested %" PRIu64 ", not %" PRIu64, s.requested_bytes, requested);
	REQUIRE(m, s.n_used_blocks == m->n_live, "%" PRIu64 " blocks, not %zu", s.n_used_blocks, m->n_live);
	/* The pool learns that releases have arrived only when all of them have. */
	REQUIRE(m,
		s.total_bytes >= m->fake.reserved_bytes && s.total_bytes - s.returning_bytes <= m->fake.reserved_bytes,
		"total %" PRIu64 ", not %" PRIu64, s.total_bytes, m->fake.reserved_bytes);
	REQUIRE(m, atomic_load(&m->budget.charged_bytes) == s.total_bytes,
		"the budget is not charged exactly the total");
	REQUIRE(m, s.peak_total_bytes >= s.total_bytes, "the peak is below the total");
	REQUIRE(m, s.peak_used_bytes >= s.used_bytes, "the peak is below what is used");
	usage = gp_pool_stream_usage(m->pool);
	in_accounts = check_accounts(m);
	REQUIRE(m, usage.used_bytes + in_accounts == s.stream_bytes && usage.total_bytes == s.total_bytes,
		"%" PRIu64 " and %" PRIu64 " of %" PRIu64 " bytes used in stream order, not %" PRIu64 " of %" PRIu64,
		usage.used_bytes, in_accounts, usage.total_bytes, s.stream_bytes, s.total_bytes);
	REQUIRE(m, usage.used_high_bytes >= usage.used_bytes, "the mark in stream order is below what is used");
	REQUIRE(m, s.hits + s.misses == m->n_asked, "%" PRIu64 " hits, %" PRIu64 " misses of %" PRIu64, s.hits,
		s.misses, m->n_asked);
}

static void check_new(struct model *m, uint64_t addr, uint64_t bytes, const struct gp_alloc_options *options)
{
	const char *breach =
		fake_check_hand_out_on(&m->fake, addr, bytes, m->is_gpu_wait_enough, (unsigned)options->stream);
	struct gp_block_info info;

	REQUIRE(m, addr % GP_ALIGN == 0, "block at %" PRIx64 " is not aligned", addr);
	REQUIRE(m, !breach, "%s", breach);
	for (size_t i = 0; i < m->n_live; i++)
		REQUIRE(m, addr + bytes <= m->live[i].addr || m->live[i].addr + m->live[i].bytes <= addr,
			"%" PRIx64 " overlaps %" PRIx64, addr, m->live[i].addr);
	REQUIRE(m, gp_pool_info(&m->map, addr + below(m, bytes), &info) == 0, "unknown block");
	REQUIRE(m, info.is_used && info.addr == addr && info.size == bytes, "wrong block");
	REQUIRE(m, info.rounded >= gp_round_up(bytes, GP_ALIGN), "wrong size of a block");
	REQUIRE(m, info.account == options->account, "account %u instead of %u", info.account, options->account);
	m->live[m->n_live++] = (struct live){addr, bytes, info.rounded, info.serial, info.account};
}

/* An allocation failed for lack of memory: nothing that could have helped may be left. */
static void check_refusal(struct model *m, uint64_t size)
{
	uint64_t limit = atomic_load(&m->budget.limit_bytes);
	uint64_t room = CAPACITY - m->fake.outside;
	bool is_idle = atomic_load(&m->fake.completed) == atomic_load(&m->fake.submitted);

	if (m->is_planned)
		return;
	if (m->kind == GP_KIND_VMM)
		size = gp_round_up(size, 2 * GP_MIB); /* memory comes in chunks */
	REQUIRE(m, m->fake.reserved_bytes + size > room || m->fake.reserved_bytes + size > limit,
		"%" PRIu64 " bytes were refused although there is room", size);
	if (size > limit || size > room || atomic_load(&m->fake.is_capturing))
		return;
	if (m->profile->cannot_release_behind && !is_idle)
		return;
	REQUIRE(m, gp_pool_reclaim(m->pool) == 0,
		"%" PRIu64 " bytes were refused, although the pool still had memory to release", size);
}

/* As the hooks do: from the thread's cache, if it has one, and then from the pool. */
static int alloc_as(struct model *m, struct gp_tcache *tcache, uint64_t bytes, const struct gp_alloc_options *options,
	uint64_t *ret_addr)
{
	if (tcache && !options->stream)
		return gp_tcache_alloc(tcache, bytes, 0, ret_addr);
	*ret_addr = tcache ? gp_tcache_alloc_on(tcache, bytes, options->stream, 0, options->account) : 0;
	return *ret_addr ? 0 : gp_pool_alloc_with(m->pool, bytes, options, ret_addr);
}

static void do_alloc(struct model *m)
{
	uint64_t bytes = random_bytes(m), size = gp_round_cut(m->pool, bytes), addr;
	uint64_t limit = atomic_load(&m->budget.limit_bytes);
	unsigned stream = below(m, 3) ? 0 : random_stream(m);
	const struct gp_alloc_options options = {
		.stream = stream,
		.account = stream ? (unsigned)below(m, N_ACCOUNTS + 1) : GP_ACCOUNT_NONE,
	};
	struct gp_tcache *tcache = random_tcache(m);
	bool is_hopeless = bytes > gp_min(limit, CAPACITY);
	struct gp_stats stats;
	int r;

	m->action = stream ? "alloc on a stream" : tcache ? "alloc in a thread" : "alloc";
	if (below(m, 20) == 0) /* other users hold all but what this request needs */
		m->fake.outside = CAPACITY - gp_min(CAPACITY, m->fake.reserved_bytes + size);
	r = alloc_as(m, tcache, bytes, &options, &addr);
	/* A thread's cache may serve a block again even if the limit is lower by now. */
	REQUIRE(m, r || tcache || !is_hopeless, "a limit of %" PRIu64 " did not hold", limit);
	m->n_asked += r == 0 || !is_hopeless;
	if (r == 0) {
		struct gp_block_info info;

		check_new(m, addr, bytes, &options);
		REQUIRE(m, gp_pool_info(&m->map, addr, &info) == 0, "unknown block");
		REQUIRE(m, !m->is_whole || info.is_whole || info.is_mapped, "a new block does not fill its segment");
	} else if (r == -ENOMEM)
		check_refusal(m, size);
	else
		REQUIRE(m, m->is_planned && r == SOME_ERROR, "an allocation returned %d", r);
	m->fake.outside = 0;
	/* An error before the pool or the driver was asked counts neither as a hit nor as a miss. */
	gp_pool_stats(m->pool, &stats);
	if (r > 0)
		m->n_asked = stats.hits + stats.misses;
}

static void forget(struct model *m, size_t i)
{
	m->freed_bytes = m->live[i].bytes;
	m->freed[m->n_freed++ % N_FREED] = m->live[i].addr;
	m->live[i] = m->live[--m->n_live];
}

static void do_free(struct model *m)
{
	static const enum fake_use uses[] = {
		[GP_FREE_NORMAL] = FAKE_FREED,
		[GP_FREE_UNFENCED] = FAKE_FREED_UNFENCED,
		[GP_FREE_SYNCED] = FAKE_FREED_SYNCED,
	};
	unsigned dice = (unsigned)below(m, 20);
	enum gp_free_mode mode = dice == 0 ? GP_FREE_UNFENCED : dice == 1 ? GP_FREE_SYNCED : GP_FREE_NORMAL;
	enum fake_use use = uses[mode];
	size_t i = below(m, m->n_live);
	struct gp_tcache *tcache = random_tcache(m);
	int r;

	m->action = tcache ? "free in a thread" : "free";
	/* A capture forbids a fence, but the program's own free would still wait. */
	if (mode == GP_FREE_NORMAL && atomic_load(&m->fake.is_capturing)) {
		atomic_store(&m->fake.waitable, atomic_load(&m->fake.submitted));
		use = fake_is_covered(&m->fake) ? FAKE_FREED : FAKE_FREED_UNFENCED;
	}
	if (mode == GP_FREE_SYNCED) {
		atomic_store(&m->fake.waitable, atomic_load(&m->fake.submitted));
		fake_complete_all(&m->fake);
	}
	fake_note_free(&m->fake, m->live[i].addr, m->live[i].bytes, use);
	if (!tcache || mode != GP_FREE_NORMAL || use != FAKE_FREED)
		r = gp_pool_free(&m->map, m->live[i].addr, mode);
	else if ((r = gp_tcache_put(tcache, m->live[i].addr)) == -ENOENT)
		r = gp_tcache_free_by(&m->map, m->live[i].addr, tcache);
	REQUIRE(m, r == 0 || (m->is_planned && r == SOME_ERROR), "a free returned %d", r);
	forget(m, i);
}

/* Either way to free takes memory of either way to allocate. */
static void do_free_on(struct model *m)
{
	unsigned stream = random_stream(m);
	size_t i = below(m, m->n_live);
	struct gp_tcache *tcache = random_tcache(m);
	struct gp_block_info info;
	int r = 0;

	m->action = "free on a stream";
	REQUIRE(m, gp_pool_info(&m->map, m->live[i].addr, &info) == 0, "unknown block");
	fake_note_free_on(&m->fake, info.addr, info.rounded, stream);
	if (!tcache || !gp_tcache_put_on(tcache, info.addr, stream)) {
		r = tcache ? gp_tcache_free_on(&m->map, info.addr, stream, tcache) : -ENOENT;
		if (r == -ENOENT)
			r = gp_pool_free_on(&m->map, info.addr, stream);
	}
	REQUIRE(m, r == 0, "a free on a stream returned %d", r);
	forget(m, i);
}

static void do_bad_free(struct model *m)
{
	uint64_t addr = m->freed[below(m, N_FREED)];
	int r;

	m->action = "bad free";
	if (m->n_live && below(m, 2)) {
		const struct live *b = &m->live[below(m, m->n_live)];

		addr = b->addr + 1 + below(m, b->bytes);
		if (addr == b->addr + b->bytes)
			return;
		r = gp_pool_free(&m->map, addr, GP_FREE_NORMAL);
		REQUIRE(m, r == GP_E_INTERIOR, "an interior free returned %d", r);
		return;
	}
	for (size_t i = 0; i < m->n_live; i++)
		if (m->live[i].addr == addr)
			return;
	r = gp_pool_free(&m->map, addr, GP_FREE_NORMAL);
	REQUIRE(m, r == GP_E_NOT_USED || r == GP_E_INTERIOR || r == GP_E_FOREIGN, "a double free returned %d", r);
}

static void do_export(struct model *m)
{
	struct gp_block_info info;
	uint64_t addr;

	m->action = "export";
	if (!m->n_live)
		return;
	addr = m->live[below(m, m->n_live)].addr;
	REQUIRE(m, gp_pool_info(&m->map, addr, &info) == 0, "unknown block");
	REQUIRE(m, gp_pool_export(&m->map, addr) == 0, "an export failed");
	if (info.is_mapped)
		fake_note_export(&m->fake, info.addr, info.rounded);
	else
		fake_note_export(&m->fake, info.segment_base, info.segment_size);
}

/* Ends serial mode for good. Called before the first operation that is not serial. */
static void end_serial(struct model *m)
{
	m->action = "end of serial mode";
	gp_pool_set_serial(m->pool, false);
	atomic_store(&m->fake.is_serial, false);
}

/* Returns true if serial mode has to last longer, so that an operation that would end it must not run yet. */
static bool must_stay_serial(struct model *m)
{
	return atomic_load(&m->fake.is_serial) && below(m, 40);
}

static void do_end_serial(struct model *m)
{
	if (!must_stay_serial(m))
		end_serial(m);
}

static void do_capture(struct model *m)
{
	if (must_stay_serial(m))
		return;
	end_serial(m);
	m->action = "capture";
	atomic_store(&m->fake.is_capturing, below(m, 4) == 0);
}

static void do_require_completion(struct model *m)
{
	end_serial(m);
	m->action = "require completion";
	gp_pool_require_completion(m->pool);
	m->is_gpu_wait_enough = false;
	if (!m->is_planned && !atomic_load(&m->fake.is_capturing))
		REQUIRE(m, atomic_load(&m->fake.ordered) <= atomic_load(&m->fake.completed),
			"blocks that only a GPU wait covered are still not completed");
}

/* The context ends and another begins: no call for the old one may reach the driver. */
static void do_drop(struct model *m)
{
	struct model_options options = m->options;
	struct gp_pool *old = m->pool;
	uint64_t addr, before = m->fake.n_logged;

	m->action = "drop";
	gp_pool_drop(old);
	REQUIRE(m, gp_pool_alloc(old, 1, 0, &addr) == GP_E_DEAD, "a dead pool allocates");
	REQUIRE(m, gp_pool_reclaim(old) == 0, "a dead pool released memory");
	gp_pool_require_completion(old);
	for (; m->n_live; forget(m, 0))
		REQUIRE(m, gp_pool_free(&m->map, m->live[0].addr, GP_FREE_NORMAL) == GP_E_FOREIGN,
			"a block of a dead pool is still known");
	REQUIRE(m, !gp_pool_check(old), "%s", gp_pool_check(old));
	REQUIRE(m, atomic_load(&m->budget.charged_bytes) == 0, "the budget still counts a dead pool");
	end_threads(m);
	REQUIRE(m, m->fake.n_logged == before, "a dead pool called the driver");
	m->is_whole = false;
	check_unmapped(m, old);
	gp_pool_put(old);
	gp_addrmap_deinit(&m->map);
	fake_deinit(&m->fake);
	open_model(m, &options);
}

static void do_plan(struct model *m)
{
	static const enum fake_call calls[] = {
		FAKE_RESERVE,
		FAKE_RESERVE,
		FAKE_RESERVE,
		FAKE_RECORD,
		FAKE_QUERY,
		FAKE_GPU_WAIT,
		FAKE_RELEASE,
		FAKE_RELEASE_BEGIN,
		FAKE_RELEASE_POLL,
		FAKE_RELEASE_DRAIN,
		FAKE_MAP,
		FAKE_UNMAP,
		FAKE_UNDO,
	};
	enum fake_call call = calls[below(m, sizeof(calls) / sizeof(*calls))];
	bool is_oom = call == FAKE_RESERVE && below(m, 2);

	fake_plan(&m->fake, (struct fake_plan){
				    .call = call,
				    .nth = 1 + (unsigned)below(m, 3),
				    .count = 1 + (unsigned)below(m, 4),
				    .error = is_oom ? -ENOMEM : SOME_ERROR,
			    });
	m->is_planned = true;
}

static void end_plans(struct model *m)
{
	for (int call = 0; call < FAKE_N_CALLS; call++)
		fake_plan(&m->fake, (struct fake_plan){.call = (enum fake_call)call});
	m->is_planned = false;
}

static void do_limit(struct model *m)
{
	m->action = "limit";
	atomic_store(&m->budget.limit_bytes, below(m, 2) ? GP_NO_LIMIT : below(m, CAPACITY) & ~(GP_ALIGN - 1));
}

struct outsider {
	struct model *model;
	uint64_t bytes;
	unsigned n_successes;
};

static int take_room(void *arg)
{
	struct outsider *o = arg;

	if (o->model->fake.reserved_bytes + o->bytes > CAPACITY)
		return -ENOMEM;
	o->n_successes++;
	return 0;
}

/* A failed allocation that is not pooled asks the pool for memory. */
static void do_rescue(struct model *m)
{
	struct outsider o = {.model = m, .bytes = below(m, CAPACITY)};
	bool is_busy =
		m->profile->cannot_release_behind && atomic_load(&m->fake.completed) != atomic_load(&m->fake.submitted);
	int r;

	m->action = "rescue";
	r = gp_pool_rescue(m->pool, o.bytes, take_room, &o, NULL);
	REQUIRE(m, r == 0 || r == -ENOMEM, "a rescue returned %d", r);
	REQUIRE(m, o.n_successes == (r == 0), "a rescue succeeded %u times", o.n_successes);
	if (r && !m->is_planned && !is_busy && !atomic_load(&m->fake.is_capturing))
		REQUIRE(m, gp_pool_reclaim(m->pool) == 0,
			"a rescue failed, although the pool still had memory to release");
}

static void do_overlap(struct model *m)
{
	bool overlap = below(m, 2);

	m->action = "overlap";
	gp_pool_set_overlap(m->pool, overlap);
	/* No work has used the new setting yet. */
	if (must_stay_serial(m))
		return;
	end_serial(m);
	/* The work so far ran on one stream and stays serial; later work does not. */
	atomic_store(&m->fake.waitable, atomic_load(&m->fake.submitted));
	m->fake.has_one_stream = !overlap;
}

static void do_rare(struct model *m)
{
	switch (below(m, 15)) {
	case 14:
		do_end_serial(m);
		break;
	case 13:
		m->action = "whole segments";
		m->is_whole |= below(m, 30) == 0;
		if (m->is_whole)
			gp_pool_set_whole(m->pool);
		break;
	case 12:
		do_rescue(m);
		break;
	case 0:
		m->action = "reclaim";
		gp_pool_reclaim(m->pool);
		break;
	case 1:
		if (below(m, 20) == 0)
			do_require_completion(m);
		break;
	case 2:
		if (below(m, 30) == 0)
			do_drop(m);
		break;
	case 3:
		do_export(m);
		break;
	case 4:
		do_limit(m);
		break;
	case 5:
		do_overlap(m);
		break;
	case 6:
	case 7:
		do_capture(m);
		break;
	case 8:
		m->growth = 30 + (unsigned)below(m, 45);
		break;
	case 9:
		m->action = "a thread ends, and another begins";
		end_threads(m);
		for (int i = 0; i < N_TCACHES; i++)
			m->tcaches[i] = gp_tcache_new(m->pool);
		break;
	default:
		do_bad_free(m);
	}
}

void model_step(struct model *m)
{
	unsigned dice = (unsigned)below(m, 100);

	m->action = "GPU";
	fake_submit(&m->fake, (unsigned)below(m, 3));
	atomic_fetch_add(&m->fake.now_ns, below(m, GP_LAG_NS));
	if (below(m, 3) == 0)
		fake_complete(&m->fake, atomic_load(&m->fake.completed) + below(m, 12));
	if (below(m, 15) == 0)
		do_plan(m);
	if (dice < 10)
		do_rare(m);
	else if (m->n_live == 0 || (below(m, 100) < m->growth && m->n_live < LIVE_MAX))
		do_alloc(m);
	else if (below(m, 4) == 0)
		do_free_on(m);
	else
		do_free(m);
	end_plans(m);
	check(m);
}

struct model *model_new(const struct model_options *options)
{
	struct model *m = malloc(sizeof(*m));

	if (!m)
		abort();
	open_model(m, options);
	return m;
}

void model_free(struct model *m)
{
	close_model(m);
	free(m);
}
