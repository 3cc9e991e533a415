/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

#include "fake_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A caller that pauses this often waits for an event that never comes. */
enum { PAUSES_MAX = 100000 };

void fake_init(struct fake *fake, uint64_t capacity)
{
	memset(fake, 0, sizeof(*fake));
	fake->work = GP_SUBMISSION_INIT;
	fake->capacity = capacity;
	fake->pause_ns = 1000000;
	fake->addresses_end = BASE + SPACE_FACTOR * capacity;
	fake->pause_completes = 1;
	pthread_mutex_init(&fake->lock, NULL);
	if (capacity <= HISTORY_MAX) {
		fake->n_units = (SPACE_FACTOR + RANGES_FACTOR) * capacity / GP_ALIGN;
		/*
		 * Use mmap, since calloc with MALLOC_PERTURB_ would write the whole table, of which little is used.
		 */
		fake->units = mmap(NULL, fake->n_units * sizeof(*fake->units), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (fake->units == MAP_FAILED)
			abort();
	}
}

void fake_deinit(struct fake *fake)
{
	pthread_mutex_destroy(&fake->lock);
	if (fake->units)
		munmap((void *)fake->units, fake->n_units * sizeof(*fake->units));
	free(fake->ranges);
	free(fake->chunks);
	free(fake->copies);
}

void fake_set_breach(struct fake *fake, const char *what)
{
	const char *none = NULL;

	atomic_compare_exchange_strong(&fake->breach, &none, what);
}

/*
 * Takes and drops a lock of that rank. In a debug build this fails if the caller holds a lock of a later
 * rank.
 */
void fake_check_locks(enum gp_lock_rank rank)
{
	struct gp_mutex probe = GP_MUTEX_INIT(rank);

	gp_mutex_lock(&probe);
	gp_mutex_unlock(&probe);
}

/* Counts the call. Returns the error that is planned for it, or 0. */
int fake_begin(struct fake *fake, enum fake_call call)
{
	struct fake_plan *plan = &fake->plans[call];
	int error = 0;

	atomic_fetch_add_explicit(&fake->n_calls[call], 1, memory_order_relaxed);
	if (fake->hook)
		fake->hook(fake, call);
	pthread_mutex_lock(&fake->lock);
	if (plan->nth > 1) {
		plan->nth--;
	} else if (plan->nth == 1 && plan->count) {
		plan->count--;
		error = plan->error;
	}
	pthread_mutex_unlock(&fake->lock);
	return error;
}

int fake_finish(struct fake *fake, struct fake_log_entry entry)
{
	pthread_mutex_lock(&fake->lock);
	fake->log[fake->n_logged++ % FAKE_LOG_SIZE] = entry;
	pthread_mutex_unlock(&fake->lock);
	return entry.result;
}

void fake_plan(struct fake *fake, struct fake_plan plan)
{
	pthread_mutex_lock(&fake->lock);
	fake->plans[plan.call] = plan;
	pthread_mutex_unlock(&fake->lock);
}

bool fake_is_planned(struct fake *fake, enum fake_call call)
{
	bool is_planned;

	pthread_mutex_lock(&fake->lock);
	is_planned = fake->plans[call].nth && fake->plans[call].count;
	pthread_mutex_unlock(&fake->lock);
	return is_planned;
}

bool fake_is_covered(const struct fake *fake)
{
	return fake->reports_submissions && atomic_load(&fake->recorded) >= atomic_load(&fake->submitted);
}

uint64_t fake_submit(struct fake *fake, unsigned n)
{
	uint64_t submitted = atomic_fetch_add(&fake->submitted, n) + n;

	if (n)
		gp_submission_note(&fake->work);
	return submitted;
}

static void raise_to(_Atomic uint64_t *value, uint64_t to)
{
	uint64_t old = atomic_load(value);

	while (old < to && !atomic_compare_exchange_weak(value, &old, to))
		;
}

void fake_complete(struct fake *fake, uint64_t work)
{
	raise_to(&fake->completed, gp_min(work, atomic_load(&fake->submitted)));
	atomic_store(&fake->idle_pauses, 0);
}

void fake_complete_all(struct fake *fake)
{
	fake_complete(fake, UINT64_MAX);
}

unsigned fake_calls(struct fake *fake, enum fake_call call)
{
	return (unsigned)atomic_exchange(&fake->n_calls[call], 0);
}

_Atomic uint64_t *fake_units_of(struct fake *fake, uint64_t addr, uint64_t bytes)
{
	uint64_t first = (addr - BASE) / GP_ALIGN;

	/* Arenas for more than the fake's capacity are longer than its history. */
	if (!fake->units || (fake->addresses_bytes > RANGES_FACTOR * fake->capacity && first >= fake->n_units / 2))
		return NULL;
	if (addr < BASE || first + (bytes + GP_ALIGN - 1) / GP_ALIGN > fake->n_units)
		abort();
	return &fake->units[first];
}

static UNWATCHED void note_free(struct fake *fake, uint64_t addr, uint64_t bytes, uint64_t word)
{
	_Atomic uint64_t *units = fake_units_of(fake, addr, bytes);

	for (uint64_t i = 0; units && i < (bytes + GP_ALIGN - 1) / GP_ALIGN; i++) {
		uint64_t kept = atomic_load_explicit(&units[i], memory_order_relaxed) & UNIT_EXPORTED;

		atomic_store_explicit(&units[i], word | kept, memory_order_relaxed);
	}
}

void fake_note_free(struct fake *fake, uint64_t addr, uint64_t bytes, enum fake_use use)
{
	uint64_t work = use == FAKE_FREED_SYNCED ? 0 : atomic_load(&fake->submitted);
	uint64_t word = work << UNIT_WORK_SHIFT | (use == FAKE_FREED_UNFENCED ? UNIT_UNFENCED : 0);

	note_free(fake, addr, bytes, word);
	if (use != FAKE_FREED_UNFENCED)
		raise_to(&fake->waitable, atomic_load(&fake->submitted));
	/* A fence that already covers all work also covers this free. */
	if (use == FAKE_FREED && fake_is_covered(fake))
		raise_to(&fake->recorded_at_free, atomic_load(&fake->submitted));
}

void fake_note_free_on(struct fake *fake, uint64_t addr, uint64_t bytes, unsigned stream)
{
	note_free(fake, addr, bytes,
		atomic_load(&fake->submitted) << UNIT_WORK_SHIFT | (uint64_t)stream << UNIT_STREAM_SHIFT |
			UNIT_UNFENCED);
}

void fake_note_export(struct fake *fake, uint64_t addr, uint64_t bytes)
{
	_Atomic uint64_t *units = fake_units_of(fake, addr, bytes);

	for (uint64_t i = 0; units && i < bytes / GP_ALIGN; i++)
		atomic_fetch_or_explicit(&units[i], UNIT_EXPORTED, memory_order_relaxed);
}

/* The progress of the GPU as of a hand-out. */
struct progress {
	uint64_t completed, ordered;
};

static UNWATCHED const char *check_units(
	const _Atomic uint64_t *units, uint64_t n, struct progress progress, unsigned stream)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t word = atomic_load_explicit(&units[i], memory_order_relaxed);

		if (word & UNIT_EXPORTED)
			return "memory that was exported got a new owner";
		/* The stream's later work follows what the stream did before it freed the memory. */
		if (stream && (word >> UNIT_STREAM_SHIFT & UINT8_MAX) == stream)
			continue;
		if (word >> UNIT_WORK_SHIFT > (word & UNIT_UNFENCED ? progress.completed : progress.ordered))
			return "memory that the GPU still uses got a new owner";
	}
	return NULL;
}

const char *fake_check_hand_out_on(
	struct fake *fake, uint64_t addr, uint64_t bytes, bool is_gpu_wait_enough, unsigned stream)
{
	_Atomic uint64_t *units = fake_units_of(fake, addr, bytes);
	uint64_t completed = atomic_load(&fake->completed);
	uint64_t ordered = is_gpu_wait_enough ? gp_max(completed, atomic_load(&fake->ordered)) : completed;

	if (is_gpu_wait_enough && atomic_load(&fake->is_serial))
		ordered = gp_max(ordered, atomic_load(&fake->recorded_at_free));
	if (!fake_is_mapped(fake, addr, bytes))
		return "addresses without memory were handed out";
	if (!units)
		return NULL;
	return check_units(units, (bytes + GP_ALIGN - 1) / GP_ALIGN, (struct progress){completed, ordered}, stream);
}

const char *fake_check_hand_out(struct fake *fake, uint64_t addr, uint64_t bytes, bool is_gpu_wait_enough)
{
	return fake_check_hand_out_on(fake, addr, bytes, is_gpu_wait_enough, 0);
}

UNWATCHED uint64_t fake_last_use(struct fake *fake, uint64_t addr, uint64_t bytes)
{
	_Atomic uint64_t *units = fake_units_of(fake, addr, bytes);
	uint64_t last = 0;

	for (uint64_t i = 0; units && i < bytes / GP_ALIGN; i++)
		last = gp_max(last, atomic_load_explicit(&units[i], memory_order_relaxed) >> UNIT_WORK_SHIFT);
	return last;
}

/* Waits for this work. A free would have waited for it, or this is a breach. */
void fake_wait_for(struct fake *fake, uint64_t work)
{
	if (work > atomic_load(&fake->completed) && work > atomic_load(&fake->waitable))
		fake_set_breach(fake, "the host was made to wait for work that no free would have waited for");
	fake_complete(fake, work);
}

static struct fake_range *range_of_locked(struct fake *fake, uint64_t addr)
{
	for (size_t i = 0; i < fake->n_ranges; i++)
		if (fake->ranges[i].addr == addr && !fake->ranges[i].is_leaving)
			return &fake->ranges[i];
	return NULL;
}

static UNWATCHED void forget_units(_Atomic uint64_t *units, uint64_t n)
{
	for (uint64_t i = 0; units && i < n; i++)
		atomic_store_explicit(&units[i], 0, memory_order_relaxed);
}

static void remove_range_locked(struct fake *fake, struct fake_range *range)
{
	size_t behind = (size_t)(fake->ranges + fake->n_ranges - (range + 1));

	forget_units(fake_units_of(fake, range->addr, range->size), range->size / GP_ALIGN);
	fake->reserved_bytes -= range->size;
	memmove(range, range + 1, behind * sizeof(*range));
	fake->n_ranges--;
}

/* Reserves addresses first fit, so that an address is soon used again. */
static uint64_t add_range_locked(struct fake *fake, uint64_t bytes)
{
	uint64_t at = BASE;
	size_t i;

	for (i = 0; i < fake->n_ranges && fake->ranges[i].addr - at < bytes; i++)
		at = gp_round_up(fake->ranges[i].addr + fake->ranges[i].size, GP_ALIGN);
	if (fake->n_ranges == fake->ranges_size) {
		fake->ranges_size = fake->ranges_size * 2 + 64;
		fake->ranges = realloc(fake->ranges, fake->ranges_size * sizeof(*fake->ranges));
		if (!fake->ranges)
			abort();
	}
	memmove(&fake->ranges[i + 1], &fake->ranges[i], (fake->n_ranges - i) * sizeof(*fake->ranges));
	fake->ranges[i] = (struct fake_range){.addr = at, .size = bytes};
	fake->n_ranges++;
	fake->reserved_bytes += bytes;
	return at;
}

static uint64_t available(void *arg)
{
	struct fake *fake = arg;
	uint64_t bytes;

	fake_check_locks(GP_RANK_FENCE);
	fake_begin(fake, FAKE_AVAILABLE);
	pthread_mutex_lock(&fake->lock);
	bytes = fake->capacity - fake->outside - fake->reserved_bytes;
	pthread_mutex_unlock(&fake->lock);
	return bytes;
}

static int reserve(void *arg, uint64_t bytes, uint64_t *ret_addr, uint64_t *ret_available)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_RESERVE, .bytes = bytes, .slot = GP_NO_SLOT};

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_RESERVE);
	pthread_mutex_lock(&fake->lock);
	if (!entry.result && bytes > fake->capacity - fake->outside - fake->reserved_bytes)
		entry.result = -ENOMEM;
	if (!entry.result)
		*ret_addr = entry.addr = add_range_locked(fake, bytes);
	pthread_mutex_unlock(&fake->lock);
	fake_finish(fake, entry);
	if (!entry.result && ret_available)
		*ret_available = available(fake);
	return entry.result;
}

/* Even after an error the memory is gone, because the allocator forgets it. */
static int release(void *arg, uint64_t addr)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_RELEASE, .addr = addr, .slot = GP_NO_SLOT};
	struct fake_range *range;

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_RELEASE);
	fake_wait_for(fake, atomic_load(&fake->submitted));
	pthread_mutex_lock(&fake->lock);
	range = range_of_locked(fake, addr);
	if (!range) {
		fake_set_breach(fake, "an address was released that was not reserved");
	} else {
		entry.bytes = range->size;
		remove_range_locked(fake, range);
	}
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static void begin_release_locked(struct fake *fake, struct fake_log_entry *entry)
{
	struct fake_range *range = range_of_locked(fake, entry->addr);
	uint64_t behind =
		entry->slot == GP_NO_SLOT ? atomic_load(&fake->completed) : atomic_load(&fake->covers[entry->slot]);

	if (!range) {
		fake_set_breach(fake, "an address was released that was not reserved");
		return;
	}
	if (fake_last_use(fake, range->addr, range->size) > behind)
		fake_set_breach(fake, "memory that the GPU still uses was given back");
	entry->bytes = range->size;
	if (entry->result) {
		remove_range_locked(fake, range);
		return;
	}
	range->behind = behind;
	range->is_leaving = true;
}

static int release_begin(void *arg, uint64_t addr, int slot)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_RELEASE_BEGIN, .addr = addr, .slot = slot};

	fake_check_locks(GP_RANK_FENCE);
	if (fake->cannot_release_behind)
		return -ENOTSUP;
	entry.result = fake_begin(fake, FAKE_RELEASE_BEGIN);
	pthread_mutex_lock(&fake->lock);
	begin_release_locked(fake, &entry);
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static bool can_release_behind(void *arg)
{
	fake_check_locks(GP_RANK_FENCE);
	return !((struct fake *)arg)->cannot_release_behind;
}

static bool is_first_release_slow(void *arg)
{
	fake_check_locks(GP_RANK_FENCE);
	return ((struct fake *)arg)->is_first_release_slow;
}

static int arrive_locked(struct fake *fake, uint64_t completed)
{
	int r = 0;

	for (size_t i = fake->n_ranges; i-- > 0;) {
		if (!fake->ranges[i].is_leaving)
			continue;
		if (fake->ranges[i].behind <= completed)
			remove_range_locked(fake, &fake->ranges[i]);
		else
			r = -EAGAIN;
	}
	return r;
}

static int release_poll(void *arg)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_RELEASE_POLL, .slot = GP_NO_SLOT};

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_RELEASE_POLL);
	pthread_mutex_lock(&fake->lock);
	/* After an error everything is gone, as after a failed release. */
	if (entry.result > 0)
		arrive_locked(fake, UINT64_MAX);
	else if (!entry.result)
		entry.result =
			fake->arrives_on_drain_only ? -EAGAIN : arrive_locked(fake, atomic_load(&fake->completed));
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static int release_drain(void *arg, uint64_t max_ns)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_RELEASE_DRAIN, .slot = GP_NO_SLOT};
	uint64_t behind = 0;

	fake_check_locks(GP_RANK_FENCE);
	entry.result = fake_begin(fake, FAKE_RELEASE_DRAIN);
	pthread_mutex_lock(&fake->lock);
	for (size_t i = 0; i < fake->n_ranges; i++)
		if (fake->ranges[i].is_leaving)
			behind = gp_max(behind, fake->ranges[i].behind);
	fake_wait_for(fake, behind);
	arrive_locked(fake, UINT64_MAX);
	pthread_mutex_unlock(&fake->lock);
	return fake_finish(fake, entry);
}

static int fence_record(void *arg, int slot, bool is_at_free, uint64_t *ret_epoch)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_RECORD, .slot = slot};

	fake_check_locks(GP_RANK_POOL);
	entry.result = fake_begin(fake, FAKE_RECORD);
	*ret_epoch = fake->reports_submissions ? gp_submission_look(&fake->work) : GP_SUBMISSION_NO_EPOCH;
	if (!entry.result && atomic_load(&fake->is_capturing))
		entry.result = -EBUSY;
	if (!entry.result) {
		atomic_store(&fake->covers[slot], atomic_load(&fake->submitted));
		raise_to(&fake->recorded, atomic_load(&fake->covers[slot]));
		if (is_at_free)
			raise_to(&fake->recorded_at_free, atomic_load(&fake->covers[slot]));
	}
	return fake_finish(fake, entry);
}

static int fence_query(void *arg, int slot)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_QUERY, .slot = slot};

	fake_check_locks(GP_RANK_POOL);
	entry.result = fake_begin(fake, FAKE_QUERY);
	if (!entry.result && atomic_load(&fake->is_capturing))
		entry.result = -EBUSY;
	if (!entry.result && atomic_load(&fake->covers[slot]) > atomic_load(&fake->completed))
		entry.result = -EAGAIN;
	return fake_finish(fake, entry);
}

static bool fence_record_waits(void *arg)
{
	struct fake *fake = arg;

	return atomic_load(&fake->record_waits);
}

static bool fence_is_beyond(void *arg, int slot)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_POOL);
	return atomic_load(&fake->is_beyond);
}

static int fence_gpu_wait(void *arg, int slot)
{
	struct fake *fake = arg;
	struct fake_log_entry entry = {.call = FAKE_GPU_WAIT, .slot = slot};
	uint64_t covers = atomic_load(&fake->covers[slot]);

	fake_check_locks(GP_RANK_POOL);
	entry.result = fake_begin(fake, FAKE_GPU_WAIT);
	if (!entry.result && atomic_load(&fake->is_capturing))
		entry.result = -EBUSY;
	if (!entry.result) {
		/* A driver's GPU wait covers everything that was recorded before it. */
		if (atomic_load(&fake->recorded) > atomic_load(&fake->waitable) &&
			atomic_load(&fake->recorded) > atomic_load(&fake->completed) && !fake->has_one_stream)
			fake_set_breach(fake, "later work was made to wait for work that no free would "
					      "have waited for");
		raise_to(&fake->ordered, covers);
	}
	return fake_finish(fake, entry);
}

/*
 * Work completes while the allocator waits, as far as a free would have waited for it. The rest completes
 * when the test requests it.
 */
static void pause_(void *arg, unsigned attempt)
{
	struct fake *fake = arg;
	uint64_t next = atomic_load(&fake->completed) + fake->pause_completes;

	fake_check_locks(GP_RANK_FENCE);
	fake_begin(fake, FAKE_PAUSE);
	atomic_store(&fake->attempt_max, gp_max(attempt, atomic_load(&fake->attempt_max)));
	/* Pauses grow, so that a test with a long timeout ends soon. */
	atomic_fetch_add(&fake->now_ns, fake->pause_ns * (1 + atomic_load(&fake->idle_pauses) / 200));
	if (atomic_fetch_add(&fake->idle_pauses, 1) > PAUSES_MAX)
		abort();
	if (atomic_load(&fake->completed) < atomic_load(&fake->waitable))
		fake_complete(fake, gp_min(next, atomic_load(&fake->waitable)));
}

/* Frees the memory that other users give back when asked. They give it once. */
static uint64_t take_from_outside(struct fake *fake, enum fake_call call, uint64_t *yields)
{
	uint64_t given;

	fake_check_locks(GP_RANK_FENCE);
	fake_begin(fake, call);
	pthread_mutex_lock(&fake->lock);
	given = gp_min(*yields, fake->outside);
	fake->outside -= given;
	*yields = 0;
	pthread_mutex_unlock(&fake->lock);
	return given;
}

static bool trim_driver(void *arg)
{
	struct fake *fake = arg;

	return take_from_outside(fake, FAKE_TRIM, &fake->trim_yields) != 0;
}

static uint64_t ask_contexts(void *arg, uint64_t bytes)
{
	struct fake *fake = arg;

	return take_from_outside(fake, FAKE_ASK_CONTEXTS, &fake->contexts_yield);
}

static uint64_t ask_siblings(void *arg, uint64_t bytes, bool may_wait)
{
	struct fake *fake = arg;

	return take_from_outside(fake, FAKE_ASK_SIBLINGS, &fake->siblings_yield);
}

static uint64_t ask_processes(void *arg, uint64_t bytes)
{
	struct fake *fake = arg;

	return take_from_outside(fake, FAKE_ASK_PROCESSES, &fake->processes_yield);
}

static uint64_t ask_group(void *arg, uint64_t bytes)
{
	struct fake *fake = arg;
	uint64_t given;
	unsigned n;

	fake_check_locks(GP_RANK_FENCE);
	fake_begin(fake, FAKE_ASK_GROUP);
	n = fake->n_group_asks++;
	given = n < sizeof(fake->group_yields) / sizeof(*fake->group_yields) ? fake->group_yields[n] : 0;
	if (fake->group_held)
		atomic_fetch_sub(fake->group_held, given);
	return given;
}

static uint64_t wait_begin(void *arg, uint64_t bytes, struct gp_wait *ret_wait)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	*ret_wait = (struct gp_wait){.bytes = bytes};
	fake->waits_begun += fake->wait_ns != 0;
	return fake->wait_ns;
}

static uint64_t sleepers_begin(void *arg, uint64_t bytes, struct gp_wait *ret_wait)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	*ret_wait = (struct gp_wait){.bytes = bytes, .sleepers = fake};
	return fake->sleepers_ns;
}

static enum gp_wait_news wait_pause(void *arg, struct gp_wait *wait)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	fake_begin(fake, FAKE_WAIT_PAUSE);
	atomic_fetch_add(&fake->now_ns, 1000000);
	if (!fake->wait_pauses || --fake->wait_pauses)
		return GP_WAIT_NOTHING;
	if (!fake->wait_yields)
		return GP_WAIT_OVER;
	pthread_mutex_lock(&fake->lock);
	fake->outside -= gp_min(fake->outside, fake->wait_yields);
	pthread_mutex_unlock(&fake->lock);
	return GP_WAIT_MORE;
}

static void wait_end(void *arg, struct gp_wait *wait, uint64_t waited_ns, bool is_served)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	fake->waits_ended++;
	fake->waits_served += is_served;
	fake->waited_ns += waited_ns;
}

static bool is_wanted(void *arg)
{
	struct fake *fake = arg;

	fake_check_locks(GP_RANK_FENCE);
	return atomic_load(&fake->is_wanted);
}

static uint64_t now_ns(void *arg)
{
	fake_check_locks(GP_RANK_POOL);
	return atomic_load(&((struct fake *)arg)->now_ns);
}

static void fence_failed(void *arg)
{
	fake_check_locks(GP_RANK_FENCE_WAIT);
	atomic_fetch_add(&((struct fake *)arg)->n_failures, 1);
}

static const struct gp_backend_ops ops = {
	.mapping = &fake_mapping,
	.sleep = &fake_sleep,
	.spill = &fake_spill,
	.reserve = reserve,
	.release = release,
	.release_begin = release_begin,
	.can_release_behind = can_release_behind,
	.is_first_release_slow = is_first_release_slow,
	.release_poll = release_poll,
	.release_drain = release_drain,
	.fence_record = fence_record,
	.fence_query = fence_query,
	.fence_record_waits = fence_record_waits,
	.fence_is_beyond = fence_is_beyond,
	.fence_gpu_wait = fence_gpu_wait,
	.fence_failed = fence_failed,
	.pause = pause_,
	.trim_driver = trim_driver,
	.ask_contexts = ask_contexts,
	.ask_processes = ask_processes,
	.ask_group = ask_group,
	.sleepers_begin = sleepers_begin,
	.wait_begin = wait_begin,
	.wait_pause = wait_pause,
	.wait_end = wait_end,
	.is_wanted = is_wanted,
	.ask_siblings = ask_siblings,
	.available = available,
	.now_ns = now_ns,
};

struct gp_backend fake_backend(struct fake *fake)
{
	return (struct gp_backend){.ops = &ops, .arg = fake, .work = &fake->work};
}
