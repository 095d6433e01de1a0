"""Machines and links that vanish, lose packets or are slow."""
import sys

import network
from registry import expect, fault
from tasks import Job, Task, clean_environment, expect_digests, right_digest, words
from verdicts import AFTER_LOSS, expect_gone, expect_report, expect_words

STEPS = 40


def job_on_machines(at):
    """Three workers: on three machines, or two of them on the first."""
    layout = at.draw("layout", [(0, 1, 2), (0, 0, 1)])
    switch = network.Switch(at, max(layout) + 1)
    places = [(switch.machines[machine], switch.machines[machine].address) for machine in layout]
    job = Job(at, places=places)
    job.start_and_begin(words("misbehave", work=2, timeout=20, join=20))
    return job, switch, layout


def cut(at, how):
    """One machine is cut off; those that remain together name one of the others, and so does it."""
    job, switch, layout = job_on_machines(at)
    machine = at.draw("machine", sorted(set(layout)))
    since = at.wait_a_moment(0.6)
    how(switch, switch.machines[machine])
    cut_off = {index for index, place in enumerate(layout) if place == machine}
    rest = set(range(len(layout))) - cut_off
    for side, lost in ((cut_off, rest), (rest, cut_off)):
        # Away from the coordinator it is the coordinator that is seen to be gone.
        named = {0} if 0 in lost else lost
        expect_gone(at, [job.tasks[index] for index in sorted(side)], named, since, AFTER_LOSS)


@fault("link_down", needs=network.need_networks, at_once=3)
def link_down(at):
    kind = at.draw("kind", ["cable", "interface"])
    cut(at, lambda switch, machine: switch.pull_plug(machine) if kind == "cable" else network.switch_off(machine))


@fault("machine_vanishes", needs=network.need_filters, at_once=3)
def machine_vanishes(at):
    cut(at, lambda switch, machine: network.vanish(machine))


# The coordinator reaches both, and so do all others.
@fault("link_between_two_of_three", needs=network.need_filters, at_once=3)
def link_between_two_of_three(at):
    how = at.draw("how", ["drop", "reject"])
    switch = network.Switch(at, 3)
    job = Job(at, places=[(machine, machine.address) for machine in switch.machines])
    job.start_and_begin(words("misbehave", work=2, timeout=20, join=20))
    since = at.wait_a_moment(0.6)
    network.cut_between(*switch.machines[1:], how)
    for task in job.tasks:
        report = expect_report(at, task, "kUnavailable", since, AFTER_LOSS)
        expect_words(task, report.message, [r"worker ([12]) \(10\.77\.\S+\) cannot be reached from worker (?!\1)[12]"])


@fault("five_percent_loss", needs=network.need_filters, at_once=3, limit=120)
def five_percent_loss(at):
    right_digest(at, 2, STEPS)
    switch = network.Switch(at, 2)
    job = Job(at, places=[(machine, machine.address) for machine in switch.machines])
    for machine in switch.machines:
        network.lose(machine, 5)
    job.start(words("train", steps=STEPS, timeout=60, join=60))
    expect_digests(at, job.tasks, STEPS)


# A job that waits for a worker's own code, on a bad line: all that travels are the signs of life, and they must get through.
@fault("idle_with_fifteen_percent_loss", needs=network.need_filters, at_once=6, limit=150)
def idle_with_fifteen_percent_loss(at):
    switch = network.Switch(at, 2)
    job = Job(at, places=[(machine, machine.address) for machine in switch.machines])
    job.start_and_begin(words("misbehave", kind="pause", who=1, at=3, pause=15, steps=10, timeout=100, stall=100, join=60))
    for machine in switch.machines:
        network.lose(machine, 15)
    for task in job.tasks:
        expect(task.wait_end() == 0, f"{task.name} did not finish")


@fault("twenty_milliseconds", needs=network.need_tunnels, at_once=3, limit=120)
def twenty_milliseconds(at):
    steps = 8
    right_digest(at, 2, steps)
    start = lambda name, command: Task(at, name, [sys.executable] + command, clean_environment(at))  # noqa: E731
    machines, line = network.slow_pair(at, start, 20)
    expect(line.wait_for("^ready$", 10), "the slow line did not start")
    job = Job(at, places=[(machine, machine.address) for machine in machines])
    job.start(words("train", steps=steps, timeout=60, join=60))
    expect_digests(at, job.tasks, steps)
    lasted = max(task.ended_at for task in job.tasks) - at.started
    expect(lasted > 2 * steps * 0.02, f"the job took {lasted:.1f} s: the line was not slow")
    line.kill()
