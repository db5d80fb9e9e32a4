#!/bin/sh
# The demo on other devices writes what it writes on the cpu: tests/integration/demo.sh HALYARD DEVICE...
# (HALYARD_PLUGIN_PATH leads to the guarded device).
set -eu
halyard=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for device in cpu "$@"; do
  "$halyard" demo --backend "$device" --out "$work/$device" --steps 2 --lora-steps 2 --size small --tokens 12 \
    --temperature 0 --json > "$work/$device.json"
  # Losses to three places: the devices add in other orders. Rates and names are theirs alone.
  sed -E 's/"(device|out)": "[^"]*"//; s/"tok_s": [0-9.e+-]*//g; s/("(first_)?loss": [0-9]*\.[0-9]{3})[0-9]*/\1/g' \
    "$work/$device.json" | sed -E 's/"out": "[^"]*"//' > "$work/$device.txt"
  for file in model/config.json model/model.safetensors model/tokenizer.json adapter/adapter_config.json \
              adapter/adapter_model.safetensors loss.svg; do
    [ -s "$work/$device/$file" ] || { echo "demo: $file is missing"; exit 1; }
  done
done
for device in "$@"; do
  diff "$work/cpu.txt" "$work/$device.txt"
done
"$halyard" run --model "$work/cpu/model" --adapter "$work/cpu/adapter" --prompt "The " --max-tokens 8 --json > "$work/run.json"
grep -q '"stop": "length"' "$work/run.json"
echo "demo: the same on cpu $*"
