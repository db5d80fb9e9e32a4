#!/bin/sh
# The library for 64-bit ARM, cross-compiled and run under QEMU: its NEON kernels pass conformance, and a
# model from here says there what it says here. arm64.sh HALYARD BUILD_FOLDER
set -eu
here=$1
build=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
there() { qemu-aarch64 -L /usr/aarch64-linux-gnu "$build/bin/halyard" "$@"; }

cmake -S "$source" -B "$build" -G Ninja -DHALYARD_WERROR=ON -DHALYARD_BUILD_TESTS=OFF -DCMAKE_SYSTEM_NAME=Linux \
  -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc >/dev/null
cmake --build "$build"

# What /proc/self/exe is, QEMU says of itself: conformance stays in one process.
there info | grep -q "offers neon" || { echo "arm64: this is not NEON"; exit 1; }
there verify --no-fork
there verify --no-fork --seed 2 --quick --gradients
there verify --no-fork --quick --determinism
HALYARD_CPU_ISA=scalar there verify --no-fork --quick

# Trained until it is sure of its words: sums are rounded in another order there, which decides between equals.
"$here" demo --out "$work" --steps 300 --lora-steps 2 --size small --tokens 4 --json >/dev/null
for dtype in f32 bf16 q8 q4; do
  for side in here there; do
    program=$here
    [ $side = here ] || program=there
    $program run --model "$work/model" --dtype $dtype --ids 1,2,3,4,5 --max-tokens 12 --ignore-end --json |
      grep -o '"ids": [^]]*' > "$work/$side"
  done
  cmp "$work/here" "$work/there" || { cat "$work/here" "$work/there"; exit 1; }
done
echo "arm64: conformance passed, and the model's tokens are the same"
