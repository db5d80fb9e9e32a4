#!/bin/sh
# Every call that the probe makes fails once, in three ways: halyard goes on, and says why there is no ascend.
#   probe_faults.sh HALYARD    (ASCEND_HOME_PATH leads to the test library)
set -eu
halyard=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
HALYARD_VENDOR_LOG=$log "$halyard" info > /dev/null
calls=$(wc -l < "$log")
[ "$calls" -gt 20 ] || { echo "only $calls calls"; exit 1; }
missing=0
n=1
while [ "$n" -le "$calls" ]; do
  for code in 107000 207018 507899; do
    HALYARD_VENDOR_FAIL=$n:$code "$halyard" info > "$log" 2>&1 || { cat "$log"; echo "call $n with $code: exit $?"; exit 1; }
    if grep -Eq '^  ascend *(missing|failed)' "$log"; then
      missing=$((missing + 1))
      grep -EA 1 '^  ascend *(missing|failed)' "$log" | grep -q 'why: ' || { cat "$log"; exit 1; }
    fi
  done
  n=$((n + 1))
done
[ "$missing" -gt 30 ] || { echo "$missing of $((3 * calls)) failures were told"; exit 1; }
# A library that hangs on to its error from the start, and a machine whose devices are all hidden.
HALYARD_VENDOR_FAIL=1:507899:always "$halyard" info | grep -EA 1 '^  ascend *(missing|failed)' | grep -q 'why: .*507899'
ASCEND_RT_VISIBLE_DEVICES='' "$halyard" info | grep -EA 1 '^  ascend *(missing|failed)' | grep -q 'why: '
HALYARD_VENDOR_DEVICES=4 ASCEND_RT_VISIBLE_DEVICES=2,3 "$halyard" info | grep -c '^    ascend:' | grep -qx 2
HALYARD_VENDOR_DEVICES=4 ASCEND_DEVICE_ID=3 "$halyard" info | grep -c '^    ascend:' | grep -qx 1
echo "$calls calls failed in three ways each; $missing times there was no ascend, and a reason"
