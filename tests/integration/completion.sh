#!/usr/bin/env bash
# Completion: what bash offers for a command line. completion.sh HALYARD
set -eu
halyard=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/a_folder"
touch "$work/a_file"
cd "$work"
# shellcheck disable=SC1090
source <("$halyard" completion bash)
failed=0

# offers "LINE" WORD ...: the words are offered for what is typed; with ! before a word, it is not.
offers() {
  local line=$1 word
  shift
  read -ra COMP_WORDS <<< "${line//=/ = }"
  [[ $line == *' ' || $line == *= ]] && COMP_WORDS+=("")
  [[ $line == *= ]] && unset 'COMP_WORDS[-1]'
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _halyard
  for word in "$@"; do
    if [[ $word == !* ]]; then
      [[ " ${COMPREPLY[*]} " != *" ${word#!} "* ]] || { echo "'$line' offers ${word#!}"; failed=1; }
    else
      [[ " ${COMPREPLY[*]} " == *" $word "* ]] || { echo "'$line' offers not $word but ${COMPREPLY[*]}"; failed=1; }
    fi
  done
}

offers "halyard " info verify run help --version
offers "halyard ve" verify !run
offers "halyard help " run
offers "halyard verify --o" --op !--model
offers "halyard verify --op soft" softmax softmax_backward !add
offers "halyard verify --backend " cpu cuda openblas
offers "halyard info --" --json --backend
offers "halyard run --dtype " f32 q4 !--model
offers "halyard run --dtype=" q4 !--model
offers "halyard run --dtype=q" q8 q4 !f32
offers "halyard run --model " a_folder !a_file
offers "halyard finetune --data a_" a_file
offers "halyard bench " gemm all
offers "halyard bench at" attention !gemm
offers "halyard npu " report
offers "halyard npu report --model " demo a_folder !a_file
offers "halyard completion " bash zsh
exit $failed
