#!/usr/bin/env python3
"""A trace file against the rules of Chrome's trace format, and what a trace of training must hold.

Usage: check_trace.py FILE WORKERS"""
import json
import sys

CATEGORIES = {"compute", "sync", "wait", "input", "optimizer", "checkpoint", "other"}
NUMBER = (int, float)
# By phase: the fields that an event must have, with their types; no others may be there but those in OPTIONAL.
REQUIRED = {"M": {"name": str, "ph": str, "pid": int, "args": dict},
            "X": {"name": str, "cat": str, "ph": str, "pid": int, "tid": int, "ts": NUMBER, "dur": NUMBER}}
OPTIONAL = {"M": {"tid": int}, "X": {"args": dict}}


def require(holds, what):
    if not holds:
        raise SystemExit(f"check_trace: {what}")


def check_event(event):
    require(event.get("ph") in REQUIRED, f"an event of another phase: {event}")
    required, optional = REQUIRED[event["ph"]], OPTIONAL[event["ph"]]
    for field, kind in required.items():
        require(isinstance(event.get(field), kind) and not isinstance(event[field], bool), f"'{field}' of {event}")
    for field, value in event.items():
        require(field in required or isinstance(value, optional.get(field, ())), f"'{field}' of {event}")
    if event["ph"] == "X":
        require(event["cat"] in CATEGORIES and event["dur"] >= 0, f"{event}")
        require(all(isinstance(value, int) for value in event.get("args", {}).values()), f"arguments of {event}")


def check_nesting(spans):
    """On one thread spans lie inside each other or apart: viewers draw nothing sensible else."""
    open_ends = []
    for span in sorted(spans, key=lambda s: (s["ts"], -s["dur"])):
        while open_ends and open_ends[-1] <= span["ts"] + 1e-3:
            open_ends.pop()
        end = span["ts"] + span["dur"]
        require(not open_ends or end <= open_ends[-1] + 1e-3, f"{span} overlaps the one before")
        open_ends.append(end)


def main():
    path, workers = sys.argv[1], int(sys.argv[2])
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    require(set(trace) == {"displayTimeUnit", "otherData", "traceEvents"}, f"fields {sorted(trace)}")
    events = trace["traceEvents"]
    for event in events:
        check_event(event)
    spans = [event for event in events if event["ph"] == "X"]
    threads = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    require(processes == set(range(workers)), f"processes {processes}")
    for process in processes:
        names = {span["name"] for span in spans if span["pid"] == process}
        wanted = {"run", "forward", "backward", "optimizer", "next batch", "make element"}
        if workers > 1:
            wanted |= {"gradients", "sum bucket"}
        wanted |= {"collect checkpoint"}
        if process == 0:
            wanted |= {"write checkpoint"}  # the first worker writes for all
        require(wanted <= names, f"worker {process} lacks {sorted(wanted - names)}")
    for span in spans:
        if span["name"] in ("collect checkpoint", "write checkpoint"):
            require(span["cat"] == "checkpoint", f"the category of {span}")
    for thread in threads:
        check_nesting([span for span in spans if (span["pid"], span["tid"]) == thread])
    require({(s["pid"], s["tid"]) for s in spans} <= threads, "a span on a thread without a name")
    errors = [worker["clock_error_us"] for worker in trace["otherData"]["workers"]]
    require(len(errors) == workers and all(0 <= error < 10_000 for error in errors), f"clock errors {errors} us")
    # In lockstep: by one clock, a step's sums begin on no worker before every worker has begun the step.
    for worker in range(1, workers):
        mine = sorted(s["ts"] for s in spans if s["pid"] == worker and s["name"] == "optimizer")
        first = sorted(s["ts"] for s in spans if s["pid"] == 0 and s["name"] == "optimizer")
        require(len(mine) == len(first), "workers made different numbers of steps")
        apart = max(abs(a - b) for a, b in zip(mine, first))
        require(apart < 1e6, f"worker {worker}'s steps are {apart} us apart from the first one's")
    print(f"check_trace: {len(spans)} spans of {len(threads)} threads on {workers} workers; clock errors {errors} us")


if __name__ == "__main__":
    main()
