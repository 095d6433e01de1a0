"""From the start of a process to the end of its first step: two workers against one process."""

import os
import time

from driver import cluster
from driver.processes import Contender
from driver.report import row

MODEL = "W2"
BEYOND = 2.0  # seconds


def time_start(settings, mode, count, environment):
    """Seconds until every process has trained one step."""
    program = os.path.join(settings.build, "bin", "train_bench")
    settings.patience.wait()
    start = time.monotonic()
    command = [program, f"--mode={mode}", f"--model={MODEL}", "--replicas=1"]
    contender = Contender(f"start-up {mode}", [command] * count, environment, settings.logs)
    try:
        contender.wait_until_ready()
        contender.train(1e-6)
        return time.monotonic() - start
    finally:
        contender.stop()


def measure(settings):
    alone, together = [], []
    for _ in range(settings.rounds):
        alone.append(time_start(settings, "lockstep", 1, {}))
        together.append(time_start(settings, "worker", 2, cluster.environments(2)))
    beyond = [two - one for one, two in zip(alone, together)]
    return [row("start-up, one process", "s", alone, higher_is_better=False),
            row("start-up, two workers, beyond one process", "s", beyond, target=BEYOND, higher_is_better=False)]
