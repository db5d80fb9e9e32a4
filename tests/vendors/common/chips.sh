#!/bin/sh
# What a backend says of each chip: chips.sh HALYARD BACKEND    (the environment leads to the test library)
set -eu
halyard=$1 backend=$2
# says CHIP CAPABILITIES: the line under the device.
says() {
  HALYARD_VENDOR_CHIP=$1 "$halyard" info | grep -A 1 "^    $backend:0" | tail -n 1 | grep -qx " *$2" || {
    echo "$1 is not: $2"
    HALYARD_VENDOR_CHIP=$1 "$halyard" info | grep -A 5 "^    $backend:0"
    exit 1
  }
  echo "$1: $2"
}
case $backend in
  ascend)
    for chip in Ascend910B3 Ascend910_9392 Ascend950PR_9589; do
      says $chip "fp32 fp16 bf16 int4 flash_attention paged_attention"
    done
    for chip in Ascend310P3 Ascend310B1 Ascend910A Ascend999X; do says $chip fp16; done
    ;;
  cambricon)
    says MLU590 "fp32 fp16 bf16"
    says MLU370 "fp32 fp16"
    ;;
esac
