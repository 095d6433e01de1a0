"""Model.fit over parameter servers while tasks die: all steps are done and counted. The program is fit_job.cc."""
import os
import time

from registry import expect, fault
from servers import Servers

UNDER_WAY = 16  # steps of a lost worker that may have made their update without being counted, at most


def begin(at, **parameters):
    job = Servers(at, program=at.suite.fits, **parameters)
    job.wait_begun()
    return job


def expect_fitted(job, steps, twice):
    """The chief ends well after so many steps, of which at most `twice` were done twice."""
    code = job.chief.wait_end(50)
    line = job.chief.find(r"^(fitted|mismatch|error) ", stream="out")
    expect(code == 0 and line is not None and line.text.startswith("fitted"),
           f"the chief ended with {code}: {line.text if line else 'it said nothing'}")
    counted, updates = map(int, line.text.split()[1:])
    expect(counted == steps and steps <= updates <= steps + twice,
           f"{counted} steps and {updates} updates; {steps} steps were wanted, and at most {twice} twice")
    job.end()


# In the middle of an epoch, with and without its coming back.
@fault("ps_fit_kill_worker")
def ps_fit_kill_worker(at):
    job = begin(at, epochs=3, steps=1000)
    at.wait_a_moment(0.25)
    victim = at.draw("victim", [0, 1, 2])
    job.kill("worker", victim)
    expect(job.tasks["worker", victim].wait_end(5) is not None, "a killed worker is still there")
    expect(job.chief.ended_at is None, "the fit had ended: the job is too short for this test")
    if at.draw("comes back", [True, False]):
        job.start("worker", victim)
    expect_fitted(job, 3000, UNDER_WAY)


# All of them: fit waits until one is there again.
@fault("ps_fit_kill_all_workers")
def ps_fit_kill_all_workers(at):
    job = begin(at, epochs=3, steps=1000)
    at.wait_a_moment(0.2)
    for index in range(3):
        job.kill("worker", index)
    expect(job.chief.wait_end(0.5) is None, "the chief ended without workers: the job is too short for this test")
    job.start("worker", at.draw("back", [0, 1, 2]))
    expect_fitted(job, 3000, 3 * UNDER_WAY)


# It is started again and goes on from the last checkpoint, which the servers have written.
@fault("ps_fit_kill_coordinator")
def ps_fit_kill_coordinator(at):
    job = begin(at, epochs=3, steps=1000, backup=os.path.join(at.temporary, "backup"), every=100)
    at.wait_a_moment(0.25)
    job.kill("chief", 0)
    expect(job.chief.wait_end(5) is not None, "the chief is still there")
    expect(job.chief.find(r"^(fitted|error)", stream="out") is None, "the chief had ended: the job is too short for this test")
    time.sleep(at.left(0.2))  # what the workers had under way is done, and undone by the checkpoint
    line = job.start("chief", 0).wait_for(r"^goes on at ", 20, stream="out")
    expect(line is not None, "the chief does not go on")
    at.notes.append(line.text)
    expect_fitted(job, 3000, 0)
