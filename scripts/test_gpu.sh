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

note() { printf '%-44s %s\n' "$1" "$2"; }
# check NAME SECONDS COMMAND...: the command must end well; its last lines tell why it did not.
check() {
  local name=$1 seconds=$2 begin=$SECONDS status=0
  shift 2
  timeout "$seconds" "$@" > "$work/$name" 2>&1 || status=$?
  if [ $status -eq 0 ]; then
    note "$name" "ok, $((SECONDS - begin)) s"
    return
  fi
  echo "$name" >> "$work/failed"
  note "$name" "FAILED ($status)"
  grep -A2 FAILED "$work/$name" | head -12
  tail -3 "$work/$name"
}
# beside NAME SECONDS COMMAND...: the same, with a few others at once.
beside() {
  while [ "$(jobs -pr | wc -l)" -ge 6 ]; do wait -n; done
  check "$@" &
}

"$halyard" info > "$work/info" 2>&1
if ! "$halyard" verify --backend "$backend" --op add --quick > "$work/first" 2>&1; then
  cat "$work/first"
  echo "test-gpu: $backend cannot be used; \`halyard info\` says why"
  exit 1
fi
grep -A 4 "${backend%%:*} " "$work/info" | head -8

# Kernels for all of it by all cores, where there is nvcc; by NVRTC when they are first used otherwise.
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -1 | tr -d .)
if command -v nvcc > /dev/null && [ -n "$capability" ]; then
  [ "$capability" = 90 ] && capability=90a
  mkdir -p "$build/lib/halyard/kernels"
  check cubins-tool 120 cmake --build "$build" --target gpu_cubins
  check cubins 240 "$build/bin/gpu_cubins" "$(command -v nvcc)" "$build/lib/halyard/kernels" "sm_$capability"
fi

flags="-std=c11 -O2 -Iinclude -L$build/lib -Wl,-rpath,$PWD/$build/lib"

# One after the other: they ask for most of the GPU's memory.
{
  for seed in 1 2 3; do check verify-seed-$seed 240 "$halyard" verify --backend "$backend" --seed $seed; done
  ${CC:-cc} $flags tests/gpu/large_tensors.c -o "$work/run_large_tensors" -lhalyard -lm &&
    check large_tensors 120 "$work/run_large_tensors" --backend "$backend"
} &

beside determinism 240 "$halyard" verify --backend "$backend" --determinism
beside gradients 240 "$halyard" verify --backend "$backend" --gradients

for program in matrix_shapes reduce_shapes library_products lost_device; do
  ${CC:-cc} $flags tests/gpu/$program.c -o "$work/run_$program" -lhalyard -lm &&
    beside $program 400 "$work/run_$program" --backend "$backend"
done

# PyTorch on npu over this GPU, and beside its own cuda device; installed for these tests alone.
python=${PYTHON:-python3}
torch_device() {
  check install-torch 120 env HALYARD_LIBRARY="$PWD/$build/lib/libhalyard.so" HALYARD_TORCH_BUILD="$work/shim" \
    "$python" -m pip install -q --no-index --no-build-isolation --no-deps --target "$work/site" ./torch
  check torch-device 200 env PYTHONPATH="$work/site" HALYARD_BACKEND="${backend%%:*}" \
    "$python" -m pytest -q -p no:cacheprovider tests/torch_device/test_device.py tests/torch_device/test_beside_cuda.py
}
if "$python" -c 'import torch, pytest, setuptools' > /dev/null 2>&1; then
  torch_device &
else
  note torch-device "skipped: $python has no torch, pytest or setuptools; PYTHON=... names one that has"
fi

trained() {
  check demo 120 "$halyard" demo --out "$work/trained" --backend cpu --steps 60 --lora-steps 1 --size small
  ${CC:-cc} $flags tests/gpu/many_steps.c -o "$work/run_many_steps" -lhalyard -lm &&
    check many_steps 200 "$work/run_many_steps" "$work/trained/model" --backend "$backend"
  check losses 60 tests/gpu/losses.sh "$halyard" "$work/trained/model" "$backend"
}
trained &

if command -v compute-sanitizer > /dev/null; then
  for op in add sort index_put rms_norm_backward cross_entropy linear sdpa; do
    beside "memcheck-$op" 120 compute-sanitizer --error-exitcode 1 --tool memcheck \
      "$halyard" verify --backend "$backend" --op $op --quick --size 9
  done
  for op in sum sort softmax cumsum; do
    beside "racecheck-$op" 120 compute-sanitizer --error-exitcode 1 --tool racecheck \
      "$halyard" verify --backend "$backend" --op $op --quick --size 9
  done
fi
wait

# Figures, with nothing beside them.
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

[ ! -e "$work/failed" ] && echo "test-gpu: everything passed" || { echo "test-gpu: failed: $(xargs < "$work/failed")"; exit 1; }
