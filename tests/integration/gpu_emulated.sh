#!/bin/sh
# The cuda backend on the emulated GPU: host side and kernels of every family, on a machine without a GPU.
#   gpu_emulated.sh HALYARD FOLDER [op ...]
set -eu
halyard=$1 folder=$2
shift 2
here=$(cd "$(dirname "$0")/.." && pwd)
"$here/gpu_emulator/build.sh" "$folder"
export GPU_EMULATOR_HOME="$here/gpu_emulator" HALYARD_CACHE_DIR="$folder/cache" LD_LIBRARY_PATH="$folder"
rm -rf "$folder/cache"
"$halyard" info | grep -A 3 "^  cuda "
if [ $# -eq 0 ]; then
  set -- fused_linear rope_paged_attention dropout sample var sort softmax sum cross_entropy cross_entropy_backward rms_norm_backward rope embedding_backward index_put adamw
fi
for op in "$@"; do
  "$halyard" verify --backend cuda --strict --quick --op "$op" > "$folder/log" 2>&1 || {
    cat "$folder/log"
    exit 1
  }
done
echo "$# ops pass on the emulated GPU"
# Communicators by NCCL: one rank, ranks on devices of their own, and what must be refused.
rank=$(dirname "$halyard")/comm_rank
if [ -x "$rank" ]; then
  comm() { # words that must be said, then the arguments
    words=$1
    shift
    env "$@" > "$folder/log" 2>&1 || true
    grep -q "$words" "$folder/log" || {
      cat "$folder/log"
      exit 1
    }
  }
  comm "threads ok" GPU_EMULATOR_DEVICES=4 "$rank" threads cuda
  comm "conformance ok" "$rank" conformance cuda
  comm "threads ok" "$rank" threads cuda
  comm "same_device_twice ok" "$rank" same_device_twice cuda
  comm "communicators need 21000" NCCL_TEST_VERSION=20800 "$rank" conformance cuda
  mkdir -p "$folder/without_nccl"
  cp "$folder/libcuda.so.1" "$folder/libnvrtc.so.13" "$folder/without_nccl/"
  comm "need NCCL, which was not found" LD_LIBRARY_PATH="$folder/without_nccl" "$rank" conformance cuda
  echo "communicators pass on the emulated GPU"
fi
# Decoding by a captured graph.
generate=$(dirname "$halyard")/test_generate
if [ -x "$generate" ]; then
  HALYARD_TEST_DEVICE=cuda "$generate" > "$folder/log" 2>&1 || {
    cat "$folder/log"
    exit 1
  }
  echo "models generate on the emulated GPU"
fi
