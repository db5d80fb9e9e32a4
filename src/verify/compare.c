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

static bool is_gapless(const hy_tensor* t) {
  return t->layout != HY_LAYOUT_STRIDED || hy_tensor_is_contiguous(t);
}

static void mark(const hy_tensor* t) {
  if (is_gapless(t)) {
    memset(t->data, 0xff, hy_tensor_bytes(t));
    return;
  }
  size_t size = hy_dtype_size(t->dtype);
  hy__walk w;
  hy__walk_begin(&w, t, 1, (const hy_tensor*[]){t});
  while (hy__walk_next(&w)) {
    for (int64_t i = 0; i < w.n; i++) memset(w.at[0] + i * w.step[0] * (int64_t)size, 0xff, size);
  }
}

// Most calls have one output without gaps, and need no mask.
hy__writable hy__writable_outputs(const hy__case* c, unsigned char* mask) {
  hy__writable w = {c->used, 0, NULL};
  int n = 0;
  for (int o = 0; o < c->call.n_out; o++) {
    const hy_tensor* t = &c->out[o];
    if (!hy__present(t) || !t->data || hy_tensor_numel(t) == 0) continue;
    int64_t first = 0, last = (int64_t)hy_tensor_bytes(t);
    if (!is_gapless(t)) hy_tensor_extent(t, &first, &last);
    size_t at = (size_t)((unsigned char*)t->data - c->image);
    if (at + (size_t)first < w.begin) w.begin = at + (size_t)first;
    if (at + (size_t)last > w.end) w.end = at + (size_t)last;
    if (n++ > 0 || !is_gapless(t)) w.mask = mask;
  }
  if (n == 0) return (hy__writable){0, 0, NULL};
  if (!w.mask) return w;
  memset(mask + w.begin, 0, w.end - w.begin);
  for (int o = 0; o < c->call.n_out; o++) {
    if (!hy__present(&c->out[o]) || !c->out[o].data) continue;
    hy_tensor t = hy__rebase(c, &c->out[o], mask);
    mark(&t);
  }
  return w;
}

// Where in the case's memory a byte is, in words: in the nearest tensor, or beside it.
static const char* locate(const hy__case* c, size_t at, char* words, size_t size) {
  const unsigned char* p = c->image + at;
  int64_t nearest = INT64_MAX;
  snprintf(words, size, "outside every tensor");
  for (int k = 0; k < c->call.n_out + c->call.n_in; k++) {
    bool is_output = k < c->call.n_out;
    const hy_tensor* t = is_output ? &c->out[k] : &c->in[k - c->call.n_out];
    if (!hy__present(t) || !t->data) continue;
    int64_t first, last;
    hy_tensor_extent(t, &first, &last);
    int64_t byte = p - (unsigned char*)t->data;
    int64_t distance = byte < first ? first - byte : byte >= last ? byte - last + 1 : 0;
    if (distance >= nearest) continue;
    nearest = distance;
    snprintf(words, size, "%s %s %s %d",
             byte < first   ? "before"
             : byte >= last ? "behind"
             : is_output    ? "in a gap of"
                            : "inside",
             is_output ? "the output" : "the input",
             is_output ? c->info->outputs[k].name : "number", is_output ? k : k - c->call.n_out);
  }
  return words;
}

enum { STRETCH = 256 };

// Most images are untouched: stretches of words first.
static bool is_stretch_untouched(const unsigned char* image, const unsigned char* mask,
                                 const unsigned char* got) {
  uint64_t differs = 0;
  for (int at = 0; at < STRETCH; at += 8) {
    uint64_t before, after, outputs;
    memcpy(&before, image + at, 8);
    memcpy(&after, got + at, 8);
    memcpy(&outputs, mask + at, 8);
    differs |= (before ^ after) & ~outputs;
  }
  return differs == 0;
}

// The first byte from `begin` on that differs and may not, or `end`. `mask` may be NULL.
static size_t first_touched(const unsigned char* image, const unsigned char* mask,
                            const unsigned char* got, size_t begin, size_t end) {
  if (!mask && memcmp(image + begin, got + begin, end - begin) == 0) return end;
  for (size_t i = begin; i < end; i++) {
    while (mask && i + STRETCH <= end && is_stretch_untouched(image + i, mask + i, got + i))
      i += STRETCH;
    if (i < end && got[i] != image[i] && !(mask && mask[i])) return i;
  }
  return end;
}

bool hy__check_untouched(const hy__case* c, const hy__writable* writable, const unsigned char* got,
                         char* message, size_t size) {
  size_t begin = writable->begin, end = writable->end;
  size_t at = first_touched(c->image, NULL, got, 0, begin);
  if (at == begin && writable->mask)
    at = first_touched(c->image, writable->mask, got, begin, end);
  else if (at == begin)
    at = end;
  if (at == end) at = first_touched(c->image, NULL, got, end, c->used);
  if (at == c->used) return true;
  char where[96];
  snprintf(message, size, "a byte %s was written: 0x%02x became 0x%02x",
           locate(c, at, where, sizeof where), c->image[at], got[at]);
  return false;
}

// The element that is furthest off.
typedef struct worst {
  double excess, want, got, allowed;
  int64_t want_int, got_int;  // of integers, which doubles cannot hold
  int64_t at, wrong;
} worst;

static void blame(worst* w, const worst* element) {
  w->wrong++;
  if (w->wrong > 1 && element->excess <= w->excess) return;
  int64_t wrong = w->wrong;
  *w = *element;
  w->wrong = wrong;
}

static void weigh(worst* w, int64_t at, double want, double got, double terms,
                  const hy__tolerance* tolerance) {
  double excess, allowed = tolerance->relative * fabs(want) + tolerance->absolute;
  if (isfinite(terms)) allowed += tolerance->of_terms * terms;
  if (isnan(want) || isnan(got))
    excess = isnan(want) && isnan(got) ? 0 : INFINITY;
  else if (want == got)
    excess = want == 0 && tolerance->signed_zero && signbit(want) != signbit(got) ? INFINITY : 0;
  else if (isinf(want) || isinf(got))
    excess = INFINITY;
  else
    excess = fabs(got - want) / allowed;
  if (excess > 1)
    blame(w, &(worst){.excess = excess, .want = want, .got = got, .allowed = allowed, .at = at});
}

// Integers are compared as what they are: as doubles, large ones that differ look equal.
static void weigh_int(worst* w, int64_t at, int64_t want, int64_t got,
                      const hy__tolerance* tolerance) {
  uint64_t distance = want > got ? (uint64_t)want - (uint64_t)got : (uint64_t)got - (uint64_t)want;
  if ((double)distance > tolerance->absolute)
    blame(w, &(worst){.excess = (double)distance, .want_int = want, .got_int = got, .at = at});
}

static bool judge(const hy_tensor* t, const worst* w, const char* name, char* message,
                  size_t size) {
  if (w->wrong == 0) return true;
  char index[96] = "", values[200];
  size_t used = 0;
  int64_t scale = hy_tensor_numel(t), rest = w->at;
  for (int d = 0; d < t->ndim; d++) {
    scale /= t->shape[d];
    used += (size_t)snprintf(index + used, sizeof index - used, d ? ", %lld" : "%lld",
                             (long long)(rest / scale));
    rest %= scale;
  }
  if (hy_dtype_is_float(t->dtype))
    snprintf(values, sizeof values, "%.9g and should be %.9g (off by %.3g, allowed %.3g)", w->got,
             w->want, fabs(w->got - w->want), w->allowed);
  else
    snprintf(values, sizeof values, "%lld and should be %lld", (long long)w->got_int,
             (long long)w->want_int);
  snprintf(message, size, "%s[%s] is %s; %lld of %lld elements are wrong", name, index, values,
           (long long)w->wrong, (long long)hy_tensor_numel(t));
  return false;
}

static int nibble(const hy_tensor* t, int64_t i) {
  int bits = ((const unsigned char*)t->data)[i / 2] >> (i % 2 * 4) & 0xf;
  return bits < 8 ? bits : bits - 16;
}

// Whether the bytes say it all: the same ones, without a gap between them.
static bool same_bytes(const hy_tensor* a, const hy_tensor* b) {
  return hy_tensor_is_contiguous(a) && hy_tensor_is_contiguous(b) &&
         memcmp(a->data, b->data, hy_tensor_bytes(a)) == 0;
}

// `c` has the inputs that the terms of each element come from; NULL where that is not asked.
static bool check(const hy_tensor* want, const hy_tensor* got, const hy__tolerance* tolerance,
                  const hy__case* c, const char* name, char* message, size_t size) {
  worst worst = {0};
  const hy_tensor* tensors[5] = {want, got};
  int n_in = c ? c->call.n_in : 0;
  if (want->layout != HY_LAYOUT_STRIDED) {
    bool packed = want->layout == HY_LAYOUT_PACKED_I4;
    int64_t numel = packed ? hy_tensor_numel(want) : (int64_t)hy_tensor_bytes(want);
    for (int64_t i = 0; i < numel; i++)
      weigh_int(&worst, i, packed ? nibble(want, i) : ((unsigned char*)want->data)[i],
                packed ? nibble(got, i) : ((unsigned char*)got->data)[i], tolerance);
    return judge(want, &worst, name, message, size);
  }
  if (hy_tensor_numel(want) == 0 || same_bytes(want, got)) return true;
  for (int i = 0; i < n_in; i++) tensors[2 + i] = &c->in[i];
  hy__walk w;
  hy__walk_begin(&w, want, 2 + n_in, tensors);
  while (hy__walk_next(&w)) {
    for (int64_t i = 0; i < w.n; i++) {
      const char *a = w.at[0] + i * w.step[0] * w.size[0], *b = w.at[1] + i * w.step[1] * w.size[1];
      if (memcmp(a, b, (size_t)w.size[0]) == 0) continue;
      if (!hy_dtype_is_float(want->dtype)) {
        weigh_int(&worst, w.first + i, hy__load_i(want->dtype, a), hy__load_i(got->dtype, b),
                  tolerance);
        continue;
      }
      double in[3] = {0, 0, 0};
      for (int k = 0; k < n_in; k++)
        in[k] = hy__load_f(c->in[k].dtype, w.at[2 + k] + i * w.step[2 + k] * w.size[2 + k]);
      weigh(&worst, w.first + i, hy__load_f(want->dtype, a), hy__load_f(got->dtype, b),
            c ? hy__size_of_terms(c, in) : 0, tolerance);
    }
  }
  return judge(want, &worst, name, message, size);
}

bool hy__check_tensor(const hy_tensor* want, const hy_tensor* got, hy__tolerance tolerance,
                      const char* name, char* message, size_t size) {
  return check(want, got, &tolerance, NULL, name, message, size);
}

bool hy__check_outputs(const hy__case* c, const unsigned char* want, const unsigned char* got,
                       char* message, size_t size) {
  for (int o = 0; o < c->call.n_out; o++) {
    if (!hy__present(&c->out[o])) continue;
    hy_tensor a = hy__rebase(c, &c->out[o], (void*)want), b = hy__rebase(c, &c->out[o], (void*)got);
    hy__tolerance tolerance = hy__tolerance_of(c, o);
    if (!check(&a, &b, &tolerance, hy__knows_terms(c) ? c : NULL, c->info->outputs[o].name, message,
               size))
      return false;
  }
  return true;
}
