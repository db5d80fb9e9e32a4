#!/bin/sh
# LoRA on a GPU against the CPU: 50 steps in bf16 from the same start, every loss within bfloat16's tolerance.
#   losses.sh HALYARD MODEL [backend]
set -eu
halyard=$1 model=$2 backend=${3:-cuda:0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk 'BEGIN { srand(1); for (i = 0; i < 200; i++) { t = ""; for (j = 0; j < 60; j++) t = t sprintf("%s%d ", j % 3 ? "hy_" : "the ", int(97 * rand()));
  printf "{\"text\": \"%s\"}\n", t } }' > "$work/data.jsonl"
for device in cpu "$backend"; do
  "$halyard" finetune --model "$model" --data "$work/data.jsonl" --out "$work/out-$device" --steps 50 --batch 4 --seq 64 \
    --dtype bf16 --lr 2e-3 --json --backend "$device" | sed -n 's/.*"step": \([0-9]*\), "loss": \([0-9.]*\).*/\1 \2/p' > "$work/$device"
done
paste -d' ' "$work/cpu" "$work/$backend" | awk '{ d = ($4 - $2) / $2; if (d < 0) d = -d; if (d > most) most = d; first = NR == 1 ? $2 : first; last = $2; n += $1 == $3 }
  END { printf "%d steps, loss %.3f to %.3f, differs by %.4f at most\n", n, first, last, most; exit !(n == 50 && most < 0.02 && last < first) }'
