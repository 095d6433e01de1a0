"""Parameter servers: transfers against raw TCP, closures and training steps against TensorFlow's ParameterServerStrategy (ps_bench)."""

import json
import os
import subprocess
from statistics import median

from driver.processes import Contender, Failure
from driver.report import row

RAW = "one TCP stream, 4 MB pieces"
RAW_ROWS = "one thread and raw TCP"
TF = "TensorFlow ParameterServerStrategy"
TF_BEFORE = f"{TF}, measured before"
BATCH = {"closures": 1, "W1": 64, "W4": 256, "push_rows": 1, "push_dense": 1}
REPLICATED = {"push_rows": "push 10,000 rows of 1 million", "push_dense": "push 64 MB", "W1": "train W1, 2 workers, 2 servers",
              "W4": "train W4, 2 workers, 2 servers"}
# work -> its line, unit, the ratio that must be reached, TensorFlow's figure where it is not installed (shared/PEERS.md)
WORKS = {"closures": ("ps: empty closures, 2 workers", "closures/s", 10, 1156), "W1": ("ps: train W1, 2 workers", "steps/s", 3, 276),
         "W4": ("ps: train W4, 2 workers", "steps/s", 1.5, 132)}
# ours -> its line, peer, the peer's name, the ratio that must be reached
TRANSFERS = {
    "pull_dense": ("ps: pull 64 MB", "raw_pull_dense", RAW, 0.5),
    "assign_dense": ("ps: push 64 MB, assigned", "raw_push_dense", RAW, 0.5),
    "gradient_dense": ("ps: push 64 MB of gradient, SGD", "raw_push_dense", RAW, 0.5),
    "pull_rows": ("ps: pull 10,000 rows of 10 million", "raw_pull_rows", RAW_ROWS, 0.5),
    "push_rows": ("ps: push 10,000 rows of 10 million", "raw_push_rows", RAW_ROWS, 0.5),
    "socket_pull_dense": ("ps: pull 64 MB, by socket", "raw_pull_dense", RAW, None),
    "socket_assign_dense": ("ps: push 64 MB, assigned, by socket", "raw_push_dense", RAW, None),
    "socket_gradient_dense": ("ps: push 64 MB of gradient, SGD, by socket", "raw_push_dense", RAW, None),
    "socket_pull_rows": ("ps: pull 10,000 rows of 10 million, by socket", "raw_pull_rows", RAW_ROWS, None),
    "socket_push_rows": ("ps: push 10,000 rows of 10 million, by socket", "raw_push_rows", RAW_ROWS, None),
}
MOST_BEYOND = 0.05  # of variables and optimizer state


def run_once(settings, *arguments):
    settings.patience.wait()
    done = subprocess.run([os.path.join(settings.build, "bin", "ps_bench"), *arguments], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise Failure(f"ps_bench {' '.join(arguments)}: {done.stderr.strip()[-500:]}")
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}


def transfers(settings):
    found = run_once(settings, "--work=transfers", f"--rounds={settings.rounds}")
    return [row(name, "MB/s", found[ours]["samples"], peer=who, peer_values=found[peer]["samples"], target=target)
            for ours, (name, peer, who, target) in TRANSFERS.items()]


def memory(settings):
    found = run_once(settings, "--work=memory")["memory"]
    held = found["held_bytes"]
    beyond = {name: (found[f"{name}_bytes"] - found["before_bytes"] - held) / held for name in ("after", "peak")}
    return [row("ps: server memory beyond variables and optimizer state", "of them", [beyond["after"]], target=MOST_BEYOND,
                higher_is_better=False, config=found),
            row("ps: the same at its peak", "of them", [beyond["peak"]], target=MOST_BEYOND, higher_is_better=False, config=found)]


def contenders_of(work, settings):
    """(who, variant) -> a program that is ready; those of TensorFlow may be missing."""
    plans = [("lockstep", "", [os.path.join(settings.build, "bin", "ps_bench"), f"--work={work}"])]
    if settings.tensorflow:
        script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers", "tf_ps.py")
        plans += [(TF, f"{intra} x {inter} threads", [settings.tensorflow, script, work, f"--intra={intra}", f"--inter={inter}"])
                  for intra, inter in ((0, 0), (1, 2))]
    contenders = {}
    for who, variant, command in plans:
        contender = Contender(f"ps {work} {who} {variant}".strip(), [command], {}, settings.logs)
        try:
            contender.wait_until_ready()
            for _ in range(3):  # until it knows how many steps a window has
                contender.train(settings.window)
            contenders[who, variant] = contender
        except Failure as failure:
            contender.stop()
            if who == "lockstep":
                raise
            print(f"  {failure}; its line is left out", flush=True)
    return contenders


def steps(work, settings):
    """The line of one work, and whether somebody's loss did not fall."""
    contenders = contenders_of(work, settings)
    try:
        order = list(contenders.values())
        for k in range(settings.rounds):
            for contender in order[k % len(order):] + order[:k % len(order)]:
                contender.sample(settings.window, settings.patience)
        wrong = [] if work == "closures" else [one.name for one in order if not one.has_learnt()]
    finally:
        for contender in contenders.values():
            contender.stop()
    rates = {key: [sample / BATCH[work] for sample in one.samples] for key, one in contenders.items()}
    name, unit, target, before = WORKS[work]
    theirs = {variant: values for (who, variant), values in rates.items() if who == TF}
    best = max(theirs, key=lambda variant: median(theirs[variant]), default=None)
    ours = contenders["lockstep", ""]
    config = {"window_s": settings.window, "peer_variant": best, "disturbed_samples": ours.disturbed,
              "peer_medians": {variant: round(median(values), 1) for variant, values in theirs.items()},
              "loss": [round(ours.losses[0], 4), round(ours.losses[-1], 4)]}
    line = row(name, unit, rates["lockstep", ""], peer=TF if best else TF_BEFORE, peer_values=theirs[best] if best else [before],
               target=target, config=config)
    return line, wrong


def replication(work, settings):
    """The line of a work on two servers, each variable on both, against each on one; none where that cannot be."""
    program = os.path.join(settings.build, "bin", "ps_bench")
    both = []
    try:
        for copies in (1, 2):
            command = [program, f"--work={work}", "--servers=2", f"--replication={copies}"]
            both.append(Contender(f"ps {work} replication {copies}", [command], {}, settings.logs))
            both[-1].wait_until_ready()
            for _ in range(3):
                both[-1].train(settings.window)
        for k in range(settings.rounds):
            for contender in (both if k % 2 == 0 else both[::-1]):
                contender.sample(settings.window, settings.patience)
    except Failure as failure:
        print(f"  {failure}; its line is left out", flush=True)
        return []
    finally:
        for contender in both:
            contender.stop()
    once, twice = ([sample / BATCH[work] for sample in one.samples] for one in both)
    return [row(f"ps: {REPLICATED[work]}, replication = 2", "1/s", twice, peer="replication = 1", peer_values=once, target=0.6,
                config={"disturbed_samples": sum(one.disturbed for one in both)})]


def measure(settings):
    rows, wrong = transfers(settings) + memory(settings), []
    for work in WORKS:
        line, not_learning = steps(work, settings)
        rows.append(line)
        wrong += not_learning
    for work in REPLICATED:
        rows += replication(work, settings)
    return rows, wrong
