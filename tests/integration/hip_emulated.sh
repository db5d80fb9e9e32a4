#!/bin/sh
# The hip and hygon backends on the emulated GPU, through HIP over CUDA: which backend takes which device, MFMA over
# wavefronts of 64 lanes, communicators by RCCL, and a model's tokens.
#   hip_emulated.sh HALYARD FOLDER [op ...]
set -eu
. "$(dirname "$0")/emulated.sh"

# What `halyard info` must say of a backend: the words, the backend, the runtime's folder, target and name of the device.
says() {
  LD_LIBRARY_PATH="$folder:$folder/$3" HIP_ON_CUDA_TARGET=$4 HIP_ON_CUDA_NAME=$5 "$halyard" info > "$folder/log" 2>&1
  grep -A 8 "^  $2 " "$folder/log" | grep -q "$1" || {
    echo "$2 with $4, $5: not '$1'"
    cat "$folder/log"
    exit 1
  }
}
says "target=gfx90a" hip hip gfx90a "AMD Instinct MI250X"
says "an AMD GPU (gfx90a), which is the hip backend's" hygon hip gfx90a "AMD Instinct MI250X"
says "target=gfx936" hygon hygon gfx936 "BW200"
says "a Hygon DCU (gfx936), which is the hygon backend's" hip hip gfx936 "BW200"
says "target=gfx906" hip hip gfx906 "AMD Radeon VII"
says "target=gfx906" hygon hip gfx906 "Hygon DCU Z100"
says "libamdhip64.so.7 could not be loaded" hip without gfx906 "AMD Radeon VII"
echo "devices go to the backends of their makers"

export LD_LIBRARY_PATH="$folder:$folder/hip"
verify_for() { # target, then ops
  export HIP_ON_CUDA_TARGET="$1"
  shift
  verify hip "$@"
  echo "$* pass for $HIP_ON_CUDA_TARGET"
}
if [ $# -gt 0 ]; then
  verify_for gfx90a "$@"
  exit
fi
verify_for gfx90a mm sdpa
verify_for gfx906 linear

export HIP_ON_CUDA_TARGET=gfx90a
if [ -x "$rank" ]; then
  check "threads ok" GPU_EMULATOR_DEVICES=2 "$rank" threads hip
  check "conformance ok" "$rank" conformance hip
  mkdir -p "$folder/without_rccl"
  cp "$folder/hip/libamdhip64.so.6" "$folder/without_rccl/"
  check "need RCCL, which was not found" LD_LIBRARY_PATH="$folder:$folder/without_rccl" "$rank" conformance hip
  echo "communicators pass by RCCL's names"
fi
generates hip
