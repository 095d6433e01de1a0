#!/usr/bin/env python3
"""A job with parameter servers is looked at while it trains, by `lockstep inspect` and as Prometheus does.
Usage: watched_job.py LOCKSTEP PROGRAM ARGUMENT..."""
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
import urllib.request

LIMIT = 120  # seconds


def free_ports(count):
    """Neighbours, so that each task has one."""
    for _ in range(100):
        first = random.randrange(20000, 32000)
        sockets = [socket.socket() for _ in range(count)]
        try:
            for number, one in enumerate(sockets):
                one.bind(("127.0.0.1", first + number))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise SystemExit("watched_job: no ports are free")


def main():
    launcher, program = os.path.abspath(sys.argv[1]), [os.path.abspath(sys.argv[2])] + sys.argv[3:]
    chief, metrics = free_ports(1), free_ports(8)
    environment = {**os.environ, "LOCKSTEP_JOB_SECRET": "of this test", "LOCKSTEP_METRICS": str(metrics)}
    job = subprocess.Popen([launcher, "run", "--ps", "2", "--workers", "2", "--chief", "--master-port", str(chief)] + program,
                           env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seen = answer = ""
    scraped = None
    end = time.monotonic() + LIMIT
    while job.poll() is None and time.monotonic() < end and not (seen and scraped):
        asked = subprocess.run([launcher, "inspect", f"127.0.0.1:{chief}", "--json"], env=environment, capture_output=True, text=True)
        answer = asked.stdout + asked.stderr
        if asked.returncode == 0:
            tasks = {task["task"]: task for task in json.loads(asked.stdout)["tasks"]}
            is_busy = (all(tasks[name].get("store", {}).get("updates", 0) > 0 for name in ("ps 0", "ps 1")) and
                       all(tasks[name].get("worker", {}).get("finished", 0) > 0 for name in ("worker 0", "worker 1")))
            seen = answer if is_busy and tasks["chief 0"]["coordinator"]["workers"] == 2 else ""
        if seen:  # the first server's number is 3: after the chief and two workers
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics + 3}/metrics", timeout=10) as page:
                scraped = re.search(r'^lockstep_server_updates_total\{task="ps 0"\} (\d+)$', page.read().decode(), re.M)
        time.sleep(0.1)
    output, _ = job.communicate(timeout=LIMIT)
    if not seen or not scraped or int(scraped.group(1)) == 0:
        raise SystemExit(f"watched_job: the job was never seen at work; the last answer was:\n{answer}\nand it said:\n{output}")
    if job.returncode != 0:
        raise SystemExit(f"watched_job: the job ended with {job.returncode}:\n{output}")
    print(f"watched_job: four tasks at work, {scraped.group(1)} updates on ps 0")


if __name__ == "__main__":
    main()
