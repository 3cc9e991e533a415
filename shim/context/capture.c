/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The set of capturing streams. A capture may end without a successful end call (it was invalidated, or its thread has
 * ended). So after every RECHECK_EVERY refused fence calls the driver is asked about each capture in the set.
 *
 * Each successful begin adds an entry. While the driver is called to end the capture, the entry counts as ending, and
 * leaves the set if that call succeeds. Meanwhile a capture may begin on the same stream, or on a new stream with the
 * same handle. Its entry has another number.
 *
 * A begin first raises the count of captures, and then locks and unlocks the fences of each context once. This waits
 * for the fence calls under way. A thread that takes the lock of the fences later sees the count. So the cost is on the
 * rare begin, not on each fence call.
 */

#include "capture.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "context.h"
#include "serial.h"
#include "shim/base/log.h"
#include "shim/base/slow_path.h"
#include "shim/driver/driver_table.h"

enum { RECHECK_EVERY = 64 };

#define LEGACY     ((CUstream)1)
#define PER_THREAD ((CUstream)2)

/* A capture that has begun. */
struct entry {
	struct gp_capture capture;
	uint64_t id; /* the driver's; 0: unknown */
	struct gp_retainer *retainer;
	uint32_t n_inside; /* submissions that it has captured */
	bool is_linear;    /* its work can be in one order only */
	bool is_open;      /* the program knows the graph, and may add nodes to it itself at any time */
	bool is_ending;    /* the driver is being asked to end it */
};

/* A thread that takes part in a capture, or that has allocated memory during one without taking part in any. */
struct member {
	int thread;
	uint64_t number; /* of the capture; 0: none */
	struct gp_retainer *retainer;
};

_Atomic unsigned gp_capturing;

static struct gp_retainers retainers = GP_RETAINERS_INIT(retainers);

/* Retains for good. It stands in if there is no host memory for another retainer. */
static struct gp_retainer forever = {
	.all = &retainers,
	.link = {&forever.link, &forever.link},
	.joined = &forever,
	.n_owners = 1,
	.n_refs = 1,
};

static struct gp_mutex lock = GP_MUTEX_INIT(GP_RANK_CAPTURES);
/* If there was no host memory for an entry, the capture is counted for good. */
static struct entry *entries;
static unsigned n_entries, n_room;
static struct member *members;
static unsigned n_members, n_members_room;
static uint64_t n_begun;
static bool is_any_unlisted;       /* there was no host memory for an entry or a member */
static _Atomic uint32_t n_outside; /* submissions that were not captured, while a stream captured */
static uint32_t n_captured;        /* submissions that any capture has captured, those that have ended, too */
static _Atomic unsigned n_refused;

/*
 * A system call for each submission would cost more than the rest. A forked child of a process that has captured serves
 * no call, so it does not matter that its thread has another number.
 */
static int thread_now(void)
{
	static _Thread_local int number __attribute__((tls_model("initial-exec")));

	if (gp_unlikely(!number))
		number = (int)syscall(SYS_gettid);
	return number;
}

static bool is_thread_gone(int thread)
{
	return syscall(SYS_tgkill, getpid(), thread, 0) != 0;
}

static CUcontext context_now(void)
{
	CUcontext ctx = NULL;

	(void)gp_real.cuCtxGetCurrent(&ctx);
	return ctx;
}

static CUstream name_stream(CUstream stream, bool is_per_thread)
{
	if (stream)
		return stream;
	return is_per_thread ? PER_THREAD : LEGACY;
}

static struct gp_capture identify(CUstream stream, bool is_per_thread)
{
	struct gp_capture capture = {.stream = name_stream(stream, is_per_thread)};

	if (capture.stream == PER_THREAD)
		capture.thread = thread_now();
	if (capture.thread || !gp_real.cuStreamGetCtx || gp_real.cuStreamGetCtx(capture.stream, &capture.ctx))
		capture.ctx = context_now();
	return capture;
}

/* Asks the driver whether a stream captures; false if the driver fails. */
static bool is_capturing(CUstream stream)
{
	int status = CU_STREAM_CAPTURE_STATUS_NONE;

	return !gp_real.cuStreamIsCapturing(stream, &status) && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool gp_capture_is_on(CUstream stream, bool is_per_thread)
{
	return !gp_capture_is_none() && is_capturing(!stream && is_per_thread ? PER_THREAD : stream);
}

/*
 * Returns the driver's number of the capture that the stream is in, or 0. The query leaves the capture valid. The
 * legacy stream is not asked: it cannot capture.
 */
static uint64_t driver_id(CUstream stream)
{
	int status = CU_STREAM_CAPTURE_STATUS_NONE;
	uint64_t id = 0;
	CUresult r;

	if (stream == LEGACY)
		return 0;
	if (gp_real.cuStreamGetCaptureInfo_v2)
		r = gp_real.cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL);
	else
		r = gp_real.cuStreamGetCaptureInfo_v3(stream, &status, &id, NULL, NULL, NULL, NULL);
	return !r && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

/* True if gpupool cannot know which threads take part in a capture: then all count as taking part. */
static bool is_blind(void)
{
	return (!gp_real.cuStreamGetCaptureInfo_v2 && !gp_real.cuStreamGetCaptureInfo_v3) ||
	       atomic_load(&gp_submitted.word) == GP_SUBMISSION_UNSEEN;
}

/*
 * True if a capture still runs. A thread's own stream (PER_THREAD) can be queried only by that thread, in that
 * context. For all other callers its capture counts as running until the thread ends, since no other thread could end
 * the capture.
 */
static bool is_still_on(const struct gp_capture *capture)
{
	if (capture->thread && (capture->thread != thread_now() || capture->ctx != context_now()))
		return !is_thread_gone(capture->thread);
	return is_capturing(capture->stream);
}

static struct gp_retainer *new_retainer(void)
{
	struct gp_retainer *retainer = gp_retainer_new(&retainers);

	return retainer ? retainer : gp_retainer_get(&forever);
}

static void raise_count(void)
{
	gp_mutex_lock(&lock);
	if (atomic_fetch_add(&gp_capturing, 1) == 0) {
		gp_slow_path_add(GP_SLOW_PATH_CAPTURE);
		atomic_fetch_or(&gp_submit_reasons, GP_SUBMIT_CAPTURE);
	}
	gp_mutex_unlock(&lock);
}

static void remove_member_locked(unsigned i)
{
	gp_retainer_put(members[i].retainer);
	members[i] = members[--n_members];
}

static void lower_count_locked(void)
{
	if (atomic_fetch_sub(&gp_capturing, 1) != 1)
		return;
	atomic_fetch_and(&gp_slow_path, ~(unsigned)GP_SLOW_PATH_CAPTURE);
	atomic_fetch_and(&gp_submit_reasons, ~(unsigned)GP_SUBMIT_CAPTURE);
	while (n_members)
		remove_member_locked(n_members - 1);
}

static struct entry *find_locked(uint64_t number)
{
	for (unsigned i = 0; i < n_entries; i++)
		if (entries[i].capture.number == number)
			return &entries[i];
	return NULL;
}

static struct member *find_member_locked(int thread, uint64_t number)
{
	for (unsigned i = 0; i < n_members; i++)
		if (members[i].thread == thread && members[i].number == number)
			return &members[i];
	return NULL;
}

/* Makes room for one more item. False if there is no host memory: from then on all is retained for good. */
static bool has_room_locked(void **items, unsigned n, unsigned *room, size_t size)
{
	unsigned more = *room ? *room * 2 : 16;
	void *larger = n < *room ? *items : realloc(*items, more * size);

	if (!larger) {
		is_any_unlisted = true;
		return false;
	}
	*room = n < *room ? *room : more;
	*items = larger;
	return true;
}

/*
 * Adds a thread to a capture. Blocks that it has allocated before, while it took part in no capture, are retained for
 * this capture, too: the work that it submits now may use them.
 */
static void add_member_locked(int thread, struct entry *entry)
{
	const struct member *outside = find_member_locked(thread, 0);

	if (find_member_locked(thread, entry->capture.number))
		return;
	if (outside)
		gp_retainer_join(outside->retainer, entry->retainer);
	if (has_room_locked((void **)&members, n_members, &n_members_room, sizeof(*members)))
		members[n_members++] = (struct member){thread, entry->capture.number, gp_retainer_get(entry->retainer)};
}

/* Returns what stands for the allocations of a thread that takes part in no capture. */
static struct gp_retainer *outside_locked(int thread)
{
	const struct member *outside = find_member_locked(thread, 0);

	if (outside)
		return outside->retainer;
	if (!has_room_locked((void **)&members, n_members, &n_members_room, sizeof(*members)))
		return &forever;
	members[n_members++] = (struct member){thread, 0, new_retainer()};
	return members[n_members - 1].retainer;
}

static bool takes_part_locked(int thread, const struct entry *entry)
{
	return find_member_locked(thread, entry->capture.number) != NULL;
}

/* Removes the members of a capture. Blocks that these threads allocate later have nothing to do with this capture. */
static void remove_members_locked(const struct entry *entry)
{
	for (unsigned i = n_members; i-- > 0;)
		if (!members[i].number && takes_part_locked(members[i].thread, entry))
			remove_member_locked(i);
	for (unsigned i = n_members; i-- > 0;)
		if (members[i].number == entry->capture.number)
			remove_member_locked(i);
}

/* Takes an entry out of the set. Its retainer still has the capture as its owner, and the caller its reference. */
static struct gp_retainer *remove_entry_locked(struct entry *entry)
{
	struct gp_retainer *retainer = entry->retainer;

	remove_members_locked(entry);
	*entry = entries[--n_entries];
	return retainer;
}

static void let_go(struct gp_retainer *retainer)
{
	gp_retainer_drop_owner(retainer);
	gp_retainer_put(retainer);
}

void gp_capture_refused(void)
{
	int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (atomic_fetch_add_explicit(&n_refused, 1, memory_order_relaxed) % RECHECK_EVERY != RECHECK_EVERY - 1 ||
		gp_real.cuThreadExchangeStreamCaptureMode(&relaxed))
		return;
	gp_mutex_lock(&lock);
	for (unsigned i = n_entries; i-- > 0;) {
		if (entries[i].is_ending || is_still_on(&entries[i].capture))
			continue;
		let_go(remove_entry_locked(&entries[i]));
		lower_count_locked();
	}
	gp_mutex_unlock(&lock);
	(void)gp_real.cuThreadExchangeStreamCaptureMode(&relaxed);
}

static void quiesce_pool(void *unused, struct gp_pool *pool)
{
	gp_pool_quiesce(pool);
}

static void quiesce(void *unused, struct gp_context *context)
{
	gp_pool_quiesce(context->pool);
	gp_context_each_pinned(context, quiesce_pool, NULL);
}

static void prepare_pool(void *unused, struct gp_pool *pool)
{
	gp_pool_prepare_for_capture(pool);
}

static void prepare(void *unused, struct gp_context *context)
{
	gp_context_each_pool(context, prepare_pool, NULL);
	gp_context_each_pinned(context, prepare_pool, NULL);
}

void gp_capture_begin(struct gp_capture *capture, CUstream stream, bool is_per_thread, CUgraph graph)
{
	gp_serial_end("a capture");
	*capture = identify(stream, is_per_thread);
	capture->graph = graph;
	if (gp_capture_is_none())
		gp_context_each(prepare, NULL);
	raise_count();
	gp_context_each(quiesce, NULL);
}

static void add_entry(struct gp_capture *capture)
{
	uint64_t id = is_blind() ? 0 : driver_id(capture->stream);

	gp_mutex_lock(&lock);
	if (has_room_locked((void **)&entries, n_entries, &n_room, sizeof(*entries))) {
		struct entry *entry = &entries[n_entries++];

		capture->number = ++n_begun;
		*entry = (struct entry){.capture = *capture,
			.id = id,
			.retainer = new_retainer(),
			.is_linear = id && !capture->graph,
			.is_open = capture->graph};
		gp_retainer_add_owner(entry->retainer);
		add_member_locked(thread_now(), entry);
	}
	gp_mutex_unlock(&lock);
}

void gp_capture_begun(struct gp_capture *capture, CUresult r)
{
	if (!r) {
		add_entry(capture);
		return;
	}
	gp_mutex_lock(&lock);
	lower_count_locked();
	gp_mutex_unlock(&lock);
}

static bool is_same(const struct gp_capture *a, const struct gp_capture *b)
{
	return a->stream == b->stream && a->thread == b->thread && (!a->thread || a->ctx == b->ctx);
}

void gp_capture_end(struct gp_capture *capture, CUstream stream, bool is_per_thread)
{
	*capture = (struct gp_capture){NULL};
	if (gp_capture_is_none())
		return;
	capture->stream = name_stream(stream, is_per_thread);
	if (capture->stream == PER_THREAD) {
		capture->thread = thread_now();
		capture->ctx = context_now();
	}
	gp_mutex_lock(&lock);
	for (unsigned i = 0; i < n_entries; i++) {
		if (entries[i].is_ending || !is_same(&entries[i].capture, capture))
			continue;
		entries[i].is_ending = true;
		*capture = entries[i].capture;
		break;
	}
	gp_mutex_unlock(&lock);
}

/* The destructor of a user object. The driver calls it on a thread of its own, where no CUDA call is allowed. */
static void graph_is_gone(void *retainer)
{
	gp_retainer_drop_owner(retainer);
}

/*
 * Makes the graph an owner of the retainer, by a user object that the graph, its clones and its executables share. If
 * the driver refuses, the memory stays retained until its context ends.
 */
static void add_graph(struct gp_retainer *retainer, CUgraph graph)
{
	static _Atomic bool is_logged;
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	bool is_relaxed = !gp_real.cuThreadExchangeStreamCaptureMode(&mode);
	CUuserObject object;
	CUresult r = CUDA_ERROR_NOT_FOUND;

	gp_retainer_add_owner(retainer);
	if (graph && gp_real.cuUserObjectCreate && gp_real.cuGraphRetainUserObject)
		r = gp_real.cuUserObjectCreate(&object, retainer, graph_is_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
	if (!r)
		r = gp_real.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
	if (is_relaxed)
		(void)gp_real.cuThreadExchangeStreamCaptureMode(&mode);
	if (r && !atomic_exchange(&is_logged, true))
		gp_log(GP_LOG_WARN,
			"driver error %d: the end of a captured graph cannot be seen, so memory that was allocated or "
			"freed during its capture stays reserved until the end of the context",
			r);
}

void gp_capture_ended(const struct gp_capture *capture, CUresult r, CUgraph graph, bool has_graph)
{
	struct gp_retainer *retainer = NULL;
	struct entry *entry;
	bool is_over = capture->number && (r == CUDA_SUCCESS || !is_still_on(capture)), is_unused = false;

	if (!capture->number)
		return;
	/* The program's own graph keeps the nodes even if the capture has failed. */
	if (capture->graph || r)
		graph = capture->graph;
	gp_mutex_lock(&lock);
	entry = find_locked(capture->number);
	if (entry && is_over) {
		is_unused = gp_retainer_is_unused(entry->retainer);
		retainer = remove_entry_locked(entry);
	} else if (entry) {
		/* After a failed end the stream may still be capturing. */
		entry->is_ending = false;
	}
	gp_mutex_unlock(&lock);
	if (!retainer)
		return;
	if (!is_unused && (graph || !has_graph))
		add_graph(retainer, graph);
	let_go(retainer);
	gp_mutex_lock(&lock);
	lower_count_locked();
	gp_mutex_unlock(&lock);
}

void gp_capture_forget_context(CUcontext ctx)
{
	if (gp_capture_is_none())
		return;
	gp_mutex_lock(&lock);
	for (unsigned i = n_entries; i-- > 0;) {
		if (entries[i].capture.ctx != ctx)
			continue;
		let_go(remove_entry_locked(&entries[i]));
		lower_count_locked();
	}
	gp_mutex_unlock(&lock);
}

/* The captures that concern an allocation or a free. */
struct part {
	unsigned n;
	const struct entry *one;      /* any of them */
	struct gp_retainer *retainer; /* stands for all of them; NULL: n is 0 */
};

static void add_part(struct part *part, const struct entry *entry)
{
	if (part->n++)
		gp_retainer_join(part->retainer, entry->retainer);
	part->one = entry;
	part->retainer = entry->retainer;
}

/* Finds the captures in which the thread takes part, or all that run. If there are several, they are joined. */
static struct part find_part_locked(int thread, bool is_any)
{
	struct part part = {0};

	for (unsigned i = 0; i < n_entries; i++)
		if (is_any || takes_part_locked(thread, &entries[i]))
			add_part(&part, &entries[i]);
	if (gp_unlikely(is_any_unlisted))
		part.retainer = &forever;
	return part;
}

/* True if everything that the only capture concerned captures is counted. */
static bool is_counted_locked(const struct part *part)
{
	return part->n == 1 && part->one->id && !part->one->is_open && !is_any_unlisted && !is_blind();
}

/* Returns the number of submissions so far that the capture has not captured, but perhaps another one. */
static uint32_t count_elsewhere_locked(const struct entry *entry)
{
	return atomic_load(&n_outside) + n_captured - entry->n_inside;
}

bool gp_capture_of_alloc(struct gp_capture_alloc *ret_how)
{
	struct part part;
	int thread;

	if (gp_capture_is_none())
		return false;
	thread = thread_now();
	gp_mutex_lock(&lock);
	part = find_part_locked(thread, is_blind());
	if (!part.retainer && n_entries)
		part.retainer = outside_locked(thread);
	*ret_how = (struct gp_capture_alloc){
		.retainer = part.retainer ? gp_retainer_get(part.retainer) : NULL,
		.n_captured = GP_CAPTURED_UNKNOWN,
	};
	if (is_counted_locked(&part)) {
		ret_how->n_elsewhere = count_elsewhere_locked(part.one);
		ret_how->n_captured = n_captured;
		ret_how->may_reuse = part.one->is_linear;
	}
	gp_mutex_unlock(&lock);
	return ret_how->retainer != NULL;
}

void gp_capture_alloc_done(struct gp_capture_alloc *how)
{
	gp_retainer_put(how->retainer);
}

bool gp_capture_of_free(struct gp_capture_free *ret_how)
{
	const struct member *outside;
	struct part part;
	bool is_part;
	int thread;

	if (gp_capture_is_none())
		return false;
	thread = thread_now();
	gp_mutex_lock(&lock);
	part = find_part_locked(thread, is_blind());
	is_part = part.n != 0;
	if (!is_part)
		part = find_part_locked(thread, true);
	outside = find_member_locked(thread, 0);
	*ret_how = (struct gp_capture_free){
		.retainer = part.retainer ? gp_retainer_get(part.retainer) : NULL,
		.exempt = part.retainer && outside && !is_part ? gp_retainer_get(outside->retainer) : NULL,
		.n_captured = GP_CAPTURED_UNKNOWN,
	};
	if (is_counted_locked(&part)) {
		ret_how->n_elsewhere = count_elsewhere_locked(part.one);
		ret_how->n_captured = n_captured;
		ret_how->may_reuse = is_part && part.one->is_linear;
	}
	gp_mutex_unlock(&lock);
	return ret_how->retainer != NULL;
}

void gp_capture_free_done(struct gp_capture_free *how)
{
	gp_retainer_put(how->retainer);
	gp_retainer_put(how->exempt);
}

/* Finds the running capture that the stream is in, or NULL. id: driver_id of the stream. */
static struct entry *find_by_id_locked(uint64_t id)
{
	for (unsigned i = 0; id && i < n_entries; i++)
		if (entries[i].id == id)
			return &entries[i];
	return NULL;
}

/* Work that no stream orders, or that goes to several streams, may belong to any capture and to none. */
static void note_any_locked(void)
{
	atomic_fetch_add(&n_outside, 1);
	n_captured++;
	for (unsigned i = 0; i < n_entries; i++) {
		entries[i].n_inside++;
		entries[i].is_linear = false;
		add_member_locked(thread_now(), &entries[i]);
	}
}

static void note_locked(CUstream stream, uint64_t id)
{
	struct entry *entry = find_by_id_locked(id);

	if (!entry) {
		atomic_fetch_add(&n_outside, 1);
		return;
	}
	n_captured++;
	entry->n_inside++;
	entry->is_linear &= stream == entry->capture.stream;
	add_member_locked(thread_now(), entry);
}

static bool is_inactive(void)
{
	return gp_slow_path_is_any(GP_SLOW_PATH_BYPASS) || is_blind();
}

void gp_capture_note_work(CUstream stream, int flags)
{
	int saved_errno = errno;
	bool is_any = stream == GP_STREAM_ANY;
	uint64_t id;

	if (is_inactive())
		return;
	stream = gp_stream_is_wait(stream) ? LEGACY : name_stream(stream, flags != 0);
	id = is_any ? 0 : driver_id(stream);
	if (is_any || id) {
		gp_mutex_lock(&lock);
		if (is_any)
			note_any_locked();
		else
			note_locked(stream, id);
		gp_mutex_unlock(&lock);
	} else {
		/* Threads outside of the captures need no lock. */
		atomic_fetch_add(&n_outside, 1);
	}
	errno = saved_errno;
}

void gp_capture_note_fork(CUstream stream, int flags, bool shows_graph)
{
	int saved_errno = errno;
	struct entry *entry;
	uint64_t id;

	if (is_inactive())
		return;
	id = driver_id(name_stream(stream, flags != 0));
	gp_mutex_lock(&lock);
	entry = find_by_id_locked(id);
	if (entry) {
		entry->is_linear = false;
		entry->is_open |= shows_graph;
	}
	gp_mutex_unlock(&lock);
	errno = saved_errno;
}
