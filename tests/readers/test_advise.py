# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""
Usage: test_advise.py GPUPOOL_STAT SCHEMA_1

Checks what gpupool-stat advise and replay tell of recordings with call stacks and with the recorded command, and of
recordings of earlier versions, which have neither.
"""

import json
import os
import shlex
import sys
import tempfile

import readers
from readers import Recording

STAT, SCHEMA_1 = sys.argv[1:3]
MIB = 1 << 20
BASE = 0x7f0000000000
FOLDER = tempfile.TemporaryDirectory(prefix="gpupool-readers-")
COMMAND = 35
PLACE = -2


def fragmenting(has_stacks, words=None, is_cut=False):
    """
    A recording in which every second block of a call site is freed, and larger ones come that do not fit into the gaps.
    words: the arguments of the recorded process.
    """
    r = Recording(has_stacks, is_old=words is None)
    if words is not None:
        text = b"".join(os.fsencode(word) + b"\0" for word in words)
        r.put_long(COMMAND, readers.varint(is_cut) + readers.varint(len(text)) + text)
    if has_stacks:
        r.place(1, "keep", "/home/u/train.py", 7).place(2, "grow", "/home/u/model.py", 70).place(3, "main", "/home/u/train.py", 99)
        r.stack(1, (PLACE, 1), (PLACE, 3)).stack(2, (PLACE, 2), (PLACE, 3))
    r.pool(0)
    for i in range(40):
        r.put("ALLOC", BASE + i * 4 * MIB, 3 * MIB, 0, 0, int(has_stacks))
    for i in range(0, 40, 2):
        r.put("FREE", BASE + i * 4 * MIB, 0, 0)
    for i in range(20):
        r.put("ALLOC", BASE + (400 + i * 8) * MIB, 5 * MIB, 0, 0, 2 * has_stacks)
    return r.save(os.path.join(FOLDER.name, "run.rec"))


def advise(path):
    return json.loads(readers.stat(STAT, "advise", "--json", path))


def the_call_sites_beside_unused_memory_are_named():
    path = fragmenting(True)
    groups = advise(path)["fragmentation"]["groups"]
    assert groups[0]["stack"] == "keep (train.py:7) < main (train.py:99)", groups
    assert (groups[0]["requested_bytes"], groups[0]["n_blocks"], groups[0]["thread"]) == (3 * MIB, 20, None)
    text = readers.stat(STAT, "advise", path).decode()
    assert "keep (train.py:7) < main (train.py:99)\n" in text, text
    assert "thread 0" not in text, text


def blocks_of_a_call_site_are_one_group_with_any_size_and_thread():
    r = Recording(True).place(1, "keep", "/home/u/train.py", 7).stack(1, (PLACE, 1)).pool(0)
    for i in range(40):
        r.put("THREAD", i % 4).put("ALLOC", BASE + i * 8 * MIB, (2 + 2 * (i // 2 % 2)) * MIB, 0, 0, 1)
    for i in range(0, 40, 2):
        r.put("FREE", BASE + i * 8 * MIB, 0, 0)
    r.put("ALLOC", BASE + 800 * MIB, 512 * MIB, 0, 0, 1)
    groups = advise(r.save(os.path.join(FOLDER.name, "threads.rec")))["fragmentation"]["groups"]
    assert len(groups) == 1 and groups[0]["n_blocks"] > 10, groups
    assert 2 * MIB < groups[0]["requested_bytes"], groups


def blocks_of_a_recording_without_stacks_are_shown_with_their_thread():
    path = fragmenting(False)
    assert advise(path)["fragmentation"]["groups"][0]["stack"] is None
    text = readers.stat(STAT, "advise", path).decode()
    assert "3.00 MiB  thread 0\n" in text, text


def replay_names_the_call_sites_of_the_recorded_pool_type():
    text = readers.stat(STAT, "replay", fragmenting(True)).decode()
    assert "keep (train.py:7) < main (train.py:99)\n" in text, text
    runs = json.loads(readers.stat(STAT, "replay", "--json", fragmenting(True)))
    assert runs["fragmentation"]["groups"][0]["stack"] == "keep (train.py:7) < main (train.py:99)"
    other = json.loads(readers.stat(STAT, "replay", "--json", "--pool=vmm", fragmenting(True)))
    assert other["fragmentation"]["groups"] == [] or other["fragmentation"]["groups"][0]["stack"], other


def command_of(path):
    """The command lines that both commands end with, without options that differ."""
    lines = {advise(path)["advice"]["command"], json.loads(readers.stat(STAT, "replay", "--json", path))["advice"]["command"]}
    words = {tuple(word for word in shlex.split(line) if not word.startswith(("--limit=", "--pool="))) for line in lines}
    assert len(words) == 1, lines
    found = words.pop()
    assert found[0] == "gpupool-run", lines
    shown = [line for line in readers.stat(STAT, "advise", path).decode().splitlines() if line.startswith("    gpupool-run ")]
    assert [shlex.split(line)[-len(found) + 1:] for line in shown] == [list(found[1:])], shown
    return list(found[1:])


def the_line_to_paste_has_the_recorded_command():
    for words in (["python3", "train.py", "--lr=1e-3"], ["./a b", "it's", "$HOME", "*", ""], ["x" * 1500]):
        for has_stacks in (False, True):
            assert command_of(fragmenting(has_stacks, words)) == words, words


def a_command_that_cannot_be_pasted_is_left_open():
    for words, is_cut in ((["a\nb"], False), (["\x1b[31m"], False), (["caf\xe9"], False), (["python3", "tr"], True)):
        assert command_of(fragmenting(False, words, is_cut)) == ["COMMAND"], words


def recordings_of_earlier_versions_have_no_command():
    assert command_of(fragmenting(False)) == ["COMMAND"]
    assert command_of(fragmenting(True)) == ["COMMAND"]
    text = readers.stat(STAT, "replay", os.path.join(SCHEMA_1, "run.rec")).decode()
    assert "COMMAND\n" in text, text


def an_invalid_command_is_damage():
    bodies = (b"", b"\0", b"\0\5abc", b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\0" + readers.varint(1537) + b"x" * 1537)
    for body in bodies:
        r = Recording(is_old=False).put_long(COMMAND, body).pool(0).put("ALLOC", BASE, MIB, 0)
        path = r.save(os.path.join(FOLDER.name, "bad.rec"))
        assert not readers.stat(STAT, "replay", path, expected=1), body


def a_command_without_its_last_byte_is_left_open():
    path = Recording(is_old=False).put_long(COMMAND, b"\0\3a\0b").pool(0).put("ALLOC", BASE, MIB, 0)
    text = readers.stat(STAT, "replay", path.save(os.path.join(FOLDER.name, "half.rec"))).decode()
    assert " COMMAND\n" in text, text


readers.main([
    the_call_sites_beside_unused_memory_are_named,
    blocks_of_a_call_site_are_one_group_with_any_size_and_thread,
    blocks_of_a_recording_without_stacks_are_shown_with_their_thread,
    replay_names_the_call_sites_of_the_recorded_pool_type,
    the_line_to_paste_has_the_recorded_command,
    a_command_that_cannot_be_pasted_is_left_open,
    recordings_of_earlier_versions_have_no_command,
    an_invalid_command_is_damage,
    a_command_without_its_last_byte_is_left_open,
])
