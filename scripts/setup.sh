#!/usr/bin/env bash
# Installs the Debian packages that building, testing and the demo need, when they are missing.
# Usage: scripts/setup.sh [wheel|fuzz|tests|python]     "wheel": LibTorch comes from LIBTORCH=, so libtorch-dev is not needed;
# "fuzz": what the fuzz targets need, without LibTorch; "tests": what only tests use (a Slurm, tools for networks);
# "python": what `make test-python` and `make pictures` use (a browser).
set -euo pipefail

packages=(g++ cmake ninja-build make libopenblas0-openmp libgtest-dev libgmock-dev
          nlohmann-json3-dev zlib1g-dev libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libcli11-dev
          libgloo-dev libopenmpi-dev openmpi-bin libminizip-dev libturbojpeg0-dev libpng-dev
          dataset-fashion-mnist clang-format python3 openssl)
case "${1:-}" in
  wheel) ;;
  fuzz) packages=(clang libclang-rt-14-dev nlohmann-json3-dev libcli11-dev libgrpc++-dev libprotobuf-dev protobuf-compiler
                  protobuf-compiler-grpc make) ;;
  tests) packages=(slurmctld slurmd slurm-client iproute2 nftables) ;;
  python) packages=(python3-venv chromium fonts-dejavu-core) ;;
  *) packages+=(libtorch-dev) ;;
esac

is_installed() { dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done

# A machine without apt (another distribution) must bring the same tools itself; CMake names what it does not find.
if [ ${#missing[@]} -gt 0 ] && ! command -v apt-get >/dev/null; then
  echo "setup: no apt-get here; make sure these are installed: ${missing[*]}"
  exit 0
fi

if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: not root and no sudo; install by hand: apt-get install ${missing[*]}"; exit 1; }
    as_root=(sudo)
  fi
  echo "setup: installing ${missing[*]} (a first LibTorch takes a few minutes)"
  # Without a network the build may still find what it needs elsewhere; CMake names what it does not find.
  "${as_root[@]}" apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    echo "setup: apt-get could not install ${missing[*]}; going on with what is here"
fi

# Debian's reference BLAS is 17 times slower a core than OpenBLAS; libopenblas0-openmp switches to itself unless
# somebody pinned another choice by hand.
blas=$(readlink -f "/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)/libblas.so.3" || true)
case "$blas" in
  *openblas*) ;;
  *) echo "setup: warning: libblas.so.3 is $blas, not OpenBLAS; training will be several times slower." \
          "Choose it with: update-alternatives --config libblas.so.3-x86_64-linux-gnu" ;;
esac
