"""Two machines on one: network namespaces joined by a link of 1 Gbit/s, and whether overlap hides the time on it."""

import os
import subprocess
from contextlib import contextmanager

from driver import cluster
from driver.processes import Contender
from driver.report import row

RATE = "1gbit"
ADDRESSES = ["10.77.0.1", "10.77.0.2"]  # of the namespaces alone: nothing outside sees them
TARGET = 1.15


def run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=30)


@contextmanager
def two_hosts():
    """Names of two namespaces that can reach each other at ADDRESSES."""
    names = [f"lockstep-bench-{os.getpid()}-{k}" for k in range(2)]
    ends = [f"lsb{os.getpid() % 100000}{k}" for k in "ab"]
    try:
        for name in names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "link", "add", ends[0], "netns", names[0], "type", "veth", "peer", "name", ends[1], "netns", names[1])
        for name, end, address in zip(names, ends, ADDRESSES):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", end)
            run("ip", "-n", name, "link", "set", end, "up")
            run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", RATE,
                "burst", "256kb", "latency", "50ms")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def workers(settings, hosts, mode, port):
    program = os.path.join(settings.build, "bin", "train_bench")
    cores = sorted(os.sched_getaffinity(0))  # a host's own, so that the two do not compute on each other's
    commands = [["ip", "netns", "exec", host, "taskset", "-c", str(cores[k % len(cores)]), program, f"--mode={mode}", "--model=W3",
                 *settings.lockstep_args] for k, host in enumerate(hosts)]
    environments = cluster.environments_at([f"{address}:{port}" for address in ADDRESSES])
    return Contender(f"W3 {mode} on a link of {RATE}", commands, environments, settings.logs)


def measure(settings):
    """Two workers with overlap against without. No rows, and why, where there may be no namespaces."""
    if os.geteuid() != 0:
        print("  link: namespaces need root; its line is left out", flush=True)
        return []
    contenders = []
    with two_hosts() as hosts:
        try:
            for k, mode in enumerate(("worker", "worker_no_overlap")):
                contenders.append(workers(settings, hosts, mode, 5000 + k))
            for contender in contenders:
                contender.wait_until_ready()
                contender.train(1.0)
            for k in range(settings.rounds):
                for contender in contenders[k % 2:] + contenders[:k % 2]:
                    contender.sample(max(2.0, settings.window), settings.patience)
        finally:
            for contender in contenders:
                contender.stop()
    on, off = contenders
    return [row("overlap W3, two workers, 1 Gbit/s", "examples/s", on.samples, peer="overlap off", peer_values=off.samples,
                target=TARGET, config={"disturbed_samples": on.disturbed + off.disturbed})]
