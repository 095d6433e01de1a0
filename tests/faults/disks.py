"""A flight record that cannot be written must not hide why it was to be written."""
import os
import subprocess

from registry import CannotRun, Failed, expect, fault
from tasks import Job, words
from verdicts import AFTER_DEATH, expect_gone


def need_mounts():
    if os.geteuid() != 0:
        raise CannotRun("a file system of its own needs root")


def full_disk(at):
    """A folder on a file system without a free byte."""
    folder = os.path.join(at.folder, "disk")
    os.mkdir(folder)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "faults", folder], stderr=subprocess.PIPE, timeout=20)
    if done.returncode != 0:
        raise CannotRun(f"cannot mount a tmpfs: {done.stderr.decode(errors='replace').strip()}")
    at.cleanup.callback(subprocess.run, ["umount", "-l", folder], stderr=subprocess.DEVNULL, timeout=20)
    try:
        with open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
            for _ in range(1000):
                file.write(bytes(4096))
    except OSError:
        return folder
    raise Failed("the disk does not become full")


@fault("full_disk_for_flight_record", needs=need_mounts)
def full_disk_for_flight_record(at):
    folder = full_disk(at)
    job = Job(at, 2)
    job.start_and_begin(words("misbehave", work=2, timeout=20, join=20, engine=at.draw("engine", ["auto", "gloo"])),
                        LOCKSTEP_FLIGHT_DIR=folder)
    at.wait_a_moment(0.6)
    since = job.tasks[1].kill()
    expect_gone(at, job.others(1), 1, since, AFTER_DEATH)
    claim = job.tasks[0].find("the last collectives are in")
    size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder) if name.startswith("flight"))
    expect(claim is None or size > 0, f"worker 0 says that it wrote a record, and there is none: {claim and claim.text}")
