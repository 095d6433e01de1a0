#!/usr/bin/env python3
"""Checks CASES.md: every case of the peer's suite is listed once, every named test exists, and every other line says why.

Prints "374 cases: ... tested, ... n/a, ... open". Exits with 1 when something is wrong.
"""

import re
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# The numbering leaves out every third number, beginning with 3, and has no other gaps.
FIRST, LAST = 1, 560
CASES = [number for number in range(FIRST, LAST + 1) if number % 3 != 0]

LINE = re.compile(r"^\| *(\d+) *\| *(.*?) *\| *(.*?) *\|$")
TEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST)\(\s*(\w+)\s*,\s*(\w+)\s*\)")
TEST_NAME = re.compile(r"\b[A-Z]\w*\.[A-Z]\w*")


def read_table(path):
    """(number, test, note) of every line of the table, in order."""
    rows = []
    for text in path.read_text().splitlines():
        match = LINE.match(text)
        if match:
            rows.append((int(match[1]), match[2], match[3]))
    return rows


def find_tests():
    """The full names of all tests."""
    names = set()
    for path in [*HERE.glob("*_test.cc"), *(ROOT / "tests/multi_worker").glob("*_test.cc"),
                 *(ROOT / "lockstep").rglob("*_test.cc")]:
        names.update(f"{suite}.{name}" for suite, name in TEST.findall(path.read_text()))
    return names


def problems_of(rows, tests):
    found = Counter(number for number, _, _ in rows)
    for number in CASES:
        if found[number] != 1:
            yield f"case {number} is listed {found[number]} times"
    for number in found:
        if number not in set(CASES):
            yield f"case {number} does not exist"
    if [number for number, _, _ in rows] != sorted(found.elements()):
        yield "the cases are not in order"
    for number, test, note in rows:
        if test in ("n/a", "open"):
            if not note:
                yield f"case {number} is {test} without a reason"
        elif test not in tests:
            yield f"case {number}: there is no test {test}"
        for also in TEST_NAME.findall(note):
            if also not in tests:
                yield f"case {number}: there is no test {also}, which the note names"


def main():
    rows = read_table(HERE / "CASES.md")
    problems = list(problems_of(rows, find_tests()))
    for problem in problems:
        print(f"CASES.md: {problem}", file=sys.stderr)
    kinds = Counter(test if test in ("n/a", "open") else "tested" for _, test, _ in rows)
    print(f"{len(rows)} cases: {kinds['tested']} tested, {kinds['n/a']} n/a, {kinds['open']} open")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
