/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: 2026 The gpupool authors */
#pragma once

/*
 * Every constant of policy, each with its unit, its reason and what holds it. Constants that follow from a layout or a
 * formula (size classes, tables, rings) stand where they are used.
 *
 * "Held by" names the evidence:
 *
 *   - A trace of tests/traces, and a pool type: its peak with half and with twice the value, in per cent of its peak
 *     today. test_replay.c fails if the peak or the number of driver calls passes its limit. Most values are a
 *     compromise between traces, and a single segment more or less at the peak accounts for several per cent.
 *   - A test of tests/unit: it checks the behaviour that the constant bounds. Most tests pass with another value of the
 *     same order.
 *   - A row of the benchmark (tests/bench/README.md). A benchmark shows a loss, but has no limit.
 *
 * "No figure" means that no trace shows a difference with half and with twice the value, and that no benchmark was made
 * for it: the value is an order of magnitude.
 */

#include "base.h"

/*
 * Segments: how much split asks the driver for.
 */

/*
 * Bytes: a slab is a multiple of this. The driver's granule.
 * Held by graphs, split: +4 and -3 %; gpt, split: 0 and +8 %; adversary, split: 0 and +18 %.
 */
#define GP_SLAB_MULTIPLE (2 * GP_MIB)

/*
 * Blocks: a slab holds at least this many of the size that it was made for. With fewer, conv asks the driver 19 % more
 * often. Held by adversary, split: -1 and +18 %; graphs, split: -7 and +9 %; conv, split: 0 and +9 %.
 */
#define GP_SLAB_BLOCKS_MIN 4

/*
 * Bytes: a large segment is a share of what the pool holds, within these limits. Larger segments leave more memory
 * unused at the peak; smaller ones ask the driver more often.
 * Held by the traces, split. Minimum: conv +4 % with half; cupy +19 %, elements and graphs +5 % with twice. Maximum:
 * gpt +4 % with half, and conv asks the driver 53 % more often; adversary +17 %, gpt +6 % with twice. Share: elements
 * +20 % with half; conv +3 % with twice.
 */
#define GP_SEGMENT_MIN   (16 * GP_MIB)
#define GP_SEGMENT_MAX   (48 * GP_MIB)
#define GP_SEGMENT_SHARE 4

/*
 * Share: a request for more than this part of a segment gets a segment of its own, which can go back on its own.
 * Held by elements, split: +9 and +17 %; adversary, split: +11 and -9 %.
 */
#define GP_SEGMENT_PART 4

/*
 * Share: simple hands out a block that exceeds the request by at most this part of it. Otherwise a small request would
 * pin a huge block. A larger excess serves more requests from the cache, but wastes memory inside blocks.
 * Held by the traces, simple: transformer -26 and +27 %; graphs -37 and +27 %. So half would take less in these.
 */
#define GP_SIMPLE_FIT_SHARE 8

/*
 * Memory that goes back, or moves, before a pool exceeds its peak.
 */

/*
 * Growths of the pool: a segment that was idle for this many goes back. A program whose buffers grow leaves segments
 * behind that are too small. After a few growths they can be distinguished from segments that a program alternates
 * between, which are used again once all of them exist.
 * Held by conv, split: 48 % more driver calls with half; adversary, split: +10 % with twice.
 */
#define GP_STALE_GROWTHS 4

/*
 * Factor: before split exceeds its peak it gives back this many times the growth. Some idle memory stays, since the
 * program may ask for it next. Held by conv, split: +9 and +9 %.
 */
#define GP_SWAP_MULTIPLE 2

/*
 * Nanoseconds: limit of the wait until that memory has arrived in the driver, which takes some tenths of this. Without
 * the wait the process would hold both for a moment.
 * Held by test_growth.c, split_waits_for_returning_memory_before_it_takes_more. No figure.
 */
#define GP_SWAP_WAIT_NS UINT64_C(1000000)

/*
 * Waits for freed memory before split and vmm exceed their peak, until the peak has risen. Only completed memory can be
 * given back or moved. The real free waits each time, so a few waits while a program finds its size cost next to
 * nothing. Allocations in stream order wait, too, if enough is unused.
 * Held by graphs, vmm: +11 and 0 %; adversary, vmm: -3 and +1 %.
 */
#define GP_PEAK_WAITS_MAX 8

/*
 * Share by which the peak must rise before these waits are counted anew.
 * Held by graphs, vmm: +9 and 0 %.
 */
#define GP_PEAK_SHARE 16

/* Bytes: below this, memory is not worth a stall. No figure. */
#define GP_PEAK_MIN (128 * GP_MIB)

/*
 * Nanoseconds: limit of such a wait for memory that other threads freed, and of each in stream order. For its own other
 * frees a thread waits as long as they would have. Held by test_reuse.c,
 * the_pool_grows_if_a_block_freed_by_another_thread_takes_too_long; test_stream_order.c,
 * a_request_on_a_stream_waits_for_a_limited_time. No figure.
 */
#define GP_PEAK_WAIT_NS UINT64_C(20000000)

/*
 * The thrash detector (thrash.h).
 */

/*
 * Notes that a growing program may make before further ones count as a loop. Held by adversary, vmm: +3 and -5 %, and
 * 6 % more driver calls with twice.
 */
#define GP_THRASH_EXPECTED 160

/*
 * Share by which use must rise to count as growth, so that a loop may leak.
 * Held by elements, vmm: 0 and +3 %; adversary, vmm: +2 and -1 %; test_thrash.c,
 * notes_are_dropped_once_use_has_risen_by_more_than_a_sixteenth.
 */
#define GP_THRASH_GROWTH_SHARE 16

/*
 * Share: differences in use below this count as none, so that a request of a loop that leaks is known again.
 * Held by adversary, vmm: 0 and +2 %; test_growth.c, few_random_loops_call_the_driver_after_the_third_round.
 */
#define GP_THRASH_USE_STEPS 1024

/*
 * Moving memory, vmm (vmm/grow.c).
 */

/*
 * Thousandths of the peak of use by which the pool may exceed it before memory is moved. Each request for which memory
 * was moved adds 1, up to the maximum. Each such request beyond GP_THRASH_EXPECTED adds GP_MOVE_SLACK_STEP.
 * Held by elements, vmm: 0 and +3 % (first); gpt, vmm: 0 and +2 % (first); transformer, vmm: 8 % more driver calls with
 * half (maximum); adversary, vmm: -5 and +3 % (step); test_arena.c,
 * vmm_grows_instead_of_moving_chunks_in_every_round_of_a_loop.
 */
#define GP_MOVE_SLACK      27
#define GP_MOVE_SLACK_MAX  40
#define GP_MOVE_SLACK_STEP 10

/*
 * Bytes, and a share of the request: the larger of both limits a new chunk. A chunk is as large as its gap, but not so
 * large that it is never free as a whole. Held by graphs, vmm: +1 and +2 % (bytes), +5 and +3 % (share);
 * conv, vmm: 42 % more driver calls with half the bytes.
 */
#define GP_CHUNK_MAX   (20 * GP_MIB)
#define GP_CHUNK_SHARE 12

/*
 * Bytes of free memory that are copied with the used memory around it when a pool falls asleep. A copy of 1 MiB takes
 * some 20 us, as long as the host needs for a few separate copies. No figure.
 */
#define GP_SLEEP_GAP (1 * GP_MIB)

/*
 * Bytes of a piece of host memory, and of which a smaller piece is a multiple: huge pages. A thread that waits for a
 * sleep to end waits for one piece: 256 MiB are mapped and registered in some 20 ms. Smaller pieces would spend more of
 * their time on starting threads. No figure.
 */
#define GP_SLEEP_PIECE (256 * GP_MIB)
#define GP_SLEEP_ROUND (2 * GP_MIB)

/*
 * Attempts of a request for which memory is moved to the host: for what is missing, then for a quarter of the request,
 * and then for all of it, since other threads take memory meanwhile. No figure.
 */
#define GP_SPILL_TRIES 8

/* Free blocks that are searched for a well-fitting chunk, before the best so far is taken. No figure. */
#define GP_FIT_LOOK_AT 64

/*
 * Addresses of an arena per byte of the device, and the maximum in bytes. Moving memory leaves unmapped gaps, and those
 * must not exhaust the arena. If that many addresses cannot be reserved (under a limit on address space, say), fewer
 * will do. Held by test_arena_short.c. No figure.
 */
#define GP_ARENA_SPACE_FACTOR 4
#define GP_ARENA_SPACE_MAX    (UINT64_C(1) << 44)

/*
 * Pending memory (reuse.c).
 */

/*
 * Share of the pool, and bytes: up to the larger of both, pending blocks hardly affect where the next block is cut, so
 * the fences are not polled first. Poor cuts cost far more memory than a poll costs time.
 * Held by gpt, split: +8 and 0 % (share); elements, vmm: +3 and 0 % (share), +12 and +5 % (bytes); graphs,
 * vmm: +6 and +4 % (share); test_poll_before_reuse.c.
 */
#define GP_UNPOLLED_SHARE 64
#define GP_UNPOLLED_MIN   (2 * GP_MIB)

/*
 * Allocations: with one stream, while the GPU lags, only every so many of those that could poll do, to see whether it
 * still lags. No figure.
 */
#define GP_LAG_POLL_EVERY 16

/*
 * One stream: the pool grows until this many blocks of the size can take turns, up to a minimum of bytes or a share of
 * the used memory. Then a GPU wait is made, for which the GPU stops for 0.9 us.
 * Held by test_reuse.c, a_second_block_is_allocated_before_a_gpu_wait_stalls_the_gpu; graphs, vmm: +2 and 0 % (share);
 * adversary, binned: 0 and +2 % (minimum).
 */
#define GP_SERIAL_TURNS         2
#define GP_GPU_WAIT_SLACK_MIN   (32 * GP_MIB)
#define GP_GPU_WAIT_SLACK_SHARE 8

/*
 * Overlap: the same where several streams work, up to a maximum of bytes. A GPU wait empties all streams, so their
 * overlap is worth more blocks: with 32 MiB, four streams with 8 MiB a turn came to a GPU wait every four turns.
 * Held by the row `overlap SIZE`; graphs, simple: -2 and +9 % (maximum); test_reuse.c,
 * overlapping_streams_get_no_gpu_wait_for_a_little_memory.
 */
#define GP_OVERLAP_TURNS 16
#define GP_OVERLAP_MAX   (128 * GP_MIB)

/*
 * Nanoseconds: overlap: limit of the wait for the oldest block that fits, before a GPU wait. A failed wait costs the
 * GPU nothing: all that the host would have submitted meanwhile would have been behind the GPU wait, which waits for
 * the same work. The host loses at most this much of its lead. Only requests up to a size wait (bytes), and only while
 * at most GP_OVERLAP_MAX is pending.
 * Held by the row `overlap SIZE`; test_reuse.c, a_futile_wait_is_short_rare_and_followed_by_a_gpu_wait.
 */
#define GP_BRIEF_WAIT_NS       UINT64_C(1000000)
#define GP_BRIEF_WAIT_SIZE_MAX (16 * GP_MIB)

/*
 * Waits: after each failure about twice as many GPU waits are made without such a wait, up to this many.
 * Held by test_reuse.c, futile_waits_drop_to_one_in_256_gpu_waits_until_a_wait_succeeds.
 */
#define GP_BRIEF_WAITS_SKIPPED_MAX 255u

/*
 * Bytes, and a share of the used memory: where completion is needed, at most the larger of both may be pending before
 * the host waits. A wait costs the host its lead over the GPU, which is worth more memory than a GPU wait.
 * Held by test_reuse.c, a_block_in_use_by_the_gpu_is_not_reused_if_completion_is_required.
 */
#define GP_HOST_WAIT_SLACK_MIN   (256 * GP_MIB)
#define GP_HOST_WAIT_SLACK_SHARE 2

/*
 * Nanoseconds: limit of such a wait for work for which no free of its own thread would have waited. That work may be
 * waiting for this thread, and an extra block is better than a stall.
 * Held by test_reuse.c, the_pool_grows_if_a_block_freed_by_another_thread_takes_too_long. No figure.
 */
#define GP_GROW_INSTEAD_NS UINT64_C(100000000)

/*
 * Blocks of each bin of the pending queue that a search looks at. Blocks of a bin differ by less than a quarter, so the
 * first few nearly always contain a fit. No figure.
 */
#define GP_PENDING_LOOK_PER_BIN 8

/*
 * Blocks that one freed in stream order passes over from either end of its bin of the queue, which is ordered by fence
 * sequence. Nearly all pass over none. A loop over what is left of thousands of blocks would pass over all that were
 * freed since, each time.
 * Held by test_pending.c, a_block_of_a_stream_passes_over_few_others; tests/hostile/test_recordings.py. No figure.
 */
#define GP_PENDING_WALK_MAX 64

/*
 * Blocks that a search for neighbours freed on one stream looks at before the pool grows: a call of the driver would
 * come next, and takes far longer. No figure.
 */
#define GP_RUN_LOOK 256

/*
 * When memory has run out, or must go back (rounds.c, pool_control.c).
 */

/*
 * Nanoseconds: limit of waits for fences recorded outside a free (see GP_BLOCK_UNFENCED). They may cover work that the
 * real free would not wait for.
 * Held by test_rounds.c, an_allocation_waits_for_an_unfenced_block_for_a_bounded_time.
 */
#define GP_UNFENCED_WAIT_NS UINT64_C(100000000)

/*
 * Nanoseconds: limit of waits for blocks that left a thread cache without a fence. The real free would hardly have
 * waited for them, since the GPU kept up then; but a long kernel may have been launched since.
 * Held by test_tcache.c, an_allocation_waits_for_a_cached_block_rather_than_failing. No figure.
 */
#define GP_UNRECORDED_WAIT_NS UINT64_C(10000000000)

/*
 * Nanoseconds: limit of waits for blocks that another thread freed, once memory has run out. The real free would not
 * have waited for those, and that thread may itself be waiting for this one. But an error is worse than a stall that
 * ends. Held by test_rounds.c, an_allocation_waits_for_pending_memory_rather_than_failing. No figure.
 */
#define GP_SHORTAGE_WAIT_NS UINT64_C(60000000000)

/*
 * Waits of one request in that round, since another thread may take what this one waited for. Each time another request
 * has been served. Held by test_pool_threads.c, a_thread_that_frees_before_it_allocates_never_runs_out_of_memory.
 */
#define GP_SHORTAGE_WAITS_MAX 1000

/*
 * Round 5 while the limit of a group is short: requests to its members, requests in a row after which they gave
 * nothing, and the attempt at which the pauses between them begin (gp_clock_pause: 1 us and more). Held by
 * tests/fleet/test_group.py, ranks_that_share_a_limit_do_not_fail_while_others_have_memory_cached.
 */
#define GP_GROUP_ASKS_MAX  64
#define GP_GROUP_ASKS_IDLE 3
#define GP_GROUP_ASK_PAUSE 100

/*
 * Allocations in a row for which the members gave nothing, and the nanoseconds after which these are forgotten: later
 * allocations ask the members once. A question to three members takes 0.6 ms on two busy processors. With four ranks
 * that hold all of the limit (`scripts/group-test --live=2000 --largest=512`), a failing allocation took 1.6 ms without
 * this rule. Held by test_rounds.c, members_that_gave_nothing_many_times_are_asked_once.
 */
#define GP_GROUP_FUTILE_MAX 8
#define GP_GROUP_FUTILE_NS  UINT64_C(1000000000)

/*
 * Nanoseconds: limit of the wait until memory that a trim or a reclaim gives back has arrived in the driver. Arrival
 * takes no time, unless later work waits on the GPU. Held by test_control.c. No figure.
 */
#define GP_RECLAIM_WAIT_NS UINT64_C(20000000)

/*
 * Releases of a context by the driver's own free, where the first release_begin takes long. That call takes 7 to 13 ms
 * on an H200, and the driver's own free some 40 us, so after this number of frees the call is worth its time.
 * Held by test_kinds.c, release_begin_is_used_after_256_releases_by_the_drivers_own_free. No figure.
 */
#define GP_OWN_FREES_MAX 256u

/* Nanoseconds that a fence may take until it is complete while the GPU is idle. An idle GPU takes 5 us. No figure. */
#define GP_IDLE_WAIT_NS UINT64_C(1000000)

/*
 * Thread caches (tcache.c).
 */

/*
 * The default size of a cache: this share of the device's memory, or of its limit. No figure.
 */
#define GP_TCACHE_SHARE 1024

/*
 * Shares of a cache's size: of one bin, and of one block. No single size may fill the cache, and a bin of the largest
 * blocks still holds eight.
 * Held by test_tcache.c, a_loop_on_a_thread_cache_grows_the_pool_to_at_most_the_cache_size. No figure.
 */
#define GP_TCACHE_BIN_SHARE   2
#define GP_TCACHE_BLOCK_SHARE 16

/*
 * Blocks in a bin, at most; a power of two, since the bin is a ring. It is twice GP_TCACHE_RECORD_AFTER: with bins of
 * 32, a bin was full each time a fence for 32 blocks was under way, and blocks then went through the pool.
 * Held by the rows `batch SIZE of N` and test_tcache_order.c.
 */
#define GP_TCACHE_DEPTH 64

/*
 * Large blocks that a cache keeps in serial mode. A loop over a few large buffers needs no call into the pool.
 * Held by the row `batch SIZE of N`; test_tcache_order.c, large_blocks_beyond_the_thread_cache_go_to_the_pool.
 */
#define GP_TCACHE_LARGE 8

/*
 * Blocks freed in stream order in a thread cache. A pair of an allocation and a free needs one; a loop needs as many as
 * it frees before it allocates again. Each allocation looks through them, the newest first.
 * Held by test_tcache_stream.c, blocks_beyond_the_cache_go_to_the_pool.
 */
#define GP_TCACHE_STREAMED 32

/* Serial numbers that a cache obtains at a time from a counter of the process. Held by the row of threads. */
#define GP_TCACHE_SERIALS 256

/*
 * Blocks freed without a fence, after which one fence is recorded for all of them: soon, if no other thread is calling
 * the driver; at twice the number in any case.
 * Held by test_tcache.c, a_batch_of_frees_into_a_thread_cache_needs_few_records.
 */
#define GP_TCACHE_RECORD_AFTER 32

/*
 * Blocks refused for lack of room, after which the cache is flushed: it holds the wrong sizes.
 * Held by test_tcache.c, a_thread_cache_full_of_unused_sizes_makes_room.
 */
#define GP_TCACHE_REFUSED_MAX 32

/*
 * Blocks that a thread cache refuses during a lag of the GPU, without a record or a query meanwhile, after which the
 * cache polls the fences. Held by test_tcache.c, a_thread_cache_serves_again_once_the_gpu_has_caught_up.
 */
#define GP_TCACHE_LAG_POLL 64

/*
 * Fences recorded for one bin because a single block was wanted, after which a larger pool is worth it. After each such
 * number of fences the pool may grow for the bin, while its growth for it stays below a number of blocks or of bytes.
 * Held by test_tcache.c, a_loop_on_a_thread_cache_needs_one_record_and_query_for_many_rounds; test_tcache_order.c,
 * a_small_pool_does_not_grow_beyond_the_thread_cache_limit.
 */
#define GP_TCACHE_GROW_AFTER   16
#define GP_TCACHE_GROWN_BLOCKS 4
#define GP_TCACHE_GROWN_MAX    (2 * GP_MIB)

/*
 * All threads stop while all caches are flushed, and then come to the pool one by one for blocks that they had cached.
 * So after some flushes within GP_FLUSHES_NS, nanoseconds, an additional slab is better: with more than GP_FEW_CACHES
 * caches after GP_FLUSHES_MAX, otherwise, if the pool has little memory that is cut, after GP_FLUSHES_SMALL_MAX. This
 * goes on until the threads have about what they need. With 16 threads and sizes that vary, flushes alone took 30 us a
 * pair. Over the stub driver (tests/bench/player_driver, `window bytes=0 live=32`) vmm flushed 320 times with 16 until
 * one thread had what it needs, and 77 times with 4, and took 50 MiB both times. With 16 threads (`threads=16`) a limit
 * of 4 took 30 to 40 % more memory.
 * Held by test_tcache_order.c, the_pool_grows_if_many_threads_often_flush_each_others_caches, and its neighbours;
 * a_small_pool_of_one_thread_grows_after_few_flushes.
 */
#define GP_FEW_CACHES        4
#define GP_FLUSHES_MAX       16
#define GP_FLUSHES_SMALL_MAX 4
#define GP_FLUSHES_NS        UINT64_C(20000000)

/*
 * Fences (fence.c).
 */

/*
 * Nanoseconds: the age from which an incomplete fence means that the GPU lags. An idle GPU completes an event in about
 * 5 us. When any incomplete fence counted as a lag, 16 threads closed their caches most of the time.
 * Held by test_fence_lag.c, the_gpu_lags_once_a_fence_is_50_us_old_and_incomplete.
 */
#define GP_LAG_NS UINT64_C(50000)

/*
 * Outstanding fences in serial mode, where they are rarely polled. Beyond this the older half is dropped.
 * Held by test_fence_lag.c, in_serial_mode_the_gpu_lags_until_it_keeps_up_with_the_records.
 */
#define GP_SERIAL_FENCES_MAX 64

/*
 * Pauses of the processor, while another thread polls: about as long as a poll takes, some microseconds.
 * Held by the row of threads.
 */
#define GP_POLL_SPINS 64

/*
 * The pauses of a waiting thread. Before the first poll it pauses for so many eighths of the time that waits took of
 * late; after that for a share of the time waited, between the limits in nanoseconds. This needs far fewer queries than
 * polling without pause, and each query delays threads that submit work. Longer pauses cost overlapping streams time.
 * Held by test_fence_wait.c; the row `overlap SIZE`.
 */
#define GP_FIRST_PAUSE_EIGHTHS  7
#define GP_POLL_INTERVAL_SHARE  32
#define GP_POLL_INTERVAL_MIN_NS UINT64_C(1000)
#define GP_POLL_INTERVAL_MAX_NS UINT64_C(100000)

/*
 * Share of the difference by which the estimate of a wait grows. Too short a first pause costs queries, too long a one
 * costs time, so the estimate shrinks at once and grows slowly.
 * Held by test_fence_wait.c, short_waits_among_long_ones_end_only_a_little_late.
 */
#define GP_WAIT_LEARN_SHARE 8

/*
 * Captures (retain.c).
 */

/*
 * A retained block serves a request within its capture if it is larger by at most this share: an eighth, as in thread
 * caches. It is not cut, since its parts would have to stay reserved together.
 * Held by test_retain.c, memory_of_a_capture_is_used_again_only_by_requests_of_nearly_its_size.
 */
#define GP_RETAINED_SLACK_SHARE 8

/*
 * Blocks of other captures that the search for a block of the same capture passes over. They are of captures that run
 * at the same time, or of graphs: of these there may be thousands, and the search holds the pool's lock.
 * Held by test_retain.c, a_capture_finds_its_memory_behind_that_of_at_most_63_blocks_of_others. No figure.
 */
#define GP_RETAINED_OTHERS_MAX 64

/*
 * Locks and lookups (lock.c, addrmap.c).
 */

/*
 * Pauses of the processor before a thread sleeps on a lock: about 20 us where a pause takes 40 ns. With a thread on
 * every processor 100, as in glibc, are not enough, and then every hand-over goes through the kernel.
 * Held by the row of threads.
 */
#define GP_LOCK_SPINS 512

/*
 * Yields of the processor before a thread that waits for another sleeps, and nanoseconds of each sleep. A real-time
 * thread that only yielded would keep a normal thread from running.
 * Held by test_waits.c, a_waiting_thread_sleeps_after_some_yields_and_preserves_errno.
 */
#define GP_YIELDS_MAX 64
#define GP_NAP_NS     20000

/*
 * Blocks that a lookup without a lock visits at most. Buckets hold far fewer, but a walk that got into other chains
 * must end. Held by test_claim.c. No figure.
 */
#define GP_CHAIN_STEPS_MAX 16
