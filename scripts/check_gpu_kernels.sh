#!/bin/sh
# Compiles every GPU kernel ahead of time, for each target and each set of options it is used with: with nvcc for sm_80
# and the like, with clang-19 for AMD's gfx90a and the like. No GPU is needed.
#   check_gpu_kernels.sh [file ...]      (all of src/backends/gpu/kernels where none is named)
# A kernel's heading says its options: "// types: f32 bf16" for the types T it is compiled with, or
# "// options: -DA=1 -DB=2 | -DA=2" for sets of its own; and with "// needs: mma" that it is for GPUs with matrix cores,
# with "// needs: mma.sync" that it is for NVIDIA's alone.
#
# For AMD, what comes out is looked at too: in the kernels that matter most no vector register may spill to memory, shared
# memory must fit into 64 KiB, and products of matrices must be by MFMA. HALYARD_AMDGCN_BITCODE is the folder of ROCm's device library (package rocm-device-libs).
# HALYARD_GPU_SETS=first takes only the first set of options of each file.
set -eu
cd "$(dirname "$0")/.."
kernels=src/backends/gpu/kernels
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
targets=${HALYARD_GPU_TARGETS:-sm_80 sm_90a}
bitcode=${HALYARD_AMDGCN_BITCODE:-/usr/lib/x86_64-linux-gnu/amdgcn/bitcode}
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

takes() { # whether a target has what a kernel needs
  case $2:$1 in
    :* | mma:sm_* | mma:gfx90a | mma:gfx94? | mma:gfx950 | mma.sync:sm_*) true ;;
    *) false ;;
  esac
}

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
  [ "${HALYARD_GPU_SETS:-}" != first ] || sed -i 1q "$work/$name.options"
  needs=$(sed -n 's|^// needs: ||p' "$file")
  while read -r options; do
    for target in $targets; do
      if takes "$target" "$needs"; then echo "$name $target $options"; fi
    done
  done < "$work/$name.options"
done > "$work/jobs"

cat > "$work/one" <<'END'
work=$1 kernels=$2 bitcode=$3; shift 3
set -- $*
name=$1 target=$2; shift 2
out=$(mktemp "$work/out.XXXXXX")
fail() { echo "$name.cu for $target with $*"; exit 1; }

amd() {
  version=${target#gfx} wide=on library=
  # The device library may be older than the target: its nearest kin.
  case $version in 94? | 950) version=940 ;; 11??) version=1036 ;; esac
  case $target in gfx1*) wide=off ;; esac
  for part in ocml ockl oclc_isa_version_$version oclc_daz_opt_off oclc_unsafe_math_off oclc_finite_only_off \
    oclc_correctly_rounded_sqrt_on oclc_wavefrontsize64_$wide oclc_abi_version_500; do
    library="$library -Xclang -mlink-builtin-bitcode -Xclang $bitcode/$part.bc"
  done
  clang-19 -x hip -std=c++17 -O3 -Werror -Wno-unused -Wno-pass-failed -fdeclspec --offload-device-only --offload-arch="$target" -nogpuinc \
    -nogpulib -include tests/hip_offline/hiprtc.h -I"$kernels" $library "$@" -S -o "$out" "$work/$name.cu" ||
    fail "$* does not compile"
  # Scalar registers spill into vector registers, which costs little. gfx906 has half the registers of the others.
  case $target:$name in
    gfx906:*) hot=0 ;;
    *:attention | *:*gemm* | *:*gemv* | *:*paged_attention | *:moe_mma | *:norm | *:softmax | *:reduce | *:unary | *:binary) hot=1 ;;
    *) hot=0 ;;
  esac
  awk -v hot=$hot '/^ *\.name:/ { name = $2 } /^ *\.vgpr_spill_count:/ && $2 > 0 && hot { print name ": " $2 " registers spill"; bad = 1 }
       /^ *\.group_segment_fixed_size:/ && $2 > 65536 { print name ": " $2 " bytes of shared memory"; bad = 1 }
       END { exit bad }' "$out" || fail "$*"
  if grep -q '^// needs: mma$' "$kernels/$name.cu" && ! grep -q v_mfma_f32_16x16x16 "$out"; then
    fail "$*: no MFMA"
  fi
}

case $target in
  gfx*) amd "$@" ;;
  *)
    nvcc -std=c++17 -arch="$target" -Werror all-warnings -I"$kernels" --cubin "$@" -o "$out" "$work/$name.cu" ||
      fail "$* does not compile"
    ;;
esac
rm -f "$out"
END
tr '\n' '\0' < "$work/jobs" | xargs -0 -P "$(nproc)" -I{} sh "$work/one" "$work" "$kernels" "$bitcode" {}
echo "$(wc -l < "$work/jobs") compilations of $# kernel files for $targets"
