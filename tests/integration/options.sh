#!/bin/sh
# Which backends and providers a build has: USE_<NAME>, BUILD_<BACKEND> and HALYARD_BACKEND, right and wrong.
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
names() {  # names HY_KNOWN_BACKEND|HY_KNOWN_PROVIDER
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
for name in cudnn mkl mkldnn openmp xeon openblas cusparselt mha nnpack opt_einsum triton; do
  names HY_KNOWN_PROVIDER | grep -qx "$name" || { echo "options: no provider $name"; exit 1; }
done
builtin cuda || refused "cudnn is a provider of the cuda backend, which this build does not have" -DUSE_CUDNN=ON
taken -DUSE_MKL=ON -DUSE_CUDNN=OFF
grep -q "HY_LEFT_OUT(cudnn)" "$work/build/generated/left_out_providers.def"
if grep -q "HY_LEFT_OUT(mkl)" "$work/build/generated/left_out_providers.def"; then exit 1; fi

# What is left out says so, and the rest works.
taken -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O1 -DUSE_ECHO=OFF -DUSE_MKL=OFF -DUSE_OPENMP=OFF -DUSE_XEON=OFF
cmake --build "$work/build" --target halyard_cli -j2 >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
halyard=$work/build/bin/halyard
"$halyard" info > "$work/info"
for name in mkl openmp xeon; do
  grep -A1 "provider $name  *missing" "$work/info" | grep -q "this build was made with USE_$(capitals $name)=OFF" ||
    { cat "$work/info"; exit 1; }
  if "$halyard" verify --backend $name --op add >/dev/null 2>"$work/log"; then exit 1; fi
  grep -q "use a build with USE_$(capitals $name)=ON, or choose cpu" "$work/log" || { cat "$work/log"; exit 1; }
done
if grep -q "provider avx512" "$work/info"; then echo "options: USE_XEON=OFF left avx512 in"; exit 1; fi
grep -q "provider native  *available" "$work/info"
"$halyard" verify --op mm --quick > "$work/log" 2>&1 || { tail -5 "$work/log"; exit 1; }
echo "options: as they should be"
