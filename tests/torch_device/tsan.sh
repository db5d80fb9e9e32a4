#!/bin/sh
# ThreadSanitizer under PyTorch: 8 threads with streams and the allocator, over a libhalyard that is built with it.
#   tests/torch_device/tsan.sh PYTHON SHIM BUILD
# SHIM is libtorch_halyard.so, BUILD the tree of `cmake --preset tsan` with the targets halyard and halyard_guarded. PyTorch is not
# built with it: what only its own code does is not looked at.
set -eu

python=$1 shim=$2 build=$(cd "$3" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp "$shim" "$work/libtorch_halyard.so"
cp "$build/lib/libhalyard.so.0" "$work/libhalyard.so.0"
for backend in cpu guarded; do
  # Without address randomisation: the sanitizer of GCC 12 does not know all layouts of newer kernels.
  (cd "$here" && LD_PRELOAD=$(gcc -print-file-name=libtsan.so) TSAN_OPTIONS="ignore_noninstrumented_modules=1 exitcode=66" \
    HALYARD_TORCH_LIBRARY=$work HALYARD_PLUGIN_PATH=$build/tests/plugins HALYARD_BACKEND=$backend \
    setarch -R "$python" -m pytest -q -p no:cacheprovider test_threads.py) > "$work/out" 2>&1 || { cat "$work/out"; exit 1; }
  if grep -q 'ThreadSanitizer' "$work/out"; then cat "$work/out"; exit 1; fi
  grep passed "$work/out" | sed "s/^/tsan, $backend: /"
done
