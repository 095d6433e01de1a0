"""Rows of the result: the table for people and build/bench.json for scripts."""

import json
import os
import platform
import subprocess
from statistics import median


def row(name, unit, values, *, peer=None, peer_values=None, target=None, higher_is_better=True, config=None, tolerance=0.0,
        is_paired=False):
    """One line. `values` and `peer_values` are samples; their medians and the ratio (> 1: Lockstep is ahead) count.

    `is_paired`: samples of one place were taken one after the other, and the ratio is the median of their ratios: what slows the
    whole machine for a while takes from both.

    With a peer `target` is a ratio, without one a value. `tolerance` is what the machine's noise may take off.
    """
    value = median(values)
    peer_value = median(peer_values) if peer_values else None
    ratio = None
    if peer_value is not None:
        pairs = zip(values, peer_values) if is_paired else [(value, peer_value)]
        ratio = median(ours / peers if higher_is_better else peers / ours for ours, peers in pairs)
    full = {"values": [round(v, 4) for v in values], **(config or {})}
    if peer_values:
        full["peer_values"] = [round(v, 4) for v in peer_values]
    if tolerance:
        full["tolerance"] = tolerance
    return {"name": name, "unit": unit, "value": value, "peer": peer, "peer_value": peer_value, "ratio": ratio,
            "target": target, "higher_is_better": higher_is_better,
            "samples": min(len(values), len(peer_values) if peer_values else len(values)), "config": full}


def is_missed(entry):
    if entry["target"] is None:
        return False
    if entry["ratio"] is not None:
        return entry["ratio"] < entry["target"] - entry["config"].get("tolerance", 0.0)
    return entry["value"] < entry["target"] if entry["higher_is_better"] else entry["value"] > entry["target"]


def is_disturbed(entry):
    return entry["config"].get("disturbed_samples", 0) > 0


def number(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.1e}"


def print_table(rows):
    heads = ["", "value", "unit", "peer", "peer value", "ratio", "must reach", ""]
    lines = [heads]
    for entry in rows:
        has_ratio = entry["ratio"] is not None
        sign = ">=" if has_ratio or entry["higher_is_better"] else "<="
        lines.append([entry["name"], number(entry["value"]), entry["unit"], entry["peer"] or "", number(entry["peer_value"]),
                      f"{entry['ratio']:.2f}" if has_ratio else "",
                      f"{sign} {entry['target']:g}" if entry["target"] is not None else "(report)",
                      " ".join(["MISSED"] * is_missed(entry) + ["disturbed"] * is_disturbed(entry))])
    widths = [max(len(line[k]) for line in lines) for k in range(len(heads))]
    right = {1, 4, 5}
    for line in lines:
        print("  ".join(text.rjust(width) if k in right else text.ljust(width)
                        for k, (text, width) in enumerate(zip(line, widths))).rstrip())


def write_json(path, rows):
    with open(path, "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")


def first_line(command):
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.splitlines()
        return lines[0] if lines else ""
    except (OSError, subprocess.SubprocessError):
        return ""


def cpu_name():
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def describe_machine():
    """What the figures depend on beside the code."""
    huge = "/sys/kernel/mm/transparent_hugepage/enabled"
    pages = open(huge).read().strip() if os.path.exists(huge) else "unknown"
    blas = os.path.realpath("/usr/lib/x86_64-linux-gnu/libblas.so.3")
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2), "kernel": platform.release(),
            "huge_pages": pages, "blas": blas, "glibc": " ".join(platform.libc_ver())}
