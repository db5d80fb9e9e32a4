#!/bin/sh
# A plugin has the pure helpers of tensor.h and call.h without linking anything: plugin_helpers.sh HALYARD LIBRARY
set -eu
halyard=$1
library=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "plugin_helpers: FAILED: $*" >&2; exit 1; }

cat > "$work/use.c" <<'END'
#include <halyard/plugin.h>
extern "C" int64_t use(const hy_tensor* t, hy_scalar s);
int64_t use(const hy_tensor* t, hy_scalar s) {
  int64_t first, last;
  hy_tensor none = hy_tensor_absent();
  hy_tensor_extent(t, &first, &last);
  return hy_tensor_numel(t) + (int64_t)hy_tensor_bytes(t) + hy_tensor_is_contiguous(t) + first + last +
         hy_tensor_is_absent(&none) + (int64_t)hy_dtype_size(t->dtype) + hy_dtype_bits(t->dtype) +
         hy_dtype_is_float(t->dtype) + hy_dtype_is_int(t->dtype) + hy_dtype_name(t->dtype)[0] + hy_scalar_i(s);
}
END
mv "$work/use.c" "$work/use.cpp"
sed '/^extern "C"/d; s/^int64_t use/int64_t use(const hy_tensor* t, hy_scalar s);\nint64_t use/' "$work/use.cpp" > "$work/use.c"

# Without optimisation nothing is inlined: what is left over would be asked of the program.
helpers=$(sed -n 's/^#define \(hy_[a-z_]*\) .*/\1/p' "$source/src/core/inline_symbols.c")
[ -n "$helpers" ] || fail "there is no list of helpers"
for level in -O0 -O2; do
  flags="$level -fPIC -Wall -Wextra -Werror -I$source/include"
  # shellcheck disable=SC2086
  {
    ${CC:-cc} -std=c11 $flags -c "$work/use.c" -o "$work/c.o"
    ${CXX:-c++} -std=c++17 $flags -c "$work/use.cpp" -o "$work/cxx.o"
    ${CC:-cc} -std=gnu11 $flags -shared "$source/examples/plugin/tiny.c" -lm -o "$work/libhalyard_tiny.so"
  }
  for file in c.o cxx.o libhalyard_tiny.so; do
    missing=$(nm -u "$work/$file" | grep ' hy_' || true)
    [ -z "$missing" ] || fail "$file with $level needs $missing"
  done
  HALYARD_PLUGIN_PATH=$work "$halyard" verify --backend tiny --quick > "$work/out" 2>&1 ||
    fail "tiny with $level: $(tail -5 "$work/out")"
done
for helper in $helpers; do
  grep -q "$helper" "$work/use.c" || fail "$helper is not tried here"
  nm -D --defined-only "$library" | grep -q " T $helper\$" || fail "the library does not export $helper"
done
echo "plugin_helpers: as they should be"
