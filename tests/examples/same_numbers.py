#!/usr/bin/env python3
"""An example prints the same losses and metrics on one worker and on several. Usage: same_numbers.py LOCKSTEP WORKERS PROGRAM ARGUMENT...

Each run has an empty folder as its working directory."""
import os
import re
import subprocess
import sys
import tempfile

ROUNDED = 1.01e-4  # numbers are printed with four digits: a last digit may fall on either side
# Sums in float32 differ in their last bits, and an example between two classes may fall to the other: one of 90, the smallest test.
ONE_EXAMPLE = 0.0125


def numbers(command, prefix):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    if done.returncode != 0:
        raise SystemExit(f"same_numbers: {' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    found = []
    for line in done.stdout.splitlines():
        if line.startswith(prefix):
            found += [(name, float(value)) for name, value in re.findall(r"(\w+): (\d+\.\d{4})\b", line[len(prefix):])]
    return found


def main():
    launcher, workers, program = os.path.abspath(sys.argv[1]), sys.argv[2], [os.path.abspath(sys.argv[3])] + sys.argv[4:]
    alone = numbers(program, "")
    together = numbers([launcher, "run", "-n", workers] + program, "[worker 0] ")
    if len(alone) < 8 or [name for name, _ in alone] != [name for name, _ in together]:
        raise SystemExit(f"same_numbers: {len(alone)} numbers alone, {len(together)} of worker 0 of {workers}:\n{alone}\n{together}")
    for (name, one), (_, other) in zip(alone, together):
        if abs(one - other) > (ONE_EXAMPLE if "accuracy" in name else ROUNDED):
            raise SystemExit(f"same_numbers: {name} is {one} alone and {other} on {workers} workers")
    print(f"same_numbers: {len(alone)} numbers are the same, but for rounding, on 1 and {workers} workers")


if __name__ == "__main__":
    main()
