#!/usr/bin/env python3
"""The pictures of the documentation. Usage: take_pictures.py BUILD RUNS OUT, in the environment of scripts/python.sh.

RUNS has fit/logs (event files) and two_workers/report.html. All are of the real thing: TensorBoard and the report in Chromium, and
what a training writes to a terminal, drawn in a terminal's letters."""
import fcntl
import html
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time

from PIL import Image

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "python"))
from browser import Browser  # noqa: E402: found by the line before

MOST_BYTES = 150_000
COLUMNS = 126
CURVES = "document.querySelectorAll('scalar-card line-chart svg path, scalar-card canvas').length >= 2"
# What a user would click: all of the curves, no pane of settings.
SHOW_ALL = """[...document.querySelectorAll('mat-checkbox')].find(box => box.textContent.includes('Ignore outliers')).querySelector('input').click();
[...document.querySelectorAll('button')].find(button => button.textContent.includes('Settings')).click();"""
PAGE = """<body style="margin:0;background:#1b1f27;width:max-content"><pre style="margin:0;padding:18px 22px;color:#d7dbe3;
font:15px/1.45 'DejaVu Sans Mono',monospace">{}</pre></body>"""


def wait_for(browser, expression, what):
    deadline = time.monotonic() + 90
    while not browser.evaluate(expression):
        if time.monotonic() > deadline:
            raise SystemExit(f"take_pictures: {what} did not appear within 90 s")
        time.sleep(0.2)


def shrink(path):
    """To at most 256 colours, which these pictures hardly have more of."""
    Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    size = os.path.getsize(path)
    if size > MOST_BYTES:
        raise SystemExit(f"take_pictures: {path} has {size} bytes, more than {MOST_BYTES}")
    print(f"{path}: {size} bytes")


def tensorboard(browser, environment, logs, out):
    command = [os.path.join(environment, "tensorboard"), "--logdir", logs, "--host", "127.0.0.1", "--port", "0", "--load_fast=false"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            address = next((found.group() for found in (re.search(r"http://\S+", line) for line in process.stderr) if found), None)
            if address is None:
                raise SystemExit("take_pictures: TensorBoard ended before it served")
            browser.view(1280, 600)
            browser.open(address + "?darkMode=false&smoothing=0&tagFilter=epoch_(loss|accuracy)#timeseries")
            wait_for(browser, CURVES, "TensorBoard's curves")
            browser.evaluate(SHOW_ALL)
            time.sleep(3)  # the curves move to their places
            browser.screenshot(out, whole_page=False)
        finally:
            process.terminate()


def report(browser, logs, out):
    browser.view(1280, 835)
    browser.open("file://" + os.path.abspath(os.path.join(logs, "report.html")))
    wait_for(browser, "document.querySelectorAll('svg.chart').length >= 2", "the report's charts")
    browser.screenshot(out, whole_page=False)


def screen(text):
    """What a terminal shows after `text`: \\r goes back to the beginning of a line, and what comes is written over it."""
    lines = [[]]
    column = 0
    for letter in text:
        if letter == "\n":
            lines.append([])
            column = 0
        elif letter == "\r":
            column = 0
        else:
            lines[-1][column:column + 1] = [letter]
            column += 1
    return "\n".join("".join(line).rstrip() for line in lines)


def run_on_terminal(command, is_enough):
    """What it wrote up to the moment at which is_enough(screen) holds; then it may end by itself."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    written, kept = b"", None
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        written += piece
        now = screen(written.decode(errors="ignore"))
        if kept is None and is_enough(now):
            kept = now
    _, status = os.waitpid(child, 0)
    if status != 0 or kept is None:
        raise SystemExit(f"take_pictures: {command[0]} ended with {status} and wrote:\n{screen(written.decode(errors='ignore'))}")
    return kept


def progress(browser, build, out):
    """The second epoch of the program of README.md, more than half done."""
    def is_enough(text):
        found = re.search(r"Epoch 2/2\n(\d+)/(\d+) ", text)
        return found is not None and int(found.group(1)) > 0.55 * int(found.group(2))

    text = "$ ./fit\n" + run_on_terminal([os.path.join(build, "bin", "fit")], is_enough)
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as file:
        file.write('<!DOCTYPE html><meta charset="utf-8">' + PAGE.format(html.escape(text)))
        file.flush()
        browser.view(1280, 200)
        browser.open("file://" + file.name)
        width, height = browser.evaluate("[document.querySelector('pre').offsetWidth, document.querySelector('pre').offsetHeight]")
        browser.view(width, height)
        browser.screenshot(out, whole_page=False)
    print(text)


def main():
    build, runs, folder = map(os.path.abspath, sys.argv[1:4])
    os.makedirs(folder, exist_ok=True)
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        raise SystemExit("take_pictures: there is no Chromium here (apt-get install chromium)")
    names = {name: os.path.join(folder, name + ".png") for name in ("progress", "tensorboard", "report")}
    with tempfile.TemporaryDirectory() as profile, Browser(program, profile) as browser:
        progress(browser, build, names["progress"])
        tensorboard(browser, os.path.dirname(sys.executable), os.path.join(runs, "fit", "logs"), names["tensorboard"])
        report(browser, os.path.join(runs, "two_workers"), names["report"])
    for path in names.values():
        shrink(path)


if __name__ == "__main__":
    main()
