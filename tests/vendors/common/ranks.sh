#!/bin/sh
# Communicators by a vendor's library, ranks in processes of their own: ranks.sh COMM_RANK BACKEND HOME RANKS CASES
# HOME holds the test libraries; without its collectives there is a clear answer.
set -eu
rank=$1 backend=$2 home=$3 n=$4 cases=$5
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HALYARD_VENDOR_DEVICES="$n" HALYARD_WORLD_SIZE="$n"
IFS=,
for case in $cases; do
  started=""
  for r in $(seq 0 $((n - 1)) | tr '\n' ','); do
    HALYARD_RANK=$r HALYARD_COMM_FILE="$folder/$case" "$rank" "$case" "$backend:$r" > "$folder/$case.$r" 2>&1 &
    started="$started$!,"
  done
  bad=0
  for process in $started; do wait "$process" || bad=1; done
  cat "$folder/$case".[0-9]*
  [ "$(cat "$folder/$case".[0-9]* | grep -c "$case ok")" = "$n" ] || bad=1
  if [ $bad = 1 ] || grep -q "vendor: " "$folder/$case".[0-9]*; then exit 1; fi
done
# Without the library.
mkdir -p "$folder/home/lib64"
for library in "$home"/lib64/*; do
  case $library in *libhccl*|*libcncl*) ;; *) ln -s "$library" "$folder/home/lib64/" ;; esac
done
ASCEND_HOME_PATH="$folder/home" NEUWARE_HOME="$folder/home" HALYARD_RANK=0 HALYARD_WORLD_SIZE=1 "$rank" conformance "$backend" > "$folder/log" 2>&1 || true
grep -q "communicators of $backend need .*HALYARD_COMM=mpi" "$folder/log" || {
  cat "$folder/log"
  exit 1
}
