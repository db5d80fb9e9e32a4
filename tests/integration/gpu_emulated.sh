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
"$halyard" info | grep -A 20 "^  cuda " > "$folder/log"
head -4 "$folder/log"
for fact in "5.0 free" "temperature_celsius=61" "power_watts=690 of 700" "slowed_by=power_cap,temperature" "pcie=5 x16" "nvlinks=4"; do
  grep -q "$fact" "$folder/log" || { echo "halyard info does not say $fact"; cat "$folder/log"; exit 1; }
done
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
# Convolution by cuDNN, and by our own kernels where cuDNN offers no algorithm that will do.
for algorithms in some none; do
  for op in conv2d conv2d_backward; do
    CUDNN_TEST_ALGORITHMS=$algorithms "$halyard" verify --backend cudnn --strict --quick --op $op > "$folder/log" 2>&1 || {
      cat "$folder/log"
      exit 1
    }
  done
done
CUDNN_TEST_CUDART=14000 "$halyard" info | grep -q "is for CUDA 14, and the driver speaks CUDA 13"
"$halyard" verify --backend cusparselt --strict --op linear_sparse_2_4 > "$folder/log" 2>&1 || {
  cat "$folder/log"
  exit 1
}
CUSPARSELT_TEST_MINOR=7 "$halyard" info | grep -q "is version 0.7, and 0.8 is needed"
"$halyard" verify --backend mha --strict --quick --op sdpa > "$folder/log" 2>&1 || {
  cat "$folder/log"
  exit 1
}
echo "cuDNN, cuSPARSELt and mha pass on the emulated GPU"
# Cubins that lie beside the program are taken before the compiler; a damaged one is not.
tree=$folder/ahead
rm -rf "$tree"
mkdir -p "$tree/bin" "$tree/lib/halyard/kernels"
cp "$halyard" "$tree/bin/halyard"
"$(dirname "$halyard")/gpu_cubins" "$folder/nvcc" "$tree/lib/halyard/kernels" sm_80 probe rope > "$folder/log"
ahead() { HALYARD_LOG=3 HALYARD_CACHE_DIR="$1" "$tree/bin/halyard" verify --backend cuda --strict --quick --op rope > "$folder/log" 2>&1; }
ahead "$tree/none" || { cat "$folder/log"; exit 1; }
if grep -q "compiled rope.cu\|compiled probe.cu" "$folder/log"; then
  echo "cubins were there, and the compiler ran:"
  grep "compiled" "$folder/log"
  exit 1
fi
for file in "$tree"/lib/halyard/kernels/rope-*; do echo damaged > "$file"; done
ahead "$tree/none" && grep -q "compiled rope.cu" "$folder/log" || { cat "$folder/log"; exit 1; }
echo "cubins beside the program are taken"
# Kernels that Triton compiled, in stand-ins; the list must be whole.
triton=$tree/lib/halyard/triton
mkdir -p "$triton"
echo "halyard-triton 1 0" > "$triton/list"
stand_in() { # name, entry, parameters, options
  "$folder/nvcc" --cubin -o "$triton/$1.sm_80.cubin" "$here/vendors/triton/kernels.cu" $4
  echo "$1 sm_80 32 0 $3 $2" >> "$triton/list"
}
for row in "f32 0" "bf16 2"; do
  set -- $row
  stand_in softmax_$1_1024 softmax 5 -DTYPE=$2
  stand_in rms_norm_$1_1024 rms_norm 7 -DTYPE=$2
done
for causal in 0 1; do
  stand_in attention_bf16_64$([ $causal = 0 ] || echo _causal) attention 13 "-DTYPE=2 -DSIZE=64 -DCAUSAL=$causal"
done
mv "$triton/list" "$triton/kernels.txt"
for op in softmax rms_norm sdpa; do
  "$tree/bin/halyard" verify --backend triton --strict --size 64 --op $op > "$folder/log" 2>&1 || {
    cat "$folder/log"
    exit 1
  }
  grep -q "triton: .* runs" "$folder/log" || { echo "no case of $op reached Triton's kernel"; exit 1; }
done
echo "softmax_f32_1024 sm_80 damaged" >> "$triton/kernels.txt"
"$tree/bin/halyard" info | grep -q "kernels.txt is not of format 1"
echo "Triton's kernels are launched on the emulated GPU"
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
