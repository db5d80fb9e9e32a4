#!/bin/sh
# The hip and hygon backends on the emulated GPU, through HIP over CUDA: which backend takes which device, MFMA over
# wavefronts of 64 lanes, products by hipBLASLt, communicators by RCCL, and a model's tokens.
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
# Products by hipBLASLt, and by our own kernels where it has no algorithm, is not there, is too old or of another runtime.
multiplies all "$products" --backend hip
for algorithms in none unfit; do multiplies none CUBLASLT_TEST_ALGORITHMS=$algorithms "$products" --backend hipblaslt; done
for op in mm bmm addmm linear int_mm; do quietly "$halyard" verify --backend hipblaslt --strict --size 64 --op $op; done
check "is version 0.3, and 0.6 to 1.x is needed" HIPBLASLT_TEST_VERSION=300 "$halyard" info
check "is version 2.0, and 0.6 to 1.x is needed" HIPBLASLT_TEST_VERSION=200000 "$halyard" info
mkdir -p "$folder/alone" "$folder/mixed"
cp "$folder/hip/libamdhip64.so.6" "$folder/alone/"
cp "$folder/hip/libamdhip64.so.6" "$folder/hygon/libhipblaslt.so.0" "$folder/mixed/"
check "libhipblaslt.so.1 could not be loaded" LD_LIBRARY_PATH="$folder:$folder/alone" "$halyard" info
check "runs on another HIP runtime than hip" LD_LIBRARY_PATH="$folder:$folder/mixed:$folder/hygon" "$halyard" info
quietly env LD_LIBRARY_PATH="$folder:$folder/alone" "$products" --backend hip
hygon="LD_LIBRARY_PATH=$folder:$folder/hygon HIP_ON_CUDA_TARGET=gfx936"
multiplies all $hygon "$products" --backend hygon
check '"backend":"hygon"' $hygon "$halyard" verify --backend hipblaslt --strict --quick --op mm
echo "products by hipBLASLt are exact"

if [ -x "$rank" ]; then
  check "threads ok" GPU_EMULATOR_DEVICES=2 "$rank" threads hip
  check "conformance ok" "$rank" conformance hip
  check "need RCCL, which was not found" LD_LIBRARY_PATH="$folder:$folder/alone" "$rank" conformance hip
  echo "communicators pass by RCCL's names"
fi
generates hip
