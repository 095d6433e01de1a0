"""Processes that are stopped: for a short time the job goes on, for a long one every waiter says who is missing."""
import signal
import time

from registry import expect, fault
from tasks import Job, expect_digests, right_digest, words
from verdicts import expect_words

STEPS = 600  # longer than the first moments, also where a step takes a millisecond
STALL = 1.0  # seconds until a waiter warns
TIMEOUT = 4.0  # seconds until it gives up
TO_SAY = 2.0  # seconds that a warning may come later than it should


def stop_shortly(at, victim):
    engine = at.draw("engine", ["auto", "gloo"])
    job = Job(at, 2)
    right_digest(at, 2, STEPS)  # not while the job is measured
    tasks = job.start_and_begin(words("train", steps=STEPS, engine=engine, timeout=20, stall=5, join=20))
    at.wait_a_moment(0.3)
    tasks[victim].send(signal.SIGSTOP)
    at.wait_a_moment(1.5, least=0.2)
    expect(tasks[1 - victim].ended_at is None, "the job ended before the worker was stopped: it is too short for this test")
    tasks[victim].send(signal.SIGCONT)
    expect_digests(at, tasks, STEPS)


@fault("stop_worker_shortly", at_once=2)
def stop_worker_shortly(at):
    stop_shortly(at, 1)


@fault("stop_worker_0_shortly", at_once=2)
def stop_worker_0_shortly(at):
    stop_shortly(at, 0)


def expect_warning(at, task, victim, since):
    """In time, with call, number and step, who is there, who is not, and what that one does."""
    warning = task.wait_for(r"has waited", STALL + TO_SAY + 8, stream="log")
    expect(warning is not None, f"{task.name} did not warn")
    at.times.append(warning.at - since)
    expect(warning.at - since <= STALL + TO_SAY, f"{task.name} warned after {warning.at - since:.3f} s")
    expect_words(task, warning.text, [rf"{task.name} has waited [\d.]+ s at '.+' #\d+ of step \d+"])
    if victim == 0:  # the coordinator itself: nobody can tell what it does
        return expect_words(task, warning.text, [r"worker 0, the coordinator, does not answer .*it is stopped"])
    # Who is not there yet may be one call behind, and wait there for the same worker: that one is named first.
    expect_words(task, warning.text, [rf"arrived: [^;]*\b{task.name}\b.*; "
                                      rf"missing: worker {victim} on host '[^']*' \(process \d+\), which does: .+ #\d+, "
                                      r"step \d+, heard of [\d.]+ s ago"])
    return None


def stop_for_long(at, victim):
    engine = at.draw("engine", ["auto", "gloo"])
    job = Job(at, 3)
    tasks = job.start_and_begin(words("misbehave", work=2, engine=engine, timeout=TIMEOUT, stall=STALL, join=20))
    # Workers tell what they do twice a second: who is stopped before its first word has said nothing.
    since = at.wait_a_moment(1.2, least=0.7)
    tasks[victim].send(signal.SIGSTOP)
    waiters = job.others(victim)
    for task in waiters:
        expect_warning(at, task, victim, since)
    for task in waiters:
        report = task.wait_report(TIMEOUT + 10)
        expect(report is not None and report.code == "kDeadlineExceeded", f"{task.name} should give up, and has {report}")
        took = report.at - since
        expect(TIMEOUT - 0.2 <= took <= TIMEOUT + TO_SAY, f"{task.name} gave up after {took:.3f} s, not {TIMEOUT} s")
        expect(f"worker {victim}" in report.message, f"{task.name} does not name worker {victim}: {report.message}")
        expect(task.wait_end(5) == 3, f"{task.name} did not end after its error")
    # Whoever wakes up and is alone ends too.
    tasks[victim].send(signal.SIGCONT)
    expect(tasks[victim].wait_end(5) == 3, f"{tasks[victim].name} did not end when it went on")


@fault("stop_worker_for_long", at_once=4)
def stop_worker_for_long(at):
    stop_for_long(at, at.draw("victim", [1, 2]))


@fault("stop_worker_0_for_long", at_once=4)
def stop_worker_0_for_long(at):
    stop_for_long(at, 0)


# A pause in the program's own code: the one that pauses still tells what it does.
@fault("pause_in_own_code", at_once=4)
def pause_in_own_code(at):
    engine = at.draw("engine", ["auto", "gloo"])
    job = Job(at, 3)
    step = at.draw("at", list(range(2, 60)))
    job.start_and_begin(words("misbehave", kind="pause", who=1, at=step, pause=3, steps=step + 20, work=2, engine=engine,
                              timeout=10, stall=STALL, join=20))
    since = time.monotonic()
    for task in job.others(1):
        warning = task.wait_for(r"has waited", 10, stream="log")
        expect(warning is not None, f"{task.name} did not warn")
        expect_words(task, warning.text, [r"missing: worker 1 .*which does: code after all_gather #\d+, step \d+"])
    for task in job.tasks:
        expect(task.wait_end(15) == 0, f"{task.name} did not finish after the pause")
    expect(time.monotonic() - since < 12, "the job took too long")
