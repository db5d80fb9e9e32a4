#!/bin/sh
# prove.sh - formal proofs of the hardware's control with Yosys: what formal/*.sv asserts holds in every reachable
# state. Seconds; fails with the trace of a state that breaks it.
#
# Usage: prove.sh GENERATED_DIR     YOSYS names the program
set -eu
[ $# -eq 1 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2; }
generated=$1
npu=$(cd "$(dirname "$0")/.." && pwd)

# The checks of packets are left out: without a driver their verdict is free, which proves more.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"${YOSYS:-yosys}" -l "$log" -p "
  read_verilog -sv -formal -I$npu/rtl -I$generated $npu/rtl/echo_npu_regs.v $npu/rtl/echo_npu_queue.v \
    $npu/rtl/echo_npu_check.v $npu/formal/echo_npu_control.sv
  hierarchy -check -top echo_npu_control
  delete echo_npu_queue/check
  proc
  flatten
  opt_clean
  memory
  opt_clean
  sat -verify -tempinduct -prove-asserts -seq 1 -set-at 1 reset 1 \
    -show s_awvalid,s_awaddr,s_wdata,soft_reset,run,retire,fault,head,regs.status,regs.tail,queue.state \
    echo_npu_control
" > /dev/null 2>&1 || { tail -n 120 "$log"; exit 1; }
echo "echo_npu_control: proved for every reachable state"
