#!/bin/sh
# Runs the fuzz targets of the file formats under libFuzzer with the address and undefined sanitizers.
#   scripts/fuzz.sh SECONDS [TARGET ...]   build/fuzz keeps what was found from run to run
set -eu
seconds=$1
shift
[ $# -gt 0 ] || set -- safetensors json tokenizer config dataset model training case call graph search
compiler=$(command -v clang || command -v clang-14) || { echo "fuzz: needs clang" >&2; exit 1; }
cmake -G Ninja -B build/fuzz -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DHALYARD_BUILD_TESTS=ON -DHALYARD_WERROR=ON \
  -DHALYARD_FUZZER=ON >build/fuzz.log 2>&1 || { cat build/fuzz.log >&2; exit 1; }
for target in "$@"; do
  ninja -C build/fuzz "bin/fuzz_$target" >build/fuzz.log 2>&1 || { cat build/fuzz.log >&2; exit 1; }
  mkdir -p "build/fuzz/corpus/$target" "build/fuzz/found/$target"
  echo "fuzz: $target, $seconds seconds"
  "build/fuzz/bin/fuzz_$target" -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2048 \
    -artifact_prefix="build/fuzz/found/$target/" -print_final_stats=1 -verbosity=0 "build/fuzz/corpus/$target" \
    2>"build/fuzz/$target.log" || { tail -40 "build/fuzz/$target.log" >&2; exit 1; }
  grep -E 'number_of_executed_units|average_exec' "build/fuzz/$target.log"
done
