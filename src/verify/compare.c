// Comparing a result with the reference's within a tolerance.
#include "verify/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/internal.h"
#include "ops/reference/element.h"
#include "ops/reference/walk.h"

hy_tensor hy__rebase(const hy__case* c, const hy_tensor* t, void* image) {
  hy_tensor moved = *t;
  if (t->data) moved.data = (char*)image + ((unsigned char*)t->data - c->image);
  return moved;
}

void hy__mark_outputs(const hy__case* c, unsigned char* mask) {
  memset(mask, 0, c->used);
  for (int o = 0; o < c->call.n_out; o++) {
    if (!hy__present(&c->out[o]) || !c->out[o].data) continue;
    hy_tensor t = hy__rebase(c, &c->out[o], mask);
    if (t.layout != HY_LAYOUT_STRIDED) {
      memset(t.data, 1, hy_tensor_bytes(&t));
      continue;
    }
    int64_t numel = hy_tensor_numel(&t);
    for (int64_t i = 0; i < numel; i++) memset(hy__element(&t, i), 1, hy_dtype_size(t.dtype));
  }
}

// Where in the case's memory a byte is, in words.
static const char* locate(const hy__case* c, size_t at, char* words, size_t size) {
  const unsigned char* p = c->image + at;
  for (int k = 0; k < c->call.n_out + c->call.n_in; k++) {
    bool is_output = k < c->call.n_out;
    const hy_tensor* t = is_output ? &c->out[k] : &c->in[k - c->call.n_out];
    if (!hy__present(t) || !t->data) continue;
    int64_t first, last;
    hy_tensor_extent(t, &first, &last);
    int64_t byte = p - (unsigned char*)t->data;
    if (byte < first - 8192 || byte >= last + 8192) continue;
    snprintf(words, size, "%s %s %s %d",
             byte < first   ? "before"
             : byte >= last ? "behind"
             : is_output    ? "in a gap of"
                            : "inside",
             is_output ? "the output" : "the input",
             is_output ? c->info->outputs[k].name : "number", is_output ? k : k - c->call.n_out);
    return words;
  }
  snprintf(words, size, "far from every tensor");
  return words;
}

bool hy__check_untouched(const hy__case* c, const unsigned char* mask, const unsigned char* got,
                         char* message, size_t size) {
  enum { BLOCK = 256 };
  for (size_t i = 0; i < c->used; i++) {
    while (i % BLOCK == 0 && i + BLOCK <= c->used && memcmp(got + i, c->image + i, BLOCK) == 0)
      i += BLOCK;
    if (i == c->used) break;
    if (mask[i] || got[i] == c->image[i]) continue;
    char where[96];
    snprintf(message, size, "a byte %s was written: 0x%02x became 0x%02x",
             locate(c, i, where, sizeof where), c->image[i], got[i]);
    return false;
  }
  return true;
}

typedef struct worst {
  double excess, want, got;
  int64_t at, wrong;
} worst;

static void weigh(worst* w, int64_t at, double want, double got, hy__tolerance tolerance) {
  double excess;
  if (isnan(want) || isnan(got))
    excess = isnan(want) && isnan(got) ? 0 : INFINITY;
  else if (want == got)
    excess = 0;
  else if (isinf(want) || isinf(got))
    excess = INFINITY;
  else
    excess = fabs(got - want) / (tolerance.relative * fabs(want) + tolerance.absolute);
  if (excess <= 1) return;
  w->wrong++;
  if (w->wrong > 1 && excess <= w->excess) return;
  *w = (worst){excess, want, got, at, w->wrong};
}

static bool judge(const hy_tensor* t, const worst* w, hy__tolerance tolerance, const char* name,
                  char* message, size_t size) {
  if (w->wrong == 0) return true;
  char index[96] = "";
  size_t used = 0;
  int64_t scale = hy_tensor_numel(t), rest = w->at;
  for (int d = 0; d < t->ndim; d++) {
    scale /= t->shape[d];
    used += (size_t)snprintf(index + used, sizeof index - used, d ? ", %lld" : "%lld",
                             (long long)(rest / scale));
    rest %= scale;
  }
  snprintf(message, size,
           "%s[%s] is %.9g and should be %.9g (off by %.3g, allowed %.3g); %lld of %lld elements "
           "are wrong",
           name, index, w->got, w->want, fabs(w->got - w->want),
           tolerance.relative * fabs(w->want) + tolerance.absolute, (long long)w->wrong,
           (long long)hy_tensor_numel(t));
  return false;
}

static int nibble(const hy_tensor* t, int64_t i) {
  int bits = ((const unsigned char*)t->data)[i / 2] >> (i % 2 * 4) & 0xf;
  return bits < 8 ? bits : bits - 16;
}

bool hy__check_tensor(const hy_tensor* want, const hy_tensor* got, hy__tolerance tolerance,
                      const char* name, char* message, size_t size) {
  worst w = {0, 0, 0, 0, 0};
  int64_t numel = hy_tensor_numel(want);
  for (int64_t i = 0; i < numel; i++) {
    if (want->layout == HY_LAYOUT_PACKED_I4) {
      weigh(&w, i, nibble(want, i), nibble(got, i), tolerance);
      continue;
    }
    const char *a = hy__element(want, i), *b = hy__element(got, i);
    if (hy_dtype_is_float(want->dtype)) {
      weigh(&w, i, hy__load_f(want->dtype, a), hy__load_f(got->dtype, b), tolerance);
    } else if (memcmp(a, b, hy_dtype_size(want->dtype)) != 0) {
      // As doubles, large integers that differ may look equal.
      int64_t x = hy__load_i(want->dtype, a), y = hy__load_i(got->dtype, b);
      bool near = tolerance.absolute > 0 && (x > y ? x - y : y - x) <= (int64_t)tolerance.absolute;
      if (!near) weigh(&w, i, (double)x, x == y ? NAN : (double)y, (hy__tolerance){0, 0x1p-60});
    }
  }
  return judge(want, &w, tolerance, name, message, size);
}

bool hy__check_outputs(const hy__case* c, const unsigned char* want, const unsigned char* got,
                       char* message, size_t size) {
  for (int o = 0; o < c->call.n_out; o++) {
    if (!hy__present(&c->out[o])) continue;
    hy_tensor a = hy__rebase(c, &c->out[o], (void*)want), b = hy__rebase(c, &c->out[o], (void*)got);
    if (!hy__check_tensor(&a, &b, hy__tolerance_of(c, o), c->info->outputs[o].name, message, size))
      return false;
  }
  return true;
}
