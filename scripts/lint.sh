#!/bin/sh
# Format, layers, static analysis, and every public header alone as C11 and C++17.
#   scripts/lint.sh            everything
#   scripts/lint.sh changed    clang-tidy only on files that differ from the main branch
set -eu

echo "lint: clang-format"
git ls-files '*.c' '*.h' | xargs clang-format-14 --dry-run -Werror

echo "lint: layers, tags, headings"
python3 tests/integration/layers.py

echo "lint: public headers alone, as C11 and C++17"
for header in include/halyard/*.h; do
  name=${header#include/}
  printf '#include "%s"\ntypedef int not_empty;\n' "$name" | gcc -std=c11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c -
  echo "#include \"$name\"" | g++ -std=c++17 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ -
done

echo "lint: clang-tidy"
cmake --preset debug >/dev/null
if [ "${1:-}" = changed ]; then
  base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || echo HEAD)
  files=$(git diff --name-only --diff-filter=d "$base" -- 'src/*.c'; git ls-files -o --exclude-standard -- 'src/*.c')
else
  files=$(git ls-files 'src/*.c')
fi
[ -z "$files" ] || echo "$files" | xargs -P "$(nproc)" -n 8 clang-tidy-14 --quiet -p build/debug 2>/dev/null
