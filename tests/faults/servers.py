"""Jobs with parameter servers whose tasks die or are stopped: what was acknowledged is done once, or the error is the right one.

The program is ps_job.cc; its Note [what was counted] says how a count can be exact while workers are killed.
"""
import json
import os
import random
import re
import signal
import time

import leftovers
from forwarder import Forwarder
from registry import expect, fault
from tasks import Task, clean_environment, free_ports, words

INCREMENTS = int(os.environ.get("LOCKSTEP_INCREMENTS", 30_000))  # of a counting round
PER_CLOSURE = 50 * 16


class Servers:
    """A chief, workers and parameter servers, each a process with a TF_CONFIG of its own."""

    def __init__(self, at, workers=3, ps=2, forwarded=False, program=None, **parameters):
        self.round = at
        self.program = program or at.suite.servers
        self.secret = f"{at.mark}-{random.SystemRandom().getrandbits(64):x}"
        ports = free_ports(1 + workers + ps)
        self.cluster = {"chief": ports[:1], "worker": ports[1:1 + workers], "ps": ports[1 + workers:]}
        at.ports.update((None, port) for port in ports)
        self.forwarders = []
        for port in self.cluster["ps"] if forwarded else []:
            self.forwarders.append(Forwarder(port, at.random.random()))
            at.cleanup.callback(self.forwarders[-1].close)
        self.file = os.path.join(at.temporary, "acknowledged")
        self.words = words("ps_job", acknowledged=self.file, **parameters)[1:]
        self.tasks = {}
        for job in ("ps", "worker", "chief"):
            for index in range(len(self.cluster[job])):
                self.start(job, index)

    def start(self, job, index):
        """Starts a task, or starts it again at its address."""
        cluster = {name: [f"127.0.0.1:{port}" for port in ports] for name, ports in self.cluster.items()}
        if self.forwarders and job != "ps":
            cluster["ps"] = [f"127.0.0.1:{one.port}" for one in self.forwarders]
        config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
        environment = clean_environment(self.round, {"TF_CONFIG": config, "LOCKSTEP_JOB_SECRET": self.secret,
                                                     "OMP_NUM_THREADS": "1"})
        self.tasks[job, index] = Task(self.round, f"{job} {index}", [self.program] + self.words, environment)
        return self.tasks[job, index]

    @property
    def chief(self):
        return self.tasks["chief", 0]

    def wait_begun(self):
        expect(self.chief.wait_for(r"^begun$", 30, stream="out") is not None, "the chief did not begin")

    def kill(self, job, index):
        return self.tasks[job, index].kill()

    def expect_counted(self, seconds):
        """The chief ends well, and says that all was counted."""
        code = self.chief.wait_end(seconds)
        line = self.chief.find(r"^(counted|mismatch|error) ", stream="out")
        expect(code == 0 and line is not None and line.text.startswith("counted"),
               f"the chief ended with {code}: {line.text if line else 'it said nothing'}")
        self.end()
        return int(line.text.split()[1])

    def expect_error(self, codes, pattern, since, within):
        """The chief names what is wrong, with one of these codes, in time."""
        report = self.chief.wait_report(within + 10)
        expect(report is not None, "the chief reported no error")
        took = report.at - since
        self.round.times.append(took)
        expect(report.code in codes and re.search(pattern, report.message),
               f"the chief should report {' or '.join(codes)} with '{pattern}', and reports {report.code} {report.message}")
        expect(took <= within, f"the chief took {took:.3f} s; at most {within} s are allowed")
        expect(self.chief.wait_end(8) == 3, "the chief did not end after its error")
        self.end()

    def end(self):
        """Servers serve until they are told to end; then they do."""
        for task in self.tasks.values():
            task.send(signal.SIGCONT)
            task.send(signal.SIGTERM)
        for task in self.tasks.values():
            expect(task.wait_end(5) is not None, f"{task.name} did not end when it was told to")
        if os.path.exists(self.file):
            os.remove(self.file)


# Workers are killed and come back, connections are cut, bytes are held back: each acknowledged addition was done once.
@fault("ps_counting", limit=90 + INCREMENTS / 1000)
def ps_counting(at):
    closures = -(-INCREMENTS // PER_CLOSURE)
    job = Servers(at, workers=4, forwarded=True, closures=closures, requests=50, additions=16)
    job.wait_begun()
    kills = 0
    while job.chief.ended_at is None and at.left() > 0:
        time.sleep(at.random.uniform(0.05, 0.3))
        at.random.choice(job.forwarders).cut_one()
        if at.random.random() < 0.25:
            victim = at.random.randrange(4)
            job.kill("worker", victim)
            expect(job.tasks["worker", victim].wait_end(5) is not None, "a killed worker is still there")
            job.start("worker", victim)
            kills += 1
    at.notes.append(f"{kills} kills, {sum(one.cuts for one in job.forwarders)} cuts")
    counted = job.expect_counted(60)
    expect(counted >= closures * PER_CLOSURE, f"{counted} additions of {closures * PER_CLOSURE}")
    expect(sum(one.cuts for one in job.forwarders) > 0, "no connection was cut: the job is too short")


def short_job(at, **parameters):
    job = Servers(at, **({"closures": 30, "requests": 40, "additions": 4} | parameters))
    job.wait_begun()
    return job


@fault("ps_kill_worker")
def ps_kill_worker(at):
    job = short_job(at, closures=300)
    at.wait_a_moment(0.5)
    victim = at.draw("victim", [0, 1, 2])
    expect(job.chief.ended_at is None, "the job is too short for this test")
    job.kill("worker", victim)
    if at.draw("comes back", [True, False]):
        job.tasks["worker", victim].wait_end(5)
        job.start("worker", victim)
    job.expect_counted(30)


# All of them: everything waits until one is there again.
@fault("ps_kill_all_workers")
def ps_kill_all_workers(at):
    job = short_job(at, closures=300)
    at.wait_a_moment(0.2)
    for index in range(3):
        job.kill("worker", index)
    expect(job.chief.wait_end(0.5) is None, "the chief ended without workers: the job is too short for this test")
    job.start("worker", at.draw("back", [0, 1, 2]))
    job.expect_counted(30)


# Under the launcher, which starts it again.
@fault("ps_kill_worker_of_launcher")
def ps_kill_worker_of_launcher(at):
    file = os.path.join(at.temporary, "acknowledged")
    command = [at.suite.command, "run", "--ps", "2", "--workers", "3", "--chief", "--task-restarts", "3", at.suite.servers]
    launcher = Task(at, "launcher", command + words("", closures=300, requests=40, additions=4, acknowledged=file)[1:],
                    clean_environment(at, {"OMP_NUM_THREADS": "1"}))
    expect(launcher.wait_for(r"^\[chief 0\] begun$", 30) is not None, "the chief did not begin")
    at.wait_a_moment(0.4)
    victim = at.draw("victim", [0, 1, 2])
    kills = 0
    for pid in leftovers.processes_with(at.mark):
        with open(f"/proc/{pid}/environ", "rb") as environment:
            config = re.search(rb'TF_CONFIG=.*"task": \{"type": "worker", "index": (\d+)', environment.read())
        if config and int(config[1]) == victim and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(at.suite.servers):
            os.kill(pid, signal.SIGKILL)
            kills += 1
    expect(kills == 1, f"{kills} workers were killed: the job is too short for this test")
    expect(launcher.wait_end(30) == 0, "the launcher did not end well")
    expect(launcher.find(r"^\[chief 0\] counted ") is not None, "the chief did not count")
    os.remove(file)


# Without a copy of its variables the job cannot go on: two reports are forgiven, the third is the chief's error.
@fault("ps_kill_server")
def ps_kill_server(at):
    job = short_job(at, closures=2000, call=500)
    at.wait_a_moment(0.5)
    victim = at.draw("victim", [0, 1])
    since = job.kill("ps", victim)
    job.expect_error(["kUnavailable"], rf"/job:ps/task:{victim}\b", since, within=6)


# The servers keep the variables, the workers serve who comes.
@fault("ps_kill_coordinator")
def ps_kill_coordinator(at):
    job = short_job(at, closures=800)
    at.wait_a_moment(0.8, least=0.2)
    job.kill("chief", 0)
    expect(job.chief.wait_end(5) is not None, "the chief is still there")
    before = job.chief
    expect(before.find(r"^(counted|error)", stream="out") is None, "the chief had ended: the job is too short for this test")
    job.start("chief", 0).wait_for(r"^found ", 20)
    found = job.chief.find(r"^found ", stream="out")
    expect(found is not None and int(found.text.split()[1]) > 0, "a chief that comes back should find what was counted")
    job.expect_counted(40)


def stop(at, job_name, index, seconds, job):
    job.tasks[job_name, index].send(signal.SIGSTOP)
    at.wait_a_moment(seconds, least=0.2)
    expect(job.chief.ended_at is None, "the job ended while a task was stopped: it is too short for this test")
    job.tasks[job_name, index].send(signal.SIGCONT)


@fault("ps_stop_shortly", at_once=2)
def ps_stop_shortly(at):
    job = short_job(at, closures=800)
    at.wait_a_moment(0.3)
    who = at.draw("who", [("worker", 1), ("ps", 0), ("ps", 1), ("chief", 0)])
    stop(at, *who, 1.0, job)
    job.expect_counted(40)


# Its closures run elsewhere when it has given no sign of life; what it does when it goes on is told apart.
@fault("ps_stop_worker_for_long", at_once=2)
def ps_stop_worker_for_long(at):
    job = short_job(at, silence=1000)
    at.wait_a_moment(0.1)
    victim = job.tasks["worker", at.draw("victim", [0, 1, 2])]
    victim.send(signal.SIGSTOP)
    if at.draw("goes on", [True, False]):
        time.sleep(at.left(3))
        victim.send(signal.SIGCONT)
    job.expect_counted(40)


@fault("ps_stop_server_for_long", at_once=2)
def ps_stop_server_for_long(at):
    job = short_job(at, closures=2000, call=1500)
    at.wait_a_moment(0.3)
    victim = at.draw("victim", [0, 1])
    job.tasks["ps", victim].send(signal.SIGSTOP)
    job.expect_error(["kDeadlineExceeded", "kUnavailable"], rf"/job:ps/task:{victim}\b", time.monotonic(), within=15)


# schedule() waits for room; when nobody makes any, it says so.
@fault("ps_full_queue")
def ps_full_queue(at):
    job = short_job(at, closures=300, queue=2, schedule=2000)
    at.wait_a_moment(0.3)
    if at.draw("somebody works", [True, False]):
        job.kill("worker", at.draw("victim", [0, 1, 2]))
        return job.expect_counted(40)
    for index in range(3):
        since = job.kill("worker", index)
    return job.expect_error(["kDeadlineExceeded"], "queue", since, within=6)


@fault("ps_poisoned_closure")
def ps_poisoned_closure(at):
    job = short_job(at, poison=1, closures=300)
    at.wait_a_moment(0.3)
    expect(job.chief.ended_at is None, "the job is too short for this test")
    job.kill("worker", at.draw("victim", [0, 1, 2]))
    job.expect_counted(40)
    expect(job.chief.find(r"^poisoned kInvalidArgument$", stream="out") is not None, "the poison's error did not come")
