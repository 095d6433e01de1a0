"""What survivors must say, and how soon."""
import re

from registry import Failed, expect

AFTER_DEATH = 1.0  # seconds: a process is dead
AFTER_LOSS = 5.0  # a machine or its link is gone
TO_END = 5.0  # from an error to the end of the process that reported it

# Whom a message says to be gone, in all the ways in which Lockstep and its engines put it.
_BLAME = re.compile(r"(?:worker|rank) (\d+)(?: at [^ ,]+| on host '[^']*' \(process \d+\)| \([\d.:]+\))?,? "
                    r"(?:is gone|is lost|has ended|has left|cannot be reached)")


def blamed(message):
    """The workers that a message says to be gone."""
    return {int(number) for number in _BLAME.findall(message)}


def expect_gone(at, survivors, who, since, within):
    """Every survivor says kUnavailable and that `who` is gone, and nobody else. A set: whoever of it is named is right."""
    allowed = {who} if isinstance(who, int) else set(who)
    for task in survivors:
        report = expect_report(at, task, "kUnavailable", since, within)
        found = blamed(report.message)
        names = " or ".join(map(str, sorted(allowed)))
        expect(found and found <= allowed and re.search(r"worker \d", report.message),
               f"{task.name} should name worker {names} as gone, and says: {report.message}")
        # Who finds by itself that a machine does not answer, a moment before the coordinator says so, knows no more.
        if 0 not in allowed and "cannot be reached" not in report.message:
            expect("last step was" in report.message, f"{task.name} does not tell the last step: {report.message}")


def expect_report(at, task, code, since, within):
    """The task reports this code in time, and then ends with exit code 3."""
    report = task.wait_report(max(within, 1.0) + 10)
    expect(report is not None, f"{task.name} reported no error")
    expect(report.code == code, f"{task.name} should report {code}, and reports {report.code} {report.message}")
    took = report.at - since
    at.times.append(took)
    expect(took <= within, f"{task.name} took {took:.3f} s to report it; at most {within} s are allowed")
    ended = task.wait_end(TO_END + max(0.0, within - took))
    expect(ended == 3, f"{task.name} should end with exit code 3 after its error; it has {ended}")
    return report


def expect_words(task, text, patterns):
    for pattern in patterns:
        if not re.search(pattern, text):
            raise Failed(f"{task.name} should say '{pattern}', and says: {text}")
