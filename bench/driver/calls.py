"""Single calls (micro_bench), and peak memory."""

import json
import os
import resource
import subprocess
import time
from statistics import median

from driver.processes import KEPT_PAGES, Contender, Failure
from driver.quiet import DISTURBED, Watch
from driver.report import row

ADD_AND_STORE = "two threads that only add and store"
SIZES = {4: "4 B", 4 << 10: "4 KB", 256 << 10: "256 KB", 4 << 20: "4 MB", 64 << 20: "64 MB"}


def run_micro(settings, *arguments):
    program = os.path.join(settings.build, "bin", "micro_bench")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Failure(f"micro_bench: {done.stderr.strip()[-500:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def marker(settings):
    """Microseconds of a round trip between two spinning threads."""
    return run_micro(settings, "--marker")[0]["p50_us"]


def spread(found):
    return {"min_us": found["min_us"], "p99_us": found["p99_us"], "calls": found["calls"]}


def undisturbed_micro(settings):
    """micro_bench on a quiet machine: again while there is patience and something else ran."""
    while True:
        settings.patience.wait()
        before, start = time.monotonic(), Watch()
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = run_micro(settings, f"--rounds={settings.rounds}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = time.monotonic() - before
        own = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
        is_disturbed = start.foreign_cores() - own / seconds > DISTURBED
        if not is_disturbed or settings.patience.left <= 0:
            return lines, is_disturbed
        settings.patience.left -= seconds


def measure_calls(settings):
    lines, is_disturbed = undisturbed_micro(settings)
    found = {(line["name"], line["bytes"]): line for line in lines}
    empty = found["run_empty", 0]
    beyond = found["run_beyond_300us", 0]
    rows = [row("run of nothing, 2 replicas", "us", empty["samples"], target=8, higher_is_better=False, config=spread(empty)),
            row("run beyond 300 us of work", "us", beyond["samples"], higher_is_better=False, config=spread(beyond))]
    for size, text in SIZES.items():
        peer = found["add_and_store", size]["samples"]
        for name, what in (("all_reduce_in_place", "all_reduce_"), ("all_reduce", "all_reduce")):
            ours = found[name, size]
            if size == 4:
                rows.append(row(f"{what} {text}", "us", ours["samples"], target=5, higher_is_better=False,
                                config={**spread(ours), ADD_AND_STORE: median(peer)}))
                continue
            target = 0.7 if size == 64 << 20 and what == "all_reduce_" else None
            rows.append(row(f"{what} {text}", "us", ours["samples"], peer=ADD_AND_STORE, peer_values=peer, target=target,
                            higher_is_better=False, config=spread(ours)))
    for entry in rows:
        entry["config"]["disturbed_samples"] = entry["samples"] if is_disturbed else 0
    return rows


def peak(settings, mode, environment, seconds):
    """Peak memory of a new process that trains W3, in MB, and the bytes of its buckets."""
    program = os.path.join(settings.build, "bin", "train_bench")
    contender = Contender(f"memory {mode}", [[program, f"--mode={mode}", "--model=W3"]], environment, settings.logs)
    try:
        contender.wait_until_ready()
        contender.train(seconds)
        found = contender.memory()
        return found["peak_bytes"] / 1e6, found["bucket_bytes"] / 1e6
    finally:
        contender.stop()


def measure_memory(settings):
    """Lockstep's peak against a process with as many model copies in threads that never talk, plus the buckets."""
    seconds = settings.window
    ours, buckets, silent, kept = [], 0.0, [], []
    for _ in range(5):
        used, buckets = peak(settings, "lockstep", {}, seconds)
        ours.append(used)
        silent.append(peak(settings, "threads", {}, seconds)[0])
        kept.append(peak(settings, "threads", KEPT_PAGES, seconds)[0])
    best = min(silent, kept, key=median)
    return [row("peak memory W3", "MB", ours, peer="two copies in threads, plus the buckets",
                peer_values=[value + buckets for value in best], target=1.0, higher_is_better=False,
                config={"bucket_mb": buckets, "copies_mb": median(silent), "copies_keeping_pages_mb": median(kept)})]
