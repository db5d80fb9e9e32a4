#!/bin/sh
# synth.sh - read, elaborate and synthesize the hardware with Yosys; fail on latches and on nets with several
# drivers; print the cells. Each module, a lane of the multiply-adds among them, is synthesized once and counted as
# often as it is placed; memories stay memories.
#
# Usage: synth.sh GENERATED_DIR OUT_DIR [N ...]     N: side of the matrix array, 16 if none is given
# Writes OUT_DIR/synth-N.log and OUT_DIR/stat-N.txt. YOSYS names the program.
set -eu
[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
generated=$1 out=$2
shift 2
[ $# -gt 0 ] || set -- 16
rtl=$(cd "$(dirname "$0")/../rtl" && pwd)
mkdir -p "$out"

for n in "$@"; do
  case $n in
    4) log2=2 ;; 8) log2=3 ;; 16) log2=4 ;; 32) log2=5 ;;
    *) echo "synth.sh: N is 4, 8, 16 or 32, not $n" >&2; exit 2 ;;
  esac
  "${YOSYS:-yosys}" -q -l "$out/synth-$n.log" -p "
    read_verilog -I$rtl -I$generated $rtl/echo_npu_*.v
    hierarchy -check -top echo_npu_top -chparam N $n -chparam NL $log2
    proc
    opt -fast
    opt_expr -fine
    opt_clean
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
    tee -o $out/stat-$n.txt stat
  "
  echo "N = $n: no latches, no net with several drivers, $(awk '/Number of cells/ { n = $NF } END { print n }' "$out/stat-$n.txt") cells"
done
