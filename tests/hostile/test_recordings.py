# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""Recordings that are made to exhaust the program that reads them. Each must be read with bounded memory and
processor time, or refused with the reason.

Usage: test_recordings.py GPUPOOL-STAT SANITIZER
"""

import gzip
import os
import tempfile
import unittest

import hostile
from hostile import MIB

STAT = hostile.stat_from_arguments()

TITLE, TITLE_STACKS = b"gpupool-recording 1\n", b"gpupool-recording 2\n"
OBJECT, PLACE, STACK = 32, 33, 34
THREAD, POOL, USE, ALLOC, FREE, DROP, FENCE, QUERY, RESERVE, BEYOND, CACHE = 1, 2, 3, 4, 5, 13, 16, 17, 19, 22, 30
NO_LIMIT = 2**64 - 1
SPLIT = 3

READERS = {
    "replay": ("replay", "--pool=split"),
    "report": ("report", "--output=/dev/null"),
    "convert": ("convert", "--to=torch", "--output=/dev/null"),
}


# advise replays a recording about fifty times: its work is as much times that of a replay, and still in proportion to the
# length of the recording.
ADVISE_SECONDS = 60


def varint(value):
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def fold(value):
    return value << 1 if value >= 0 else -value * 2 - 1


def record(kind, *fields):
    """Returns a record with these encoded fields, at the same time as the record before it."""
    count = min(len(fields), 7)
    head = bytes([kind | count << 5]) + (varint(len(fields)) if count == 7 else b"")
    return head + varint(0) + b"".join(map(varint, fields))


def long_record(kind, *parts):
    """Returns a long record. A part is a number or a text."""
    encoded = (varint(part) if isinstance(part, int) else varint(len(part)) + part for part in parts)
    body = b"".join(encoded)
    return bytes([31]) + varint(kind) + varint(0) + varint(len(body)) + body


def pool(number=0, granule=2 * MIB, capacity=128 << 30, cache=0, limit=NO_LIMIT, oom_wait_ns=0, page=0):
    return record(POOL, number, 0, 0, SPLIT, granule, capacity, limit, capacity // 5, NO_LIMIT, 0, oom_wait_ns, 2, 0, cache,
                  page)


def begin(*pools):
    """Returns the start of a recording. Distances of addresses count from 0."""
    return TITLE + b"".join(pools or (pool(),)) + record(USE, 0)


def blocks(n, first=512, step=512):
    """Returns allocations at n addresses, the same distance apart."""
    return record(ALLOC, fold(first), 512) + record(ALLOC, fold(step), 512) * (n - 1)


def many(n):
    """A sanitiser examines each step of the reader, and fewer steps are enough for it. Time is measured without one."""
    return n // 10 if STAT.is_sanitized else n


def drops_of_an_empty_pool():
    return begin() + blocks(many(100000)) + record(DROP) * many(150000)


def drops_beside_a_full_pool():
    first = record(ALLOC, fold((1 << 40) - many(100000) * 512), 512)
    repeated = record(ALLOC, fold(0), 512) + record(DROP)
    return begin(pool(), pool(1)) + blocks(many(100000)) + record(USE, 1) + first + repeated * many(100000)


def addresses_with_one_hash():
    """Addresses with equal hashes, for a hash that takes the bits from 20 on of a product."""
    return begin() + blocks(many(100000), 1 << 40, 1 << 40)


def blocks_from_the_highest_address_down():
    return begin() + blocks(many(200000), 1 << 40, -512)


def segments_that_replace_each_other():
    """Many blocks, and a segment with one block that is replaced again and again."""
    first = record(RESERVE, fold(1 << 50), 2 * MIB) + record(ALLOC, fold((1 << 50) - many(100000) * 512), 512)
    repeated = record(RESERVE, fold(0), 2 * MIB) + record(ALLOC, fold(0), 512)
    return begin() + blocks(many(100000)) + first + repeated * many(100000)


def a_segment_for_every_block():
    """Every block is a segment, so that each search for an address meets all the others."""
    both = record(RESERVE, fold(2 * MIB), 2 * MIB) + record(ALLOC, fold(2 * MIB), 2 * MIB)
    return begin() + both * many(100000)


def frees_beside_many_pools():
    return begin(*map(pool, range(4096))) + blocks(1) + record(FREE, fold(4)) * many(400000)


def begin_with_stacks(n, frames=64):
    """Returns the start of a recording with n stacks, which share an object, a line and nothing else."""
    defined = long_record(OBJECT, 1, b"/opt/solver", b"id") + long_record(PLACE, 1, b"f" * 255, b"g" * 255, 12)
    tail = (fold(-2), 1) * (frames - 1)
    stacks = (long_record(STACK, nth, fold(1), nth, *tail) for nth in range(1, n + 1))
    return TITLE_STACKS + pool() + record(USE, 0) + defined + b"".join(stacks)


def blocks_with_stacks(n, n_stacks):
    return b"".join(record(ALLOC, fold(512), 512, 0, 0, nth % n_stacks + 1) for nth in range(n))


def stacks_as_many_as_a_process_has():
    return begin_with_stacks(1 << 15, many(64)) + blocks_with_stacks(many(100000), 1 << 15)


def numbers_from_the_highest_down():
    stacks = (long_record(STACK, nth, fold(-1), nth) for nth in range(1 << 15, 0, -1))
    return TITLE_STACKS + pool() + record(USE, 0) + b"".join(stacks) + blocks_with_stacks(many(100000), 1 << 15)


def blocks_whose_stacks_are_not_defined():
    allocations = (record(ALLOC, fold(512), 512, 0, 0, 1 << 62 | nth) for nth in range(many(100000)))
    return begin_with_stacks(1) + b"".join(allocations)


def failures_under_a_limit_beside_many_blocks():
    """Every failure makes a report look for the largest free block."""
    segment = record(RESERVE, fold(1 << 40), 1 << 30)
    failures = record(ALLOC, 0, 1 << 30, fold(-12)) * many(2000)
    return begin(pool(limit=2 << 30)) + segment + blocks(many(100000), 1 << 40, 1024) + failures


def waits_beside_a_query_that_nothing_takes():
    """Each allocation fails after a wait of a second in the time of the replay, for which no fence is queried."""
    full = record(ALLOC, fold(1 << 30), 64 * MIB)
    answers = record(BEYOND, 0) * 10 + record(QUERY, 0, fold(-11))
    return begin(pool(capacity=64 * MIB, oom_wait_ns=10**9, page=4096)) + full + (
        answers + record(ALLOC, 0, 2 * MIB, fold(-12))) * 100


def parts_of_blocks_freed_on_a_stream(stream=7):
    """The rest of each old block goes back into the queue, before all blocks that were freed since."""
    n, step = many(30000), 16 * MIB

    def allocated(first, size):
        return record(ALLOC, fold(first), size, 0, 0, 0, stream) + record(ALLOC, fold(step), size, 0, 0, 0, stream) * (n - 1)

    def freed(first, *fields):
        return record(FREE, fold(first), *fields) + record(FREE, fold(step), *fields) * (n - 1)

    back, on_stream = -step * (n - 1), (1, 0, 0, stream)
    return (begin(pool(capacity=1 << 41, page=4096)) + allocated(1 << 33, 10 * MIB) + allocated(8 * MIB + back, 4 * MIB) +
            record(ALLOC, fold(4 * MIB), 2 * MIB) + freed(back - 12 * MIB, *on_stream) +
            record(FREE, fold(12 * MIB), 0) + freed(back - 4 * MIB, *on_stream) + allocated(1 << 45, 6 * MIB))


# The work grows with the square of the length if each record makes the reader visit everything that exists.
LONG = (
    (drops_of_an_empty_pool, {}),
    (drops_beside_a_full_pool, {}),
    (addresses_with_one_hash, {}),
    (blocks_from_the_highest_address_down, {}),
    (segments_that_replace_each_other, {}),
    (a_segment_for_every_block, {"replay": ("replay", "--pool=none")}),
    (frees_beside_many_pools, {}),
    (failures_under_a_limit_beside_many_blocks, {}),
    (stacks_as_many_as_a_process_has, {"folded": ("convert", "--to=folded", "--output=/dev/null")}),
    (numbers_from_the_highest_down, {"folded": ("convert", "--to=folded", "--output=/dev/null")}),
    (waits_beside_a_query_that_nothing_takes, {"replay": ("replay", "--pool=none")}),
    (parts_of_blocks_freed_on_a_stream, {}),
    (blocks_whose_stacks_are_not_defined, {"folded": ("convert", "--to=folded", "--output=/dev/null")}),
)


ADVISED = (drops_beside_a_full_pool, a_segment_for_every_block)


def too_many_pools(n=4097):
    return begin(*map(pool, range(n))) + blocks(1)


def too_many_caches(n=8193):
    caches = b"".join(record(THREAD, nth) + record(CACHE, 1) for nth in range(n))
    return begin(pool(cache=64 * MIB)) + blocks(1) + caches


def too_many_answers(n=(1 << 20) + 1):
    return begin() + blocks(1) + record(FENCE) * n


def too_many_blocks(n=(1 << 23) + 1):
    return begin() + blocks(n)


def granules_of_512_bytes():
    return begin(pool(granule=512, capacity=1 << 44)) + blocks(1)


def more_memory_than_a_device_has():
    return begin(pool(capacity=(1 << 41) + 1)) + blocks(1)


def too_many_names():
    names = (long_record(PLACE, nth, b"f" * 1000, b"g" * 1000, 1) for nth in range(1, 8400))
    return begin_with_stacks(1) + blocks_with_stacks(1, 1) + b"".join(names)


def too_many_stacks():
    return begin_with_stacks(1) + blocks_with_stacks(1, 1) + long_record(STACK, (1 << 15) + 1, fold(-1), 1)


def too_many_frames():
    return begin_with_stacks(1) + blocks_with_stacks(1, 1) + long_record(STACK, 2, *(fold(-1), 1) * 65)


def a_body_that_is_too_long():
    return begin_with_stacks(1) + blocks_with_stacks(1, 1) + long_record(PLACE, 2, b"f" * 2048, b"", 1)


# Recordings that are refused where their last record begins, with this text in the message.
REFUSED = (
    (too_many_pools, "more than 4096 pools"),
    (too_many_caches, "more than 8192 thread caches at a time"),
    (too_many_answers, "more than 1048576 answers of the driver to one call"),
    (too_many_blocks, "more than 8388608 blocks at a time"),
    (granules_of_512_bytes, "it is damaged at byte 20"),
    (more_memory_than_a_device_has, "it is damaged at byte 20"),
    (too_many_names, "it is damaged at byte "),
    (too_many_stacks, "it is damaged at byte "),
    (too_many_frames, "it is damaged at byte "),
    (a_body_that_is_too_long, "it is damaged at byte "),
)


def most_pools_allowed():
    return too_many_pools(4096)


def most_caches_allowed():
    """Each thread's cache takes 70 KiB, and a closed one takes none."""
    some = b"".join(record(THREAD, nth) + record(CACHE, 1) for nth in range(8192))
    closed = b"".join(record(THREAD, nth) + record(CACHE, 0) for nth in range(1000))
    more = b"".join(record(THREAD, 20000 + nth) + record(CACHE, 1) for nth in range(1000))
    return begin(pool(cache=64 * MIB)) + blocks(1) + some + closed + more


def most_answers_allowed():
    return too_many_answers(1 << 20)


def answers_for_a_pool_without_a_call():
    some = record(USE, 0) + record(FENCE) * (1 << 19) + record(USE, 1) + record(ALLOC, fold(512), 512)
    return begin(pool(), pool(1)) + blocks(1) + some * 12


def memory_without_a_capacity():
    """Memory of GPUPOOL_BACKEND=managed has no capacity."""
    return begin(pool(capacity=NO_LIMIT)) + blocks(1)


# Recordings that are read to the end.
ACCEPTED = (
    (most_pools_allowed, ("replay", "--pool=vmm"), 48 * 1024 * MIB),  # tables that stay empty
    (most_pools_allowed, ("replay", "--pool=split"), 1024 * MIB),
    (most_caches_allowed, ("replay", "--pool=split"), 1024 * MIB),
    (most_answers_allowed, ("replay", "--pool=split"), 1024 * MIB),
    (answers_for_a_pool_without_a_call, ("replay", "--pool=split"), 512 * MIB),
    (memory_without_a_capacity, ("replay",), 1024 * MIB),
    (memory_without_a_capacity, ("advise",), 1024 * MIB),
)


class HostileRecordings(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "recording")

    def write(self, recording):
        with gzip.open(self.path, "wb", 1) as file:
            file.write(recording())

    def test_reading_a_recording_takes_time_in_proportion_to_its_length(self):
        for recording, others in LONG:
            self.write(recording)
            for reader, words in {**READERS, **others}.items():
                with self.subTest(recording=recording.__name__, reader=reader):
                    code, _, err = STAT.run(words[0], self.path, *words[1:])
                    self.assertEqual(code, 0, err)

    def test_advice_on_a_recording_takes_time_in_proportion_to_its_length(self):
        if STAT.is_sanitized:
            self.skipTest("advice repeats dozens of replays, of which the other tests do one each")
        for recording in ADVISED:
            self.write(recording)
            with self.subTest(recording=recording.__name__):
                code, _, err = STAT.run("advise", self.path, cpu_seconds=ADVISE_SECONDS)
                self.assertEqual(code, 0, err)

    def test_a_recording_beyond_the_limits_of_a_process_is_refused_with_the_reason(self):
        for recording, why in REFUSED:
            if STAT.is_sanitized and recording is too_many_blocks:
                continue  # the sanitiser needs several times the memory
            self.write(recording)
            for reader in ("replay", "report"):
                words = READERS[reader]
                with self.subTest(recording=recording.__name__, reader=reader):
                    code, _, err = STAT.run(words[0], self.path, *words[1:])
                    self.assertEqual(code, 1)  # the part before the damage is read
                    self.assertIn(why, err.decode())
                    self.assertIn("it is damaged at byte ", err.decode())

    def test_a_recording_at_the_limits_of_a_process_is_read_to_the_end(self):
        for recording, words, memory in ACCEPTED:
            if STAT.is_sanitized and "--pool=vmm" in words:
                continue  # the sanitiser writes to the tables
            self.write(recording)
            with self.subTest(recording=recording.__name__, words=words):
                code, _, err = STAT.run(words[0], self.path, *words[1:], memory=memory)
                self.assertEqual(code, 0, err)

    def test_repeated_replays_of_a_recording_give_the_same_result(self):
        for recording in (drops_beside_a_full_pool, a_segment_for_every_block):
            self.write(recording)
            results = {STAT.run("replay", self.path, "--json", "--pool=binned")[1] for _ in range(2)}
            self.assertEqual(len(results), 1)
            self.assertIn(b"gpupool.replay/1", results.pop())


if __name__ == "__main__":
    unittest.main()
