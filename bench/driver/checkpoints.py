"""Saving and restoring 400 MB, in turns with plain writes and reads and with LibTorch's own (checkpoint_bench)."""

import json
import os
import shutil
import subprocess

from driver.processes import Failure
from driver.report import row

PLAIN_WRITE, PLAIN_READ = "a plain write() and fsync", "a plain read()"
TORCH_SAVE, TORCH_LOAD = "torch::save, then fsync", "torch::load"
# what -> ours, peer, its name, the ratio that must be reached
LINES = [("save", "save", "plain_write", PLAIN_WRITE, 0.85), ("save", "save", "torch_save", TORCH_SAVE, 1.2),
         ("restore", "restore", "plain_read", PLAIN_READ, 0.85), ("restore", "restore", "torch_load", TORCH_LOAD, 4)]


def measure(settings):
    folder = os.path.join(settings.build, "bench_files", "checkpoints")
    settings.patience.wait()
    done = subprocess.run([os.path.join(settings.build, "bin", "checkpoint_bench"), f"--folder={folder}", f"--rounds={settings.rounds}"],
                          capture_output=True, text=True, timeout=900)
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode != 0:
        raise Failure(f"checkpoint_bench: {done.stderr.strip()[-500:]}")
    found = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    megabytes = found["save"]["bytes"] // 1_000_000
    rows = [row(f"checkpoint of {megabytes} MB: {what}", "GB/s", found[ours]["samples"], peer=name, peer_values=found[peer]["samples"],
                target=target) for what, ours, peer, name, target in LINES]
    rows.append(row(f"checkpoint of {megabytes} MB: training stops for an async save", "ms", found["async_stop_ms"]["samples"], target=50,
                    higher_is_better=False, config={"first_ms": found["async_first_stop_ms"]["samples"]}))
    return rows
