#!/bin/sh
# Ranks of one machine take each a device of its own, by what each launcher says: local_rank.sh HALYARD COMM_RANK BACKEND
# The environment leads to the test library, which has two devices. Ends with 77 without mpirun.
set -eu
halyard=$1 rank=$2 backend=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HALYARD_VENDOR_DEVICES=2 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
"$halyard" demo --out "$folder" --steps 2 --lora-steps 1 --size small --tokens 4 --backend cpu --threads 1 > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
tokens() { sed 's/.*"ids": \[\([0-9, ]*\)\], "text".*/\1/'; }
run="run --model $folder/model --ids 5,300,12 --max-tokens 12 --temperature 1.5 --seed 3 --threads 1 --json"
one=$("$halyard" $run --backend "$backend" | tokens)
ran=0
for launcher in mpirun.openmpi mpirun.mpich; do
  command -v $launcher > /dev/null || continue
  ran=$((ran + 1))
  two=$($launcher -n 2 "$halyard" $run --parallel tensor --backend "$backend" 2> "$folder/log" | tokens) || { cat "$folder/log"; exit 1; }
  [ "$one" = "$two" ] || { echo "$launcher: $two, and one process: $one"; cat "$folder/log"; exit 1; }
  $launcher -n 2 "$rank" conformance "$backend" > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
  for device in 0 1; do grep -q "conformance ok on $backend:$device$" "$folder/log" || { cat "$folder/log"; exit 1; }; done
done
[ $ran -gt 0 ] || exit 77
echo "$ran launchers: two ranks on two devices write $one"
