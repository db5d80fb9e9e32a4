#!/bin/sh
# Builds the emulator as libcuda.so.1 and libnvrtc.so.13, over it libnccl.so.2, libcublasLt.so.13, libcudnn.so.9,
# libcusparseLt.so.0 and libnvidia-ml.so.1, and nvcc over its compiler, into the folder $1; and the runtimes of AMD and of
# Hygon over it, with hipBLASLt and RCCL, into $1/hip and $1/hygon.
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
g++ -std=c++17 -O2 -Wall -shared -fPIC -o "$1/libcuda.so.1" "$here/emulator.cc" -ldl -lpthread \
  -Wl,-soname,libcuda.so.1
# The compiler's functions are the same library's: a second copy would have a second machine.
g++ -shared -o "$1/libnvrtc.so.13" -Wl,-soname,libnvrtc.so.13 -Wl,--no-as-needed \
  -Wl,-rpath,"$1" "$1/libcuda.so.1"
library() { # folder of tests/vendors, soname
  gcc -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$out/$2" "$here/../vendors/$1/$1.c" -lpthread -lm \
    -Wl,-soname,"$2" -Wl,-rpath,"$out" "$out/libcuda.so.1"
}
out=$1
library nccl libnccl.so.2
library cublaslt libcublasLt.so.13
library cudnn libcudnn.so.9
library cusparselt libcusparseLt.so.0
library nvml libnvidia-ml.so.1
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o "$1/nvcc" "$here/nvcc.c" -Wl,-rpath,"$1" "$1/libcuda.so.1"
hip() { # folder, soname of the runtime, of hipBLASLt
  mkdir -p "$out/$1"
  gcc -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$out/$1/$2" "$here/../hip_on_cuda/hip_on_cuda.c" -ldl \
    -Wl,-soname,"$2"
  gcc -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$out/$1/$3" "$here/../hip_on_cuda/hipblaslt_on_cuda.c" -ldl \
    -Wl,-soname,"$3" -Wl,--no-as-needed "$out/$1/$2"
}
hip hip libamdhip64.so.6 libhipblaslt.so.0
hip hygon libgalaxyhip.so.5 libhipblaslt.so.0
gcc -std=gnu11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$1/hip/librccl.so.1" "$here/../vendors/nccl/nccl.c" \
  -lpthread -Wl,-soname,librccl.so.1 -Wl,-rpath,"$1" "$1/libcuda.so.1"
