#!/usr/bin/env python3
"""Code in the documentation comes from examples/. Checks it, or with --fix puts it there.

A block is marked by the line before it: `<!-- example: examples/x.cc -->` for the whole file, or
`<!-- example: examples/x.cc#name -->` for the lines between the first and the second `// [name]`.
"""
import os
import re
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BLOCK = re.compile(r"(<!-- example: (\S+?)(?:#(\w+))? -->\n```cpp\n)(.*?)(```\n)", re.S)


def source_of(path, region):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = file.read()
    if region:
        parts = re.split(rf"^\s*// \[{region}\]\n", text, flags=re.M)
        if len(parts) != 3:
            raise SystemExit(f"{path}: there must be two lines '// [{region}]'")
        text = textwrap.dedent(parts[1])
    return text


def main():
    fix = "--fix" in sys.argv
    problems = blocks = 0
    pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] + sorted(
        os.path.join("docs", name) for name in os.listdir(os.path.join(ROOT, "docs")) if name.endswith(".md"))
    for page in pages:
        full = os.path.join(ROOT, page)
        if not os.path.exists(full):
            continue
        with open(full, encoding="utf-8") as file:
            text = file.read()
        blocks += len(BLOCK.findall(text))
        wanted = BLOCK.sub(lambda m: m.group(1) + source_of(m.group(2), m.group(3)) + m.group(5), text)
        plain = len(re.findall(r"^```cpp", text, re.M)) - len(BLOCK.findall(text))
        if plain:
            problems += 1
            print(f"{page}: {plain} C++ blocks do not come from examples/")
        if wanted != text:
            if fix:
                with open(full, "w", encoding="utf-8") as file:
                    file.write(wanted)
            else:
                problems += 1
                print(f"{page}: code differs from examples/ (run: tools/check_docs.py --fix)")
    print(f"docs: {blocks} code blocks, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
