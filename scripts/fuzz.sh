#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for some seconds.
# Usage: scripts/fuzz.sh FOLDER SECONDS
set -euo pipefail
folder=$1
seconds=$2
cd "$(dirname "$0")/.."
mkdir -p "$folder"

sources=(lockstep/base/{environment,error,log}.cc
         lockstep/cluster/{address,cluster_spec,hostlist,json,roles,tf_config_cluster_resolver,cluster_resolver}.cc
         lockstep/device/no_devices.cc)
flags=(-std=c++20 -O1 -g -I. -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
objects=()
for source in "${sources[@]}"; do
  object=$folder/$(basename "${source%.cc}").o
  objects+=("$object")
  newer=$(find "$source" lockstep tests/fuzz -name '*.h' -newer "$object" -print -quit 2>/dev/null || true)
  [ "$object" -nt "$source" ] && [ -z "$newer" ] || clang++ "${flags[@]}" -c "$source" -o "$object"
done

failed=0
for target in tests/fuzz/*_fuzz.cc; do
  name=$(basename "${target%.cc}")
  clang++ "${flags[@]}" -fsanitize=fuzzer "$target" "${objects[@]}" -o "$folder/$name"
  mkdir -p "$folder/corpus_$name"
  echo "fuzz: $name for $seconds s"
  if "$folder/$name" -max_total_time="$seconds" -max_len=4096 -timeout=5 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="$folder/" "$folder/corpus_$name" >"$folder/$name.log" 2>&1; then
    echo "fuzz: $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$name.log") executions, no failure"
  else
    tail -n 40 "$folder/$name.log"
    failed=1
  fi
done
exit $failed
