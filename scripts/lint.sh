#!/bin/sh
# Format, layers, static analysis, and every public header alone as C11 and C++17.
set -eu

echo "lint: clang-format"
git ls-files '*.c' '*.h' | xargs clang-format-14 --dry-run -Werror

echo "lint: layers, tags, headings"
python3 tests/integration/layers.py

echo "lint: public headers alone, as C11 and C++17"
for header in include/halyard/*.h; do
  name=${header#include/}
  echo "#include \"$name\"" | gcc -std=c11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c -
  echo "#include \"$name\"" | g++ -std=c++17 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ -
done

echo "lint: clang-tidy"
cmake --preset debug >/dev/null
git ls-files 'src/*.c' | xargs -P "$(nproc)" -n 8 clang-tidy-14 --quiet -p build/debug 2>/dev/null
