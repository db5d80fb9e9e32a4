#!/bin/sh
# Installs what is missing from Debian's packages and PyPI, by name, and says what it installs.
#   scripts/setup.sh build   what building needs
#   scripts/setup.sh check   what `make check` needs as well
#   scripts/setup.sh test    what all tests need
#   scripts/setup.sh fuzz    what fuzzing needs: clang, with its run-time
set -eu

missing() { # package command-or-file ...: adds the package when something of it is not there
  package=$1
  shift
  for thing in "$@"; do
    case $thing in
      /*) [ -e "$thing" ] && continue ;;
      *) command -v "$thing" >/dev/null 2>&1 && continue ;;
    esac
    packages="$packages $package"
    return
  done
}

packages=
missing gcc gcc
missing libc6-dev /usr/include/stdio.h
missing cmake cmake
missing ninja-build ninja
if [ "$1" = test ] || [ "$1" = check ]; then
  missing g++ g++
  missing libcmocka-dev /usr/include/cmocka.h
  missing clang-format-14 clang-format-14
  missing clang-tidy-14 clang-tidy-14
  missing groff-base groff
  missing zsh zsh
  missing libpcre2-8-0 /usr/lib/*/libpcre2-8.so.0
  missing libopenblas0-pthread /usr/lib/*/libopenblas.so.0
  missing libdnnl2 /usr/lib/*/libdnnl.so.2
  missing openmpi-bin mpirun.openmpi
  missing mpich mpirun.mpich
  missing python3 python3
fi
if [ "$1" = test ]; then
  missing pkg-config pkg-config
  missing verilator verilator
  missing yosys yosys
  missing gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc
  missing libc6-dev-arm64-cross /usr/aarch64-linux-gnu/include/stdio.h
  missing qemu-user qemu-aarch64
  # For GPU kernels of AMD's targets; not every release of Debian has them.
  for package in clang-19 rocm-device-libs; do
    if apt-cache policy $package 2>/dev/null | grep -q 'Candidate: [0-9]'; then
      case $package in
        clang-19) missing clang-19 clang-19 ;;
        *) missing rocm-device-libs /usr/lib/*/amdgcn/bitcode/ocml.bc ;;
      esac
    else
      echo "setup: this release has no $package: kernels are not compiled for AMD's targets"
    fi
  done
  # Debian keeps ensurepip, which a virtual environment needs, in a package of its own.
  python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || packages="$packages python3-venv"
fi

[ "$1" != fuzz ] || command -v clang >/dev/null 2>&1 || missing clang-14 clang-14

if [ -n "$packages" ]; then
  echo "setup: installing from Debian's packages:$packages"
  as_root=
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "setup: run as root, or install sudo, or install by hand:$packages" >&2; exit 1; }
    as_root=sudo
  fi
  $as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $packages >/dev/null
fi

if [ "$1" = test ]; then
  wanted="torch==2.13.0 transformers==5.22.0 peft==0.21.0 lightning==2.6.6 mpich==5.0.2 numpy pytest setuptools expecttest"
  if ! .venv/bin/python -c '
import sys
from importlib.metadata import version
for name, _, number in (word.partition("==") for word in sys.argv[1:]):
    assert version(name).startswith(number)' $wanted 2>/dev/null; then
    echo "setup: installing from PyPI into .venv: $wanted"
    [ -x .venv/bin/python ] || python3 -m venv .venv
    .venv/bin/python -m pip install -q --disable-pip-version-check $wanted
  fi
fi
