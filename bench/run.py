#!/usr/bin/env python3
"""Runs the benchmarks: Lockstep in turns with its peers, in one run, and says what was reached and what was missed.

    python3 bench/run.py --build build [--peers python] [--quick] [--only W1,W3,calls,memory]

Prints a table and writes BUILD/bench.json. Exit status 1 when something gave wrong results, not when a target is missed.
"""

import argparse
import os
import sys
import time
from types import SimpleNamespace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from driver import calls, checkpoints, engines, fitting, inputs, link, peers, ps, report, startup, training  # noqa: E402
from driver.processes import Failure  # noqa: E402
from driver.quiet import Patience  # noqa: E402

SIMPLE = {"calls": calls.measure_calls, "engines": engines.measure, "startup": startup.measure, "link": link.measure,
          "inputs": inputs.measure, "checkpoints": checkpoints.measure, "memory": calls.measure_memory}
CHECKED = {"fit": fitting.measure, "ps": ps.measure}  # they say whether losses fall
SECTIONS = list(SIMPLE) + list(CHECKED) + training.MODELS


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="build folder")
    parser.add_argument("--peers", default="", help="python: PyTorch and TensorFlow too, from PyPI")
    parser.add_argument("--quick", action="store_true", help="short windows: does it work, not how fast is it")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections: " + ",".join(SECTIONS))
    parser.add_argument("--rounds", type=int, default=0, help="samples of each figure, at least 5")
    parser.add_argument("--window", type=float, default=0, help="seconds of training a sample")
    parser.add_argument("--lockstep-args", default="", help="for train_bench in its Lockstep modes, such as --loss=average")
    parser.add_argument("--patience", type=float, default=60,
                        help="seconds to spend on waiting for a quiet machine and on trying again (default 60)")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    for name in arguments.only:
        if name not in SECTIONS:
            parser.error(f"unknown section '{name}'; use some of {','.join(SECTIONS)}")
    if arguments.peers not in ("", "python"):
        parser.error("--peers takes 'python' or nothing")
    return arguments


def make_settings(arguments):
    build = os.path.abspath(arguments.build)
    settings = SimpleNamespace(build=build, logs=os.path.join(build, "bench_logs"), torch=None, tensorflow=None,
                               versions={}, lockstep_args=arguments.lockstep_args.split(),
                               rounds=max(5, arguments.rounds or (5 if arguments.quick else 9)),
                               window=arguments.window or (0.4 if arguments.quick else 1.2),
                               patience=Patience(5 if arguments.quick and arguments.patience == 60 else arguments.patience))
    os.makedirs(settings.logs, exist_ok=True)
    if arguments.peers:
        folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build", "peers")
        for name in peers.PACKAGES:
            python = peers.prepare(name, folder)
            setattr(settings, name, python)
            if python:
                settings.versions[name] = peers.version(python, name)
    return settings


def measure(section, settings):
    """The rows of one section, and what gave wrong results in it."""
    if section in SIMPLE:
        return SIMPLE[section](settings), []
    return CHECKED[section](settings) if section in CHECKED else training.measure(section, settings)


def main():
    arguments = parse()
    settings = make_settings(arguments)
    machine = report.describe_machine()
    print("machine:", ", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    rows, wrong = [], []
    path = os.path.join(settings.build, "bench.json")
    for section in [name for name in SECTIONS if name in arguments.only]:
        start = time.monotonic()
        try:
            before = calls.marker(settings)
            found, not_learning = measure(section, settings)
            after = calls.marker(settings)
        except Failure as failure:
            print(f"{section}: FAILED: {failure}", flush=True)
            wrong.append(section)
            continue
        for entry in found:
            entry["config"].update(machine=machine, marker_us=[before, after], versions=settings.versions)
        rows += found
        report.write_json(path, rows)  # what is there already, should a later section be stopped
        wrong += [f"the loss of {name} did not fall" for name in not_learning]
        print(f"{section}: {time.monotonic() - start:.0f} s, marker {before:.2f} us before, {after:.2f} us after", flush=True)
    print("versions:", ", ".join(f"{key} {value}" for key, value in settings.versions.items()))
    print()
    report.print_table(rows)
    missed = sum(report.is_missed(entry) for entry in rows)
    print(f"\n{len(rows)} lines, {missed} missed; written to {path}")
    disturbed = sum(entry["config"].get("disturbed_samples", 0) > 0 for entry in rows)
    if disturbed:
        print(f"something else ran on this machine during samples of {disturbed} lines: do not trust these "
              "(config.disturbed_samples; --patience waits longer for a quiet machine)")
    for text in wrong:
        print(f"WRONG: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
