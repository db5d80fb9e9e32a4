// Edit distance (Damerau-Levenshtein), for "did you mean".
#ifndef HALYARD_BASE_EDIT_DISTANCE_H_
#define HALYARD_BASE_EDIT_DISTANCE_H_

// Texts of this length and more are as far apart as can be.
#define HY__EDIT_DISTANCE_MAX 64

// How many insertions, deletions, replacements and swaps of neighbours turn `a` into `b`, ignoring
// case.
int hy__edit_distance(const char* a, const char* b);

#endif  // HALYARD_BASE_EDIT_DISTANCE_H_
