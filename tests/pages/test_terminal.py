# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors

"""The terminal of the pictures runs commands and draws their screens. Exits with 77 without pyte."""

import os
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

try:
    import pictures
    import terminal
except ModuleNotFoundError as error:
    print(f"skipped: {error} (Debian: python3-pyte)")
    sys.exit(77)


class TerminalTest(unittest.TestCase):
    def draw(self, words, columns=20):
        screen = terminal.Terminal(columns)
        screen.write(words)
        text = terminal.svg(screen, "a label")
        return xml.etree.ElementTree.fromstring(text), text

    def words(self, root):
        return [node.text for node in root.iter() if node.tag.endswith("}text")]

    def test_output_of_a_command_is_shown_with_other_names(self):
        screen = terminal.Terminal(40)
        with tempfile.TemporaryDirectory() as folder:
            words = ["/bin/sh", "-c", "echo host here; echo a number"]
            output = screen.run(words, dict(os.environ), folder, [("host", "node1"), ("a number", "7")])
            screen.run(words, dict(os.environ), folder, lambda output: [("host", f"node{len(output.split())}")])
        self.assertEqual(screen.text().splitlines(), ["node1 here", "7", "node4 here", "a number"])
        self.assertEqual(output.split(), ["host", "here", "a", "number"])

    def test_a_shown_process_id_has_as_many_digits_as_the_real_one(self):
        self.assertEqual([terminal.fixed_pid(pid, 0) for pid in (7, "1234", 1234567)], ["4", "4182", "4182216"])

    def test_a_program_that_stays_open_gets_the_keys(self):
        screen = terminal.Terminal(20, lines=5)
        with tempfile.TemporaryDirectory() as folder:
            screen.run(["/bin/sh", "-c", "echo up; read key"], dict(os.environ), folder, keys=b"q\n", is_open=True,
                       until="up")
        self.assertEqual(screen.text().splitlines()[0], "up")

    def test_texts_of_a_screen_are_exchanged_after_it_was_drawn_in_pieces(self):
        screen = terminal.Terminal(20, lines=5)
        script = "printf 'pid 1234 \\033[1;7H99\\n'; read key"
        with tempfile.TemporaryDirectory() as folder:
            screen.run(["/bin/sh", "-c", script], dict(os.environ), folder, [("1299", "5678")], b"q\n", is_open=True, until="99")
        self.assertEqual(screen.text().splitlines()[0], "pid 5678")

    def test_special_characters_are_escaped(self):
        root, text = self.draw("a < b & c")
        self.assertEqual(self.words(root), ["a < b & c"])
        self.assertIn("a &lt; b &amp; c", text)

    def test_columns_stay_in_place_with_a_font_of_another_width(self):
        root, _ = self.draw("ab  cd")
        texts = [node for node in root.iter() if node.tag.endswith("}text")]
        self.assertEqual([node.text for node in texts], ["ab", "cd"])
        self.assertEqual(float(texts[1].get("x")) - float(texts[0].get("x")), round(4 * terminal.CELL_WIDTH, 1))
        self.assertEqual(float(texts[0].get("textLength")), round(2 * terminal.CELL_WIDTH, 1))

    def test_blocks_are_rectangles_of_their_height(self):
        root, _ = self.draw("x\u2588\u2588\u2584")
        heights = [float(node.get("height")) for node in root.iter() if node.tag.endswith("}rect")][1:]
        self.assertEqual(heights, [terminal.CELL_HEIGHT, terminal.CELL_HEIGHT / 2])
        self.assertEqual(self.words(root), ["x"])

    def test_colors_and_reversed_text_are_drawn(self):
        root, text = self.draw("\x1b[32mok\x1b[0m \x1b[7mbar\x1b[0m")
        self.assertIn(f"fill:{terminal.COLORS['green']}", text)
        self.assertIn(f'fill="{terminal.TEXT}"', text)
        self.assertEqual(self.words(root), ["ok", "bar"])

    def test_long_lines_wrap_and_empty_rows_at_the_end_are_left_out(self):
        root, _ = self.draw("0123456789" * 3 + "\n\n")
        self.assertEqual(self.words(root), ["0123456789" * 2, "0123456789"])
        self.assertEqual(float(root.get("height")), 2 * terminal.MARGIN + 2 * terminal.CELL_HEIGHT)

    def test_a_picture_with_a_path_of_this_machine_is_refused(self):
        for words, path, is_found in (("in /tmp/a-1/sockets", "/tmp/a-1", True), ("/tmp/a-1", "/tmp/a-1", True),
                                      ("in /tmp/a-12", "/tmp/a-1", False), ("in /run/gpupool", "/tmp/a-1", False)):
            with self.subTest(words=words):
                self.assertEqual(path in pictures.leaked(words, path), is_found)


if __name__ == "__main__":
    unittest.main()
