"""Child processes that train in windows when told to, and wait in between."""

import json
import os
import select
import subprocess
import time

from driver.quiet import DISTURBED, Watch

KEPT_PAGES = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "2147483647",
              "MALLOC_TOP_PAD_": "67108864"}


class Failure(Exception):
    pass


class Process:
    """One child that answers each command line with one line of JSON. Its other output goes to a log file."""

    def __init__(self, name, command, environment, log_folder):
        self.name = name
        self.log = os.path.join(log_folder, name.replace("/", "_").replace(" ", "_") + ".log")
        with open(self.log, "w") as log:
            self.child = subprocess.Popen(command, env={**os.environ, **environment}, stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, stderr=log)
        self.buffer = b""

    def send(self, line):
        try:
            self.child.stdin.write(line.encode() + b"\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            raise self.failure("has ended") from None

    def receive(self, within):
        """The next answer; lines that are not JSON are passed over."""
        deadline = time.monotonic() + within
        while True:
            line, newline, rest = self.buffer.partition(b"\n")
            if newline:
                self.buffer = rest
                if line.startswith(b"{"):
                    return json.loads(line)
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                raise self.failure(f"gave no answer in {within:.0f} s")
            more = os.read(self.child.stdout.fileno(), 65536)
            if not more:
                raise self.failure("has ended")
            self.buffer += more

    def failure(self, what):
        with open(self.log) as log:
            tail = "".join(log.readlines()[-5:]).strip()
        return Failure(f"{self.name} {what}: {tail}")

    def stop(self):
        try:
            self.child.stdin.write(b"quit\n")
            self.child.stdin.close()
        except OSError:
            pass
        try:
            self.child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Contender:
    """One way of training a model: one process, or several that start together and whose rates are added."""

    def __init__(self, name, commands, environment, log_folder):
        """`environment`: one for all processes, or a list with one for each."""
        self.name = name
        each = environment if isinstance(environment, list) else [environment] * len(commands)
        self.starts = [(f"{name}.{k}", command, each[k], log_folder) for k, command in enumerate(commands)]
        self.start()
        self.samples = []
        self.disturbed = 0  # samples during which something else ran

    def start(self):
        """New processes, which have learnt nothing; the samples of those before them stay."""
        self.processes = [Process(*start) for start in self.starts]
        self.losses = []
        self.windows = []  # the answers of the first process

    def wait_until_ready(self, within=120):
        return [process.receive(within) for process in self.processes][0]

    def train(self, seconds):
        """One window: examples/s of all processes together."""
        for process in self.processes:
            process.send(f"run {seconds}")
        answers = [process.receive(60 + 20 * seconds) for process in self.processes]
        self.losses.append(sum(answer["loss"] for answer in answers) / len(answers))
        self.windows.append(answers[0])
        return sum(answer["examples_per_s"] for answer in answers)

    def sample(self, seconds, patience):
        """One sample: waits for a quiet machine, and tries again while there is patience and something else ran."""
        while True:
            patience.wait()
            watch = Watch(process.child.pid for process in self.processes)
            rate = self.train(seconds)
            is_disturbed = watch.foreign_cores() > DISTURBED
            if is_disturbed and patience.left > 0:
                patience.left -= seconds
                continue
            self.disturbed += is_disturbed
            self.samples.append(rate)
            return

    def memory(self):
        self.processes[0].send("memory")
        return self.processes[0].receive(30)

    def has_learnt(self, steps=64):
        """Whether the loss falls: trains on without being timed until there are enough steps to tell."""
        while sum(window["steps"] for window in self.windows) < steps:
            self.train(1.0)
        return self.losses[-1] < self.losses[0]

    def stop(self):
        for process in self.processes:
            process.stop()
