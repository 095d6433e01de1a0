"""Connections and tasks that do not belong to a job: they are refused, and the job goes on undisturbed."""
import socket
import struct
import time

import leftovers
from registry import expect, fault
from tasks import Job, expect_digests, right_digest, words

STEPS = 600  # longer than the first moments
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, body):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def too_large_call():
    """A gRPC call whose message says that it has two gigabytes."""
    names = {":method": "POST", ":scheme": "http", ":path": "/lockstep.rpc.Coordination/Join", ":authority": "x",
             "content-type": "application/grpc", "te": "trailers"}
    headers = b"".join(bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
                       for name, value in names.items())
    message = b"\0" + struct.pack(">I", 0x7FFFFFFF)
    data = b"".join(frame(0, 0, 1, bytes(16000)) for _ in range(3))
    return PREFACE + frame(4, 0, 0, b"") + frame(1, 4, 1, headers) + frame(0, 0, 1, message) + data


def garbage(random):
    return random.randbytes(random.choice([1, 7, 8, 9, 64, 1000, 100_000]))


def half_a_message(random):
    return random.choice([PREFACE[:10], PREFACE + frame(4, 0, 0, bytes(60))[:20], b"LOCK", b"\1\0\0"])


def too_large_message(random):
    # A call to the coordinator, a greeting of a lifeline that goes on, a Gloo message that says how long it is.
    return random.choice([too_large_call(), b"LOCKSTEP" + random.randbytes(8) + bytes(1 << 20),
                          struct.pack("<QQQQQ", 1 << 62, 1, 1 << 62, 1 << 62, 0) + bytes(1 << 16)])


class Nuisance:
    """Opens connections to the ports of a job and says what nobody expects there."""

    def __init__(self, at, make):
        self._random = at.random
        self._make = make
        self._kept = []
        self.count = 0
        at.cleanup.callback(self.close)

    def visit(self, port):
        connection = socket.socket()
        connection.settimeout(0.2)
        try:
            connection.connect(("127.0.0.1", port))
            connection.sendall(self._make(self._random))
        except OSError:
            pass  # refused, or hung up on: as it should be
        self.count += 1
        if self._random.random() < 0.5:  # some stay and say no more, some go, some slam the door
            self._kept.append(connection)
            return
        if self._random.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    def close(self):
        for connection in self._kept:
            connection.close()


def ports_of_job(at, tasks):
    ports = {port for task in tasks for port in leftovers.ports_of(task.pid)}
    at.ports |= {(None, port) for port in ports}
    return sorted(ports)


def annoy(at, make):
    """Visits every port of a job, those of its engine too, from its start or while it trains."""
    right_digest(at, 2, STEPS)
    job = Job(at, 2)
    tasks = job.start(words("train", steps=STEPS, engine="gloo", timeout=20, join=20))
    if at.draw("when", ["starting", "training"]) == "training":
        for task in tasks:
            task.wait_begun()
        at.wait_a_moment(0.3)
    nuisance = Nuisance(at, make)
    begin = time.monotonic()
    # Two seconds of it; on a busy machine the first port may be late.
    while nuisance.count < 40 and time.monotonic() < begin + (2.0 if nuisance.count else 20.0) and all(
            task.ended_at is None for task in tasks):
        for port in ports_of_job(at, tasks):
            nuisance.visit(port)
        time.sleep(0.02)
    expect(nuisance.count > 0, "no port of the job was found")
    expect_digests(at, tasks, STEPS)
    nuisance.close()


@fault("garbage_on_ports")
def garbage_on_ports(at):
    annoy(at, garbage)


@fault("half_a_message_on_ports")
def half_a_message_on_ports(at):
    annoy(at, half_a_message)


@fault("too_large_message_on_ports")
def too_large_message_on_ports(at):
    annoy(at, too_large_message)


def intrude(at, index, patterns, addresses=None, **variables):
    """A further process comes to a running job and is refused; the job comes to the right weights."""
    steps = 4 * STEPS  # the intruder must have started before the job is over
    right_digest(at, 2, steps)
    job = Job(at, 2)
    job.start_and_begin(words("train", steps=steps, timeout=20, join=20, engine=at.draw("engine", ["auto", "gloo"])))
    if addresses is not None:
        variables["TF_CONFIG"] = job.tf_config(index, addresses(job))
    intruder = job.start_one(index, words("train", steps=2, join=4), "intruder", **variables)
    report = intruder.wait_report(15)
    # The job may be over when a slow intruder comes: then it finds nobody, which is right too, but shows nothing.
    over = any(task.ended_at is not None and (report is None or task.ended_at < report.at - 0.5) for task in job.tasks)
    expect(report is not None, "the intruder reported no error")
    expect(not over, "the job was over before the intruder came: it is too short for this test")
    expect(report.code == "kFailedPrecondition", f"the intruder should be refused, and has {report.code} {report.message}")
    for pattern in [pattern.format(job=job) for pattern in patterns]:
        expect(pattern in report.message, f"the intruder should be told of '{pattern}', and is told: {report.message}")
    expect(job.secret not in report.message, "the refusal shows the secret")
    expect(intruder.wait_end(5) == 3, "the intruder did not end")
    expect_digests(at, job.tasks, steps)


@fault("wrong_secret")
def wrong_secret(at):
    intrude(at, 1, ["secret"], LOCKSTEP_JOB_SECRET=at.draw("secret", ["another", ""]))


@fault("second_task_of_one_name")
def second_task_of_one_name(at):
    intrude(at, 1, ["its place is taken by process"])


@fault("second_coordinator")
def second_coordinator(at):
    intrude(at, 0, ["{job.addresses[0]}"])


@fault("other_world_size")
def other_world_size(at):
    intrude(at, 1, ["127.0.0.1:19999"], addresses=lambda job: job.addresses + ["127.0.0.1:19999"])


# From the start: who was told of three workers is refused by who knows of two, which waits for the right one.
@fault("other_world_size_at_the_start", at_once=3)
def other_world_size_at_the_start(at):
    join = 3
    job = Job(at, 2)
    many = job.tf_config(1, job.addresses + ["127.0.0.1:19999"])
    program = words("train", steps=2, timeout=10, join=join)
    first = job.start_one(0, program)
    second = job.start_one(1, program, TF_CONFIG=many)
    for task, code, word in ((second, "kFailedPrecondition", "127.0.0.1:19999"), (first, "kDeadlineExceeded", "worker 1")):
        report = task.wait_report(20)
        expect(report is not None and report.code == code, f"{task.name} should report {code}, and has {report}")
        expect(word in report.message, f"{task.name} should say '{word}': {report.message}")
        expect(task.wait_end(5) == 3, f"{task.name} did not end")
