"""Trainings that are killed and go on: their last weights are those of one that was left in peace."""
import os
import signal
import time

import leftovers
from registry import expect, fault
from tasks import Task, clean_environment, words

EPOCHS = 40  # longer than the longest wait before a kill


def launch(at, folder, restarts):
    """Two workers under the launcher that keep their training in a folder."""
    program = [at.suite.worker] + words("fit", folder=folder, epochs=EPOCHS, save_freq=3, timeout=20, join=20)
    return Task(at, "launcher", [at.suite.command, "run", "-n", "2", "--max-restarts", str(restarts)] + program, clean_environment(at))


def weights_of(launcher):
    """What both workers say their weights are in the end."""
    expect(launcher.wait_end(60) == 0, "the launcher did not end well")
    found = {line.text.split("weights ")[1] for line in launcher.lines if "weights " in line.text}
    expect(len(found) == 1, f"the workers' weights: {found}")
    return found.pop()


def left_in_peace(at):
    return weights_of(launch(at, os.path.join(at.temporary, "peace"), 0))


def workers_of(at):
    """The workers that run at the moment, by rank."""
    found = {}
    for pid in leftovers.processes_with(at.mark):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = dict(part.split(b"=", 1) for part in file.read().split(b"\0") if b"=" in part)
            if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(at.suite.worker):
                found[int(variables[b"RANK"])] = pid
        except (OSError, KeyError):
            continue
    return found


def kill_a_worker(at, launcher, wanted):
    """Kills this worker, or another one when it is not there. False: the job was over before."""
    while launcher.ended_at is None and at.left() > 0:
        running = workers_of(at)
        for rank in sorted(running, key=lambda rank: rank != wanted):
            try:
                os.kill(running[rank], signal.SIGKILL)
                return True
            except ProcessLookupError:  # it has just ended
                continue
        time.sleep(at.left(0.01))
    return False


# At any moment: while a checkpoint is written, between an all-reduce and the next, at the end of an epoch, at the start.
@fault("kill_and_resume_fit", limit=120)
def kill_and_resume_fit(at):
    expected = at.suite.once("weights of a fit", lambda: left_in_peace(at))
    launcher = launch(at, os.path.join(at.temporary, "backup"), 10)
    kills, done, seen = at.draw("kills", [1, 2, 3]), 0, 0
    for _ in range(kills):
        if at.draw("moment", ["any", "training"]) == "training":
            launcher.wait_for_count(r"begun$", seen + 1, 20)
        at.wait_a_moment(1.5)
        seen = sum("begun" in line.text for line in launcher.lines)
        if not kill_a_worker(at, launcher, at.draw("victim", [0, 1])):
            break
        done += 1
    expect(weights_of(launcher) == expected, f"after {done} kills the weights are others than those of a training left in peace")
    expect(done > 0, "no worker was killed: the job is too short for this test")
    at.notes.append(f"{done} of {kills} workers killed")
