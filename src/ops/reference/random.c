// Random numbers. What element i (in row-major order) becomes is a function of its word w of the
// Philox sequence, said here exactly, so that every device draws the same numbers: integers,
// uniform numbers and masks bit for bit, normal ones as near as its logarithm and sine are.
#include <math.h>

#include "ops/philox.h"
#include "ops/reference/slices.h"

// uniform: u = (w >> (32 - p)) / 2^p, where p is the type's precision, 32 at most; the result is
// a + u (b - a) in double, rounded to the type; a where that gives b, so that b stays outside.
static double uniform(const hy_call* call, uint32_t w) {
  double a = call->attrs.random.a, b = call->attrs.random.b;
  hy_dtype dtype = call->out[0].dtype;
  int precision = dtype == HY_F64 ? 32 : dtype == HY_F32 ? 24 : dtype == HY_F16 ? 11 : 8;
  double u = ldexp(w >> (32 - precision), -precision);
  double value = hy__round_to(dtype, a + u * (b - a));
  return value >= b ? a : value;
}

// normal: of each pair of words (w0, w1), which are neighbours in one block, Box and Muller make
//   u = ((w0 >> 8) + 1) / 2^24   in (0, 1],   v = (w1 >> 8) / 2^24   in [0, 1),
//   sqrt(-2 log u) cos(2 pi v)   for the first and
//   sqrt(-2 log u) sin(2 pi v)   for the second;
// u and v are exact in f32. The result is a plus b times that.
static double normal(const hy_call* call, const uint32_t* pair, bool second) {
  double u = ldexp((double)(pair[0] >> 8) + 1, -24), v = ldexp(pair[1] >> 8, -24);
  double radius = sqrt(-2 * log(u)), angle = 2 * 3.14159265358979323846 * v;
  return call->attrs.random.a + call->attrs.random.b * radius * (second ? sin(angle) : cos(angle));
}

// randint: a + floor(w (b - a) / 2^32), in integers.
static int64_t randint(const hy_call* call, uint32_t w) {
  int64_t a = (int64_t)call->attrs.random.a;
  uint64_t range = (uint64_t)(call->attrs.random.b - call->attrs.random.a);
  return a + (int64_t)((w * range) >> 32);
}

// bernoulli: 1 where w < p 2^32.
static bool bernoulli(double p, uint32_t w) {
  return w < p * 0x1p32;
}

// The block that element i draws from.
static hy__philox_block block_of(uint64_t seed, uint64_t offset, int64_t i) {
  return hy__philox_at(seed, offset + (uint64_t)i / 4);
}

hy_status hy__ref_random(const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  uint64_t seed = call->attrs.random.seed, offset = call->attrs.random.offset;
  hy__philox_block block = block_of(seed, offset, 0);
  hy__walk w;
  hy__walk_begin(&w, out, 1, (const hy_tensor*[]){out});
  while (hy__walk_next(&w)) {
    for (int64_t i = 0; i < w.n; i++) {
      int at = (int)((w.first + i) % 4);
      char* to = w.at[0] + i * w.step[0] * w.size[0];
      if (at == 0) block = block_of(seed, offset, w.first + i);
      switch (call->op) {
        case HY_OP_uniform: hy__store_f(out->dtype, to, uniform(call, block.word[at])); break;
        case HY_OP_normal:
          hy__store_f(out->dtype, to, normal(call, &block.word[at & ~1], at & 1));
          break;
        case HY_OP_randint: hy__store_i(out->dtype, to, randint(call, block.word[at])); break;
        default:
          hy__store_i(out->dtype, to, bernoulli(call->attrs.random.a, block.word[at]));
          break;
      }
    }
  }
  return HY_OK;
}

// Keeps with probability 1 - p what bernoulli would call 1, scaled by 1 / (1 - p). What is dropped
// is multiplied by 0, so that NaN and infinity show, as in PyTorch.
hy_status hy__ref_dropout(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0], *mask = &call->out[1];
  uint64_t seed = call->attrs.dropout.seed, offset = call->attrs.dropout.offset;
  double keep = 1 - call->attrs.dropout.p, scale = keep == 0 ? 0 : 1 / keep;
  hy__philox_block block = block_of(seed, offset, 0);
  hy__walk w;
  hy__walk_begin(&w, out, 3, (const hy_tensor*[]){out, mask, x});
  while (hy__walk_next(&w)) {
    double row[HY__ROW];
    int64_t kept[HY__ROW];
    hy__load_row_f(x->dtype, w.at[2], w.step[2], w.n, row);
    for (int64_t i = 0; i < w.n; i++) {
      int at = (int)((w.first + i) % 4);
      if (at == 0) block = block_of(seed, offset, w.first + i);
      kept[i] = bernoulli(keep, block.word[at]);
      row[i] *= kept[i] ? scale : 0;
    }
    hy__store_row_f(out->dtype, w.at[0], w.step[0], w.n, row);
    hy__store_row_i(HY_BOOL, w.at[1], w.step[1], w.n, kept);
  }
  return HY_OK;
}
