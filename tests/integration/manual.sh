#!/bin/sh
# The man pages: one for each command, with each of its options, and nothing that groff warns of.
#   manual.sh HALYARD
set -eu
halyard=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "manual: FAILED: $*" >&2; exit 1; }

command -v groff >/dev/null || { echo "manual: groff is not here"; exit 77; }
"$halyard" help --man "$work/man1"
commands=$("$halyard" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
[ "$(echo "$commands" | wc -w)" -ge 9 ] || fail "only these commands: $commands"
for command in $commands; do
  page=$work/man1/halyard-$command.1
  [ -s "$page" ] || fail "no page for $command"
  text=$(groff -man -Tascii -P-c -P-b -P-u -rLL=500n "$page")
  for option in $("$halyard" "$command" --help | sed -n 's/^  \(--[a-z-]*\).*/\1/p'); do
    echo "$text" | grep -q -- "$option" || fail "$option is not in $page"
  done
done
warnings=$(for page in "$work"/man1/*.1; do groff -man -ww -Tutf8 -z "$page" 2>&1; done)
[ -z "$warnings" ] || fail "$warnings"
if "$halyard" help --man "$work/none/man1" 2>/dev/null; then fail "pages went to a folder that is not there"; fi
echo "manual: $(ls "$work/man1" | wc -l) pages"
