# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""
A terminal that runs a command and draws its screen as SVG. The screen has a dark ground of its own, so that it reads the
same on a light and on a dark page.
"""

import fcntl
import html
import os
import pty
import select
import struct
import subprocess
import termios
import time

import pyte

CELL_WIDTH, CELL_HEIGHT, BASE = 8.4, 18, 13.5  # of a font of 14 px; the base line of a row is below its top
MARGIN = 14
GROUND, TEXT = "#0d1117", "#e6edf3"
COLORS = {"default": TEXT, "black": "#6e7681", "red": "#ff7b72", "green": "#3fb950", "brown": "#d29922", "blue": "#58a6ff",
          "magenta": "#bc8cff", "cyan": "#39c5cf", "white": "#b1bac4"}
# Blocks are drawn as rectangles, since fonts leave gaps between them: height in eighths of a cell, and opacity.
BLOCKS = {"\u2588": (8, 1), "\u2593": (8, 0.75), "\u2592": (8, 0.5), "\u2591": (8, 0.25),
          **{chr(0x2580 + eighths): (eighths, 1) for eighths in range(1, 8)}}
LINES_MAX = 200


class Terminal:
    def __init__(self, columns, lines=LINES_MAX):
        self.columns, self.lines = columns, lines
        self.screen = pyte.Screen(columns, lines)
        self.screen.set_mode(pyte.modes.LNM)
        self.stream = pyte.ByteStream(self.screen)

    def write(self, words):
        self.stream.feed(words.encode())

    def run(self, words, env, folder, replace=(), keys=b"", seconds=60, is_open=False, until=None):
        """
        Runs a command until it ends, and shows its output with the texts of replace exchanged, which may be a function of
        the output. With is_open the command gets `seconds` to draw its screen, or until its output has a text, and then
        the keys. Returns the output.
        """
        main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", self.lines if is_open else 24, self.columns, 0, 0))
        process = subprocess.Popen(words, stdin=other, stdout=other, stderr=other, env=env, cwd=folder, start_new_session=True,
                                   close_fds=True)
        os.close(other)
        output, end = b"", time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if left <= 0 or (until and until.encode() in output):
                break
            if select.select([main], [], [], left)[0]:
                try:
                    piece = os.read(main, 65536)
                except OSError:  # the last process with the terminal has ended
                    break
                if not piece:
                    break
                output += piece
        if is_open:
            os.write(main, keys)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(main)
        if is_open:
            # The program draws only what changes, so a text need not be in one piece in its output.
            self.stream.feed(output)
            self.exchange(replace)
        else:
            shown = output
            for old, new in replace(output.decode()) if callable(replace) else replace:
                shown = shown.replace(old.encode(), new.encode())
            self.stream.feed(shown)
        return output.decode(errors="replace")

    def exchange(self, replace):
        """Exchanges texts of equal length on the screen."""
        for row in self.screen.buffer.values():
            words = "".join(row[x].data for x in range(self.columns))
            for old, new in replace:
                assert len(old) == len(new), (old, new)
                words = words.replace(old, new)
            for x, character in enumerate(words):
                row[x] = row[x]._replace(data=character)

    def rows(self):
        """The rows of the screen up to the last one with text, as lists of cells."""
        rows = [[self.screen.buffer[y][x] for x in range(self.columns)] for y in range(self.lines)]
        while rows and not any(cell.data.strip() or cell.reverse for cell in rows[-1]):
            rows.pop()
        return rows

    def text(self):
        return "\n".join("".join(cell.data for cell in row).rstrip() for row in self.rows())


def fixed_pid(pid, nth):
    """A process id that is the same in every picture, with as many digits."""
    return ("41822163", "41859730", "41901277")[nth][: len(str(pid))]


def style(cell):
    """(color, ground, is bold) of a cell."""
    color, ground = (COLORS.get(name, f"#{name}") for name in (cell.fg, cell.bg))
    if cell.bg == "default":
        ground = GROUND
    if cell.reverse:
        color, ground = ground, color
    return color, ground, cell.bold


def runs(row):
    """(first column, text, style) of neighbouring cells of one style."""
    first = 0
    for x in range(1, len(row) + 1):
        if x == len(row) or style(row[x]) != style(row[first]):
            yield first, "".join(cell.data or " " for cell in row[first:x]), style(row[first])
            first = x


def words_of(text):
    """(offset, word) of the words in a run, where two spaces end a word: a font of another width shifts no column."""
    start = None
    for i in range(len(text) + 1):
        is_gap = i == len(text) or text[i] in BLOCKS or text[i : i + 2] in ("  ", " ")
        if start is None and i < len(text) and text[i] not in BLOCKS and text[i] != " ":
            start = i
        elif start is not None and is_gap:
            yield start, text[start:i]
            start = None


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


def draw_run(x, y, text, look):
    color, ground, is_bold = look
    left, top = MARGIN + x * CELL_WIDTH, MARGIN + y * CELL_HEIGHT
    if ground != GROUND:
        yield (f'<rect x="{number(left)}" y="{number(top)}" width="{number(len(text) * CELL_WIDTH)}" '
               f'height="{CELL_HEIGHT}" fill="{ground}"/>')
    # The color of the style sheet has precedence over an attribute, but not over a style.
    fill = "" if color == TEXT else f' style="fill:{color}"'
    bold = ' font-weight="bold"' if is_bold else ""
    for at, word in words_of(text):
        place = f'x="{number(left + at * CELL_WIDTH)}" y="{number(top + BASE)}"'
        yield f'<text {place} textLength="{number(len(word) * CELL_WIDTH)}"{fill}{bold}>{html.escape(word, quote=False)}</text>'
    i = 0
    while i < len(text):
        if text[i] not in BLOCKS:
            i += 1
            continue
        end = i
        while end < len(text) and text[end] == text[i]:
            end += 1
        eighths, opacity = BLOCKS[text[i]]
        height = CELL_HEIGHT * eighths / 8
        opaque = "" if opacity == 1 else f' opacity="{opacity}"'
        yield (f'<rect x="{number(left + i * CELL_WIDTH)}" y="{number(top + CELL_HEIGHT - height)}" '
               f'width="{number((end - i) * CELL_WIDTH)}" height="{number(height)}" fill="{color}"{opaque}/>')
        i = end


def svg(terminal, label):
    rows = terminal.rows()
    width = round(2 * MARGIN + terminal.columns * CELL_WIDTH)
    height = 2 * MARGIN + len(rows) * CELL_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{html.escape(label)}">',
        '<style>text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", '
        f"monospace; white-space: pre; fill: {TEXT} }}</style>",
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{GROUND}" stroke="#3d444d"/>',
    ]
    for y, row in enumerate(rows):
        for x, text, look in runs(row):
            lines += draw_run(x, y, text, look)
    return "\n".join([*lines, "</svg>"]) + "\n"
