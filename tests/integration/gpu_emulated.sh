#!/bin/sh
# The cuda backend on the emulated GPU: host side and kernels of every family, on a machine without a GPU.
#   gpu_emulated.sh HALYARD FOLDER [op ...]
set -eu
. "$(dirname "$0")/emulated.sh"
export LD_LIBRARY_PATH="$folder"
"$halyard" info | grep -A 20 "^  cuda " > "$folder/log"
head -4 "$folder/log"
for fact in "5.0 free" "temperature_celsius=61" "power_watts=690 of 700" "slowed_by=power_cap,temperature" "pcie=5 x16" "nvlinks=4"; do
  grep -q "$fact" "$folder/log" || { echo "halyard info does not say $fact"; cat "$folder/log"; exit 1; }
done
if [ $# -eq 0 ]; then
  set -- fused_linear rope_paged_attention rope_cache dropout sample var sort softmax sum cross_entropy cross_entropy_backward rms_norm_backward rope embedding_backward index_put adamw
fi
verify cuda "$@"
echo "$# ops pass on the emulated GPU"
# Shapes that conformance's small ones do not reach.
shapes=$(dirname "$halyard")/matrix_shapes
for fused in "i8 m=1" "i4 m=2"; do quietly "$shapes" --only "fused_linear bf16 $fused"; done
for type in bf16 f32 i8; do quietly "$(dirname "$halyard")/reduce_shapes" --only " $type "; done
# Products by cuBLASLt, and by our own kernels where it has no algorithm.
multiplies all "$products" --f64
for algorithms in none unfit; do multiplies none CUBLASLT_TEST_ALGORITHMS=$algorithms "$products" --backend cublaslt --f64; done
echo "products by cuBLASLt are exact"
# Convolution by cuDNN, and by our own kernels where cuDNN offers no algorithm that will do.
for algorithms in some none; do
  export CUDNN_TEST_ALGORITHMS=$algorithms
  verify cudnn conv2d conv2d_backward
done
unset CUDNN_TEST_ALGORITHMS
CUDNN_TEST_CUDART=14000 "$halyard" info | grep -q "is for CUDA 14, and the driver speaks CUDA 13"
quietly "$halyard" verify --backend cusparselt --strict --op linear_sparse_2_4
CUSPARSELT_TEST_MINOR=7 "$halyard" info | grep -q "is version 0.7, and 0.8 is needed"
verify mha sdpa
echo "cuDNN, cuSPARSELt and mha pass on the emulated GPU"
# Cubins that are beside the program are taken before the compiler; a damaged one is not.
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
  quietly "$tree/bin/halyard" verify --backend triton --strict --size 64 --op $op
  grep -q "triton: .* runs" "$folder/log" || { echo "no case of $op reached Triton's kernel"; exit 1; }
done
echo "softmax_f32_1024 sm_80 damaged" >> "$triton/kernels.txt"
"$tree/bin/halyard" info | grep -q "kernels.txt is not of format 1"
echo "Triton's kernels are launched on the emulated GPU"
# Communicators by NCCL: one rank, ranks on devices of their own, and what must be refused.
if [ -x "$rank" ]; then
  check "threads ok" GPU_EMULATOR_DEVICES=4 "$rank" threads cuda
  check "conformance ok" "$rank" conformance cuda
  check "threads ok" "$rank" threads cuda
  check "same_device_twice ok" "$rank" same_device_twice cuda
  check "communicators need 21000" NCCL_TEST_VERSION=20800 "$rank" conformance cuda
  mkdir -p "$folder/without_nccl"
  cp "$folder/libcuda.so.1" "$folder/libnvrtc.so.13" "$folder/without_nccl/"
  check "need NCCL, which was not found" LD_LIBRARY_PATH="$folder/without_nccl" "$rank" conformance cuda
  echo "communicators pass on the emulated GPU"
fi
# Decoding by a captured graph.
generates cuda
