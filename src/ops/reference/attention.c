// What the reference's forms of attention share: sizes, heads, masks.
#include "ops/reference/attention.h"

#include <math.h>

#include "ops/reference/element.h"
#include "ops/reference/scratch.h"

hy_status hy__head_begin(hy__head* head, const hy_call* call, int64_t keys, int64_t size,
                         int64_t value_size, double scale) {
  head->keys = keys;
  head->size = size;
  head->value_size = value_size;
  head->scale = scale != 0 ? scale : size > 0 ? 1 / sqrt((double)size) : 1;
  head->memory = hy__scratch(call, keys + 1, size + value_size + 1);
  if (!head->memory) return HY_OUT_OF_MEMORY;
  head->k = head->memory;
  head->v = head->k + size * keys;
  head->q = head->v + keys * value_size;
  head->scores = head->q + size;
  head->out = head->scores + keys;
  return HY_OK;
}

void hy__head_end(hy__head* head) {
  hy__mfree(head->memory);
}

static char* element(const hy_tensor* t, int64_t row, int64_t column) {
  return (char*)t->data +
         (row * t->stride[0] + column * t->stride[1]) * (int64_t)hy_dtype_size(t->dtype);
}

void hy__head_load(hy__head* head, int64_t first, const hy_tensor* k, const hy_tensor* v) {
  int64_t n = k->shape[0];
  for (int64_t d = 0; d < head->size; d++)
    hy__load_row_f(k->dtype, element(k, 0, d), k->stride[0], n, head->k + d * head->keys + first);
  for (int64_t s = 0; s < n; s++)
    hy__load_row_f(v->dtype, element(v, s, 0), v->stride[1], head->value_size,
                   head->v + (first + s) * head->value_size);
}

void hy__head_score(hy__head* head, int64_t visible, const hy_tensor* mask) {
  double* scores = head->scores;
  for (int64_t s = 0; s < head->keys; s++) scores[s] = s < visible ? 0 : -INFINITY;
  for (int64_t d = 0; d < head->size; d++) {
    const double *k = head->k + d * head->keys, q = head->q[d];
    for (int64_t s = 0; s < visible; s++) scores[s] += q * k[s];
  }
  for (int64_t s = 0; s < visible; s++) {
    scores[s] *= head->scale;
    if (!mask) continue;
    const char* at =
        (const char*)mask->data + s * mask->stride[0] * (int64_t)hy_dtype_size(mask->dtype);
    double value = hy__load_f(mask->dtype, at);
    if (mask->dtype == HY_BOOL)
      scores[s] = value != 0 ? scores[s] : -INFINITY;
    else
      scores[s] = value == -INFINITY ? -INFINITY : scores[s] + value;
  }
}

double hy__head_attend(hy__head* head) {
  double *p = head->scores, largest = -INFINITY, sum = 0;
  bool any = false;
  for (int64_t s = 0; s < head->keys; s++) {
    any = any || p[s] != -INFINITY;
    if (p[s] > largest) largest = p[s];
  }
  for (int64_t d = 0; d < head->value_size; d++) head->out[d] = 0;
  if (!any) {
    for (int64_t s = 0; s < head->keys; s++) p[s] = 0;
    return -INFINITY;
  }
  for (int64_t s = 0; s < head->keys; s++) sum += p[s] = exp(p[s] - largest);
  for (int64_t s = 0; s < head->keys; s++) {
    p[s] /= sum;
    if (p[s] == 0) continue;
    const double* v = head->v + s * head->value_size;
    for (int64_t d = 0; d < head->value_size; d++) head->out[d] += p[s] * v[d];
  }
  return largest + log(sum);
}
