"""What a round leaves behind: processes, listening ports, shared segments, files, networks. There must be nothing."""
import glob
import os
import re
import signal
import subprocess
import time

import network
import tasks

_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp


def processes_with(mark, whole=True):
    """Processes that were started with this mark (or one that begins with it), by their environment."""
    ends = rb"(\0|$)" if whole else b""
    wanted = re.compile(rb"(^|\0)" + f"{tasks.MARK}={mark}".encode() + ends)
    found = []
    for entry in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(entry, "rb") as file:
                if wanted.search(file.read()):
                    found.append(int(entry.split("/")[2]))
        except OSError:
            continue  # it ended, or is being started
    return [pid for pid in found if pid != os.getpid()]


def kill_all(mark, whole=True):
    """Kills what has the mark until nothing has it any more; what was killed."""
    killed = set()
    deadline = time.monotonic() + 5
    while (alive := processes_with(mark, whole)) and time.monotonic() < deadline:
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.add(pid)
        time.sleep(0.01)
    return killed


def _listeners(text):
    """Port by inode, of the text of a /proc/net/tcp."""
    rows = [line.split() for line in text.splitlines()]
    return {row[9]: int(row[1].rsplit(":", 1)[1], 16) for row in rows if len(row) > 9 and row[3] == _LISTEN}


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _listening_in(place):
    """Ports that anybody listens on, in a network (None: this machine's own)."""
    if place is not None:
        return set(_listeners(place.run("cat", "/proc/net/tcp")).values())
    return set(_listeners(_read("/proc/self/net/tcp") + _read("/proc/self/net/tcp6")).values())


def ports_of(pid):
    """The ports on which a process listens."""
    ports = _listeners(_read(f"/proc/{pid}/net/tcp") + _read(f"/proc/{pid}/net/tcp6"))
    found = set()
    for entry in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            link = os.readlink(entry)
        except OSError:
            continue
        if link.startswith("socket:["):
            found.add(ports.get(link[8:-1]))
    return found - {None}


def name_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return f"{pid} ({file.read().replace(bytes(1), b' ').decode(errors='replace').strip()[:120]})"
    except OSError:
        return str(pid)


def stacks_of(pids):
    """Where the threads are, when there is a gdb to ask."""
    texts = []
    for pid in pids:
        try:
            done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all bt 25"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=40)
            frames = [line for line in done.stdout.decode(errors="replace").splitlines()
                      if line.startswith(("Thread", "#"))]
            texts.append(f"  --- stacks of {name_of(pid)}\n  " + "\n  ".join(frames[:400]))
        except (OSError, subprocess.TimeoutExpired) as error:
            texts.append(f"  --- no stacks of {pid}: {error}")
    return "\n".join(texts)


def _program(link):
    try:
        return os.path.basename(os.readlink(link))
    except OSError:
        return ""


class Before:
    """What there was before a round, to compare with."""

    def __init__(self, at):
        self._round = at
        self._shared = self._in_shared_memory()
        self._files = self._in_tmp()
        self._programs = set(os.listdir(os.path.dirname(at.suite.worker)))

    @staticmethod
    def _in_shared_memory():
        return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()

    @staticmethod
    def _in_tmp():
        return set(glob.glob("/tmp/lockstep*"))

    def _has_company(self):
        """Whether other programs of a build run here, whose segments and files could be taken for the round's."""
        ours = set(processes_with(self._round.suite.mark, whole=False))
        others = (int(entry.split("/")[2]) for entry in glob.glob("/proc/[0-9]*/exe") if _program(entry) in self._programs)
        return any(pid not in ours for pid in others)

    def left_behind(self):
        """One line for each thing; processes are given a moment to be gone."""
        deadline = time.monotonic() + 1.0
        while (alive := processes_with(self._round.mark)) and time.monotonic() < deadline:
            time.sleep(0.02)
        found = [f"a process is left: {name_of(pid)}" for pid in alive]
        kill_all(self._round.mark)
        found += [f"port {port} is still listened on" for place, port in sorted(self._round.ports, key=str)
                  if port in _listening_in(place)]
        if not self._has_company():
            found += [f"/dev/shm/{name} is left" for name in self._in_shared_memory() - self._shared]
            found += [f"{name} is left" for name in self._in_tmp() - self._files]
        found += [f"the file {name} is left in the job's folder" for name in os.listdir(self._round.temporary)]
        return found

    def left_at_the_end(self):
        """As left_behind, of what the round itself made and has removed."""
        found = [f"the network {name} is left" for name in network.names(self._round.mark)]
        return found + ([f"{self._round.folder} is left"] if os.path.exists(self._round.folder) else [])
