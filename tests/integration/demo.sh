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
  # The devices add in other orders: losses are compared as numbers. Rates and names are theirs alone.
  grep -oE '"(first_)?loss": [0-9.e+-]+' "$work/$device.json" | sed 's/.*: //' > "$work/$device.losses"
  sed -E 's/"(device|out)": "[^"]*"//g; s/"(tok_s|loss|first_loss)": [0-9.e+-]*//g' "$work/$device.json" > "$work/$device.txt"
  for file in model/config.json model/model.safetensors model/tokenizer.json adapter/adapter_config.json \
              adapter/adapter_model.safetensors loss.svg; do
    [ -s "$work/$device/$file" ] || { echo "demo: $file is missing"; exit 1; }
  done
done
for device in "$@"; do
  diff "$work/cpu.txt" "$work/$device.txt"
  paste "$work/cpu.losses" "$work/$device.losses" |
    awk -v device="$device" 'NF != 2 || ($1 - $2) ^ 2 > 1e-6 { print "demo: loss " $1 " on cpu, " $2 " on " device; bad = 1 }
      END { exit bad || NR != 4 }'
done
"$halyard" run --model "$work/cpu/model" --adapter "$work/cpu/adapter" --prompt "The " --max-tokens 8 --json > "$work/run.json"
grep -q '"stop": "length"' "$work/run.json"
echo "demo: the same on cpu $*"
