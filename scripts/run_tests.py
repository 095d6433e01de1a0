#!/usr/bin/env python3
"""Runs the test programs of a build folder and ends with the line 'N passed, M failed'.

Usage: scripts/run_tests.py FOLDER [--label LABEL] [--only PATTERN]

CMake writes FOLDER/tests.json: what to run, with labels and limits. A GoogleTest program counts each of its tests,
another program counts as one.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as xml


def run_one(test, folder):
    """Returns (passed, failed, text of failures)."""
    environment = dict(os.environ, **test.get("environment", {}))
    report = os.path.join(folder, test["name"] + ".xml")
    command = list(test["command"])
    if test["kind"] == "gtest":
        if os.path.exists(report):
            os.remove(report)
        command += ["--gtest_output=xml:" + report, "--gtest_brief=1"]
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=test["timeout"], text=True, errors="replace", cwd=folder)
        output, code = done.stdout, done.returncode
    except FileNotFoundError as missing:
        return 0, 1, f"{missing}: it was not built\n"
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace") + f"\nnot done after {test['timeout']} s\n"
        code = -1
    if test["kind"] != "gtest":
        return (1, 0, output if test.get("show") else "") if code == 0 else (0, 1, output)
    if not os.path.exists(report):
        return 0, 1, output + f"\n{test['name']} ended with code {code} and no report\n"
    suites = xml.parse(report).getroot()
    failed = int(suites.get("failures")) + int(suites.get("errors", 0))
    total = int(suites.get("tests"))
    if code != 0 and failed == 0:
        failed += 1
        output += f"\n{test['name']} ended with code {code}\n"
    return total - failed, failed, output if failed else ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--label")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.folder)
    with open(os.path.join(folder, "tests.json")) as file:
        tests = json.load(file)
    if arguments.label:
        tests = [t for t in tests if arguments.label in t["labels"]]
    if arguments.only:
        tests = [t for t in tests if re.search(arguments.only, t["name"])]
    passed = failed = 0
    for test in tests:
        start = time.time()
        good, bad, text = run_one(test, folder)
        passed += good
        failed += bad
        print(f"{'FAILED' if bad else 'ok':6} {test['name']:32} {good:4} passed {bad:3} failed  {time.time() - start:6.1f} s",
              flush=True)
        if text:
            print(text, flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
