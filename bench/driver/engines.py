"""All-reduces between two processes: our engines against Open MPI and Gloo (engine_bench, under mpirun)."""

import json
import os
import shutil
import subprocess
import tempfile

from driver.processes import Failure
from driver.report import row

SIZES = {4: "4 B", 4 << 10: "4 KB", 256 << 10: "256 KB", 1 << 20: "1 MB", 4 << 20: "4 MB", 64 << 20: "64 MB"}
AGAINST_MPI = {4: 0.5, 4 << 10: 0.8, 256 << 10: 3, 4 << 20: 3, 64 << 20: 5}
AGAINST_GLOO = {4: 20, 4 << 10: 20, 256 << 10: 20, 1 << 20: 20, 4 << 20: 20, 64 << 20: 6}


def run_bench(settings, only, over_tcp=False):
    """Samples by (candidate, bytes)."""
    program = os.path.join(settings.build, "bin", "engine_bench")
    if not os.path.exists(program) or shutil.which("mpirun") is None:
        print("  engines: built without MPI; their lines are left out", flush=True)
        return {}
    with tempfile.TemporaryDirectory() as store:
        # Bound to one core each, Gloo's thread would share it with the caller.
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
        command += ["--mca", "btl", "tcp,self"] if over_tcp else []
        done = subprocess.run(command + [program, f"--store={store}", f"--only={only}", f"--rounds={settings.rounds}"],
                              capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise Failure(f"engine_bench: {done.stderr.strip()[-500:]}")
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(line["name"], line["bytes"]): line["samples"] for line in found}


def compare(found, ours, peer, peer_name, targets, what):
    return [row(f"{what} {text}", "us", found[ours, size], peer=peer_name, peer_values=found[peer, size],
                target=targets.get(size), higher_is_better=False)
            for size, text in SIZES.items() if (ours, size) in found and (peer, size) in found]


def measure(settings):
    settings.patience.wait()
    found = run_bench(settings, "shm,mpi,gloo,canonical_gloo")
    rows = compare(found, "shm", "mpi", "Open MPI, shared memory", AGAINST_MPI, "all-reduce, two processes")
    rows += compare(found, "shm", "gloo", "Gloo", AGAINST_GLOO, "all-reduce, two processes")
    both = {1 << 20: 0.9, 64 << 20: 0.9}
    rows += compare(found, "canonical_gloo", "gloo", "Gloo's own", both, "canonical sum over gloo")
    found = run_bench(settings, "mpi,canonical_mpi", over_tcp=True)
    return rows + compare(found, "canonical_mpi", "mpi", "Open MPI's own, TCP", both, "canonical sum over mpi")
