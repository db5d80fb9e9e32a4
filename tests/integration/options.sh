#!/bin/sh
# What a build is made of: USE_<NAME> and HALYARD_BACKEND, right and wrong; how it is compiled by default.
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

refused "the names are cpu, cuda, hip" -DHALYARD_BACKEND=nonsense
refused "always compiled in" -DUSE_CPU=OFF
for name in cuda hip hygon ascend cambricon echo mps nki; do
  [ -e "$source/src/backends/$name/backend.c" ] && continue
  upper=$(echo "$name" | tr a-z A-Z)
  refused "no source for the $name backend" "-DUSE_$upper=ON"
  refused "no source for the $name backend" "-DHALYARD_BACKEND=$name"
done
rm -rf "$work/build"
configure -DHALYARD_BACKEND=CPU || { cat "$work/log"; exit 1; }
grep -q "HY_BUILTIN(cpu)" "$work/build/generated/builtin_backends.def"

# compiled FILE: the command that compiles it.
compiled() { grep -A3 '"command"' "$work/build/compile_commands.json" | grep '"command"' | grep -- "-c [^ ]*/$1\""; }
has() { compiled "$1" | grep -q -- " $2 " || { echo "options: $1 is compiled without $2"; exit 1; }; }
lacks() { if compiled "$1" | grep -q -- " $2 "; then echo "options: $1 is compiled with $2"; exit 1; fi; }

# A user's plain build is fast, and a new compiler's warning does not end it.
rm -rf "$work/build"
configure || { cat "$work/log"; exit 1; }
for file in src/core/device.c src/cli/main.c npu/cmodel/echo_cmodel.c; do
  has $file -O3
  has $file -Wall
  lacks $file -Werror
done
rm -rf "$work/build"
configure -DHALYARD_WERROR=ON -DCMAKE_BUILD_TYPE=Debug || { cat "$work/log"; exit 1; }
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
