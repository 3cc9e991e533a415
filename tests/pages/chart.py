# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
Charts as SVG. The same data give the same bytes. Each chart has a background of its own, and follows the reader's
choice of light or dark.
"""

import dataclasses
import html
import math

WIDTH, LEFT, RIGHT = 640, 210, 92
TOP, ROW, BOTTOM = 74, 30, 34
STYLE = """
 text { font: 14px -apple-system, "Segoe UI", "Helvetica Neue", Arial, "Liberation Sans", sans-serif; fill: #1f2328 }
 .title { font-size: 17px; font-weight: 600 }
 .about, .tick { fill: #59636e; font-size: 13px }
 .ground { fill: #ffffff; stroke: #d1d9e0 }
 .grid { stroke: #d1d9e0 }
 .s0 { fill: #7a828c; stroke: #7a828c }
 .s1 { fill: #1a7f37; stroke: #1a7f37 }
 .s2 { fill: #bc4c00; stroke: #bc4c00 }
 .s3 { fill: #0969da; stroke: #0969da }
 .hollow { fill: none; stroke-width: 2 }
 .stem { stroke-width: 3 }
 .ours { font-weight: 600 }
 @media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .about, .tick { fill: #9198a1 }
  .ground { fill: #0d1117; stroke: #3d444d }
  .grid { stroke: #3d444d }
  .s0 { fill: #9198a1; stroke: #9198a1 }
  .s1 { fill: #3fb950; stroke: #3fb950 }
  .s2 { fill: #f0883e; stroke: #f0883e }
  .s3 { fill: #58a6ff; stroke: #58a6ff }
  .hollow { fill: none }
 }
"""


@dataclasses.dataclass
class Row:
    label: str
    values: list  # a value for each series; None is not drawn
    note: str = ""  # the text beside the last mark
    is_ours: bool = False


@dataclasses.dataclass
class Axis:
    """Places values from low to high; on a logarithmic axis low is more than 0."""

    low: float
    high: float
    ticks: list  # (value, label)
    is_log: bool = False

    def x(self, value):
        if self.is_log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def text_at(x, y, words, kind="", anchor="start"):
    kind = f' class="{kind}"' if kind else ""
    anchor = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x}" y="{y}"{kind}{anchor}>{html.escape(words)}</text>'


def frame(title, about, n_rows, axis, description):
    """The lines of a chart before its marks, and the height."""
    height = TOP + n_rows * ROW + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="{html.escape(description)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        text_at(16, 28, title, "title"),
        text_at(16, 49, about, "about"),
    ]
    for value, label in axis.ticks:
        x = axis.x(value)
        lines.append(f'<line class="grid" x1="{x}" y1="{TOP - 12}" x2="{x}" y2="{height - BOTTOM + 4}"/>')
        lines.append(text_at(x, height - 12, label, "tick", "middle"))
    return lines, height


def describe(title, rows, names=("",)):
    cells = [f"{row.label}: " + ", ".join(f"{name} {value:g}".strip() for name, value in zip(names, row.values)
                                          if value is not None) for row in rows]
    return f"{title}. " + "; ".join(cells)


def lollipops(title, about, rows, axis):
    """One mark a row, at the end of a stem. The stem begins at the axis' low end: for logarithmic axes."""
    lines, _ = frame(title, about, len(rows), axis, describe(title, rows))
    for nth, row in enumerate(rows):
        y, x = TOP + nth * ROW + 8, axis.x(row.values[0])
        kind, ours = ("s1", "ours") if row.is_ours else ("s0", "")
        lines += [text_at(LEFT - 12, y + 5, row.label, ours, "end"),
                  f'<line class="{kind} stem" x1="{LEFT}" y1="{y}" x2="{x}" y2="{y}"/>',
                  f'<circle class="{kind}" cx="{x}" cy="{y}" r="6"/>',
                  text_at(x + 12, y + 5, row.note, ours)]
    return "\n".join([*lines, "</svg>"]) + "\n"


def bars(title, about, rows, axis):
    """One bar a row, from 0."""
    lines, _ = frame(title, about, len(rows), axis, describe(title, rows))
    for nth, row in enumerate(rows):
        y, x = TOP + nth * ROW + 8, axis.x(row.values[0])
        kind, ours = ("s1", "ours") if row.is_ours else ("s0", "")
        lines += [text_at(LEFT - 12, y + 5, row.label, ours, "end"),
                  f'<rect class="{kind}" x="{LEFT}" y="{y - 9}" width="{round(x - LEFT, 1)}" height="18"/>',
                  text_at(x + 8, y + 5, row.note, ours)]
    return "\n".join([*lines, "</svg>"]) + "\n"


def mark(series, x, y):
    """The marks differ in shape as well, for readers who cannot tell the colours apart."""
    if series == 0:
        return f'<circle class="s0 hollow" cx="{x}" cy="{y}" r="6"/>'
    if series == 1:
        return f'<circle class="s1" cx="{x}" cy="{y}" r="6"/>'
    if series == 2:
        return f'<rect class="s2 hollow" x="{x - 5.5:.1f}" y="{y - 5.5}" width="11" height="11"/>'
    return f'<rect class="s3" x="{x - 5.5:.1f}" y="{y - 5.5}" width="11" height="11"/>'


def dots(title, names, rows, axis):
    """A mark for each series in each row; the names of the series are the legend."""
    lines, _ = frame(title, "", len(rows), axis, describe(title, rows, names))
    x = 22
    for series, name in enumerate(names):
        lines += [mark(series, x, 47), text_at(x + 12, 52, name)]
        x += 30 + round(7.4 * len(name))
    for nth, row in enumerate(rows):
        y = TOP + nth * ROW + 8
        lines.append(text_at(LEFT - 12, y + 5, row.label, "", "end"))
        lines += [mark(series, axis.x(value), y) for series, value in enumerate(row.values) if value is not None]
    return "\n".join([*lines, "</svg>"]) + "\n"
