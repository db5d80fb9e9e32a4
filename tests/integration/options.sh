#!/bin/sh
# What a build is made of: USE_<NAME>, BUILD_<BACKEND> and HALYARD_BACKEND, right and wrong; how it is compiled by
# default.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

configure() { cmake -S "$source" -B "$work/build" -DHALYARD_BUILD_TESTS=OFF "$@" >"$work/log" 2>&1; }
refused() {  # refused TEXT OPTION...
  text=$1
  shift
  rm -rf "$work/build"
  if configure "$@"; then echo "options: $* was taken"; exit 1; fi
  tr -s ' \n' ' ' < "$work/log" | grep -q -- "$text" || { cat "$work/log"; exit 1; }
}
taken() {  # taken OPTION...
  rm -rf "$work/build"
  configure "$@" || { cat "$work/log"; exit 1; }
}
names() {  # names PATTERN of rows
  sed -n "s/^$1(\([a-z0-9_]*\),.*/\1/p" "$source/include/halyard/known_backends.def"
}
capitals() { echo "$1" | tr a-z A-Z; }
builtin() { grep -q "HY_BUILTIN($1)" "$work/build/generated/builtin_backends.def"; }

# Backends: one list of names.
for name in $(names HY_KNOWN_BACKEND); do
  refused "the names are .*$name" -DHALYARD_BACKEND=nonsense
  [ -e "$source/src/backends/$name/backend.c" ] && continue
  refused "no source for the $name backend" "-DUSE_$(capitals "$name")=ON"
  refused "no source for the $name backend" "-DBUILD_$(capitals "$name")=ON"
  refused "no source for the $name backend" "-DHALYARD_BACKEND=$name"
done
refused "always compiled in" -DUSE_CPU=OFF
taken -DHALYARD_BACKEND=CPU
builtin cpu
builtin echo
taken -DBUILD_ECHO=OFF -DBUILD_CUDA=OFF -DBUILD_HIP=OFF
builtin cpu
if builtin echo; then echo "options: BUILD_ECHO=OFF had no effect"; exit 1; fi

# Providers: left out, asked for, asked for where it cannot be.
for name in cublaslt cudnn hipblaslt mkl mkldnn openmp xeon openblas cusparselt mha nnpack opt_einsum triton; do
  names 'HY_KNOWN_P[A-Z]*' | grep -qx "$name" || { echo "options: no provider $name"; exit 1; }
done
refused "cudnn is a provider of the cuda backend, which this build does not have" -DUSE_CUDA=OFF -DUSE_CUDNN=ON
refused "hipblaslt is a provider of the hip backend, which" -DUSE_HIP=OFF -DUSE_HYGON=OFF -DUSE_HIPBLASLT=ON
taken -DUSE_HIP=OFF -DUSE_HIPBLASLT=ON  # hygon has it too
taken -DUSE_MKL=ON -DUSE_CUDNN=OFF
grep -q "HY_LEFT_OUT(cudnn)" "$work/build/generated/left_out_providers.def"
if grep -q "HY_LEFT_OUT(mkl)" "$work/build/generated/left_out_providers.def"; then exit 1; fi

# What is left out says so, and the rest works.
taken -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O1 -DUSE_ECHO=OFF -DUSE_MKL=OFF -DUSE_OPENMP=OFF -DUSE_XEON=OFF \
  -DUSE_OPT_EINSUM=OFF
cmake --build "$work/build" --target halyard_cli -j2 >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
halyard=$work/build/bin/halyard
"$halyard" info > "$work/info"
for name in mkl openmp xeon opt_einsum; do
  grep -A1 "provider $name  *missing" "$work/info" | grep -q "this build was made with USE_$(capitals $name)=OFF" ||
    { cat "$work/info"; exit 1; }
  if "$halyard" verify --backend $name --op add >/dev/null 2>"$work/log"; then exit 1; fi
  grep -q "use a build with USE_$(capitals $name)=ON, or choose cpu" "$work/log" || { cat "$work/log"; exit 1; }
done
if grep -q "provider avx512" "$work/info"; then echo "options: USE_XEON=OFF left avx512 in"; exit 1; fi
grep -q "provider native  *available" "$work/info"
"$halyard" verify --op mm --quick > "$work/log" 2>&1 || { tail -5 "$work/log"; exit 1; }

# compiled FILE: the command that compiles it.
compiled() { grep -A3 '"command"' "$work/build/compile_commands.json" | grep '"command"' | grep -- "-c [^ ]*/$1\""; }
has() { compiled "$1" | grep -q -- " $2 " || { echo "options: $1 is compiled without $2"; exit 1; }; }
lacks() { if compiled "$1" | grep -q -- " $2 "; then echo "options: $1 is compiled with $2"; exit 1; fi; }

# A user's plain build is fast, and a new compiler's warning does not end it.
taken
for file in src/core/device.c src/cli/main.c npu/cmodel/echo_cmodel.c; do
  has $file -O3
  has $file -Wall
  lacks $file -Werror
done
taken -DHALYARD_WERROR=ON -DCMAKE_BUILD_TYPE=Debug
for file in src/core/device.c src/cli/main.c npu/runtime/echo_memory.c; do
  has $file -Werror
  lacks $file -O3
done
# What the project compiles its own sources with does not reach a project around it.
mkdir -p "$work/around"
cat > "$work/around/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(around C)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_subdirectory($source halyard EXCLUDE_FROM_ALL)
add_library(user STATIC user.c)
target_link_libraries(user PRIVATE halyard)
END
echo "int user;" > "$work/around/user.c"
rm -rf "$work/build"
cmake -S "$work/around" -B "$work/build" -DHALYARD_WERROR=ON >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
has user.c -c
for option in -Wall -Werror -O3 -D_GNU_SOURCE; do lacks user.c $option; done
echo "options: as they should be"
