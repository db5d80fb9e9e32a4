#!/bin/sh
# The hip backend on an NVIDIA GPU: conformance, op by op on all cores, and decoding, through HIP's entry points with HIP
# over CUDA below them; products through hipBLASLt's, with hipBLASLt over cuBLASLt below them where that is found.
#   run.sh BUILD FOLDER [op ...]      (all ops where none is named)
set -eu
halyard=$1/bin/halyard build=$1 folder=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder/logs"
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$folder/libamdhip64.so.6" "$here/hip_on_cuda.c" -ldl \
  -Wl,-soname,libamdhip64.so.6
"$halyard" info > "$folder/info"
nvrtc=$(sed -n 's/^ *compiler=\(.*libnvrtc.*\)/\1/p' "$folder/info" | head -1)
cublaslt=$(sed -n 's/^ *provider cublaslt *available, //p' "$folder/info")
[ -n "$nvrtc" ] || { echo "no NVRTC: halyard info says why"; exit 1; }
export HIP_ON_CUDA_NVRTC="$nvrtc" HALYARD_CACHE_DIR="$folder/cache"
export LD_LIBRARY_PATH="$folder:$(dirname "$nvrtc")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if [ -n "$cublaslt" ]; then
  gcc -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$folder/libhipblaslt.so.0" "$here/hipblaslt_on_cuda.c" -ldl \
    -Wl,-soname,libhipblaslt.so.0 -Wl,--no-as-needed "$folder/libamdhip64.so.6"
  export HIP_ON_CUDA_CUBLASLT="$cublaslt"
fi
"$halyard" info | grep -A 9 "^  hip "
if [ -n "$cublaslt" ] && [ -x "$build/bin/library_products" ]; then
  HIPBLASLT_TEST_REPORT=1 "$build/bin/library_products" --backend hip > "$folder/logs/products" 2>&1 || { cat "$folder/logs/products"; exit 1; }
  count=$(sed -n 's/^\([0-9]*\) products, 0 wrong.*/\1/p' "$folder/logs/products")
  grep -q "hipblaslt on cuda: $count products" "$folder/logs/products" || { cat "$folder/logs/products"; exit 1; }
  echo "$count products by hipBLASLt are exact"
fi
[ $# -gt 0 ] || set -- $("$halyard" ops | awk '/^[a-z0-9_]+ / && $1 != "op" { print $1 }')
echo "$@" | tr ' ' '\n' | xargs -P "$(nproc)" -I{} sh -c '
  "$1" verify --backend hip --op "$3" > "$2/logs/$3" 2>&1; echo "$3 $?"' one "$halyard" "$folder" {} > "$folder/results"
awk '$2 != 0 { print $1 }' "$folder/results" | while read -r op; do
  echo "$op failed:"
  grep -v '^{' "$folder/logs/$op" | head -12
done
awk '{ all++; good += $2 == 0 } END { print good " of " all " ops pass on hip"; exit good != all }' "$folder/results"
if [ -x "$build/bin/test_generate" ]; then
  HALYARD_TEST_DEVICE=hip "$build/bin/test_generate" > "$folder/logs/generate" 2>&1 || { cat "$folder/logs/generate"; exit 1; }
  echo "models generate on hip"
fi
