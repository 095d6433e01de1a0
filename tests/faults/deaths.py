"""Processes that die: every survivor names the right one in at most a second."""
import os
import re
import signal
import time

import leftovers
from registry import expect, fault
from tasks import Job, Task, clean_environment, words
from verdicts import AFTER_DEATH, expect_gone

STEPS = 30000  # more than a round lasts, and an end if all else fails


def busy(engine, **more):
    return words("misbehave", steps=STEPS, work=2, engine=engine, timeout=20, join=20, **more)


def training(engine):
    return words("train", steps=STEPS, engine=engine, timeout=20, join=20)


def kill_one(at, workers, victim, engine):
    program = {"busy": busy, "training": training}[at.draw("program", ["busy", "training"])]
    job = Job(at, workers)
    job.start_and_begin(program(engine))
    at.wait_a_moment(0.6)
    since = job.tasks[victim].kill()
    expect_gone(at, job.others(victim), victim, since, AFTER_DEATH)


@fault("kill_worker_of_2_shm")
def kill_worker_of_2_shm(at):
    kill_one(at, 2, 1, "shm")


@fault("kill_worker_of_2_gloo")
def kill_worker_of_2_gloo(at):
    kill_one(at, 2, 1, "gloo")


@fault("kill_worker_of_3_shm")
def kill_worker_of_3_shm(at):
    kill_one(at, 3, at.draw("victim", [1, 2]), "shm")


@fault("kill_worker_of_3_gloo")
def kill_worker_of_3_gloo(at):
    kill_one(at, 3, at.draw("victim", [1, 2]), "gloo")


@fault("kill_worker_0_of_2")
def kill_worker_0_of_2(at):
    kill_one(at, 2, 0, at.draw("engine", ["shm", "gloo"]))


@fault("kill_worker_0_of_3")
def kill_worker_0_of_3(at):
    kill_one(at, 3, 0, at.draw("engine", ["shm", "gloo"]))


# At any moment from the start of the processes on: who had registered is named at once, who had not when the others have
# waited for it as long as they may.
@fault("kill_while_starting", at_once=2)
def kill_while_starting(at):
    join = 4
    engine = at.draw("engine", ["auto", "gloo"])
    victim = at.draw("victim", [0, 1])
    job = Job(at, 2)
    tasks = job.start(words("misbehave", steps=STEPS, engine=engine, timeout=20, join=join))
    at.wait_a_moment(1.5)
    since = tasks[victim].kill()
    survivor = tasks[1 - victim]
    report = survivor.wait_report()
    expect(report is not None, f"{survivor.name} reported no error")
    took = report.at - since
    name = f"worker {victim}" if victim == 1 else rf"worker 0|{re.escape(job.addresses[0])}"
    expect(re.search(name, report.message), f"{survivor.name} should name worker {victim}: {report.message}")
    if report.code == "kUnavailable":
        at.times.append(took)
        expect(took <= AFTER_DEATH, f"{survivor.name} took {took:.3f} s")
    else:
        expect(report.code == "kDeadlineExceeded", f"{survivor.name} reports {report.code} {report.message}")
        expect(took <= join + 4, f"{survivor.name} gave up {took:.3f} s after the death; it may wait {join} s")
    expect(survivor.wait_end(5) == 3, f"{survivor.name} did not end")


def launch(at, engine):
    """Two workers under the launcher, each the child of a shell."""
    line = " ".join([at.suite.worker] + busy(engine)) + "; exit $?"
    launcher = Task(at, "launcher", [at.suite.command, "run", "-n", "2", "sh", "-c", line], clean_environment(at))
    for worker in (0, 1):
        expect(launcher.wait_for(rf"^\[worker {worker}\] begun$"), f"worker {worker} did not begin")
    return launcher


def program_of(at, index):
    """The worker program that a shell of the launcher's started."""
    for pid in leftovers.processes_with(at.mark):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                is_it = f"\0RANK={index}\0".encode() in b"\0" + file.read() + b"\0"
            if is_it and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(at.suite.worker):
                return pid
        except OSError:
            continue
    raise AssertionError(f"worker {index} of the launcher is not found")


# The launcher may end the survivor before it has said anything: that the right one is named is what counts.
@fault("kill_grandchild_of_launcher")
def kill_grandchild_of_launcher(at):
    launcher = launch(at, at.draw("engine", ["auto", "gloo"]))
    victim = at.draw("victim", [0, 1])
    pid = program_of(at, victim)
    at.wait_a_moment(0.6)
    os.kill(pid, signal.SIGKILL)
    since = time.monotonic()
    summary = launcher.wait_for(r"worker \d+ failed first", 10)
    expect(summary is not None, "the launcher does not say who failed first")
    at.times.append(summary.at - since)
    expect(f"worker {victim} failed first" in summary.text,
           f"worker {victim} was killed, and the launcher says: {summary.text}")
    expect(summary.at - since <= AFTER_DEATH, f"the launcher took {summary.at - since:.3f} s")
    expect(launcher.wait_end(8) == 1, f"the launcher ended with {launcher.process.returncode}, not 1")


@fault("kill_launcher")
def kill_launcher(at):
    launcher = launch(at, at.draw("engine", ["auto", "gloo"]))
    at.wait_a_moment(0.6)
    since = launcher.kill()
    while leftovers.processes_with(at.mark) and time.monotonic() < since + 5:
        time.sleep(0.01)
    took = time.monotonic() - since
    at.times.append(took)
    expect(took <= AFTER_DEATH, f"the launcher's tasks were there {took:.3f} s after it")
