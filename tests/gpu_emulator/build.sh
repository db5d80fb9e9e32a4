#!/bin/sh
# Builds the emulator as libcuda.so.1 and libnvrtc.so.13, and over it libnccl.so.2, libcudnn.so.9 and
# libcusparseLt.so.0, into the folder $1;
# and nvcc over its compiler.
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
g++ -std=c++17 -O2 -Wall -shared -fPIC -o "$1/libcuda.so.1" "$here/emulator.cc" -ldl -lpthread \
  -Wl,-soname,libcuda.so.1
# The compiler's functions are the same library's: a second copy would have a second machine.
g++ -shared -o "$1/libnvrtc.so.13" -Wl,-soname,libnvrtc.so.13 -Wl,--no-as-needed \
  -Wl,-rpath,"$1" "$1/libcuda.so.1"
for name in nccl.so.2 cudnn.so.9 cusparseLt.so.0; do
  base=$(echo "${name%%.*}" | tr 'L' 'l')
  gcc -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$1/lib$name" "$here/../vendors/$base/$base.c" -lpthread -lm \
    -Wl,-soname,lib$name -Wl,-rpath,"$1" "$1/libcuda.so.1"
done
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$1/nvcc" "$here/nvcc.c" -Wl,-rpath,"$1" "$1/libcuda.so.1"
