# What tests on the emulated GPU share; sourced with the arguments HALYARD FOLDER [op ...]. Builds the emulator in FOLDER, starts
# with no compiled kernels, and leaves the ops as arguments.
halyard=$1 folder=$2
shift 2
here=$(cd "$(dirname "$0")/.." && pwd)
"$here/gpu_emulator/build.sh" "$folder"
export GPU_EMULATOR_HOME="$here/gpu_emulator" HALYARD_CACHE_DIR="$folder/cache"
rm -rf "$folder/cache"

quietly() { # a command, whose output is shown where it fails
  "$@" > "$folder/log" 2>&1 || {
    cat "$folder/log"
    exit 1
  }
}
verify() { # backend, then ops
  backend=$1
  shift
  for op in "$@"; do
    quietly "$halyard" verify --backend "$backend" --strict --quick --op "$op"
  done
}
check() { # words that must be said, then variables and a command
  words=$1
  shift
  env "$@" > "$folder/log" 2>&1 || true
  grep -q "$words" "$folder/log" || {
    cat "$folder/log"
    exit 1
  }
}
generates() { # device: models generate there, where the test was built
  for test in test_generate test_prompt; do
    program=$(dirname "$halyard")/$test
    [ -x "$program" ] || return 0
    quietly env HALYARD_TEST_DEVICE="$1" "$program"
  done
  echo "models generate on $1"
}
rank=$(dirname "$halyard")/comm_rank
products=$(dirname "$halyard")/library_products
multiplies() { # which of the products the library is to see, all or none; then variables and a command
  which=$1
  shift
  quietly env CUBLASLT_TEST_REPORT=1 "$@"
  count=$(sed -n 's/^\([0-9]*\) products, 0 wrong.*/\1/p' "$folder/log")
  [ "$which" = all ] || count=0
  grep -q "cublaslt: $count products" "$folder/log" || {
    echo "not $which of the products are the library's"
    cat "$folder/log"
    exit 1
  }
}
