"""Whether something else works on the machine. It takes a core from one of the replicas, and all wait for that one."""

import os
import time

TICK = os.sysconf("SC_CLK_TCK")
DISTURBED = 0.15  # cores used by others, above which a window does not count


def busy_seconds():
    """Processor seconds of all cores that were not idle, since the machine started."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICK


def process_seconds(pid):
    """Processor seconds of a process and its direct children."""
    total = 0.0
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICK
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            total += sum(process_seconds(int(child)) for child in file.read().split())
    except (OSError, IndexError):
        pass
    return total


class Watch:
    """Cores that processes other than `pids` use, from its making to foreign_cores()."""

    def __init__(self, pids=()):
        self.pids = list(pids)
        self.start = self.snapshot()

    def snapshot(self):
        return time.monotonic(), busy_seconds(), sum(process_seconds(pid) for pid in self.pids)

    def foreign_cores(self):
        now = self.snapshot()
        seconds, busy, own = (after - before for after, before in zip(now, self.start))
        return max(0.0, busy - own) / max(seconds, 0.01)


class Patience:
    """Seconds that may be spent, all in all, on waiting for a quiet machine."""

    def __init__(self, seconds):
        self.left = seconds

    def wait(self):
        """Returns when the machine has been quiet for a moment, or the patience is at its end."""
        while self.left > 0:
            start = time.monotonic()
            watch = Watch()
            time.sleep(0.25)
            is_quiet = watch.foreign_cores() < DISTURBED
            if is_quiet:
                return
            self.left -= time.monotonic() - start
