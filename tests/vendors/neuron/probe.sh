#!/bin/sh
# A backend that is not written says what is here and why there is none: probe.sh HALYARD FOLDER    (FOLDER holds libnrt.so.1)
set -eu
info=$(LD_LIBRARY_PATH=$2 "$1" info)
echo "$info" | grep -A 1 '^  nki *missing' | grep -q 'why: .*libnrt.so.1 was loaded, but no nki backend is written yet: '
"$1" info | grep -A 1 '^  nki *missing' | grep -Eq 'why: .*(could not be loaded|was loaded).* no nki backend is written yet: '
"$1" info | grep -A 1 '^  mps *missing' | grep -q 'why: .*no mps backend is written yet: Metal'
! LD_LIBRARY_PATH=$2 "$1" verify --backend nki > /dev/null 2>&1
