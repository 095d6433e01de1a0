"""Workers that do what they should not: every survivor gets the right code with the right task in it."""
from registry import expect, fault
from tasks import Job, words
from verdicts import AFTER_DEATH, expect_words


def misbehave(at, kind):
    """A job of three in which one misbehaves at a random step, and the place of that one."""
    who = at.draw("who", [0, 1, 2])
    engine = at.draw("engine", ["auto", "gloo"])
    step = at.draw("at", list(range(2, 80)))
    job = Job(at, 3)
    job.start_and_begin(words("misbehave", kind=kind, who=who, at=step, steps=step + 2000, work=2, engine=engine, timeout=15,
                              join=20))
    return job, who


def signs_of(tasks):
    """When each task said its last word or ended."""
    for task in tasks:
        code = task.wait_end(20)
        expect(code is not None, f"{task.name} did not end")
    return [min([task.ended_at] + [line.at for line in task.lines if line.text.startswith(("error ", "done", "exception "))])
            for task in tasks]


def expect_errors(at, tasks, since, code, patterns):
    for task in tasks:
        report = task.wait_report(1)
        expect(report is not None, f"{task.name} reported no error of Lockstep")
        at.times.append(report.at - since)
        expect(report.code == code, f"{task.name} should report {code}, and reports {report.code} {report.message}")
        expect_words(task, report.message, patterns)
        expect(report.at - since <= AFTER_DEATH, f"{task.name} reported it after {report.at - since:.3f} s")
        expect(task.process.returncode == 3, f"{task.name} ended with {task.process.returncode}")


@fault("throws")
def throws(at):
    job, who = misbehave(at, "throw")
    since = min(signs_of(job.tasks))
    expect_errors(at, job.others(who), since, "kAborted", [rf"worker {who}\b", "the valve is stuck"])
    own = job.tasks[who].find(r"^(error|exception) ")
    expect(own is not None and "the valve is stuck" in own.text, f"{job.tasks[who].name} lost its own error")


@fault("leaves_early")
def leaves_early(at):
    job, who = misbehave(at, "leave")
    since = min(signs_of(job.tasks))
    expect_errors(at, job.others(who), since, "kUnavailable", [rf"worker {who}\b.*(has ended|is gone: it has ended)"])
    expect(job.tasks[who].process.returncode == 0, f"{job.tasks[who].name} left well and ends with an error")


@fault("exits_without_a_word")
def exits_without_a_word(at):
    job, who = misbehave(at, "exit")
    signs_of(job.tasks)
    expect_errors(at, job.others(who), job.tasks[who].ended_at, "kUnavailable", [rf"worker {who}\b.* is gone"])
    expect(job.tasks[who].process.returncode == 7, "the misdeed was not done")


def differ(at, kind, code, patterns):
    """All workers, the one that differs too, get each one's view."""
    job, who = misbehave(at, kind)
    since = min(signs_of(job.tasks))
    views = [rf"worker {index} at '[^']+' of step \d+" for index in range(3)]
    patterns = [pattern.format(who=who) for pattern in patterns]
    expect_errors(at, job.tasks, since, code, views + patterns + ["Nothing was sent"])


@fault("skips_a_collective")
def skips_a_collective(at):
    differ(at, "skip", "kFailedPrecondition", ["different collectives", r"worker {who} at 'all_gather'"])


@fault("other_shape")
def other_shape(at):
    differ(at, "shape", "kInvalidArgument", [r"worker {who} at 'all_reduce: 1 tensor, Float \[3\]'"])


@fault("other_dtype")
def other_dtype(at):
    differ(at, "dtype", "kInvalidArgument", [r"worker {who} at 'all_reduce: 1 tensor, Double \[2\]'"])


@fault("other_order")
def other_order(at):
    differ(at, "order", "kFailedPrecondition", ["different collectives", r"worker {who} at 'all_gather'"])
