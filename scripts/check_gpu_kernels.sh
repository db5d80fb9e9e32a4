#!/bin/sh
# Compiles every GPU kernel ahead of time with nvcc, for each target and each set of options it is used with:
#   check_gpu_kernels.sh [file ...]      (all of src/backends/gpu/kernels where none is named)
# A kernel's heading says its options: "// types: f32 bf16" for the types T it is compiled with, or
# "// options: -DA=1 -DB=2 | -DA=2" for sets of its own. No GPU is needed.
set -eu
cd "$(dirname "$0")/.."
kernels=src/backends/gpu/kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
targets=${HALYARD_GPU_TARGETS:-sm_80 sm_90a}
if [ $# -eq 0 ]; then
  set -- $(cd $kernels && ls *.cu | sed 's/\.cu$//')
fi

# What stands before every source: the numbers of the ops, shared.h, common.cuh.
{
  echo 'enum {'
  sed -n 's/^HY_OP(\([0-9]*\), \([a-z0-9_]*\),.*/  OP_\2 = \1,/p' include/halyard/ops.def
  echo '};'
  cat $kernels/shared.h $kernels/common.cuh
} > "$work/prelude"

for name in "$@"; do
  file=$kernels/$name.cu
  { cat "$work/prelude"; echo "#line 1 \"$name.cu\""; cat "$file"; } > "$work/$name.cu"
  sed -n 's|^// options: ||p' "$file" | tr '|' '\n' > "$work/$name.options"
  for type in $(sed -n 's|^// types: ||p' "$file"); do
    case $type in
      i* | u* | b8) echo "-DT=$type -DINTEGER" ;;
      *) echo "-DT=$type" ;;
    esac
  done >> "$work/$name.options"
  [ -s "$work/$name.options" ] || echo > "$work/$name.options"
  while read -r options; do
    for target in $targets; do echo "$name $target $options"; done
  done < "$work/$name.options"
done > "$work/jobs"

cat > "$work/one" <<'END'
work=$1 kernels=$2; shift 2
set -- $*
name=$1 target=$2; shift 2
out=$(mktemp "$work/cubin.XXXXXX")
nvcc -std=c++17 -arch="$target" -Werror all-warnings -I"$kernels" --cubin "$@" -o "$out" "$work/$name.cu" ||
  { echo "$name.cu does not compile for $target with: $*"; exit 1; }
rm -f "$out"
END
tr '\n' '\0' < "$work/jobs" | xargs -0 -P "$(nproc)" -I{} sh "$work/one" "$work" "$kernels" {}
echo "$(wc -l < "$work/jobs") compilations of $# kernel files for $targets"
