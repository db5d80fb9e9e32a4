// Edit distance (Damerau-Levenshtein), for "did you mean".
#include "base/edit_distance.h"

#include <ctype.h>
#include <string.h>

int hy__edit_distance(const char* a, const char* b) {
  enum { MAX = HY__EDIT_DISTANCE_MAX };
  int na = (int)strlen(a), nb = (int)strlen(b);
  if (na >= MAX || nb >= MAX) return MAX;
  int d[MAX][MAX];
  for (int i = 0; i <= na; i++) d[i][0] = i;
  for (int j = 0; j <= nb; j++) d[0][j] = j;
  for (int i = 1; i <= na; i++) {
    for (int j = 1; j <= nb; j++) {
      int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
      int best = d[i - 1][j - 1] + (x != y);
      if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
      if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
      if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
          y == tolower((unsigned char)a[i - 2]) && d[i - 2][j - 2] + 1 < best)
        best = d[i - 2][j - 2] + 1;
      d[i][j] = best;
    }
  }
  return d[na][nb];
}
