"""Processes of a job: started with a TF_CONFIG of their own, read line by line with the time of each line."""
import collections
import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time

from registry import Failed

Line = collections.namedtuple("Line", "at stream text")
Report = collections.namedtuple("Report", "at code message")

MARK = "LOCKSTEP_FAULT_MARK"
# What would tell a program of another cluster than the round's.
_CLUSTER = re.compile(r"(TF_CONFIG|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCKSTEP_.*"
                      r"|OMPI_.*|PMI_.*|PMIX_.*|SLURM_.*|TORCHELASTIC_.*)$")
_taken_ports = set()
_taken_lock = threading.Lock()


def free_ports(count):
    """Ports that nobody listens on, below those that the system gives to outgoing connections; never the same twice."""
    ports = []
    for _ in range(1000):
        port = random.SystemRandom().randrange(20000, 32000)
        with _taken_lock, socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in _taken_ports:
                _taken_ports.add(port)
                ports.append(port)
        if len(ports) == count:
            return ports
    raise Failed(f"there are no {count} free ports")


def clean_environment(at, more=()):
    """This process's environment without clusters, with the round's mark and temporary folder."""
    kept = {name: value for name, value in os.environ.items() if not _CLUSTER.match(name)}
    return kept | {MARK: at.mark, "TMPDIR": at.temporary} | dict(more)


class Task:
    """One process. All waits end with the round's time."""

    def __init__(self, at, name, command, environment):
        self.name = name
        self.round = at
        self.lines = []
        self.ended_at = None
        self._changed = threading.Condition()
        self.process = subprocess.Popen(command, env=environment, cwd=at.temporary, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.pid = self.process.pid
        self._readers = [self._start(self._read, "out", self.process.stdout),
                         self._start(self._read, "log", self.process.stderr)]
        self._waiter = self._start(self._wait)
        at.tasks.append(self)

    @staticmethod
    def _start(body, *arguments):
        thread = threading.Thread(target=body, args=arguments, daemon=True)
        thread.start()
        return thread

    def _read(self, stream, pipe):
        for raw in iter(pipe.readline, b""):
            line = Line(time.monotonic(), stream, raw.decode(errors="replace").rstrip("\n"))
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
        pipe.close()

    def _wait(self):
        self.process.wait()
        now = time.monotonic()
        for reader in self._readers:  # what it started may hold the pipes open; that is a leftover, not a reason to wait
            reader.join(1.0)
        with self._changed:
            self.ended_at = now
            self._changed.notify_all()

    def _until(self, find, seconds):
        deadline = time.monotonic() + self.round.left(seconds)
        with self._changed:
            while (found := find()) is None and self.ended_at is None:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() >= deadline:
                    break
            return found if found is not None else find()

    def find(self, pattern, stream=None):
        """The first line in which the pattern is, or None."""
        for line in list(self.lines):
            if (stream is None or line.stream == stream) and re.search(pattern, line.text):
                return line
        return None

    def wait_for(self, pattern, seconds=float("inf"), stream=None):
        """As find, once it is there; None when it does not come before the process ends or the time is up."""
        return self._until(lambda: self.find(pattern, stream), seconds)

    def wait_for_count(self, pattern, count, seconds=float("inf")):
        """Whether so many lines have come that match."""
        return self._until(lambda: sum(bool(re.search(pattern, line.text)) for line in list(self.lines)) >= count or None,
                           seconds)

    def wait_end(self, seconds=float("inf")):
        """The exit code (negative: a signal); None when the process is still there."""
        self._until(lambda: self.ended_at, seconds)
        return None if self.ended_at is None else self.process.returncode

    def wait_begun(self):
        if self.wait_for(r"^(\[worker \d+\] )?begun$", stream="out") is None:
            raise Failed(f"{self.name} did not begin")

    def wait_report(self, seconds=float("inf")):
        """What the worker program says about an error of Lockstep, or None."""
        line = self.wait_for(r"^error ", seconds, stream="out")
        if line is None:
            return None
        _, code, message = line.text.split(" ", 2)
        return Report(line.at, code, message)

    def send(self, number):
        if self.ended_at is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended, and the thread that waits for it has not said so yet
                os.kill(self.pid, number)

    def kill(self):
        self.send(signal.SIGKILL)
        return time.monotonic()

    def story(self, since):
        """Everything that it said, with times."""
        end = (f"exit code {self.process.returncode} at {self.ended_at - since:.3f} s" if self.ended_at is not None
               else "still there")
        lines = [f"  --- {self.name} (process {self.pid}): {end}"]
        lines += [f"  {line.at - since:8.3f} {line.stream} {line.text[:600]}" for line in list(self.lines)[-60:]]
        return "\n".join(lines)


class Job:
    """A cluster of workers, each with its place: a network (or None: this machine's own) and an address in it."""

    def __init__(self, at, workers=2, places=None):
        self.round = at
        self.secret = f"{at.mark}-{random.SystemRandom().getrandbits(64):x}"
        self.places = places or [(None, "127.0.0.1")] * workers
        self.addresses = [f"{host}:{port}" for (_, host), port in zip(self.places, free_ports(len(self.places)))]
        self.tasks = []
        for (network, _), address in zip(self.places, self.addresses):
            at.ports.add((network, int(address.rsplit(":", 1)[1])))

    def tf_config(self, index, addresses=None):
        return json.dumps({"cluster": {"worker": addresses or self.addresses}, "task": {"type": "worker", "index": index}})

    def start_one(self, index, words, name=None, **variables):
        """Starts a worker, or what calls itself one."""
        environment = clean_environment(self.round, {"TF_CONFIG": self.tf_config(index), "LOCKSTEP_JOB_SECRET": self.secret})
        network = self.places[index][0]
        command = network.inside([self.round.suite.worker]) if network else [self.round.suite.worker]
        return Task(self.round, name or f"worker {index}", command + words, environment | variables)

    def start(self, words, **variables):
        self.tasks = [self.start_one(index, words, **variables) for index in range(len(self.places))]
        return self.tasks

    def start_and_begin(self, words, **variables):
        for task in self.start(words, **variables):
            task.wait_begun()
        return self.tasks

    def others(self, index):
        return [task for place, task in enumerate(self.tasks) if place != index]


def words(scenario, **parameters):
    """The arguments of the worker program."""
    return [scenario] + [f"{name}={value}" for name, value in parameters.items()]


def digest_of(task):
    """The weights that `train` came to."""
    code = task.wait_end()
    line = task.find(r"^(\[worker \d+\] )?weights ", stream="out")
    if code != 0 or line is None:
        raise Failed(f"{task.name} did not finish: exit code {code}")
    return line.text.split()[-1]


def right_digest(at, replicas, steps):
    """The weights of an undisturbed run: all replicas in one process."""
    def make():
        command = [at.suite.worker] + words("train", steps=steps, replicas=replicas)
        return digest_of(Task(at, "undisturbed", command, clean_environment(at)))
    return at.suite.once(("digest", replicas, steps), make)


def expect_digests(at, tasks, steps):
    """All of a job's workers, with one replica each, came to the right weights."""
    wanted = right_digest(at, len(tasks), steps)
    for task in tasks:
        found = digest_of(task)
        if found != wanted:
            raise Failed(f"{task.name} has the weights {found}, an undisturbed run {wanted}")
