#!/bin/sh
# What the functional model computes the Verilog computes, to the last bit: tests/integration/npu.sh HALYARD LIBRARY
# (the rtlmodel's library). The demo's model writes 16 tokens on both, trains a LoRA adapter for one step on both, and
# conformance with small shapes runs on the Verilog.
set -eu
halyard=$1
[ -e "$2" ] || { echo "npu: skipped: there is no $2, as Verilator was not found"; exit 0; }
export ECHO_NPU_RTLMODEL_LIBRARY=$2 ECHO_NPU_MEMORY=256M HALYARD_LOG=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seconds() { date +%s; }

# The smallest of the demo's models: 3 layers of 96, 4 heads, a vocabulary of 2048; it has seen 20 batches.
"$halyard" demo --backend cpu --out "$work/demo" --size small --steps 20 --lora-steps 2 --tokens 4 --json > /dev/null
text='Halyard is one library under every accelerator: a model is written once and runs on whatever chip there is.'
printf '{"text": "%s"}\n' "$text" > "$work/data.jsonl"

# Sampled, so that every bit of the logits counts.
for bottom in cmodel rtlmodel; do
  export ECHO_NPU_BACKEND=$bottom
  start=$(seconds)
  "$halyard" run --backend echo --model "$work/demo/model" --prompt 'static hy_status' --max-tokens 16 \
    --ignore-end --temperature 0.9 --seed 1 --json > "$work/run.json"
  sed -E 's/.*"ids": (\[[^]]*\]), "text".*/\1/' "$work/run.json" > "$work/ids.$bottom"
  # One sequence of 16 tokens, forward and backward, and AdamW's step.
  "$halyard" finetune --backend echo --model "$work/demo/model" --data "$work/data.jsonl" --out "$work/$bottom" \
    --steps 1 --batch 1 --seq 16 --rank 4 --seed 3 --json > "$work/train.json"
  sed -E 's/.*("loss": [^,}]*).*/\1/' "$work/train.json" > "$work/loss.$bottom"
  echo "npu: on $bottom $(cat "$work/ids.$bottom"), $(cat "$work/loss.$bottom"), $(($(seconds) - start)) s"
done
grep -Eq '^\[([0-9]+, ?){15}[0-9]+\]$' "$work/ids.cmodel" || { echo "npu: not 16 tokens"; exit 1; }
grep -Eq '^"loss": [0-9.]+$' "$work/loss.cmodel" || { echo "npu: no loss"; exit 1; }
cmp "$work/ids.cmodel" "$work/ids.rtlmodel"
cmp "$work/loss.cmodel" "$work/loss.rtlmodel"
cmp "$work/cmodel/adapter_model.safetensors" "$work/rtlmodel/adapter_model.safetensors"

# All ops and types, small shapes.
start=$(seconds)
"$halyard" verify --backend echo --quick > "$work/verify.txt" || { cat "$work/verify.txt"; exit 1; }
tail -n 1 "$work/verify.txt"
echo "npu: conformance on rtlmodel took $(($(seconds) - start)) s"
echo "npu: the same on both"
