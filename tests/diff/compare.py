# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Compares the answers of two runs of a program, and looks each difference up in the table of deviations."""

import dataclasses
import re


def parse_answers(text):
    """Returns the lines 'question: answer' as {question: answer}. A repeated question gets a number."""
    answers = {}
    for line in text.splitlines():
        question, colon, answer = line.partition(": ")
        if answer.strip() == "hangs":
            question = question if "/" in question else f"{question}/outcome"
            if answers.get(question) == "hangs":
                continue  # both the program and its time limit reported the hang
        key, nth = question, 2
        while key in answers:
            key = f"{question}#{nth}"
            nth += 1
        answers[key] = answer.strip() if colon else ""
    return answers


def rows_for(deviations, program, platform):
    """Returns the pairs (deviation, row) that can show in this program on this machine ("sim" or "gpu")."""
    found = []
    for deviation in deviations:
        for row in deviation.rows:
            if re.fullmatch(row.program, program) and row.platform in ("both", platform):
                found.append((deviation, row))
    return found


def is_allowed(row, config_name, question, answer):
    question = question.partition("#")[0]
    if config_name not in row.configs or not re.fullmatch(row.question, question):
        return False
    return row.answer is None or (answer is not None and re.fullmatch(row.answer, answer) is not None)


@dataclasses.dataclass(frozen=True)
class Difference:
    question: str
    raw: str | None
    answer: str | None
    deviation: object = None  # the one that allows this difference, or None: it is a defect
    row: object = None


def compare(raw, answers, config_name, rows):
    """Returns the differences between two runs, in the order of the questions."""
    differences = []
    for question in dict.fromkeys([*raw, *answers]):
        a, b = raw.get(question), answers.get(question)
        if a == b:
            continue
        fits = [pair for pair in rows if is_allowed(pair[1], config_name, question, b)]
        differences.append(Difference(question, a, b, *(fits[0] if fits else (None, None))))
    return differences


def idle_rows(rows, differences_by_config):
    """
    Returns the pairs (row, configuration) that no difference has matched: the table says that an answer differs there,
    but it does not, or no program asks the question any more.
    """
    idle = []
    for _, row in rows:
        for name in row.configs if row.is_certain else ():
            found = differences_by_config.get(name)
            if found is not None and not any(difference.row == row for difference in found):
                idle.append((row, name))
    return idle
