#!/bin/sh
# The file that a bring-up sends: report.sh HALYARD BACKEND LEAST    (LEAST ops are declared, the environment leads to the library)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" verify --backend "$2" --op add --report "$folder/report.txt" > "$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
report=$folder/report.txt
for line in "^$2:0: passed\." "^halyard: [0-9.]*" "^device: $2:0, " "^sdk: ..*" "^capabilities: 0x" "^ranks=processes"; do
  grep -Eq "$line" "$report" || { echo "no line $line in:"; cat "$report"; exit 1; }
done
declared=$(sed -n 's/.*"declared":\([0-9]*\),.*/\1/p' "$report")
[ "$declared" -ge "$3" ] || { echo "$declared ops are declared, not $3"; exit 1; }
# No host name, and no path.
! grep -qwF "$(uname -n)" "$report" || { echo "the host's name is in it"; exit 1; }
! grep -qE '(^|[ =])/[a-z]' "$report" || { echo "a path is in it"; exit 1; }
echo "$declared ops are declared"
