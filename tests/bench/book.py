# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Results of a run, and the tables made of them. Each row is written to a file at once, so that an interrupted run keeps
its results so far. Types of rows:

  sample  one run of one cell by one peer
miss    the reason why a sample is missing
  value   another measured value
  calls   driver calls, and the number of pairs that made them
"""

import json

from figures import figure, median_interval, paired_ratios
from player import BEFORE

SLOWER = 1.05  # a peer above this multiple of the time before has become slower
NAMED_MAX = 3  # number of cells that a line about missing figures names


def format_bytes(count):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count:g} B"


def format_number(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Book:
    def __init__(self, path=None, rows=()):
        self.path, self.rows = path, list(rows)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def add(self, row):
        self.rows.append(row)
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def sample(self, group, cell, peer, nth, found):
        row = {"type": "sample", "group": group, "cell": cell.name, "series": cell.series, "peer": peer, "round": nth}
        self.add({**row, "request": cell.request, "found": found})

    def miss(self, group, cell, peer, why):
        print(f"  {peer}: {cell or group}: {why}", flush=True)
        self.add({"type": "miss", "group": group, "cell": cell, "peer": peer, "why": why})

    def value(self, name, value, unit="", **more):
        print(f"  {name}: {format_number(value) if isinstance(value, float) else value} {unit}".rstrip(), flush=True)
        self.add({"type": "value", "name": name, "value": value, "unit": unit, **more})

    def calls(self, cell, peer, pairs, calls):
        self.add({"type": "calls", "name": cell, "peer": peer, "pairs": pairs, "calls": calls})

    # Queries.

    def samples(self):
        return [row for row in self.rows if row["type"] == "sample"]

    def groups(self):
        return list(dict.fromkeys(row["group"] for row in self.rows if "group" in row))

    def cells(self, group):
        return list(dict.fromkeys(row["cell"] for row in self.rows if row.get("group") == group and row["cell"]))

    def peers(self, group):
        """The peers with figures."""
        return list(dict.fromkeys(row["peer"] for row in self.samples() if row["group"] == group))

    def missing_peers(self, group):
        return list(dict.fromkeys(row["peer"] for row in self.rows
                                  if row["type"] == "miss" and row["group"] == group))

    def rounds(self, group, cell, peer, key="ns"):
        """{round: value}"""
        samples = [row for row in self.samples() if (row["group"], row["cell"], row["peer"]) == (group, cell, peer)]
        return {row["round"]: row["found"][key] for row in samples if key in row["found"]}

    def figure(self, group, cell, peer, key="ns"):
        return figure(list(self.rounds(group, cell, peer, key).values()))

    def ratios(self, group, cell, peer, base, key="ns"):
        """For each round, the figure of one peer over that of the other."""
        return paired_ratios(self.rounds(group, cell, peer, key), self.rounds(group, cell, base, key))

    def why(self, group, cell, peer):
        for row in self.rows:
            if row["type"] == "miss" and row["peer"] == peer and row["group"] == group and row["cell"] in ("", cell):
                return row["why"]
        return None

    def value_of(self, name):
        found = [row["value"] for row in self.rows if row["type"] == "value" and row["name"] == name]
        return found[-1] if found else None


def load(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return Book(rows=[json.loads(line) for line in lines])


def format_figure(found):
    return f"{format_number(found.median)} ±{found.spread * 100:.0f}%" if found else "-"


def layout(title, head, lines, width=13):
    """Formats columns: the first as wide as its widest cell, the others of one width."""
    first = max(len(line[0]) for line in [[title, *head], *lines])
    rows = [[title, *head], *lines]
    width = max([width, *(len(word) + 2 for row in rows for word in row[1:])])
    return ["".join([f"{row[0]:<{first}}", *(f"{word:>{width}}" for word in row[1:])]).rstrip() for row in rows]


def time_table(book, group, key="ns"):
    """A table of medians and spread in nanoseconds: a line for each cell, a column for each peer."""
    peers = book.peers(group)
    lines = [[cell, *(format_figure(book.figure(group, cell, peer, key)) for peer in peers)]
             for cell in book.cells(group)]
    return layout(f"{group}, ns", peers, lines) if lines and peers else []


def ratio_table(book, group, base, key="ns", title=None):
    """A table with the nanoseconds of the base, and the other peers as multiples of it."""
    peers = [peer for peer in book.peers(group) if peer != base]
    lines = []
    for cell in book.cells(group):
        ratios = [figure(book.ratios(group, cell, peer, base, key)) for peer in peers]
        lines.append([cell, format_figure(book.figure(group, cell, base, key)), *map(format_figure, ratios)])
    return layout(title or group, [f"{base}, ns", *(f"{peer} / {base}" for peer in peers)], lines) if lines else []


def before_table(book, group):
    """
    A table of the time of each peer over that of its twin with the library of --before, with the 95 % interval of the
    median, and a line with the number of rows that are certainly more than 5 % slower.
    """
    peers = [peer for peer in book.peers(group) if peer + BEFORE in book.peers(group)]
    lines, n, n_slower = [], 0, 0
    for cell in book.cells(group):
        words = []
        for peer in peers:
            ratios = book.ratios(group, cell, peer, peer + BEFORE)
            interval = median_interval(ratios) or (0, 0)
            n += bool(ratios)
            n_slower += interval[0] > SLOWER
            words.append(f"{figure(ratios).median:.3f} ({interval[0]:.3f} to {interval[1]:.3f})" if ratios else "-")
        lines.append([cell, *words])
    if not peers:
        return []
    return [*layout(f"{group}, / before", peers, lines, 24),
            f"{n_slower} of {n} figures are slower than before by more than 5 %, with 95 % confidence"]


def series_table(book, group, key="ns", title=None):
    """A table of each cell as a multiple of the first cell of its series, separately for each peer."""
    peers, first, lines = book.peers(group), {}, []
    series = {row["cell"]: row["series"] for row in book.samples() if row["group"] == group}
    for cell in book.cells(group):
        first.setdefault(series.get(cell), cell)
        words = []
        for peer in peers:
            base = book.rounds(group, first[series.get(cell)], peer, key)
            words.append(format_figure(figure(paired_ratios(book.rounds(group, cell, peer, key), base))))
        lines.append([cell, *words])
    return layout(f"{title or group}, / first", peers, lines) if lines else []


def memory_lines(book, group):
    """Lines with each program's peak of bytes held from the driver, and of bytes in use on the device."""
    names = {"own_peak": "reserved", "pool_peak": "reserved by gpupool",
             "beside": "held for libraries other than the program's allocator", "outside_peak": "in use on the device"}
    lines = []
    for peer in book.peers(group):
        for key, name in names.items():
            found = [value for cell in book.cells(group) for value in book.rounds(group, cell, peer, key).values()]
            if any(found):
                lines.append(f"{peer}: peak bytes {name}: {format_bytes(max(filter(None, found)))}")
    answers = {row["found"]["answer"] for row in book.samples() if row["group"] == group and "answer" in row["found"]}
    return [*lines, f"answers of all programs: {', '.join(sorted(answers))}"] if answers else lines


def value_lines(book):
    return [f"{row['name']}: {format_number(row['value'])} {row['unit']}".rstrip()
            for row in book.rows if row["type"] == "value"]


def calls_table(book):
    rows = [row for row in book.rows if row["type"] == "calls"]
    heads = list(dict.fromkeys(name for row in rows for name in row["calls"]))
    lines = [[f"{row['peer']}: {row['name']}",
              *(format_number(row["calls"][head] / row["pairs"]) if head in row["calls"] else "-" for head in heads)]
             for row in rows]
    return layout("steady state, driver calls a pair", heads, lines, 9) if lines else []


def missing_lines(book):
    """A line for each peer and reason."""
    found = {}
    for row in book.rows:
        if row["type"] == "miss":
            found.setdefault((row["peer"], row["why"]), []).append(row["cell"] or row["group"])
    lines = []
    for (peer, why), cells in found.items():
        cells = list(dict.fromkeys(cells))
        more = f" and {len(cells) - NAMED_MAX} more" if len(cells) > NAMED_MAX else ""
        lines.append(f"no figure: {peer}: {why} ({', '.join(cells[:NAMED_MAX])}{more})")
    return lines


def summary(book):
    """Data for other programs: each cell and peer with its figures, and each run."""
    cells = []
    for group in book.groups():
        for cell in book.cells(group):
            for peer in dict.fromkeys([*book.peers(group), *book.missing_peers(group)]):
                runs = {key: book.rounds(group, cell, peer, key) for key in ("ns", "cpu_ns")}
                row = {"group": group, "cell": cell, "peer": peer, "missing": book.why(group, cell, peer)}
                for key, values in runs.items():
                    found = figure(list(values.values()))
                    interval = median_interval(list(values.values())) if values else None
                    row[key] = found and {**vars(found), "spread": found.spread, "interval95": interval,
                                          "runs": list(values.values())}
                cells.append(row)
    return cells
