#!/usr/bin/env bash
# What other people's programs make of our files: TensorBoard of the event files, PyTorch and safetensors of the weights (and we of
# theirs), a browser of the report, a schema check of the trace. Needs PyPI, and Debian's chromium, which is installed where it is
# missing.
# Usage: scripts/test_python.sh BUILD
set -euo pipefail

build=$1
root=$(cd "$(dirname "$0")/.." && pwd)
logs=$build/observe_logs
. "$root/scripts/python.sh"
use_python "$build" safetensors numpy torch==2.13.0

rm -rf "$logs" "$build/tensorboard_logs" "$build/fit_logs"
mkdir -p "$logs"
"$build/bin/lockstep" run -n 2 "$build/bin/observe" --test --folder "$logs"
"$venv/bin/python" "$root/tests/python/check_events.py" "$logs"
python3 "$root/tests/python/check_trace.py" "$logs/trace.json" 2
"$build/bin/fashion_mnist" --test --epochs 5 --out "$build/fit_logs" # with the callback TensorBoard
"$venv/bin/python" "$root/tests/python/check_events.py" "$build/fit_logs/logs" fit
"$build/bin/lockstep" report "$logs"
python3 "$root/tests/python/check_report.py" "$logs/report.html" "$build/pictures" report 2
# Files that TensorBoard's own package wrote.
"$venv/bin/python" "$root/tests/python/write_events.py" "$build/tensorboard_logs"
"$build/bin/lockstep" report "$build/tensorboard_logs"
python3 "$root/tests/python/check_report.py" "$build/tensorboard_logs/report.html" "$build/pictures" runs 0
"$venv/bin/python" "$root/tests/python/weights_test.py" "$build/bin/weights_exchange"
echo "test-python: passed"
