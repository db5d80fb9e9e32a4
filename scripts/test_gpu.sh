#!/bin/bash
# Everything that needs a GPU, in one command of less than ten minutes: `make test-gpu`.
#   test_gpu.sh [build folder] [backend]
# Conformance of every op with three seeds, determinism, gradients, large tensors, shapes of models, a lost device, 100,000
# steps without a leak, losses beside the cpu's, PyTorch's device where $PYTHON (python3) has torch and pytest,
# compute-sanitizer on a slice, and measured figures as JSON under bench/results/gpu-*.json.
set -u
cd "$(dirname "$0")/.."
build=${1:-build/release}
backend=${2:-cuda:0}
halyard=$build/bin/halyard
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

note() { printf '%-44s %s\n' "$1" "$2"; }
# check NAME SECONDS COMMAND...: the command must end well; its last lines tell why it did not.
check() {
  local name=$1 seconds=$2 begin=$SECONDS
  shift 2
  if timeout "$seconds" "$@" > "$work/$name" 2>&1; then
    note "$name" "ok, $((SECONDS - begin)) s"
  else
    note "$name" "FAILED ($?)"
    grep -A2 FAILED "$work/$name" | head -12 || true
    tail -3 "$work/$name"
    failures=$((failures + 1))
  fi
}

"$halyard" info > "$work/info" 2>&1
if ! "$halyard" verify --backend "$backend" --op add --quick > "$work/first" 2>&1; then
  cat "$work/first"
  echo "test-gpu: $backend cannot be used; \`halyard info\` says why"
  exit 1
fi
grep -A 4 "${backend%%:*} " "$work/info" | head -8

for seed in 1 2 3; do check "verify-seed-$seed" 180 "$halyard" verify --backend "$backend" --seed $seed; done
check determinism 180 "$halyard" verify --backend "$backend" --determinism
check gradients 180 "$halyard" verify --backend "$backend" --gradients

flags="-std=c11 -O2 -Iinclude -L$build/lib -Wl,-rpath,$PWD/$build/lib"
for program in large_tensors matrix_shapes reduce_shapes library_products lost_device; do
  ${CC:-cc} $flags tests/gpu/$program.c -o "$work/run_$program" -lhalyard -lm &&
    check $program 120 "$work/run_$program" --backend "$backend"
done

if "$halyard" demo --out "$work/demo" --backend cpu --steps 60 --lora-steps 1 --size small > "$work/trained" 2>&1; then
  ${CC:-cc} $flags tests/gpu/many_steps.c -o "$work/run_many_steps" -lhalyard -lm &&
    check many_steps 120 "$work/run_many_steps" "$work/demo/model" --backend "$backend"
  check losses 60 tests/gpu/losses.sh "$halyard" "$work/demo/model" "$backend"
else
  tail -2 "$work/trained"
  failures=$((failures + 1))
fi

# PyTorch on npu over this GPU, and beside its own cuda device; installed for these tests alone.
python=${PYTHON:-python3}
if "$python" -c 'import torch, pytest, setuptools' > /dev/null 2>&1; then
  check install-torch 120 env HALYARD_LIBRARY="$PWD/$build/lib/libhalyard.so" HALYARD_TORCH_BUILD="$work/shim" \
    "$python" -m pip install -q --no-index --no-build-isolation --no-deps --target "$work/site" ./torch
  check torch-device 150 env PYTHONPATH="$work/site" HALYARD_BACKEND="${backend%%:*}" \
    "$python" -m pytest -q -p no:cacheprovider tests/torch_device/test_device.py tests/torch_device/test_beside_cuda.py
else
  note torch-device "skipped: $python has no torch, pytest or setuptools; PYTHON=... names one that has"
fi

if command -v compute-sanitizer > /dev/null; then
  for op in add sort index_put rms_norm_backward cross_entropy linear sdpa; do
    check "memcheck-$op" 90 compute-sanitizer --error-exitcode 1 --tool memcheck \
      "$halyard" verify --backend "$backend" --op $op --quick --size 9
  done
  for op in sum sort softmax cumsum; do
    check "racecheck-$op" 90 compute-sanitizer --error-exitcode 1 --tool racecheck \
      "$halyard" verify --backend "$backend" --op $op --quick --size 9
  done
fi

mkdir -p bench/results
for what in copy dispatch gemm attention elementwise softmax norm decode prefill train; do
  out=bench/results/gpu-$what.json
  if timeout 60 "$halyard" bench $what --backend "$backend" --json > "$work/bench" 2> "$work/why"; then
    mv "$work/bench" "$out"
    note "bench $what" "$out"
  else
    note "bench $what" "no figures: $(tail -1 "$work/why" | cut -c1-160)"
  fi
done

[ $failures -eq 0 ] && echo "test-gpu: everything passed" || { echo "test-gpu: $failures failed"; exit 1; }
