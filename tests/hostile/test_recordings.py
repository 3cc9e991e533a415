# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Usage: test_recordings.py GPUPOOL-STAT SANITIZER: recordings that are made to exhaust the program that reads them. Each
must be read with a bounded amount of memory and processor time, or refused with the reason.
"""

import gzip
import os
import tempfile
import unittest

import hostile
from hostile import MIB

STAT = hostile.stat_of_words()

TITLE = b"gpupool-recording 1\n"
THREAD, POOL, USE, ALLOC, FREE, DROP, FENCE, RESERVE, CACHE = 1, 2, 3, 4, 5, 13, 16, 19, 30
NO_LIMIT = 2**64 - 1
SPLIT = 3

READERS = {
    "replay": ("replay", "--pool=split"),
    "report": ("report", "--output=/dev/null"),
    "convert": ("convert", "--to=torch", "--output=/dev/null"),
}


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
    """A record with these fields as they are written, at the same time as the one before."""
    count = min(len(fields), 7)
    head = bytes([kind | count << 5]) + (varint(len(fields)) if count == 7 else b"")
    return head + varint(0) + b"".join(map(varint, fields))


def pool(number=0, granule=2 * MIB, capacity=128 << 30, cache=0):
    return record(POOL, number, 0, 0, SPLIT, granule, capacity, NO_LIMIT, capacity // 5, NO_LIMIT, 0, 0, 2, 0, cache)


def begin(*pools):
    """The distances of addresses are from 0 on."""
    return TITLE + b"".join(pools or (pool(),)) + record(USE, 0)


def blocks(n, first=512, step=512):
    """Allocations at that many addresses, the same distance apart."""
    return record(ALLOC, fold(first), 512) + record(ALLOC, fold(step), 512) * (n - 1)


def drops_of_an_empty_pool():
    return begin() + blocks(100000) + record(DROP) * 150000


def drops_beside_a_full_pool():
    there = record(ALLOC, fold((1 << 40) - 100000 * 512), 512)
    again = record(ALLOC, fold(0), 512) + record(DROP)
    return begin(pool(), pool(1)) + blocks(100000) + record(USE, 1) + there + again * 100000


def addresses_with_one_hash():
    """A hash by multiplication, of which the bits from 20 on are taken, has the same value for all of these."""
    return begin() + blocks(100000, 1 << 40, 1 << 40)


def blocks_from_the_highest_address_down():
    return begin() + blocks(200000, 1 << 40, -512)


def segments_that_replace_each_other():
    """Many blocks, and a segment in which there is one, over and over."""
    there = record(RESERVE, fold(1 << 50), 2 * MIB) + record(ALLOC, fold((1 << 50) - 100000 * 512), 512)
    again = record(RESERVE, fold(0), 2 * MIB) + record(ALLOC, fold(0), 512)
    return begin() + blocks(100000) + there + again * 100000


def segments_where_the_driver_had_them():
    """Every block is a segment, so that each search for an address meets all the others."""
    both = record(RESERVE, fold(2 * MIB), 2 * MIB) + record(ALLOC, fold(2 * MIB), 2 * MIB)
    return begin() + both * 100000


def frees_beside_many_pools():
    return begin(*map(pool, range(4096))) + blocks(1) + record(FREE, fold(4)) * 400000


# The work grows with the square of the length where each record makes the reader visit everything that there is.
LONG = (
    (drops_of_an_empty_pool, {}),
    (drops_beside_a_full_pool, {}),
    (addresses_with_one_hash, {}),
    (blocks_from_the_highest_address_down, {}),
    (segments_that_replace_each_other, {}),
    (segments_where_the_driver_had_them, {"replay": ("replay", "--pool=none")}),
    (frees_beside_many_pools, {}),
)


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


# Refused where the last record of each begins, with that in the message.
REFUSED = (
    (too_many_pools, "more than 4096 pools"),
    (too_many_caches, "more than 8192 thread caches at a time"),
    (too_many_answers, "more than 1048576 answers of the driver to one call"),
    (too_many_blocks, "more than 8388608 blocks at a time"),
    (granules_of_512_bytes, "it is damaged at byte 20"),
    (more_memory_than_a_device_has, "it is damaged at byte 20"),
)


def as_many_pools_as_may_be():
    return too_many_pools(4096)


def as_many_caches_as_may_be():
    """Each thread's cache takes 70 KiB, and one that is closed takes none."""
    some = b"".join(record(THREAD, nth) + record(CACHE, 1) for nth in range(8192))
    closed = b"".join(record(THREAD, nth) + record(CACHE, 0) for nth in range(1000))
    more = b"".join(record(THREAD, 20000 + nth) + record(CACHE, 1) for nth in range(1000))
    return begin(pool(cache=64 * MIB)) + blocks(1) + some + closed + more


def as_many_answers_as_may_be():
    return too_many_answers(1 << 20)


def answers_for_a_pool_that_no_call_is_about():
    some = record(USE, 0) + record(FENCE) * (1 << 19) + record(USE, 1) + record(ALLOC, fold(512), 512)
    return begin(pool(), pool(1)) + blocks(1) + some * 12


def memory_without_a_capacity():
    """As that of GPUPOOL_BACKEND=managed."""
    return begin(pool(capacity=NO_LIMIT)) + blocks(1)


# Read to the end.
TAKEN = (
    (as_many_pools_as_may_be, ("replay", "--pool=vmm"), 48 * 1024 * MIB),  # tables that are empty
    (as_many_pools_as_may_be, ("replay", "--pool=split"), 1024 * MIB),
    (as_many_caches_as_may_be, ("replay", "--pool=split"), 1024 * MIB),
    (as_many_answers_as_may_be, ("replay", "--pool=split"), 1024 * MIB),
    (answers_for_a_pool_that_no_call_is_about, ("replay", "--pool=split"), 512 * MIB),
    (memory_without_a_capacity, ("replay",), 1024 * MIB),
)


class HostileRecordings(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "recording")

    def write(self, recording):
        with gzip.open(self.path, "wb", 1) as file:
            file.write(recording())

    def test_the_work_is_in_proportion_to_the_length_of_the_file(self):
        for recording, others in LONG:
            self.write(recording)
            for reader, words in {**READERS, **others}.items():
                with self.subTest(recording=recording.__name__, reader=reader):
                    code, _, err = STAT.run(words[0], self.path, *words[1:])
                    self.assertEqual(code, 0, err)

    def test_more_than_a_process_can_have_is_refused_with_the_reason(self):
        for recording, why in REFUSED:
            if STAT.is_sanitized and recording is too_many_blocks:
                continue  # the sanitiser needs several times the memory
            self.write(recording)
            for reader in ("replay", "report"):
                words = READERS[reader]
                with self.subTest(recording=recording.__name__, reader=reader):
                    code, _, err = STAT.run(words[0], self.path, *words[1:])
                    self.assertEqual(code, 1)  # what stands before the damage is read
                    self.assertIn(why, err.decode())
                    self.assertIn("it is damaged at byte ", err.decode())

    def test_as_much_as_a_process_can_have_is_read_to_the_end(self):
        for recording, words, memory in TAKEN:
            if STAT.is_sanitized and "--pool=vmm" in words:
                continue  # the sanitiser writes to the tables
            self.write(recording)
            with self.subTest(recording=recording.__name__, words=words):
                code, _, err = STAT.run(words[0], self.path, *words[1:], memory=memory)
                self.assertEqual(code, 0, err)

    def test_the_same_file_gives_the_same_result_every_time(self):
        for recording in (drops_beside_a_full_pool, segments_where_the_driver_had_them):
            self.write(recording)
            results = {STAT.run("replay", self.path, "--json", "--pool=binned")[1] for _ in range(2)}
            self.assertEqual(len(results), 1)
            self.assertIn(b"gpupool.replay/1", results.pop())


if __name__ == "__main__":
    unittest.main()
