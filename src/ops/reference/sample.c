// Sampling the next token: repetition penalty, temperature, top-k, top-p, min-p, and one draw.
#include <math.h>
#include <stdlib.h>

#include "ops/reference/element.h"
#include "ops/reference/scratch.h"

typedef struct token {
  double value;  // its logit, then its weight
  int64_t id;
} token;

typedef struct settings {
  double penalty, temperature, top_k, top_p, min_p;
} settings;

// Likeliest first, among equals the smaller id.
static int compare(const void* a, const void* b) {
  const token *x = a, *y = b;
  if (x->value != y->value) return x->value > y->value ? -1 : 1;
  return x->id < y->id ? -1 : 1;
}

static double load(const hy_tensor* t, int64_t row, int64_t column) {
  int64_t at = row * t->stride[0] + (t->ndim > 1 ? column * t->stride[1] : 0);
  return hy__load_f(t->dtype, (const char*)t->data + at * (int64_t)hy_dtype_size(t->dtype));
}

// The tokens of a row that can be chosen.
static int64_t gather(const hy_call* call, int64_t row, double penalty, token* tokens) {
  const hy_tensor *logits = &call->in[0], *seen = &call->in[3];
  int64_t n = 0;
  for (int64_t i = 0; i < logits->shape[1]; i++) {
    double logit = load(logits, row, i);
    if (penalty != 1 && hy__present(seen) &&
        ((const char*)seen->data)[row * seen->stride[0] + i * seen->stride[1]])
      logit = logit < 0 ? logit * penalty : logit / penalty;
    if (logit > -INFINITY) tokens[n++] = (token){logit, i};
  }
  return n;
}

static int64_t choose(token* tokens, int64_t n, const settings* s, double draw) {
  if (n == 0) return -1;
  qsort(tokens, (size_t)n, sizeof *tokens, compare);
  if (!(s->temperature > 0)) return tokens[0].id;
  if (s->top_k >= 1 && s->top_k < (double)n) n = (int64_t)s->top_k;
  double largest = tokens[0].value, total = 0, sum = 0;
  for (int64_t i = 0; i < n; i++) {
    double below = tokens[i].value == largest ? 0 : tokens[i].value - largest;
    total += tokens[i].value = exp(below / s->temperature);
  }
  int64_t kept = 0;
  while (kept < n && (kept == 0 || ((s->top_p >= 1 || sum < s->top_p * total) &&
                                    tokens[kept].value >= s->min_p)))
    sum += tokens[kept++].value;
  int64_t i = 0;
  for (double at = draw * sum; i < kept - 1 && at >= tokens[i].value; i++) at -= tokens[i].value;
  return tokens[i].id;
}

hy_status hy__ref_sample(const hy_call* call) {
  const hy_tensor *logits = &call->in[0], *how = &call->in[1], *out = &call->out[0];
  token* tokens = hy__scratch(call, logits->shape[1] + 1, sizeof *tokens / 8);
  if (!tokens) return HY_OUT_OF_MEMORY;
  for (int64_t row = 0; row < logits->shape[0]; row++) {
    settings s = {.penalty = 1};
    double draw = 0;
    if (hy__present(how)) {
      s = (settings){load(how, row, 0), load(how, row, 1), load(how, row, 2), load(how, row, 3),
                     load(how, row, 4)};
      draw = load(&call->in[2], row, 0);
    }
    int64_t n = gather(call, row, s.penalty, tokens);
    int64_t id = choose(tokens, n, &s, draw);
    hy__store_i(out->dtype, (char*)out->data + row * out->stride[0] * 8, id);
  }
  hy__mfree(tokens);
  return HY_OK;
}
