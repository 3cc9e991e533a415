# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Results as rows, and the tables made of them. Each part writes its rows to a file at once, so that a part that runs out
of time keeps its rows so far.

A row is a check (right or wrong), a bar (a measured value with a limit) or a note (a value without a verdict).
"""

import json

SCHEMA = "gpupool.gpu-test/1"
VERDICTS = {
    ("check", True): "ok",
    ("check", False): "FAILED",
    ("bar", True): "ok",
    ("bar", False): "MISSED",
}
COMPARISONS = {
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
}


class Results:
    def __init__(self, out, part):
        self.part = part
        self.path = out / f"rows-{part}.jsonl"
        self.path.write_text("")

    def _add(self, row):
        row = {"part": self.part, **row}
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if row["type"] != "note":
            print(format_row(row), flush=True)

    def note(self, name, value, unit=""):
        self._add({"type": "note", "name": name, "value": value, "unit": unit})

    def check(self, name, ok, value=""):
        self._add({"type": "check", "name": name, "value": value, "unit": "", "ok": bool(ok)})

    def bar(self, name, value, unit, comparison, limit):
        """Adds a bar. A value of None means that it could not be measured, and misses the bar."""
        ok = value is not None and COMPARISONS[comparison](value, limit)
        bar = f"{comparison} {limit:g}"
        row = {"type": "bar", "name": name, "value": value, "unit": unit}
        self._add({**row, "bar": bar, "ok": ok})


def verdict(row):
    return VERDICTS.get((row["type"], row.get("ok")), "")


def format_value(value):
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return "-" if value is None else str(value)


def format_row(row):
    value = " ".join(filter(None, [format_value(row["value"]), row["unit"]]))
    bar = row.get("bar", "")
    line = f"{row['part']:<9} {row['name']:<58.58} {value:>20} {bar:>8} {verdict(row)}"
    return line.rstrip()


def load(out, parts):
    rows = []
    for part in parts:
        path = out / f"rows-{part}.jsonl"
        if path.exists():
            rows += [json.loads(line) for line in path.read_text().splitlines()]
    return rows


def is_bad(row):
    return row.get("ok") is False


def matrix(rows, keep):
    """
    A table of the notes named 'config | question', with a line for each question and a column for each configuration.
    """
    cells, configs = {}, []
    for row in rows:
        config, bar, question = row["name"].partition(" | ")
        if row["type"] != "note" or not bar or not keep(question):
            continue
        if config not in configs:
            configs.append(config)
        cells.setdefault(question, {})[config] = format_value(row["value"])
    if not cells:
        return []
    width = max(len(question) for question in cells)

    def line(question, values):
        return f"{question:<{width}}" + "".join(f" {value:>10.10}" for value in values)

    rows_of_cells = [line(q, [found.get(c, "-") for c in configs]) for q, found in cells.items()]
    return [line("", configs), *rows_of_cells]


def verdict_lines(rows, most):
    """
    Lines for checks and bars, up to a limit. Failed rows are never left out in favour of rows that passed.
    """
    rows = [row for row in rows if row["type"] != "note"]
    bad = [row for row in rows if is_bad(row)]
    good = [row for row in rows if not is_bad(row)]
    left_out = max(0, len(rows) - most)
    shown = good[: max(0, len(good) - left_out)] + bad
    lines = [format_row(row) for row in shown]
    if left_out:
        lines.insert(0, f"({len(rows) - len(shown)} rows that passed are not shown)")
    lines.append(f"{len(rows)} checks and bars, {len(bad)} failed")
    return lines


def ended_row(part, status):
    reason = "ran out of time" if status in (124, 137) else f"ended with {status}"
    row = {"type": "check", "name": "the part finished", "unit": ""}
    return {"part": part, **row, "value": reason, "ok": status == 0}


def matrices(rows, parts, keep):
    lines = []
    for part in parts:
        table = matrix([row for row in rows if row["part"] == part], keep)
        lines += [f"{part}:", *table, ""] if table else []
    return lines


def report(out, statuses):
    """
    Writes results.json and tables.txt of the parts, given their exit statuses. Returns the text to print, and whether
    all checks and bars passed.
    """
    rows = load(out, statuses)
    rows += [ended_row(part, status) for part, status in statuses.items() if status != 0]
    document = {"schema": SCHEMA, "rows": rows, "ok": bool(rows) and not any(map(is_bad, rows))}
    (out / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    full = matrices(rows, statuses, lambda question: True) + [*map(format_row, rows)]
    (out / "tables.txt").write_text("\n".join(full) + "\n")
    text = matrices(rows, statuses, lambda question: not question.endswith(", shared"))
    text += [format_row(row) for row in rows if row["type"] == "note" and " | " not in row["name"]]
    return text + verdict_lines(rows, 56), document["ok"]
