#!/bin/sh
# synth.sh - read, elaborate and synthesize the hardware with Yosys; fail on latches and on nets with several
# drivers; print the cells. Each module is synthesized once and kept as a block, memories stay memories.
#
# Usage: synth.sh [-t rows|matrix] GENERATED_DIR OUT_DIR [N ...]     N: side of the matrix array, 16 if none is given
# -t rows    one row of the array alone, N lanes wide (any N)
# -t matrix  the matrix engine around its rows, which are left out
# Writes OUT_DIR/synth-N.log and OUT_DIR/stat-N.txt (synth-rows-N.log ... with -t). YOSYS names the program.
set -eu
part=
while getopts t: option; do
  case $option in t) part=$OPTARG ;; *) exit 2 ;; esac
done
shift $((OPTIND - 1))
[ $# -ge 2 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
generated=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- 16
rtl=$(cd "$(dirname "$0")/../rtl" && pwd)
mkdir -p "$out"

for n in "$@"; do
  case $n in
    4) log2=2 ;; 8) log2=3 ;; 16) log2=4 ;; 32) log2=5 ;;
    *) [ "$part" = rows ] || { echo "synth.sh: N is 4, 8, 16 or 32, not $n" >&2; exit 2; } ;;
  esac
  case $part in
    '') name=$n lib='' files="$rtl/echo_npu_*.v" top="echo_npu_top -chparam N $n -chparam NL $log2" ;;
    rows)
      name=rows-$n lib='' files="$rtl/echo_npu_pe_row.v $rtl/echo_npu_fma.v $rtl/echo_npu_ram.v"
      top="echo_npu_pe_row -chparam N $n" ;;
    matrix)
      name=matrix-$n lib="read_verilog -lib -I$rtl -I$generated $rtl/echo_npu_pe_row.v"
      files="$rtl/echo_npu_matrix.v $rtl/echo_npu_pad.v $rtl/echo_npu_fifo.v $rtl/echo_npu_ram.v"
      top="echo_npu_matrix -chparam N $n -chparam NL $log2" ;;
    *) echo "synth.sh: -t is rows or matrix, not $part" >&2; exit 2 ;;
  esac
  "${YOSYS:-yosys}" -q -l "$out/synth-$name.log" -p "
    $lib
    read_verilog -I$rtl -I$generated $files
    hierarchy -check -top $top
    proc
    opt -fast
    select -assert-none t:\$dlatch t:\$adlatch t:\$dlatchsr t:\$sr
    check -assert
    wreduce
    peepopt
    opt_clean
    alumacc
    opt -fast
    memory -nomap
    opt -fast -full
    opt_clean
    techmap
    opt -fast
    abc -fast
    opt_clean
    select -assert-none t:\$_DLATCH_*
    check -assert
    tee -o $out/stat-$name.txt stat
  "
  echo "${part:+$part, }N = $n: no latches, no net with several drivers"
done
