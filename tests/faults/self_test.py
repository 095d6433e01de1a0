#!/usr/bin/env python3
"""Rounds that must fail, and do: shows that the suite's checks see what they are there for. Needs no build.

Usage: tests/faults/self_test.py
"""
import os
import shutil
import socket
import sys
import tempfile
import time

import keeper
import registry
import run
import tasks
import verdicts

DEAD = "error kUnavailable worker 1 on host 'a' (process 7) is gone: closed; its last step was 5"


def says(at, text, code=3, after=0.0):
    """A worker that says this and ends."""
    line = f"sleep {after}; printf '%s\\n' \"$0\"; exit {code}"
    return tasks.Task(at, "worker 0", ["sh", "-c", line, text], tasks.clean_environment(at))


def gone(at, text, **more):
    verdicts.expect_gone(at, [says(at, text, **more)], 1, time.monotonic(), 1.0)


def leave_process(at):
    tasks.Task(at, "shell", ["sh", "-c", "sleep 30 >/dev/null 2>&1 & exit 0"], tasks.clean_environment(at)).wait_end(5)


def leave_file(at):
    with open(os.path.join(at.temporary, "forgotten"), "w"):
        pass


def leave_port(at):
    kept = socket.create_server(("127.0.0.1", 0))
    at.cleanup.callback(kept.close)
    at.ports.add((None, kept.getsockname()[1]))


def hang(at):
    task = tasks.Task(at, "worker 0", ["sleep", "30"], tasks.clean_environment(at))
    registry.expect(task.wait_end() == 0, "it did not end")


def other_bits(at):
    at.suite.once(("digest", 1, 5), lambda: "12")
    tasks.expect_digests(at, [says(at, "weights 13", code=0)], 5)


# What happens, and what the suite must say about it; nothing: that all is well.
CASES = [
    ("right", lambda at: gone(at, DEAD), ""),
    ("another_code", lambda at: gone(at, DEAD.replace("kUnavailable", "kInternal")), "should report kUnavailable"),
    ("another_worker", lambda at: gone(at, DEAD.replace("worker 1", "worker 2")), "should name worker 1 as gone"),
    ("two_workers", lambda at: gone(at, DEAD + "; worker 2 has ended"), "should name worker 1 as gone"),
    ("a_rank_only", lambda at: gone(at, "error kUnavailable gloo: the connection to rank 1 is lost"), "should name"),
    ("no_step", lambda at: gone(at, DEAD.split(";")[0]), "does not tell the last step"),
    ("too_late", lambda at: gone(at, DEAD, after=1.3), "at most 1.0 s"),
    ("another_exit", lambda at: gone(at, DEAD, code=0), "should end with exit code 3"),
    ("no_word", lambda at: gone(at, "hello"), "reported no error"),
    ("other_bits", other_bits, "has the weights 13"),
    ("hang", hang, "HANGS"),
    ("process", leave_process, "a process is left"),
    ("file", leave_file, "the file forgotten is left"),
    ("port", leave_port, "is still listened on"),
    ("mistake", lambda at: 1 / 0, "ZeroDivisionError"),
]


def main():
    folder = tempfile.mkdtemp(prefix="faults-")
    os.mkdir(os.path.join(folder, "bin"))
    suite = registry.Suite(folder, 1, folder, f"lsfself{os.getpid()}")
    failed = 0
    try:
        for name, body, wanted in CASES:
            _, found = run.run_round(suite, registry.Fault(name, body, limit=3.0), 0)
            is_good = wanted in found if wanted else not found
            failed += not is_good
            verdict = f"ok      {name}" if is_good else f"FAILED  {name}: found {found or 'nothing'}"
            print(verdict, flush=True)
    finally:
        keeper.clean(suite.mark, folder)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(CASES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
