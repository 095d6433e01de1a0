"""Cleans up behind a run of the suite that was itself killed: keeper.py MARK FOLDER.

Waits until its standard input ends, which it does when the run has ended in whatever way.
"""
import shutil
import signal
import subprocess
import sys

import leftovers
import network


def clean(mark, folder):
    """Ends all processes of the run, removes its namespaces, mounts and files."""
    leftovers.kill_all(mark, whole=False)
    network.remove_all(mark)
    with open("/proc/self/mounts") as file:
        mounted = [line.split()[1] for line in file if line.split()[1].startswith(folder + "/")]
    for place in mounted:
        subprocess.run(["umount", "-l", place], stderr=subprocess.DEVNULL, timeout=20, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    clean(*sys.argv[1:3])


if __name__ == "__main__":
    main()
