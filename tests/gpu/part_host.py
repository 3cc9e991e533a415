# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
The driver's answers for pinned memory that it has allocated, and for memory that it has registered. The pool registers
large blocks itself (shim/backend/registered.c) and answers as for allocated ones, so it relies on each of these facts.
"""

import programs

PROBE_SECONDS = 120

# Attributes that differ from block to block, or do not depend on how the memory came to be.
OF_A_BLOCK = (5, 7, 12, 18, 20)
ATTRIBUTES = [number for number in range(1, 24) if number not in OF_A_BLOCK]


def parse(text):
    """Parses lines `host.question: answer` as {question: answer}."""
    lines = [line.removeprefix("host.").partition(": ") for line in text.splitlines() if line.startswith("host.")]
    return {question: answer.strip() for question, _, answer in lines}


def flags_of(answers, name):
    """The flags of such memory, or None if the driver returned an error."""
    error, _, flags = answers.get(f"{name}.flags", "1 0").partition(" ")
    return int(flags) if error == "0" else None


def facts(answers):
    """Yields each fact on which the pool relies, and whether the answers agree."""
    allocated, registered = "allocated_0", "registered_3"

    def is_same(question):
        found = answers.get(f"{registered}.{question}")
        return found is not None and found == answers.get(f"{allocated}.{question}")

    flags = flags_of(answers, registered)
    yield "flags are those of allocated memory, and portable", flags is not None and all(
        flags & ~1 | asked & 1 == flags_of(answers, f"allocated_{asked}") for asked in range(4))
    yield "the device pointer is the host's address", is_same("device_pointer")
    for question in ("free_inside", "free_as_device_memory", "unregister_inside"):
        yield f"equal answers: {question}", is_same(question)
    for question in ("register_again.flags_0", "register_part"):
        yield f"{question}: allocated memory is an invalid value, registered memory is registered already", (
            answers.get(f"{allocated}.{question}"), answers.get(f"{registered}.{question}")) == ("1", "712")
    for number in ATTRIBUTES:
        yield f"equal answers: attribute {number}", is_same(f"attribute.{number}")
    yield "unregistering allocated memory is an invalid value", answers.get(f"{allocated}.unregister") == "1"
    yield "so is unregistering a part of it", answers.get(f"{allocated}.unregister_inside") == "1"
    yield "other memory of the host is not registered", answers.get("unregistered.unregister") == "713"
    yield "a forked child shares allocated memory", answers.get(f"{allocated}.fork.child_sees") == "23"
    for name in (allocated, registered):
        yield f"after a fork the parent and the GPU share {name}", answers.get(
            f"{name}.fork.parent_sees", "").startswith("2 3 ")
    yield "a core dump has allocated memory", " dd" not in f" {answers.get(f'{allocated}.mapping.VmFlags', ' dd')}"
    yield "a registration ends with its context", (
        answers.get("ends.unregister"), answers.get("ends.register_again")) == ("713", "0")
    yield "a copy across two registrations is refused", answers.get("copy.across_two_registrations") == "1"
    for call in ("allocate", "register"):
        yield f"{call} does not wait for the GPU", answers.get(f"busy.{call}", "").endswith("is_over=0")


def run(results, out, options):
    del options
    log = out / "host" / "host_probe.txt"
    done = programs.run_program(programs.Config("raw"), [programs.BIN / "host_probe"], log, timeout=PROBE_SECONDS)
    results.check("host_probe: finished", done.status == 0, f"status {done.status}")
    answers = parse(done.text)
    for fact, is_true in facts(answers):
        results.check(f"host: {fact}", is_true)
    for question, answer in answers.items():
        if question.startswith(("time.", "kernel", "file.", "device_attribute.")):
            results.note(f"host: {question}", answer)
