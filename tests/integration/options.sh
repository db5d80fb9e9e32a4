#!/bin/sh
# Which backends a build has: USE_<NAME> and HALYARD_BACKEND, right and wrong.
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
echo "options: as they should be"
