#!/bin/sh
# Every call that the probe makes fails once, in some ways: halyard goes on, and says why there is no such backend.
#   probe_faults.sh HALYARD BACKEND "CODES" VARIABLE    (the environment leads to the test library; VARIABLE hides devices)
set -eu
halyard=$1
backend=$2
codes=$3
variable=$4
log=$(mktemp)
trap 'rm -f "$log"' EXIT
HALYARD_VENDOR_LOG=$log "$halyard" info > /dev/null
calls=$(wc -l < "$log")
[ "$calls" -gt 20 ] || { echo "only $calls calls"; exit 1; }
missing=0
n=1
while [ "$n" -le "$calls" ]; do
  for code in $codes; do
    HALYARD_VENDOR_FAIL=$n:$code "$halyard" info > "$log" 2>&1 || { cat "$log"; echo "call $n with $code: exit $?"; exit 1; }
    if grep -Eq "^  $backend *(missing|failed)" "$log"; then
      missing=$((missing + 1))
      grep -EA 1 "^  $backend *(missing|failed)" "$log" | grep -q 'why: ' || { cat "$log"; exit 1; }
    fi
  done
  n=$((n + 1))
done
[ "$missing" -gt 30 ] || { echo "$missing of $calls failures were told"; exit 1; }
# A library that hangs on to its error from the start, and a machine whose devices are all hidden.
last=${codes##* }
HALYARD_VENDOR_FAIL=1:$last:always "$halyard" info | grep -EA 1 "^  $backend *(missing|failed)" | grep -q "why: .*$last"
env "$variable=" "$halyard" info | grep -EA 1 "^  $backend *(missing|failed)" | grep -q 'why: '
HALYARD_VENDOR_DEVICES=4 env "$variable=2,3" "$halyard" info | grep -c "^    $backend:" | grep -qx 2
echo "$calls calls failed in several ways each; $missing times there was no $backend, and a reason"
