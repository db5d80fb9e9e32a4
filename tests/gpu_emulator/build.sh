#!/bin/sh
# Builds the emulator as libcuda.so.1 and libnvrtc.so.13, and libnccl.so.2 over it, into the folder $1.
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
g++ -std=c++17 -O2 -Wall -shared -fPIC -o "$1/libcuda.so.1" "$here/emulator.cc" -ldl -lpthread \
  -Wl,-soname,libcuda.so.1
# The compiler's functions are the same library's: a second copy would have a second machine.
g++ -shared -o "$1/libnvrtc.so.13" -Wl,-soname,libnvrtc.so.13 -Wl,--no-as-needed \
  -Wl,-rpath,"$1" "$1/libcuda.so.1"
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$1/libnccl.so.2" "$here/../vendors/nccl/nccl.c" -lpthread \
  -Wl,-soname,libnccl.so.2 -Wl,-rpath,"$1" "$1/libcuda.so.1"
