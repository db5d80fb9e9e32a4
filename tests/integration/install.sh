#!/bin/sh
# The installed library, used from outside: install.sh BUILD_FOLDER
set -eu
build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset HALYARD_PLUGIN_PATH HALYARD_BACKEND HALYARD_LOG

step() { echo "install: $*"; }
fail() { echo "install: FAILED: $*" >&2; exit 1; }
expect() { printf '%s\n' "$1" | grep -q -- "$2" || fail "\"$2\" is not in: $1"; }

# Installed in one place and moved to another: nothing may remember where it was built.
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix"
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name libhalyard.so)")
halyard=$prefix/bin/halyard

step "the library: size, exported names, constructors"
library=$(readlink -f "$libdir/libhalyard.so")
[ "$(stat -c %s "$library")" -lt 5000000 ] || fail "the library is larger than 5 MB"
strange=$(nm -D --defined-only "$library" | awk '{print $3}' | grep -v '^hy_' || true)
[ -z "$strange" ] || fail "the library exports $strange"
# What the object files bring as constructors; the compiler's own run-time is not among them.
for object in $(find "$build/CMakeFiles/halyard_objects.dir" -name '*.o'); do
  if readelf -SW "$object" | grep -q '\.init_array'; then fail "$object has a constructor"; fi
done

step "man pages and completion"
[ -s "$prefix/share/man/man1/halyard-verify.1" ] || fail "no man page of verify"
[ -s "$prefix/share/bash-completion/completions/halyard" ] || fail "no completion for bash"
[ -s "$prefix/share/zsh/site-functions/_halyard" ] || fail "no completion for zsh"

step "a program by pkg-config: the example of the README"
sed -n '/^```c$/,/^```$/p' "$source/README.md" | sed '/^```/d' > "$work/example.c"
flags=$(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --cflags --libs halyard)
version=$(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --modversion halyard)
[ "$("$halyard" --version)" = "halyard $version" ] || fail "pkg-config says version $version"
# shellcheck disable=SC2086
${CC:-cc} -std=c11 -Wall -Wextra -Werror "$work/example.c" $flags -Wl,-rpath,"$libdir" -o "$work/example"
expect "$("$work/example")" "0.0900 0.2447 0.6652"

step "a language model inside a program: examples/c/generate.c"
# shellcheck disable=SC2086
${CC:-cc} -std=c11 -Wall -Wextra -Werror "$source/examples/c/generate.c" $flags -Wl,-rpath,"$libdir" -o "$work/generate"
"$halyard" demo --out "$work/demo" --steps 2 --lora-steps 2 --size small --tokens 4 --json >/dev/null
expect "$("$work/generate" "$work/demo/model" "static int")" "64 tokens, "
if "$work/generate" "$work/nowhere" "x" 2>"$work/out"; then fail "a model that is not there was loaded"; fi
expect "$(cat "$work/out")" "nowhere/config.json"

step "the example plugin by find_package, in the build folder"
lines=$(wc -l < "$source/examples/plugin/tiny.c")
[ "$lines" -lt 300 ] || fail "the example plugin has $lines lines"
cmake -S "$source/examples/plugin" -B "$work/plugin" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >/dev/null
cmake --build "$work/plugin" >/dev/null
if "$halyard" verify --backend tiny --quick >/dev/null 2>&1; then fail "tiny is there before it is installed"; fi
expect "$(HALYARD_PLUGIN_PATH="$work/plugin" "$halyard" info)" "tiny"
HALYARD_PLUGIN_PATH="$work/plugin" "$halyard" verify --backend tiny --quick >"$work/out" 2>&1 ||
  fail "$(grep -A3 FAILED "$work/out")"

step "the example plugin in the plugin folder"
cmake --install "$work/plugin" >/dev/null
# A program that was moved does not take what is beside it for its own.
if "$halyard" info | grep -q "Tiny, a made-up chip"; then fail "a moved program loads what is beside it"; fi
export HALYARD_PLUGIN_PATH="$libdir/halyard"
expect "$("$halyard" info)" "Tiny, a made-up chip"
"$halyard" verify --backend tiny >"$work/out" 2>&1 || fail "$(grep -A3 FAILED "$work/out")"
unset HALYARD_PLUGIN_PATH
# A program with the shared library finds it too, and takes it as its default.
expect "$(HALYARD_LOG=2 "$work/example" 2>&1)" "opened tiny:0"

step "a new plugin from what is installed"
[ -s "$prefix/share/doc/halyard/tutorial-plugin.md" ] || fail "no tutorial"
[ -s "$prefix/share/doc/halyard/examples/plugin/tiny.c" ] || fail "no example"
(cd "$work" && "$halyard" new-plugin egret --queue >/dev/null)
cmake -S "$work/egret" -B "$work/egret/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" >/dev/null
cmake --build "$work/egret/build" >/dev/null
HALYARD_PLUGIN_PATH="$work/egret/build" "$halyard" verify --backend egret --quick >"$work/out" 2>&1 ||
  fail "$(grep -A3 FAILED "$work/out")"

step "a plugin that is no good is named, and harms nobody"
echo "this is no library" > "$libdir/halyard/libhalyard_broken.so"
export HALYARD_PLUGIN_PATH="$libdir/halyard"
expect "$("$halyard" info)" "libhalyard_broken.so"
HALYARD_BACKEND=cpu "$work/example" >/dev/null
if "$halyard" verify --backend broken --quick >"$work/out" 2>&1; then fail "broken passed"; else code=$?; fi
[ "$code" = 3 ] || fail "halyard verify --backend broken: exit code $code, not 3"
expect "$(cat "$work/out")" "could not be loaded: it is too short"
echo "install: everything works from outside"
