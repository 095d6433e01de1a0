"""Two jobs on one machine, and jobs that follow each other on the same ports."""
import socket

from registry import expect, fault
from tasks import Job, expect_digests, right_digest, words
from verdicts import AFTER_DEATH, expect_gone

STEPS = 60


def training(engine, steps=STEPS):
    return words("train", steps=steps, engine=engine, timeout=30, join=30)


@fault("two_jobs_at_once")
def two_jobs_at_once(at):
    right_digest(at, 2, STEPS)
    jobs = [Job(at, 2), Job(at, 2)]
    for job in jobs:
        job.start(training(at.draw("engine", ["auto", "gloo"])))
    for job in jobs:
        expect_digests(at, job.tasks, STEPS)


@fault("one_of_two_jobs_dies")
def one_of_two_jobs_dies(at):
    right_digest(at, 2, 2 * STEPS)
    dying, living = Job(at, 2), Job(at, 2)
    for job, steps in ((dying, 20 * STEPS), (living, 2 * STEPS)):
        job.start(training(at.draw("engine", ["auto", "gloo"]), steps))
    for task in dying.tasks + living.tasks:
        task.wait_begun()
    at.wait_a_moment(0.2)
    victim = at.draw("victim", [0, 1])
    since = dying.tasks[victim].kill()
    expect_gone(at, dying.others(victim), victim, since, AFTER_DEATH)
    expect_digests(at, living.tasks, 2 * STEPS)


@fault("same_ports_at_once_again")
def same_ports_at_once_again(at):
    right_digest(at, 2, STEPS)
    engine = at.draw("engine", ["auto", "gloo"])
    job = Job(at, 2)
    first = job.start(training(engine, 20 * STEPS))
    for task in first:
        task.wait_begun()
    at.wait_a_moment(0.5)
    for task in first:
        task.kill()
    # At once: the first job's processes may still be on their way out.
    expect_digests(at, job.start(training(engine)), STEPS)


@fault("port_in_use", at_once=3)
def port_in_use(at):
    job = Job(at, 2)
    host, port = job.addresses[0].split(":")
    with socket.socket() as stranger:
        stranger.bind((host, int(port)))
        stranger.listen()
        tasks = job.start(words("train", steps=2, timeout=10, join=3))
        reports = [task.wait_report(20) for task in tasks]
        for task, report, code in zip(tasks, reports, ("kFailedPrecondition", "kDeadlineExceeded")):
            expect(report is not None and report.code == code, f"{task.name} should report {code}, and has {report}")
            expect(job.addresses[0] in report.message, f"{task.name} does not name the address: {report.message}")
            expect(task.wait_end(5) == 3, f"{task.name} did not end")
