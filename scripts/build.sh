#!/usr/bin/env bash
# Configures (when something changed) and builds into a folder.
# Usage: scripts/build.sh FOLDER JOBS [-D... for CMake] [--target NAME]
set -euo pipefail
folder=$1
jobs=$2
shift 2

options=()
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --target) targets+=("$2"); shift 2 ;;
    *) options+=("$1"); shift ;;
  esac
done

cd "$(dirname "$0")/.."
mkdir -p "$folder"
if ! cmake -G Ninja -S . -B "$folder" "${options[@]}" >"$folder/configure.log" 2>&1; then
  cat "$folder/configure.log"
  exit 1
fi
sed -n 's/^-- lockstep: //p' "$folder/configure.log"
echo "building in $folder (a first build takes some minutes)"
ninja -C "$folder" -j "$jobs" "${targets[@]}" | (grep --line-buffered -Ev '^ninja: (Entering|no work)' || true)
exit "${PIPESTATUS[0]}"
