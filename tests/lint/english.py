# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Comments, messages, manuals and test names are plain technical English, as far as a pattern can tell.

Usage: english.py ROOT
       english.py --self-test

Each rule below refuses one construction, and says what to write instead. A sentence that no pattern refuses can still be
bad: these rules replace no reader.
"""

import io
import os
import re
import sys
import tokenize

import lint

C_ENDS = (".c", ".h", ".def", ".S", ".cu", ".cpp", ".js", ".css", ".map", ".proto")
HASH_ENDS = (".py", "meson.build", "meson_options.txt", ".ini", ".sh", ".yml")
ROFF_ENDS = (".1", ".3", ".7")
ROOMS = ("api", "common", "docs", "pool", "scripts", "shim", "tests", "tools")
TOP = ("README.md", "CONTRIBUTING.md", "NEWS.md", "SECURITY.md", "meson.build", "meson_options.txt")
NOT_PROSE = (os.path.join("tests", "lint", "english.py"),)  # full of bad samples
PRODUCT = ("api", "common", "pool", "shim", "tools")

COMMENT, MESSAGE, PROSE, NAME, IDENTIFIER = "comment", "message", "prose", "name", "identifier"
TEXTS = (COMMENT, MESSAGE, PROSE)

# A clause that stands where the subject of its sentence should stand. A question may begin like this.
HEADLESS = (r"(?:(?:What|Whatever|Who|Whoever|Whose|Whosoever|Whether|Nor|Else|Why|How)\b"
            r"|(?:Where|When) [^,;:]*(?:\.?$|, (?:and|or) (?:which|what|who|whom|how|where|when)\b)"
            r"|(?:Of|From|By|To|For|In|With) (?:what|whom|which|those who)\b"
            r"|That (?:which|of which)\b|(?:Those|They|All) (?:that|who|which|of which)\b|Which (?!means\b)"
            r"|Where (?:nothing|nobody|somebody|there|it|that)\b|Of (?:all|that|those|it)\b)")

RULES = (
    ((COMMENT, PROSE), r"^%s[^?]*$" % HEADLESS, "begin with the subject: name the thing or the actor"),
    (TEXTS, r"(?i)\b(?:some|any|every|no)body(?:'s|s)?\b", "name the actor"),
    ((NAME,), r"(?:^|_)(?:some|any|every|no)body(?:_|s_|$)|(?:^|_)who(?:ever)?_", "name the actor"),
    ((NAME,), r"^(?:what|whatever|who|whoever|whose|of_what|nor|else|where_|those_|that_which|as_)", "begin with the subject"),
    (TEXTS, r"(?i)\bso (?:often|seldom|many|much|long)\b(?![^.;]* (?:that|as)\b)", "write 'N times', 'at most N', 'for N ms'"),
    (TEXTS, r"(?i)\b(?:is|are|was|were|be|been) told\b(?! (?:apart|to)\b)", "write 'reported', or who reports it to whom"),
    (TEXTS, r"(?i)\btold of\b", "write 'reported'"),
    (TEXTS, r"(?i)\b(?:be|is|are|was|were) had\b", "write 'obtained' or 'available'"),
    (TEXTS, r"(?i)\bat hand\b", "write 'available' or 'current'"),
    (TEXTS, r"(?i)\bfor the sake of\b", "write 'for' or 'because of'"),
    (TEXTS, r"(?i)\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|larger\b|fewer\b|greater\b|higher\b|other\b|worse\b|slower\b)"
            r"(?<!there is no )(?<!there are no )(?<!there was no )(?<!there were no )", "write 'is not a'"),
    (TEXTS, r"(?i)\b(?:his|her) own\b", "name the thing"),
    (TEXTS, r"(?i)\bgives? way\b", "write 'flush' or 'release'"),
    (TEXTS, r"(?i)\bin vain\b", "write 'without success'"),
    (TEXTS, r"(?i)\b(?:has|have) gone\b(?! back)", "write 'has ended', 'was freed' or 'was unloaded'"),
    (TEXTS, r"(?i)\bof (?:ours|theirs|the driver's)\b(?! \w)", "name the owner first"),
    (TEXTS, r"(?i)\bheld against\b", "write 'compared with'"),
    (TEXTS, r"(?i)\b(?:come and go|comes and goes|came and went)\b", "write 'are created and destroyed' or 'begin and end'"),
    (TEXTS, r"(?i)\b(?:hold|holds|held) up\b(?! to\b)", "write 'delay' or 'block'"),
    (TEXTS, r"(?i)\bsees? to it\b", "write 'makes sure', or what it does"),
    (TEXTS, r"(?i)\b(?:make|makes|made) (?:no |any )?sense\b", "write 'malformed', 'unknown' or 'invalid'"),
    (TEXTS, r"(?i)\blest\b", "write 'so that ... not'"),
    (TEXTS, r"(?i)\ball the same\b", "write 'nevertheless'"),
    (TEXTS, r"(?i)\bfor ever\b", "write 'forever'"),
    ((NAME,), r"_(?:too|likewise|anyway|all_the_same|anew)$", "state the outcome without the test before it"),
    ((NAME,), r"(?:^|_)(?:is|are|was|were)_(?:well|ill|told|had)(?:_|$)", "write 'passes', 'fails' or 'is reported'"),
    ((NAME,), r"(?:^|_)(?:what|whatever|whoever|whom)_", "name the thing or the actor"),
    ((NAME,), r"(?:^|_)(?:come_and_go|comes_and_goes|held_against|looked_at)(?:_|$)", "name the action"),
    ((IDENTIFIER,), r"^(?:mine|ours|theirs|whose|said|gone|is_there|nowhere|meddle|furnish|tidy)$", "name the thing or the action"),
)


def sentences(text):
    """The sentences of a comment or paragraph, each on one line."""
    text = re.sub(r"\s+", " ", text).strip()
    return [part.strip(" -*") for part in re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"`(-])", text)]


# Comments, strings and characters.
NOT_CODE_OF_C = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''


def comments_of_c(text):
    for match in re.finditer(NOT_CODE_OF_C, text, re.S):
        line, word = text.count("\n", 0, match.start()) + 1, match.group()
        if word.startswith("/"):
            body = re.sub(r"(?m)^\s*\*(?!/) ?", "", word[2:-2] if word.startswith("/*") else word[2:])
            # An empty line, or an item of a list, ends a sentence.
            for part in re.split(r"\n\s*\n|\n\s*(?=- )", body):
                yield line, COMMENT, part
        elif word.startswith('"'):
            yield line, MESSAGE, word[1:-1]
    for match in re.finditer(r"^START_TEST\((\w+)\)", text, re.M):
        yield text.count("\n", 0, match.start()) + 1, NAME, match.group(1)
    yield from identifiers_of_c(text)


def identifiers_of_c(text):
    """Each identifier of the code, once, with its first line."""
    code = re.sub(NOT_CODE_OF_C, lambda match: "\n" * match.group().count("\n"), text, flags=re.S)
    first = {}
    for number, line in enumerate(code.splitlines(), 1):
        for word in re.findall(r"[A-Za-z_]\w*", line):
            first.setdefault(word, number)
    for word, number in first.items():
        yield number, IDENTIFIER, word


def comments_of_python(text):
    block, first = [], 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            is_next = block and token.start[0] == first + len(block)
            if block and not is_next:
                yield first, COMMENT, "\n".join(block)
            if not is_next:
                block, first = [], token.start[0]
            block.append(token.string.lstrip("#!"))
        elif token.type == tokenize.STRING and token.string.endswith('"""'):
            for part in re.split(r"\n\s*\n", token.string.strip('rf"')):
                yield token.start[0], COMMENT, part
    if block:
        yield first, COMMENT, "\n".join(block)
    # A test is a method test_..., or a function without parameters whose name is a sentence.
    for match in re.finditer(r"^\s*def (?:test_(\w+)|([a-z0-9]+(?:_[a-z0-9]+){4,})\(\):)", text, re.M):
        yield text.count("\n", 0, match.start()) + 1, NAME, match.group(1) or match.group(2)


def comments_of_hash(text):
    for match in re.finditer(r"(?m)(?:^[ \t]*#[^\n]*\n)+", text):
        yield text.count("\n", 0, match.start()) + 1, COMMENT, re.sub(r"(?m)^[ \t]*#!?", "", match.group())


def prose_of_roff(text):
    """The text between two macros."""
    lines, first = [], 0
    for number, line in enumerate([*text.splitlines(), ".Pp"], 1):
        if line.startswith((".", "'")):
            if lines:
                yield first, PROSE, "\n".join(lines)
            lines = []
        else:
            first = number if not lines else first
            lines.append(line)


def prose_of_markdown(text):
    text = re.sub(r"(?ms)^```.*?^```", lambda match: "\n" * match.group().count("\n"), text)
    number = 1
    for part in re.split(r"(\n\s*\n|\n(?=\s*[-*|] ))", text):
        if not part.lstrip().startswith("#") and part.strip():
            for cell in part.split("|") if part.lstrip().startswith("|") else [part]:
                yield number, PROSE, re.sub(r"`[^`]*`", "X", cell).lstrip(" -*\n")
        number += part.count("\n")


def texts(path, text):
    """(line, kind, text) of everything that a person reads in a file."""
    if path.endswith(C_ENDS):
        for line, kind, part in comments_of_c(text):
            # Strings of tests are data more often than messages.
            if kind != MESSAGE or (path.startswith(PRODUCT) and " " in part):
                yield line, kind, part
    elif path.endswith(".py"):
        yield from comments_of_python(text)
    elif path.endswith(ROFF_ENDS):
        yield from prose_of_roff(text)
    elif path.endswith(".md"):
        yield from prose_of_markdown(text)
    elif path.endswith(HASH_ENDS) or text.startswith("#!"):
        yield from comments_of_hash(text)


def check_text(path, text):
    for line, kind, part in texts(path, text):
        for sentence in [part] if kind in (NAME, IDENTIFIER) else sentences(part):
            for kinds, pattern, advice in RULES:
                match = re.search(pattern, sentence) if kind in kinds else None
                if match:
                    yield "%s:%d: \"%s\": %s" % (path, line, sentence[max(0, match.start() - 30):][:90], advice)


def paths(root):
    yield from (path for path in TOP if os.path.exists(os.path.join(root, path)))
    ends = (*C_ENDS, *HASH_ENDS, *ROFF_ENDS, ".md")
    yield from lint.sources(root, *ROOMS, ends=ends)
    for folder, _, names in os.walk(os.path.join(root, "scripts")):
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in sorted(names) if "." not in name)


def check(root):
    for path in paths(root):
        if path not in NOT_PROSE:
            yield from check_text(path, lint.read(root, path))


def self_test():
    comment = "/*\n * %s\n */\n"
    bad = {
        "shim/a.c": (comment % "What is so already is not written.", "begin with the subject"),
        "shim/b.c": (comment % "The first sentence is good. Of what is in order\n * hardly any is asked.", "begin with the subject"),
        "shim/c.h": ("int x; /* as long as somebody reads */\n", "name the actor"),
        "tests/d.c": ("START_TEST(who_waits_is_served)\n", "name the actor"),
        "tests/e.c": ("START_TEST(what_is_freed_is_free)\n", "begin with the subject"),
        "tools/f.c": ('puts("with --watch: so often");\n', "write 'N times'"),
        "tools/g.1": (".Sh NAME\nThe user is told how much it is.\n", "write 'reported'"),
        "docs/h.md": ("# What a heading may say\n\nThe list is good:\n- the memory can be had\n", "write 'obtained'"),
        "tests/i.py": ("# Fine.\nx = 1\n\n# This is no\n# level.\n", "write 'is not a'"),
        "scripts/j": ("#!/bin/sh\n# Waits in vain.\n", "without success"),
        "tests/k.py": ('"""Memory for the sake of a test."""\n', "write 'for' or"),
        "meson.build": ("# Takes what lies at hand.\n", "write 'available'"),
        "pool/A.h": (comment % "How a request is served: by the steps.", "begin with the subject"),
        "tests/B.c": (comment % "When a freed block may be reused.", "begin with the subject"),
        "tests/C.c": (comment % "Where the socket is made, and which users\n * it answers.", "begin with the subject"),
        "tests/m.c": (comment % "Contexts that come and go.", "created and destroyed"),
        "tests/n.py": ("# The figure is held against the bar.\n", "compared with"),
        "pool/o.h": (comment % "A client is not held up.", "write 'delay'"),
        "shim/p.c": (comment % "Sees to it that a line exists.", "makes sure"),
        "tests/q.sh": ("# Skips a line that makes no sense.\n", "malformed"),
        "tools/r.c": (comment % "Locks it, lest another thread takes it.", "so that"),
        "tools/s.1": (".Sh NAME\nIt is shown all the same.\n", "nevertheless"),
        "pool/t.c": (comment % "It would wait for ever.", "forever"),
        "tests/u.c": ("START_TEST(pinned_memory_is_reused_too)\n", "without the test before"),
        "tests/v.py": ("def test_equal_answers_are_well():\n\tpass\n", "write 'passes'"),
        "tests/w.c": ("START_TEST(a_report_names_what_was_freed)\n", "name the thing"),
        "tests/y.py": ("def a_reader_takes_what_was_written():\n\tpass\n", "name the thing"),
        "tests/x.py": ("def test_each_build_is_looked_at():\n\tpass\n", "name the action"),
        "tests/D.c": ("int mine = 1;\n", "name the thing or the action"),
        "shim/E.c": ("static bool is_there(void)\n{\n\treturn true;\n}\n", "name the thing or the action"),
        "tests/l.py": ("def test_where_nothing_is_there_it_fails():\n\tpass\n", "begin with the subject"),
    }
    good = {
        "shim/z.c": '/* Returns what the driver answered. There is no such file? What then? */\nputs("nobody");\n',
        "docs/z.md": "## Who should read this\n\nThe call is `so often`.\n\n```\nWhat is this\n```\n",
        "tests/y.c": '/* gone */ const char *region = "mine";\n',
        "tests/z.c": 'puts("so often a test prints nobody");\nSTART_TEST(a_free_whose_fence_fails_is_retried)\n',
    }
    tree = lint.make_tree({path: text for path, (text, _) in bad.items()} | good)
    for path, (text, advice) in bad.items():
        if not any(advice in problem for problem in check_text(path, text)):
            sys.exit("%s: the advice should be: %s" % (path, advice))
    lint.end_self_test(check(tree.name), ["%s:" % path for path in bad])


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        self_test()
    lint.end(check(sys.argv[1]))
