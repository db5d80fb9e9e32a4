#!/bin/sh
# `halyard verify --require`: a provider that broke is an error, not a skip.
#   require.sh HALYARD USELESS   USELESS: a folder with an OpenBLAS that multiplies wrongly
set -eu
halyard=$1
useless=$(cd "$2" && pwd)

fails() {  # fails CODE TEXT ARGUMENT...
  code=$1
  text=$2
  shift 2
  status=0
  said=$("$halyard" verify --op neg --quick "$@" 2>&1) || status=$?
  if [ "$status" != "$code" ] || ! echo "$said" | grep -q -- "$text"; then
    echo "require: verify $* ends with $status, not $code and '$text':"
    echo "$said"
    exit 1
  fi
}

# Without it, a missing provider is reported by an exit code of its own, which tests take for a skip.
export HALYARD_OPENBLAS_FOLDER="$useless"
fails 3 "multiplies wrongly" --backend openblas
fails 1 "openblas is required and missing: .*multiplies wrongly" --backend openblas --require openblas
fails 1 "openblas is required and missing" --require cpu,openblas
fails 1 "nonsense is required and missing" --require nonsense
fails 2 "takes names such as" --require ,cpu
fails 0 "passed" --require cpu
# An option that would mean nothing is refused.
fails 2 "cases 0 to" --case -5
fails 2 "from 1" --size 0
