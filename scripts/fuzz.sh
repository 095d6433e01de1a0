#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for some seconds.
# Usage: scripts/fuzz.sh FOLDER SECONDS [TARGET...]     TARGET: the name of a file in tests/fuzz/ without _fuzz.cc
set -euo pipefail
folder=$1
seconds=$2
shift 2
cd "$(dirname "$0")/.."
mkdir -p "$folder/generated"

proto=lockstep/cluster/coordination
[ "$folder/generated/$proto.grpc.pb.cc" -nt "$proto.proto" ] ||
  protoc -I . --cpp_out="$folder/generated" --grpc_out="$folder/generated" \
    --plugin=protoc-gen-grpc="$(command -v grpc_cpp_plugin)" "$proto.proto"

# What the targets read with. No test is among them, and nothing that starts a thread or a process is called.
sources=(lockstep/base/{environment,error,forks,log,trace}.cc
         lockstep/cluster/{address,cluster_spec,hostlist,host_address,json,roles,socket,tf_config_cluster_resolver,cluster_resolver}.cc
         lockstep/cluster/{clock_offset,members,lifeline_bytes,rpc,coordination_service}.cc
         lockstep/checkpoint/{manifest,safetensors}.cc
         lockstep/data/io/{compression,crc32c,csv,example,fixed_records,input_file,output_file,text_lines,tf_record}.cc
         lockstep/data/io/{jpeg,mapped_file,npy,npz,pixels,png,whole_file}.cc
         lockstep/observe/{event_reader,trace_file}.cc
         lockstep/device/no_devices.cc
         lockstep/collective/shared_block.cc lockstep/ps/rpc_{bytes,lane}.cc
         tools/lockstep/{arguments,hosts,messages,plan,run_options}.cc
         "$folder/generated/$proto".pb.cc "$folder/generated/$proto".grpc.pb.cc)
flags=(-std=c++20 -O1 -g -I. -isystem "$folder/generated" -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
objects=()
for source in "${sources[@]}"; do
  object=$folder/$(echo "${source%.cc}" | tr / _).o
  objects+=("$object")
  newer=$(find "$source" lockstep tools tests/fuzz \( -name '*.h' -o -name '*.proto' \) -newer "$object" -print -quit 2>/dev/null || true)
  [ "$object" -nt "$source" ] && [ -z "$newer" ] || clang++ "${flags[@]}" -c "$source" -o "$object"
done
rm -f "$folder/libfuzzed.a"
ar rcs "$folder/libfuzzed.a" "${objects[@]}"

failed=0
for target in tests/fuzz/*_fuzz.cc; do
  name=$(basename "${target%.cc}")
  if [ $# -gt 0 ] && [[ " $* " != *" ${name%_fuzz} "* ]]; then continue; fi
  clang++ "${flags[@]}" -fsanitize=fuzzer "$target" "$folder/libfuzzed.a" \
    -Wl,--as-needed,--copy-dt-needed-entries -lgrpc++ -lgrpc -lgpr -lprotobuf -lz -lminizip -lturbojpeg -lpng -o "$folder/$name"
  mkdir -p "$folder/corpus_$name"
  words=()
  [ ! -f "${target%.cc}.dict" ] || words=(-dict="${target%.cc}.dict")
  echo "fuzz: $name for $seconds s"
  if "$folder/$name" -max_total_time="$seconds" -max_len=4096 -timeout=5 -rss_limit_mb=2048 -print_final_stats=1 "${words[@]}" \
      -artifact_prefix="$folder/" "$folder/corpus_$name" >"$folder/$name.log" 2>&1; then
    echo "fuzz: $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/$name.log") executions, no failure"
  else
    tail -n 40 "$folder/$name.log"
    failed=1
  fi
done
exit $failed
