#!/bin/sh
# The hip backend on an NVIDIA GPU: conformance, gradients and decoding through HIP's entry points, with HIP over CUDA
# below them.
#   run.sh BUILD FOLDER [option of halyard verify ...]
set -eu
build=$1 folder=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$folder/libamdhip64.so.6" "$here/hip_on_cuda.c" -ldl \
  -Wl,-soname,libamdhip64.so.6
nvrtc=$("$build/bin/halyard" info | sed -n 's/^ *compiler=\(.*libnvrtc.*\)/\1/p' | head -1)
[ -n "$nvrtc" ] || { echo "no NVRTC: halyard info says why"; exit 1; }
export HIP_ON_CUDA_NVRTC="$nvrtc" HALYARD_CACHE_DIR="$folder/cache"
export LD_LIBRARY_PATH="$folder:$(dirname "$nvrtc")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
"$build/bin/halyard" info | grep -A 8 "^  hip "
"$build/bin/halyard" verify --backend hip "$@"
if [ -x "$build/bin/test_generate" ]; then
  HALYARD_TEST_DEVICE=hip "$build/bin/test_generate"
fi
