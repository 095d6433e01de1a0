"""The faults, what one round of a fault is given, and how it says that it has failed."""
import contextlib
import dataclasses
import os
import random
import shutil
import threading
import time

FAULTS = []


class Failed(Exception):
    """What was found is not what must be."""


class CannotRun(Exception):
    """This machine does not have what a fault needs; the text says what."""


@dataclasses.dataclass
class Fault:
    name: str
    body: object
    at_once: int = 1  # rounds that may wait side by side
    limit: float = 60.0  # seconds; a round that takes longer hangs
    needs: object = None  # a function that raises CannotRun


def fault(name, **options):
    """Registers a function of a Round as a fault."""
    def register(body):
        FAULTS.append(Fault(name, body, **options))
        return body
    return register


def expect(condition, text):
    if not condition:
        raise Failed(text)


class Suite:
    """What all rounds share."""

    def __init__(self, build, seed, folder, mark):
        self.worker = os.path.join(build, "bin", "multi_worker_worker")
        self.servers = os.path.join(build, "bin", "ps_job")
        self.fits = os.path.join(build, "bin", "fit_job")
        self.replicated = os.path.join(build, "bin", "replicated_job")
        self.command = os.path.join(build, "bin", "lockstep")
        self.seed = seed
        self.folder = folder
        self.mark = mark  # begins the marks of all rounds
        self._known = {}
        self._lock = threading.Lock()

    def once(self, key, make):
        """What `make` returns, made once for all rounds."""
        with self._lock:
            if key not in self._known:
                self._known[key] = make()
            return self._known[key]


class Round:
    """One go at a fault: its own folder, mark, random numbers and time limit."""

    def __init__(self, suite, of, number):
        self.suite = suite
        self.fault = of
        self.number = number
        self.random = random.Random(f"{suite.seed}/{of.name}/{number}")
        self.mark = f"{suite.mark}-{of.name}-{number}"
        self.folder = os.path.join(suite.folder, f"{of.name}-{number}")
        self.temporary = os.path.join(self.folder, "tmp")  # the job's TMPDIR and working folder
        self.tasks = []
        self.ports = set()  # (network, port) on which the job was seen to listen
        self.times = []  # seconds from the fault to what every survivor said
        self.notes = []  # what was drawn by lot
        self.started = time.monotonic()
        self.deadline = self.started + of.limit
        self.cleanup = contextlib.ExitStack()
        os.makedirs(self.temporary)
        self.cleanup.callback(shutil.rmtree, self.folder, ignore_errors=True)

    def left(self, seconds=float("inf")):
        """Seconds that a wait may take."""
        return max(0.0, min(seconds, self.deadline - time.monotonic()))

    def draw(self, name, choices):
        value = self.random.choice(choices)
        self.notes.append(f"{name}={value}")
        return value

    def wait_a_moment(self, most, least=0.0):
        """Sleeps until a random moment and returns what the clock says then."""
        seconds = self.random.uniform(least, most)
        self.notes.append(f"after {seconds:.3f} s")
        time.sleep(self.left(seconds))
        return time.monotonic()
