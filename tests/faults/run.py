#!/usr/bin/env python3
"""Lets jobs of real processes suffer every fault, many times each at a random moment, and looks at what the survivors say.

Usage: tests/faults/run.py --build FOLDER [--rounds N] [--only PATTERN] [--seed S] [--list]

A fault passes when all of its rounds do. A round passes when every survivor reports the right task with the right code in
time, nothing hangs, and no process, port, shared segment, file or network is left behind. The last line is
'N passed, M failed'. A failing round is repeated with the seed that is printed, and --only with the fault's name.
"""
import argparse
import concurrent.futures
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

# Importing them registers their faults.
import deaths  # noqa: F401
import disks  # noqa: F401
import fits  # noqa: F401
import keeper
import leftovers
import links  # noqa: F401
import misdeeds  # noqa: F401
import neighbours  # noqa: F401
import registry
import replication  # noqa: F401
import restarts  # noqa: F401
import servers  # noqa: F401
import stalls  # noqa: F401
import strangers  # noqa: F401

FOLDER = os.path.dirname(os.path.abspath(__file__))


def story_of(at):
    # Limits of a second are kept by a machine that has time for the job.
    lines = [f"  seconds since the round's start; drawn: {', '.join(at.notes) or 'nothing'}; the machine's load is "
             f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"]
    return "\n".join(lines + [task.story(at.started) for task in at.tasks])


def run_round(suite, fault, number):
    """Returns (times, text): an empty text when all was as it must be."""
    at = registry.Round(suite, fault, number)
    before = leftovers.Before(at)
    problem = ""
    try:
        with at.cleanup:
            try:
                fault.body(at)
            except registry.Failed as failed:
                problem = str(failed)
            except registry.CannotRun:
                raise
            except Exception:  # a mistake of the test's own is a failure too
                problem = traceback.format_exc()
            if problem and at.left() == 0:
                stacks = leftovers.stacks_of(leftovers.processes_with(at.mark))
                problem = f"HANGS: not over after {fault.limit} s. {problem}\n{stacks}"
            if problem:
                leftovers.kill_all(at.mark)
            for task in at.tasks:
                task.wait_end(2)
            problem = problem or "; ".join(before.left_behind())
    finally:
        leftovers.kill_all(at.mark)
    problem = problem or "; ".join(before.left_at_the_end())
    return at.times, f"round {number}: {problem}\n{story_of(at)}" if problem else ""


def run_fault(suite, fault, rounds):
    """Prints the fault's line; None when it cannot be run here, else whether it passed."""
    start = time.monotonic()
    times, problems = [], []
    try:
        if fault.needs:
            fault.needs()
        with concurrent.futures.ThreadPoolExecutor(fault.at_once) as pool:
            for of_round, problem in pool.map(lambda number: run_round(suite, fault, number), rounds):
                times += of_round
                problems += [problem] if problem else []
    except registry.CannotRun as why:
        print(f"not run {fault.name:32} {why}", flush=True)
        return None
    measured = f"median {statistics.median(times):6.3f} s  worst {max(times):6.3f} s" if times else " " * 34
    print(f"{'FAILED' if problems else 'ok':7} {fault.name:32} {len(rounds) - len(problems):3} ok {len(problems):3} failed  "
          f"{measured}  {time.monotonic() - start:6.1f} s", flush=True)
    for problem in problems:
        print(f"  {problem}", flush=True)
    return not problems


def run_all(arguments, faults):
    mark = f"lsfault{os.getpid()}"
    folder = tempfile.mkdtemp(prefix="faults-")
    suite = registry.Suite(os.path.abspath(arguments.build), arguments.seed, folder, mark)
    guard = subprocess.Popen([sys.executable, os.path.join(FOLDER, "keeper.py"), mark, folder], stdin=subprocess.PIPE,
                             start_new_session=True)
    rounds = [arguments.round] if arguments.round is not None else list(range(arguments.rounds))
    try:
        results = [run_fault(suite, fault, rounds) for fault in faults]
    finally:
        keeper.clean(mark, folder)
        guard.stdin.close()
        guard.wait(30)
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--round", type=int, help="only the round with this number")
    parser.add_argument("--only", default="", help="faults whose names this pattern is in")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    faults = [one for one in registry.FAULTS if re.search(arguments.only, one.name)]
    if not faults:
        parser.error(f"no fault's name has '{arguments.only}' in it; --list shows them all")
    if arguments.list:
        print("\n".join(one.name for one in faults))
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    print(f"seed {arguments.seed}", flush=True)
    results = run_all(arguments, faults)
    not_run = results.count(None)
    if not_run:
        print(f"{not_run} faults were not run on this machine and are not counted")
    passed, failed = results.count(True), results.count(False)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
