# The sentences of Markdown, each paragraph one line: no code, tables, headings, links or marks.
function finish() {
  if (length(paragraph) > 80 && paragraph ~ /[.:;]$/) print paragraph
  paragraph = ""
}
FNR == 1 { finish(); code = 0 }
/^```/ { finish(); code = !code; next }
code || /^(\||    |#|$)/ { finish(); next }
{
  if (/^[-*] /) finish()
  gsub(/^[-*] +|^ +|\*\*|`/, "")
  while (match($0, /\[[^\]]*\]\([^)]*\)/)) {
    link = substr($0, RSTART, RLENGTH)
    sub(/^\[/, "", link)
    sub(/\].*/, "", link)
    $0 = substr($0, 1, RSTART - 1) link substr($0, RSTART + RLENGTH)
  }
  paragraph = paragraph (paragraph == "" ? "" : " ") $0
}
END { finish() }
