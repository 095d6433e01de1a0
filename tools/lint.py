#!/usr/bin/env python3
"""The checks of `make lint`: format, folder order, sizes, includes, self-contained headers.

Prints one line a problem and exits 1 if there is any.
"""
import os
import re
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# A folder may include only folders before it.
LAYERS = ["base", "device", "split", "cluster", "collective", "replica", "variable", "data", "ps", "strategy", "checkpoint", "observe",
          "train", "serve", "compat"]
MOST_FILE_LINES = 500
MOST_HEADER_LINES = 300
MOST_MEDIAN_LINES = 110
MOST_FUNCTION_LINES = 60
HEAVY = re.compile(r'#include [<"](torch/torch\.h|ATen/ATen\.h|grpcpp/|gloo/|nccl\.h|mpi\.h)')
FORBIDDEN = [(re.compile(r"\bsleep_for\b"), "sleep_for"), (re.compile(r"\bstd::thread\s+\w|\bstd::thread\("), "a thread that is not a std::jthread"),
             (re.compile(r"std::cout"), "std::cout"), (re.compile(r"\b(exit|abort|terminate)\(\)?;"), "exit or abort")]
# The one header whose job is to bring everything.
# Not installed: they bring third-party types, and all but the first generated code.
PRIVATE_HEADERS = ("lockstep/cluster/json.h", "lockstep/cluster/rpc.h", "lockstep/cluster/coordination_service.h",
                   "lockstep/ps/rpc_buffers.h", "lockstep/ps/rpc_sharing.h", "lockstep/train/options_text.h")
GENERATED_USERS = ("lockstep/cluster/rpc.h", "lockstep/cluster/coordination_service.h")  # need the built folder
UMBRELLA = "lockstep/lockstep.h"

problems = []


def complain(path, line, text):
    problems.append(f"{path}:{line}: {text}" if line else f"{path}: {text}")


def tracked(*endings):
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout.split("\n")
    return [p for p in listed if p.endswith(endings) and os.path.exists(os.path.join(ROOT, p))]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read().split("\n")


def check_format(files):
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", *files], cwd=ROOT, capture_output=True, text=True)
    for line in done.stderr.split("\n"):
        if "error:" in line:
            problems.append(line.strip() + " (run: clang-format -i)")


def check_layers(path, lines):
    parts = path.split("/")
    if parts[0] != "lockstep" or len(parts) < 3 or parts[1] not in LAYERS or path.endswith("_test.cc"):
        return
    allowed = LAYERS[:LAYERS.index(parts[1]) + 1]
    for number, line in enumerate(lines, 1):
        found = re.match(r'#include "lockstep/([a-z_]+)/', line)
        if found and found.group(1) in LAYERS and found.group(1) not in allowed:
            complain(path, number, f"{parts[1]}/ may not include {found.group(1)}/, which comes after it")


def check_sizes(path, lines):
    count = len(lines) - 1
    limit = MOST_HEADER_LINES if path.startswith("lockstep/") and path.endswith(".h") else MOST_FILE_LINES
    if count > limit:
        complain(path, 0, f"{count} lines; at most {limit}")


def check_functions(path, lines):
    """A function begins at column 0 or 2 with a line that has a '(', whose statement goes on to a '{' at a line's end, and
    ends with the brace at its column."""
    start = head = None
    for number, line in enumerate(lines, 1):
        indent = len(line) - len(line.lstrip())
        if start is None and line.strip() and not line.lstrip().startswith("//"):
            if indent <= 2:
                is_type = re.match(r"\s*(namespace|class|struct|enum|extern)\b", line)
                head = (number, indent) if "(" in line and not is_type else None
            if head and line.rstrip().endswith("{"):
                start, depth = head
            if line.rstrip().endswith((";", "}")):
                head = None
        elif start is not None and indent == depth and line.strip().startswith("}"):
            if number - start + 1 > MOST_FUNCTION_LINES:
                complain(path, start, f"a function of {number - start + 1} lines; at most {MOST_FUNCTION_LINES}")
            start = None


def check_includes(path, lines):
    if not path.startswith("lockstep/"):
        return
    is_header = path.endswith(".h")
    if is_header and "#pragma once" not in lines[0]:
        complain(path, 1, "a header begins with #pragma once")
    for number, line in enumerate(lines, 1):
        if is_header and path != UMBRELLA and path not in PRIVATE_HEADERS and HEAVY.match(line):
            complain(path, number, "a public header may not include this; see fwd.h")
        if not path.endswith("_test.cc"):
            for pattern, name in FORBIDDEN:
                if pattern.search(line):
                    complain(path, number, f"{name} in the library")


def check_tests(path, lines):
    if not path.endswith("_test.cc"):
        return
    for number, line in enumerate(lines, 1):
        if re.search(r"EXPECT_ANY_THROW|ASSERT_ANY_THROW|GTEST_SKIP|DISABLED_|(EXPECT|ASSERT)_TRUE\(true\)", line):
            complain(path, number, "a test that accepts anything, skips, or cannot fail")


def check_texts(path, lines):
    for number, line in enumerate(lines, 1):
        if re.search(r"\b(TODO|FIXME|XXX)\b", line) and not path.startswith("tools/lint"):
            complain(path, number, "something left to do")
        if re.search(r"/(work|root|home)/\w", line) and not path.startswith("tools/lint"):
            complain(path, number, "a path of one machine")


def check_headers_stand_alone(headers):
    """Each header compiles by itself (declarations only, so this is quick for those without LibTorch)."""
    folder = os.path.join(ROOT, "build", "lint")
    os.makedirs(folder, exist_ok=True)
    # LibTorch's modules and optimizers stand apart from its tensors.
    flags = ["-std=c++20", "-fsyntax-only", "-I" + ROOT, "-isystem", "/usr/include/torch/csrc/api/include"]
    for include in filter(None, os.environ.get("LOCKSTEP_TORCH_INCLUDES", "").split(":")):  # LibTorch that is not Debian's
        flags += ["-isystem", include]
    newest = max(os.path.getmtime(os.path.join(ROOT, header)) for header in headers)

    def check(header):
        stamp = os.path.join(folder, header.replace("/", "_") + ".ok")
        if os.path.exists(stamp) and os.path.getmtime(stamp) > newest:
            return
        source = f'#include "{header}"\n'
        done = subprocess.run(["g++", *flags, "-x", "c++", "-"], input=source, capture_output=True, text=True)
        if done.returncode != 0:
            complain(header, 0, "does not compile by itself:\n" + "\n".join(done.stderr.split("\n")[:4]))
        else:
            open(stamp, "w").close()

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(check, [header for header in headers if header not in GENERATED_USERS]))


def main():
    sources = tracked(".h", ".cc")
    check_format(sources)
    ours = [p for p in sources if p.startswith("lockstep/") and not p.endswith("_test.cc")]
    counts = []
    for path in sources + tracked(".py", ".sh", ".cmake"):
        lines = read(path)
        check_texts(path, lines)
        check_sizes(path, lines)
        if path in sources:
            check_layers(path, lines)
            check_functions(path, lines)
            check_includes(path, lines)
            check_tests(path, lines)
            counts.append(len(lines) - 1)
    median = statistics.median(counts)
    if median > MOST_MEDIAN_LINES:
        complain("all sources", 0, f"median {median} lines a file; at most {MOST_MEDIAN_LINES}")
    if "--fast" not in sys.argv:
        check_headers_stand_alone([p for p in ours if p.endswith(".h") and p != UMBRELLA and not p.endswith("_inl.h")])
    for problem in problems:
        print(problem)
    print(f"lint: {len(sources)} sources, median {median:.0f} lines, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
