/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */

/*
 * The order of work on the GPU, for every pair of stream kinds and every means of ordering them: the right
 * bytes arrive, and the race detector reports a race exactly where nothing orders the two.
 */

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_sim.h"

#define WORDS 1000

enum kind { LEGACY, BLOCKING, NON_BLOCKING, PER_THREAD, CREATED_LATER, OF_OTHER_THREAD, N_KINDS };

enum means {
	NOTHING,
	STREAM_EVENT,
	CONTEXT_FENCE,
	CONTEXT_EVENT_ON_STREAM,
	CONTEXT_SYNC,
	STREAM_SYNC,
	EVENT_SYNC,
	EVENT_POLL,
	STREAM_POLL,
	FREE_OF_ANOTHER_BLOCK,
	PINNED_FREE,
	COPY_ON_THAT_STREAM,
	N_MEANS,
	EVENT_RECORD, /* orders nothing */
};

struct pair {
	enum kind first, second;
	enum means means;
	CUdeviceptr data, wrong;
	CUstream streams[2];
};

static CUstream stream_of(enum kind kind)
{
	switch (kind) {
	case LEGACY:
		return CU_STREAM_LEGACY;
	case PER_THREAD:
	case OF_OTHER_THREAD:
		return CU_STREAM_PER_THREAD;
	case BLOCKING:
		return test_stream(0);
	default:
		return test_stream(CU_STREAM_NON_BLOCKING);
	}
}

/* Copies to pageable memory, which is complete when the call returns. */
static void copy_on(CUstream stream, CUdeviceptr data)
{
	uint32_t word;

	ok(cuMemcpyDtoHAsync_v2(&word, data, sizeof(word), stream));
	ck_assert_uint_eq(word, 1);
}

static void apply_means(struct pair *pair)
{
	CUevent event = test_event();
	CUdeviceptr other = test_alloc(4 * MIB);
	void *pinned;

	ok(cuMemHostAlloc(&pinned, 4096, 0));
	switch (pair->means) {
	case STREAM_EVENT:
		ok(cuEventRecord(event, pair->streams[0]));
		ok(cuStreamWaitEvent(pair->streams[1], event, 0));
		break;
	case CONTEXT_FENCE:
		ok(cuCtxRecordEvent(test_ctx, event));
		ok(cuCtxWaitEvent(test_ctx, event));
		break;
	case CONTEXT_EVENT_ON_STREAM:
		ok(cuCtxRecordEvent(test_ctx, event));
		ok(cuStreamWaitEvent(pair->streams[1], event, 0));
		break;
	case CONTEXT_SYNC:
		ok(cuCtxSynchronize());
		break;
	case STREAM_SYNC:
		ok(cuStreamSynchronize(pair->streams[0]));
		break;
	case EVENT_SYNC:
		ok(cuEventRecord(event, pair->streams[0]));
		ok(cuEventSynchronize(event));
		break;
	case EVENT_POLL:
		ok(cuEventRecord(event, pair->streams[0]));
		while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
			;
		break;
	case STREAM_POLL:
		while (cuStreamQuery(pair->streams[0]) == CUDA_ERROR_NOT_READY)
			;
		break;
	case FREE_OF_ANOTHER_BLOCK:
		ok(cuMemFree_v2(other));
		break;
	case PINNED_FREE:
		ok(cuMemFreeHost(pinned));
		break;
	case COPY_ON_THAT_STREAM:
		copy_on(pair->streams[0], pair->data);
		break;
	case EVENT_RECORD:
		ok(cuCtxRecordEvent(test_ctx, event));
		break;
	case NOTHING:
	case N_MEANS:
		break;
	}
}

static void *second_half(void *arg)
{
	const struct pair *pair = arg;

	ok(cuCtxSetCurrent(test_ctx));
	ok(test_count_wrong(pair->streams[1], pair->data, WORDS, 1, pair->wrong));
	return NULL;
}

static uint64_t run_pair(struct pair *pair)
{
	uint64_t wrong;
	pthread_t thread;

	pair->data = test_alloc(WORDS * 4);
	pair->wrong = test_alloc(8);
	pair->streams[0] = stream_of(pair->first);
	if (pair->second != CREATED_LATER)
		pair->streams[1] = stream_of(pair->second);
	ok(test_spin_fill(pair->streams[0], pair->data, WORDS, 1, MS));
	if (pair->second == CREATED_LATER && pair->means != STREAM_EVENT && pair->means != CONTEXT_EVENT_ON_STREAM) {
		apply_means(pair);
		pair->streams[1] = stream_of(pair->second);
	} else {
		if (pair->second == CREATED_LATER)
			pair->streams[1] = stream_of(pair->second);
		apply_means(pair);
	}
	if (pair->second == OF_OTHER_THREAD) {
		pthread_create(&thread, NULL, second_half, pair);
		pthread_join(thread, NULL);
	} else {
		second_half(pair);
	}
	ok(cuCtxSynchronize());
	ok(cuMemcpyDtoH_v2(&wrong, pair->wrong, sizeof(wrong)));
	return wrong;
}

static bool is_blocking(enum kind kind)
{
	return kind == BLOCKING || kind == PER_THREAD || kind == OF_OTHER_THREAD;
}

/* True if the rules of default streams alone order these. */
static bool are_ordered_anyway(const struct pair *pair)
{
	enum kind first = pair->first, second = pair->second;

	return (first == LEGACY && second == LEGACY) || (first == LEGACY && is_blocking(second)) ||
	       (second == LEGACY && is_blocking(first)) || (first == PER_THREAD && second == PER_THREAD);
}

/*
 * True if the means has no effect: a stream wait that this thread makes does not reach another thread's
 * default stream.
 */
static bool has_no_effect(const struct pair *pair)
{
	return pair->second == OF_OTHER_THREAD &&
	       (pair->means == STREAM_EVENT || pair->means == CONTEXT_EVENT_ON_STREAM) && pair->first != LEGACY;
}

START_TEST(every_pair_of_streams_is_ordered_by_each_means_and_races_without_one)
{
	struct pair pair = {.first = _i / (N_KINDS * N_MEANS), .second = _i / N_MEANS % N_KINDS, .means = _i % N_MEANS};
	bool ordered;
	uint64_t wrong;

	if (pair.first >= CREATED_LATER || has_no_effect(&pair))
		return;
	test_start();
	wrong = run_pair(&pair);
	ordered = pair.means != NOTHING || are_ordered_anyway(&pair);
	ck_assert_msg(wrong == (ordered ? 0 : WORDS), "stream %d to %d by means %d: got %llu wrong words", pair.first,
		pair.second, pair.means, (unsigned long long)wrong);
	ck_assert_msg(simgpu_races() == !ordered, "stream %d to %d by means %d: got %llu races", pair.first,
		pair.second, pair.means, (unsigned long long)simgpu_races());
	simgpu_expect_races(!ordered);
}
END_TEST

static const struct {
	enum means means;
	bool is_ordered;
} before_early[] = {{NOTHING, false}, {EVENT_RECORD, false}, {CONTEXT_FENCE, true}, {STREAM_SYNC, true}};

/* Launch attributes let a kernel begin early if the kernel before it allows that (measured on an H200). */
START_TEST(a_kernel_that_may_begin_early_waits_for_a_gpu_wait_but_not_for_a_record)
{
	CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, .attrs = &attribute, .numAttrs = 1};
	struct pair pair = {.means = before_early[_i].means};
	bool is_ordered = before_early[_i].is_ordered;
	uint64_t words = WORDS, wrong;
	uint32_t value = 1;

	test_start();
	attribute.value.programmaticStreamSerializationAllowed = 1;
	pair.data = test_alloc(WORDS * 4);
	pair.wrong = test_alloc(8);
	ok(test_spin_fill(NULL, pair.data, WORDS, value, MS));
	apply_means(&pair);
	ok(cuLaunchKernelEx(
		&config, test_kernels.count_wrong, (void *[]){&pair.data, &words, &value, &pair.wrong}, NULL));
	ok(cuCtxSynchronize());
	ok(cuMemcpyDtoH_v2(&wrong, pair.wrong, sizeof(wrong)));
	ck_assert_uint_eq(wrong, is_ordered ? 0 : WORDS);
	ck_assert_uint_eq(simgpu_races(), !is_ordered);
	simgpu_expect_races(!is_ordered);
}
END_TEST

enum between { NO_CALL, RECORD, KERNEL };

static const struct {
	enum kind first, last;
	enum between between;
	bool is_ordered;
} around_legacy[] = {
	{BLOCKING, BLOCKING, NO_CALL, false},
	{BLOCKING, BLOCKING, RECORD, false},
	{BLOCKING, BLOCKING, KERNEL, true},
	{BLOCKING, PER_THREAD, RECORD, false},
	{BLOCKING, PER_THREAD, KERNEL, true},
	{PER_THREAD, BLOCKING, RECORD, false},
	{PER_THREAD, BLOCKING, KERNEL, true},
};

static void call_between(CUstream stream, enum between between)
{
	if (between == RECORD)
		ok(cuEventRecord(test_event(), stream));
	else if (between == KERNEL)
		ok(test_spin(stream, 1000));
}

/* The second half of the loops below runs with records that are operations. */
static bool records_are_operations(int i, int n_rows)
{
	if (i >= n_rows)
		setenv("SIMGPU_RECORDS_ARE_OPERATIONS", "1", 1);
	return i >= n_rows;
}

START_TEST(on_the_legacy_stream_a_kernel_orders_blocking_streams_and_a_record_if_it_is_an_operation)
{
	int row = _i % (int)LENGTH(around_legacy);
	bool is_ordered = around_legacy[row].is_ordered;
	CUdeviceptr data, wrong;
	CUstream last;
	uint64_t n;

	is_ordered |= records_are_operations(_i, (int)LENGTH(around_legacy)) && around_legacy[row].between == RECORD;
	test_start();
	data = test_alloc(WORDS * 4);
	wrong = test_alloc(8);
	last = stream_of(around_legacy[row].last);
	ok(test_spin_fill(stream_of(around_legacy[row].first), data, WORDS, 1, MS));
	call_between(CU_STREAM_LEGACY, around_legacy[row].between);
	ok(test_count_wrong(last, data, WORDS, 1, wrong));
	ok(cuCtxSynchronize());
	ok(cuMemcpyDtoH_v2(&n, wrong, sizeof(n)));
	ck_assert_uint_eq(n, is_ordered ? 0 : WORDS);
	ck_assert_uint_eq(simgpu_races(), !is_ordered);
	simgpu_expect_races(!is_ordered);
}
END_TEST

/* The host waits for one stream, and another stream reads what the legacy or the blocking stream writes. */
START_TEST(an_event_covers_other_streams_behind_a_kernel_or_if_a_record_is_an_operation)
{
	enum kind first = _i / 2 % 2 ? LEGACY : BLOCKING, second = _i / 2 % 2 ? BLOCKING : LEGACY;
	bool is_kernel = _i % 2, is_covered = records_are_operations(_i, 4) || is_kernel;
	CUdeviceptr data;
	CUevent event;
	CUstream stream;

	test_start();
	data = test_alloc(WORDS * 4);
	event = test_event();
	stream = stream_of(second);
	ok(test_spin_fill(stream_of(first), data, WORDS, 1, 100 * MS));
	call_between(stream, is_kernel ? KERNEL : NO_CALL);
	ok(cuEventRecord(event, stream));
	ok(cuEventSynchronize(event));
	ok(test_fill(test_stream(CU_STREAM_NON_BLOCKING), data, WORDS, 2));
	ck_assert_uint_eq(simgpu_races(), !is_covered);
	simgpu_expect_races(!is_covered);
	ok(cuCtxSynchronize());
}
END_TEST

START_TEST(an_event_covers_work_before_it_and_none_after)
{
	CUevent event;
	CUstream stream;

	test_start();
	stream = test_stream(CU_STREAM_NON_BLOCKING);
	event = test_event();
	ok(cuEventQuery(event)); /* never recorded */
	ok(test_spin(stream, 10 * MS));
	ok(cuCtxRecordEvent(test_ctx, event));
	ok(test_spin(stream, 1000 * MS));
	simgpu_advance(5 * MS);
	fails(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	simgpu_advance(6 * MS);
	ok(cuEventQuery(event));
	fails(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
}
END_TEST

START_TEST(a_context_event_waits_for_work_on_every_kind_of_stream)
{
	static const enum kind kinds[] = {LEGACY, BLOCKING, NON_BLOCKING, PER_THREAD};
	CUevent event;

	test_start();
	event = test_event();
	ok(test_spin(stream_of(kinds[_i]), 100 * MS));
	ok(cuCtxRecordEvent(test_ctx, event));
	simgpu_advance(90 * MS);
	fails(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	simgpu_advance(20 * MS);
	ok(cuEventQuery(event));
}
END_TEST

START_TEST(a_context_wait_does_not_make_the_host_wait)
{
	CUevent event;
	uint64_t before;

	test_start();
	event = test_event();
	ok(test_spin(NULL, 100 * MS));
	before = simgpu_now_ns();
	ok(cuCtxRecordEvent(test_ctx, event));
	ok(cuCtxWaitEvent(test_ctx, event));
	ck_assert_uint_lt(simgpu_now_ns() - before, 10000);
}
END_TEST

START_TEST(a_host_that_only_queries_sees_the_work_complete_in_the_end)
{
	unsigned asked = 0;

	test_start();
	ok(test_spin(NULL, 3600 * 1000 * MS));
	while (cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY)
		asked++;
	ok(cuStreamQuery(NULL));
	ck_assert_uint_gt(asked, 10);
	ck_assert_uint_lt(asked, 1000);
}
END_TEST

START_TEST(effects_of_concurrent_work_appear_in_the_order_in_which_it_ends)
{
	CUdeviceptr data;
	CUstream slow, fast;

	test_start();
	data = test_alloc(4);
	slow = test_stream(CU_STREAM_NON_BLOCKING);
	fast = test_stream(CU_STREAM_NON_BLOCKING);
	ok(test_spin_fill(slow, data, 1, 1, 10 * MS));
	ok(test_spin_fill(fast, data, 1, 2, MS));
	ck_assert_uint_eq(simgpu_races(), 1);
	simgpu_expect_races(1);
	simgpu_advance(5 * MS);
	ok(cuStreamQuery(fast));
	ck_assert_uint_eq(test_word(data), 1);
}
END_TEST

START_TEST(a_copy_samples_its_source_when_it_starts)
{
	CUdeviceptr from, to;
	CUstream other;

	test_start();
	from = test_alloc(64 * MIB);
	to = test_alloc(64 * MIB);
	other = test_stream(CU_STREAM_NON_BLOCKING);
	ok(cuMemsetD32_v2(from, 1, 16 * MIB));
	ok(cuCtxSynchronize());
	ok(cuMemcpyDtoDAsync_v2(to, from, 64 * MIB, NULL)); /* about 45 us */
	ok(test_fill(other, from, 1, 2));                   /* about 3 us */
	ck_assert_uint_eq(simgpu_races(), 1);
	simgpu_expect_races(1);
	ck_assert_uint_eq(test_word(to), 1);
	ck_assert_uint_eq(test_word(from), 2);
}
END_TEST

START_TEST(work_on_different_streams_overlaps)
{
	uint64_t before;

	test_start();
	before = simgpu_now_ns();
	for (int i = 0; i < 4; i++)
		ok(test_spin(test_stream(CU_STREAM_NON_BLOCKING), 100 * MS));
	ok(cuCtxSynchronize());
	ck_assert_uint_lt(simgpu_now_ns() - before, 110 * MS);
}
END_TEST

START_TEST(a_write_covers_all_accesses_ordered_before_it)
{
	CUdeviceptr data;
	CUstream a, b, c;
	CUevent event;

	test_start();
	data = test_alloc(4 * WORDS);
	a = test_stream(CU_STREAM_NON_BLOCKING);
	b = test_stream(CU_STREAM_NON_BLOCKING);
	c = test_stream(CU_STREAM_NON_BLOCKING);
	event = test_event();
	ok(test_fill(a, data, WORDS, 1));
	ok(cuEventRecord(event, a));
	ok(cuStreamWaitEvent(b, event, 0));
	ok(test_fill(b, data, WORDS, 2));                    /* ordered behind a */
	ok(test_fill(c, data + 4 * (WORDS - 1), 100000, 3)); /* races with b's last word; runs over the end */
	ck_assert_uint_eq(simgpu_races(), 1);
	simgpu_expect_races(1);
	fails(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(simgpu_invalid_uses(), 1);
}
END_TEST

START_TEST(a_stream_write_of_a_flag_ends_a_kernels_wait_for_it)
{
	CUstream waiting, writing;
	CUdeviceptr word, managed;

	test_start();
	word = test_alloc(4096);
	waiting = test_stream(CU_STREAM_NON_BLOCKING);
	writing = test_stream(CU_STREAM_NON_BLOCKING);
	ok(test_wait_flag(waiting, word, 5));
	ok(test_spin(writing, 10 * MS));
	ok(cuStreamWriteValue32_v2(writing, word, 5, 0));
	simgpu_advance(5 * MS);
	fails(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
	simgpu_advance(6 * MS);
	ok(cuStreamQuery(waiting));
	ck_assert_uint_eq(test_word(word), 5);
	ck_assert_uint_eq(simgpu_races(), 0);
	fails(cuStreamWriteValue32_v2(writing, word + 2, 5, 0), CUDA_ERROR_INVALID_VALUE);
	fails(cuStreamWriteValue32_v2(writing, word, 5, 2), CUDA_ERROR_INVALID_VALUE);
	fails(cuStreamWriteValue32_v2(writing, 4096, 5, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
	fails(cuStreamWriteValue32_v2(writing, managed, 5, 0), CUDA_ERROR_INVALID_VALUE);
	ok(test_fill(waiting, word, 1, 0));
	ok(cuStreamWriteValue32_v2(writing, word, 5, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
	ck_assert_uint_eq(simgpu_races(), 1);
	simgpu_expect_races(1);
}
END_TEST

START_TEST(reads_do_not_race_with_reads_and_flags_not_with_flags)
{
	CUdeviceptr data, wrong, flag;
	CUstream a, b;

	test_start();
	data = test_alloc(4 * WORDS);
	wrong = test_alloc(8);
	flag = test_alloc(4);
	a = test_stream(CU_STREAM_NON_BLOCKING);
	b = test_stream(CU_STREAM_NON_BLOCKING);
	ok(test_count_wrong(a, data, WORDS, 0, wrong));
	ok(test_count_wrong(b, data, WORDS, 0, wrong));
	ok(test_wait_flag(a, flag, 1));
	ok(test_set_flag(b, flag, 1));
	ok(cuCtxSynchronize());
	ck_assert_uint_eq(simgpu_races(), 0);
	ok(test_count_wrong(a, data, WORDS, 0, wrong));
	ok(test_fill(b, wrong, 2, 0));
	ck_assert_uint_eq(simgpu_races(), 1);
	simgpu_expect_races(1);
}
END_TEST

START_TEST(host_accesses_to_pinned_memory_take_part_in_race_detection)
{
	CUdeviceptr data;
	void *pinned;

	test_start();
	data = test_alloc(4096);
	ok(cuMemHostAlloc(&pinned, 4096, 0));
	simgpu_host_access(pinned, 4096, true);
	ok(cuMemcpyHtoDAsync_v2(data, pinned, 4096, NULL));
	simgpu_host_access(pinned, 4096, false);
	ck_assert_uint_eq(simgpu_races(), 0);
	simgpu_host_access(pinned, 4096, true);
	ck_assert_uint_eq(simgpu_races(), 1);
	ok(cuCtxSynchronize());
	simgpu_host_access(pinned, 4096, true);
	ck_assert_uint_eq(simgpu_races(), 1);
	simgpu_expect_races(1);
}
END_TEST

START_TEST(a_million_ordered_operations_report_no_race_and_leave_the_gpu_idle)
{
	CUdeviceptr data;
	CUevent event;
	CUstream a, b;

	test_start();
	data = test_alloc(4 * MIB);
	a = test_stream(CU_STREAM_NON_BLOCKING);
	b = test_stream(CU_STREAM_NON_BLOCKING);
	event = test_event();
	for (uint64_t i = 0; i < 250000; i++) {
		ok(test_fill(i % 2 ? a : b, data + i % 1000 * 4096, 64, 1));
		ok(cuCtxRecordEvent(test_ctx, event));
		ok(cuCtxWaitEvent(test_ctx, event));
		ok(test_fill(i % 2 ? b : a, data + i % 1000 * 4096, 64, 2));
	}
	ck_assert_uint_eq(simgpu_races(), 0);
	ok(cuCtxSynchronize());
	ck_assert(simgpu_idle(0));
}
END_TEST

static void busy_program(int to)
{
	CUevent event;
	uint64_t now;

	test_start();
	event = test_event();
	for (int i = 0; i < 100; i++) {
		ok(test_spin(test_stream(i % 2), (uint64_t)i * 1000));
		ok(cuCtxRecordEvent(test_ctx, event));
		if (i % 3 == 0)
			ok(cuCtxWaitEvent(test_ctx, event));
	}
	ok(cuCtxSynchronize());
	now = simgpu_now_ns();
	ck_assert_int_eq(write(to, &now, sizeof(now)), sizeof(now));
}

static uint64_t time_of_busy_program(void)
{
	uint64_t now = 0;
	int fds[2];
	pid_t pid;

	ck_assert_int_eq(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		busy_program(fds[1]);
		_exit(0);
	}
	ck_assert_int_eq(read(fds[0], &now, sizeof(now)), sizeof(now));
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	return now;
}

START_TEST(the_same_program_takes_the_same_virtual_time)
{
	uint64_t once = time_of_busy_program();

	ck_assert_uint_gt(once, 100000);
	ck_assert_uint_eq(once, time_of_busy_program());
}
END_TEST

static TCase *order_cases(void)
{
	TCase *tc = tcase_create("order");

	tcase_add_loop_test(tc, every_pair_of_streams_is_ordered_by_each_means_and_races_without_one, 0,
		N_KINDS * N_KINDS * N_MEANS);
	tcase_add_loop_test(tc, a_context_event_waits_for_work_on_every_kind_of_stream, 0, 4);
	tcase_add_loop_test(tc, a_kernel_that_may_begin_early_waits_for_a_gpu_wait_but_not_for_a_record, 0,
		(int)(sizeof(before_early) / sizeof(before_early[0])));
	tcase_add_loop_test(tc,
		on_the_legacy_stream_a_kernel_orders_blocking_streams_and_a_record_if_it_is_an_operation, 0,
		2 * (int)LENGTH(around_legacy));
	tcase_add_loop_test(tc, an_event_covers_other_streams_behind_a_kernel_or_if_a_record_is_an_operation, 0, 8);
	tcase_add_test(tc, an_event_covers_work_before_it_and_none_after);
	tcase_add_test(tc, a_context_wait_does_not_make_the_host_wait);
	tcase_add_test(tc, a_host_that_only_queries_sees_the_work_complete_in_the_end);
	tcase_add_test(tc, effects_of_concurrent_work_appear_in_the_order_in_which_it_ends);
	tcase_add_test(tc, a_copy_samples_its_source_when_it_starts);
	tcase_add_test(tc, work_on_different_streams_overlaps);
	tcase_add_test(tc, the_same_program_takes_the_same_virtual_time);
	return tc;
}

static TCase *race_cases(void)
{
	TCase *tc = tcase_create("races");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_write_covers_all_accesses_ordered_before_it);
	tcase_add_test(tc, a_stream_write_of_a_flag_ends_a_kernels_wait_for_it);
	tcase_add_test(tc, reads_do_not_race_with_reads_and_flags_not_with_flags);
	tcase_add_test(tc, host_accesses_to_pinned_memory_take_part_in_race_detection);
	tcase_add_test(tc, a_million_ordered_operations_report_no_race_and_leave_the_gpu_idle);
	return tc;
}

int main(void)
{
	static TCase *(*const cases[])(void) = {order_cases, race_cases};

	return test_run("simulated GPU: order", cases, sizeof(cases) / sizeof(*cases));
}
