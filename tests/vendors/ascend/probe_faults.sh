#!/bin/sh
# What the probe does with calls that fail (common/probe_faults.sh), and ASCEND_DEVICE_ID.
#   probe_faults.sh HALYARD    (ASCEND_HOME_PATH leads to the test library)
set -eu
"$(dirname "$0")/../common/probe_faults.sh" "$1" ascend '107000 207018 507899' ASCEND_RT_VISIBLE_DEVICES
HALYARD_VENDOR_DEVICES=4 ASCEND_DEVICE_ID=3 "$1" info | grep -c '^    ascend:' | grep -qx 1
