"""Parameter servers that are killed or stopped while their variables are on two of them: nothing acknowledged is lost."""
import os
import re
import signal

import leftovers
from registry import expect, fault
from tasks import Task, clean_environment

SECONDS = int(os.environ.get("LOCKSTEP_REPLICATION_SECONDS", 12))  # of faults, in a round
REQUESTS = 20  # of a closure


def launch(at):
    """Two servers, two workers and a chief under the launcher, which starts a server that is killed again."""
    command = [at.suite.command, "run", "--ps", "2", "--workers", "2", "--chief", "--task-restarts", "100000"]
    return Task(at, "launcher", command + [at.suite.replicated, f"seconds={SECONDS}", f"requests={REQUESTS}"],
                clean_environment(at, {"OMP_NUM_THREADS": "1"}))


def servers_of(at):
    """The parameter servers that run at the moment, by index."""
    found = {}
    for pid in leftovers.processes_with(at.mark):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
            if os.readlink(f"/proc/{pid}/exe") != os.path.realpath(at.suite.replicated):
                continue
        except OSError:
            continue
        task = re.search(rb'"task": *{"type": *"ps", *"index": *(\d+)', environment)
        if task:
            found[int(task[1])] = pid
    return found


def whole(job):
    """How often all variables were on two servers again."""
    return sum("] whole " in line.text for line in list(job.lines))


def suffer(at, hurt):
    """Hurts one server after the other until the job ends; it must count right."""
    job = launch(at)
    expect(job.wait_for(r"\] whole ", 60) is not None, "the chief did not begin")
    hurts = 0
    while job.ended_at is None and at.left() > 0:
        at.wait_a_moment(2.0)
        seen = whole(job)
        pid = servers_of(at).get(at.random.choice([0, 1]))
        if pid is None or job.find(r"\] counted ") is not None:
            break
        hurt(pid)
        hurts += 1
        # One lost server is survived, not two at once.
        expect(job.wait_for_count(r"\] (whole|counted) ", seen + 1, 40), "40 s after a server was lost there is no second copy")
    expect(job.wait_end(60) == 0, "the launcher did not end well")
    line = job.find(r"\] (counted|mismatch|error) ")
    expect(line is not None and "] counted " in line.text, f"the chief said {line.text if line else 'nothing'}")
    expect(hurts > 0, "no server was hurt: the job is too short")
    at.notes.append(f"{hurts} servers hurt")


@fault("kill_replicated_server", limit=120 + SECONDS)
def kill_replicated_server(at):
    suffer(at, lambda pid: os.kill(pid, signal.SIGKILL))


# It is replaced meanwhile, wakes up as a primary or backup of an old view, and must not acknowledge anything.
@fault("stop_replicated_server", limit=120 + SECONDS)
def stop_replicated_server(at):
    def stop(pid):
        os.kill(pid, signal.SIGSTOP)
        try:
            at.wait_a_moment(6.0, least=3.0)
        finally:
            os.kill(pid, signal.SIGCONT)
    suffer(at, stop)
