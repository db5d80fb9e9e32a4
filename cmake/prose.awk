# The sentences of Markdown (no code, no tables) and of comments in C, each comment a paragraph.
FNR == 1 { code = 0 }
FILENAME ~ /\.md$/ && /^```/ { code = !code; next }
FILENAME ~ /\.md$/ { if (!code && !/^(\||    )/) print; next }
/^ *\/\/ ----/ { next }
/^ *\/\/ / { sub(/^ *\/\/ /, ""); print; inside = 1; next }
inside { print ""; inside = 0 }
