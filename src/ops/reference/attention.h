// One head of attention in doubles, shared by the dense and the paged forms.
#ifndef HALYARD_REFERENCE_ATTENTION_H_
#define HALYARD_REFERENCE_ATTENTION_H_

#include "ops/internal.h"

typedef struct hy__head {
  int64_t keys, size, value_size;
  double scale;
  double* k;       // [size, keys]: transposed, so that scores of neighbouring keys are adjacent
  double* v;       // [keys, value_size]
  double* q;       // [size]: one query
  double* scores;  // [keys]
  double* out;     // [value_size]
  double* memory;  // holds all of them
} hy__head;

// A scale of 0 means 1 / sqrt(size). On failure nothing is held.
hy_status hy__head_begin(hy__head* head, const hy_call* call, int64_t keys, int64_t size,
                         int64_t value_size, double scale);
void hy__head_end(hy__head* head);
// Keys and values `first` .. from the matrices k [n, size] and v [n, value_size].
void hy__head_load(hy__head* head, int64_t first, const hy_tensor* k, const hy_tensor* v);
// Fills head->scores: head->q against the first `visible` keys, scaled and with the mask row (bool:
// true attends; float: added; NULL: none), -inf for keys that are not attended to.
void hy__head_score(hy__head* head, int64_t visible, const hy_tensor* mask);
// Makes probabilities of the scores and fills head->out. Keys with probability 0 have no influence,
// not even by NaN; without any key attended to the output is 0. Returns log(sum(exp(scores))), -inf
// then.
double hy__head_attend(hy__head* head);

#endif  // HALYARD_REFERENCE_ATTENTION_H_
