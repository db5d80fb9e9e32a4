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
  set -- fused_linear rope_paged_attention dropout sample var sort softmax cross_entropy rms_norm_backward rope embedding_backward index_put adamw
fi
for op in "$@"; do
  "$halyard" verify --backend cuda --strict --quick --op "$op" > "$folder/log" 2>&1 || {
    cat "$folder/log"
    exit 1
  }
done
echo "$# ops pass on the emulated GPU"
# Decoding by a captured graph.
generate=$(dirname "$halyard")/test_generate
if [ -x "$generate" ]; then
  HALYARD_TEST_DEVICE=cuda "$generate" > "$folder/log" 2>&1 || {
    cat "$folder/log"
    exit 1
  }
  echo "models generate on the emulated GPU"
fi
