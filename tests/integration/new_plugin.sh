#!/bin/sh
# What `halyard new-plugin` writes builds without a warning and passes conformance: new_plugin.sh HALYARD
set -eu
halyard=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "new_plugin: FAILED: $*" >&2; exit 1; }

"$halyard" new-plugin heron > out
"$halyard" new-plugin egret --queue --out chips > out
for name in heron egret; do
  folder=$([ $name = egret ] && echo chips || echo heron)
  [ "$(LC_ALL=C ls "$folder" | tr '\n' ' ')" = "CMakeLists.txt README.md $name.c " ] || fail "$folder has $(ls "$folder")"
  grep -qi 'tiny\|lazy\|@' "$folder"/* && fail "the example's name is left in $folder"
  ${CC:-cc} -std=gnu11 -O1 -fPIC -shared -Wall -Wextra -Werror -I"$source/include" "$folder/$name.c" -lm -lpthread \
    -o "libhalyard_$name.so"
  for debug in "" poison,bounds,delay; do
    HALYARD_DEBUG=$debug HALYARD_PLUGIN_PATH=$work "$halyard" verify --backend $name --op add > out 2>&1 ||
      fail "$name with '$debug': $(tail -5 out)"
  done
  HALYARD_PLUGIN_PATH=$work "$halyard" verify --backend $name --quick > out 2>&1 || fail "$name: $(grep -A3 FAILED out)"
done
if "$halyard" new-plugin heron > out 2>&1; then fail "a folder was written over"; fi
grep -q "heron: is there already" out || fail "$(cat out)"
if "$halyard" new-plugin Heron > out 2>&1; then fail "Heron is no name"; fi
echo "new_plugin: as they should be"
