#!/usr/bin/env bash
# Makes docs/pictures/ anew: trains for half a minute, and takes pictures of TensorBoard, of the report and of the progress bar. Needs
# PyPI, and Debian's chromium, which is installed where it is missing.
# Usage: scripts/make_pictures.sh BUILD
set -euo pipefail

build=$1
root=$(cd "$(dirname "$0")/.." && pwd)
runs=$build/picture_runs
. "$root/scripts/python.sh"
use_python "$build"

rm -rf "$runs"
mkdir -p "$runs"
"$build/bin/fashion_mnist" --test --epochs 8 --out "$runs/fit"
"$build/bin/lockstep" run -n 2 "$build/bin/observe" --folder "$runs/two_workers"
"$build/bin/lockstep" report "$runs/two_workers"
"$venv/bin/python" "$root/scripts/take_pictures.py" "$build" "$runs" "$root/docs/pictures"
