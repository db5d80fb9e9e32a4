#!/bin/sh
# The ECHO NPU's long tests: tests/integration/npu_nightly.sh HALYARD NPU_BUILD (a built npu/, with Verilator).
# A quarter of an hour on two cores: the programs on as many as there are, the decoding step on one.
#   10,000 random programs, functional model against Verilog;
#   1,000 on an array of 32 x 32, whose Verilog is compiled here first;
#   a million malformed packets and register pokes on the functional model, 20,000 of each on the Verilog;
#   one decoding step at the shape of Qwen2.5-0.5B (24 layers of 896, bf16) on the Verilog, with its cycles.
set -eu
halyard=$1
build=$2
export ECHO_NPU_RTLMODEL_LIBRARY=$build/rtlmodel/libecho_rtlmodel.so HALYARD_LOG=0
[ -e "$ECHO_NPU_RTLMODEL_LIBRARY" ] || { echo "npu nightly: skipped, as Verilator was not found"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# programs BUILD COUNT SLICE: in slices, so that each core has some and what has passed is seen.
programs() {
  slice='ECHO_NPU_RTL_PROGRAMS=$3 ECHO_NPU_RTL_SEED=$1 "$0" > "$2/$1.txt" 2>&1 || { cat "$2/$1.txt"; exit 255; }
  grep programs, "$2/$1.txt" | sed "s/^ */  from seed $1: /"'
  seq 1 "$3" "$2" | xargs -P "$(nproc)" -I {} sh -c "$slice" "$1/rtlmodel/echo_test_rtl_programs" {} "$work" "$3"
}

echo "npu nightly: 10000 programs"
programs "$build" 10000 500

echo "npu nightly: 1000 programs on an array of 32 x 32"
cmake -S "$(dirname "$0")/../../npu" -B "$build/n32" -G Ninja -DECHO_NPU_RTL_N=32 > "$work/n32.txt" 2>&1 &&
  cmake --build "$build/n32" --target echo_test_rtl_programs >> "$work/n32.txt" 2>&1 || { cat "$work/n32.txt"; exit 1; }
programs "$build/n32" 1000 100

echo "npu nightly: malformed packets and register pokes"
ECHO_NPU_FUZZ=1000000 "$build/echo_test_fuzz"
ECHO_NPU_RTL_FUZZ=20000 "$build/rtlmodel/echo_test_rtl_faults"

# Progress by the layers that have begun; a layer is 3 % of the products and the vocabulary the rest.
echo "npu nightly: a decoding step of Qwen2.5-0.5B's shape"
step="npu report --model qwen2.5-0.5b --step decode --context 0"
"$halyard" $step --bottom cmodel > "$work/cmodel.txt"
ECHO_NPU_DEBUG_LEVEL=1 "$halyard" $step --bottom rtlmodel > "$work/rtlmodel.txt" 2> "$work/log" &
decoding=$!
begin=$(date +%s)
while kill -0 $decoding 2> /dev/null; do
  sleep 10
  layers=$(grep -c paged_attention "$work/log" || true)
  spent=$(($(date +%s) - begin))
  [ "$layers" -gt 0 ] && echo "  layer $layers of 24, $spent s, about $((spent * (100 - 3 * layers) / (3 * layers))) s left"
done
wait $decoding || { tail -n 3 "$work/log"; exit 1; }
echo "estimated by the functional model:"
cat "$work/cmodel.txt"
echo "counted on the Verilog:"
cat "$work/rtlmodel.txt"
echo "npu nightly: passed"
