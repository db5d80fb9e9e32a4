// echo_matmul.c - the matrix engine. Blocked and packed, but every output is one fused chain over
// ascending k (docs/isa.md section 5): blocks of k are visited in order and the running sums are
// kept between them.
#include <string.h>

#include "echo_npu_hw.h"
#include "echo_units.h"

typedef struct job {
  const echo_kernels* kernels;
  const void *a, *b;
  void* c;
  int type_a, type_b, type_c;
  int trans_a, trans_b, accumulate;
  int64_t m, n, k, lda, ldb, ldc;
  int split_m;       // tasks divide rows; else columns
  int64_t per_task;  // rows or columns of a task
} job;

static int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static const void* offset(const void* p, int type, int64_t elements) {
  return (const char*)p + elements * echo_type_size(type);
}

// out[k * stride + j] = in(j, k) widened to float, j < count, zero up to stride. `along_k` tells
// that in is contiguous in k (ld steps j), else it is contiguous in j (ld steps k).
static void pack(const job* w, const void* in, int type, int64_t ld, int along_k, int64_t k,
                 int count, int stride, float* out, float* wide) {
  if (count < stride) memset(out, 0, sizeof(float) * (size_t)(k * stride));
  if (!along_k) {
    for (int64_t i = 0; i < k; ++i)
      w->kernels->load((uint32_t*)(out + i * stride), offset(in, type, i * ld), type, count);
    return;
  }
  for (int j = 0; j < count; j += 16) {
    int columns = count - j < 16 ? count - j : 16;
    const float* from = offset(in, type, j * ld);
    int64_t step = ld;
    if (type != ECHO_NPU_F32) {
      for (int i = 0; i < columns; ++i)
        w->kernels->load((uint32_t*)(wide + i * k), offset(in, type, (j + i) * ld), type, k);
      from = wide;
      step = k;
    }
    w->kernels->pack_transposed(k, columns, from, step, out + j, stride);
  }
}

// All panels of a block of b that is contiguous in j, row by row: b is read once and in order.
static void pack_rows(const job* w, int64_t kc, int64_t depth, int64_t j0, int64_t jn, int64_t jc,
                      float* out) {
  const int nr = w->kernels->nr;
  const int64_t whole = jn - (jn - j0) % nr;
  if (whole < jn) memset(out + (whole - jc) * ECHO_KC, 0, sizeof(float) * (size_t)(depth * nr));
  for (int64_t i = 0; i < depth; ++i)
    for (int64_t j = j0; j < jn; j += nr)
      w->kernels->load((uint32_t*)(out + (j - jc) * ECHO_KC + i * nr),
                       offset(w->b, w->type_b, (kc + i) * w->ldb + j), w->type_b,
                       min64(nr, jn - j));
}

// One block of columns of a product with few rows; b is read where it is, or widened first.
static void multiply_skinny(const job* w, int rows, int64_t kc, int64_t depth, int64_t j, int last,
                            float* out, int64_t ld, echo_scratch* s) {
  const void* from = offset(w->b, w->type_b, w->trans_b ? j * w->ldb + kc : kc * w->ldb + j);
  int64_t step = w->ldb;
  if (w->type_b != ECHO_NPU_F32) {
    const int64_t lines = w->trans_b ? ECHO_SKINNY_COLS : depth;
    const int64_t length = w->trans_b ? depth : ECHO_SKINNY_COLS;
    for (int64_t i = 0; i < lines; ++i)
      w->kernels->load((uint32_t*)(s->wide + i * length), offset(from, w->type_b, i * w->ldb),
                       w->type_b, length);
    from = s->wide;
    step = length;
  }
  w->kernels->skinny(depth, rows, s->a, from, step, w->trans_b, out, ld, last);
}

static void multiply_float(const job* w, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                           echo_scratch* s) {
  const int mr = w->kernels->mr, nr = w->kernels->nr;
  const int direct = w->type_c == ECHO_NPU_F32;
  for (int64_t jc = n0; jc < n1; jc += ECHO_NC)
    for (int64_t mc = m0; mc < m1; mc += ECHO_MC) {
      const int64_t jn = min64(jc + ECHO_NC, n1), mn = min64(mc + ECHO_MC, m1);
      // Running sums: in place for a float destination, in scratch otherwise.
      float* sums = direct ? (float*)w->c + mc * w->ldc + jc : s->c;
      const int64_t ld = direct ? w->ldc : ECHO_NC;
      for (int64_t i = mc; i < mn; ++i) {
        float* row = sums + (i - mc) * ld;
        if (!w->accumulate)
          memset(row, 0, sizeof(float) * (size_t)(jn - jc));
        else if (!direct)
          w->kernels->load((uint32_t*)row, offset(w->c, w->type_c, i * w->ldc + jc), w->type_c,
                           jn - jc);
      }
      for (int64_t kc = 0; kc < w->k; kc += ECHO_KC) {
        const int64_t depth = min64(ECHO_KC, w->k - kc);
        const int last = kc + depth == w->k;
        int64_t j0 = jc;  // columns below it are done
        if (w->kernels->skinny && mn - mc <= ECHO_SKINNY_ROWS) {
          pack(w, offset(w->a, w->type_a, w->trans_a ? kc * w->lda + mc : mc * w->lda + kc),
               w->type_a, w->lda, !w->trans_a, depth, (int)(mn - mc), mr, s->a, s->wide);
          for (; j0 + ECHO_SKINNY_COLS <= jn; j0 += ECHO_SKINNY_COLS)
            multiply_skinny(w, (int)(mn - mc), kc, depth, j0, last, sums + (j0 - jc), ld, s);
          if (j0 == jn) continue;
        }
        if (!w->trans_b) pack_rows(w, kc, depth, j0, jn, jc, s->b);
        for (int64_t j = j0; w->trans_b && j < jn; j += nr)
          pack(w, offset(w->b, w->type_b, j * w->ldb + kc), w->type_b, w->ldb, 1, depth,
               (int)min64(nr, jn - j), nr, s->b + (j - jc) * ECHO_KC, s->wide);
        for (int64_t i = mc; i < mn; i += mr) {
          const int rows = (int)min64(mr, mn - i);
          pack(w, offset(w->a, w->type_a, w->trans_a ? kc * w->lda + i : i * w->lda + kc),
               w->type_a, w->lda, !w->trans_a, depth, rows, mr, s->a, s->wide);
          for (int64_t j = j0; j < jn; j += nr) {
            const int cols = (int)min64(nr, jn - j);
            float* out = sums + (i - mc) * ld + (j - jc);
            const float* b = s->b + (j - jc) * ECHO_KC;
            if (cols == nr) {
              w->kernels->tile_f32(depth, rows, s->a, b, out, ld, last);
              continue;
            }
            for (int r = 0; r < rows; ++r)
              memcpy(s->tile + r * nr, out + r * ld, sizeof(float) * (size_t)cols);
            w->kernels->tile_f32(depth, rows, s->a, b, s->tile, nr, last);
            for (int r = 0; r < rows; ++r)
              memcpy(out + r * ld, s->tile + r * nr, sizeof(float) * (size_t)cols);
          }
        }
      }
      if (!direct)
        for (int64_t i = mc; i < mn; ++i)
          w->kernels->store((char*)w->c + (i * w->ldc + jc) * echo_type_size(w->type_c),
                            (const uint32_t*)(s->c + (i - mc) * ECHO_NC), w->type_c, jn - jc);
    }
}

// out[(k/2) * stride * 2 + j * 2 + k%2] = in(j, k); an odd last k is paired with zero.
static void pack_pairs(const int8_t* in, int64_t step_j, int64_t step_k, int64_t k, int count,
                       int stride, int16_t* out) {
  memset(out, 0, sizeof(int16_t) * (size_t)((k + 1) / 2 * stride * 2));
  for (int64_t i = 0; i < k; ++i)
    for (int j = 0; j < count; ++j)
      out[(i / 2 * stride + j) * 2 + i % 2] = in[j * step_j + i * step_k];
}

static void multiply_int8(const job* w, int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                          echo_scratch* s) {
  const int mr = w->kernels->mr, nr = w->kernels->nr;
  const int8_t *a = w->a, *b = w->b;
  const int64_t a_m = w->trans_a ? 1 : w->lda, a_k = w->trans_a ? w->lda : 1;
  const int64_t b_n = w->trans_b ? w->ldb : 1, b_k = w->trans_b ? 1 : w->ldb;
  int16_t *pa = (int16_t*)s->a, *pb = (int16_t*)s->b;
  int32_t* tile = (int32_t*)s->tile;
  for (int64_t jc = n0; jc < n1; jc += ECHO_NC) {
    const int64_t jn = min64(jc + ECHO_NC, n1);
    for (int64_t kc = 0; kc < w->k; kc += ECHO_KC) {
      const int64_t depth = min64(ECHO_KC, w->k - kc);
      for (int64_t j = jc; j < jn; j += nr)
        pack_pairs(b + j * b_n + kc * b_k, b_n, b_k, depth, (int)min64(nr, jn - j), nr,
                   pb + (j - jc) * ECHO_KC);
      for (int64_t i = m0; i < m1; i += mr) {
        const int rows = (int)min64(mr, m1 - i);
        pack_pairs(a + i * a_m + kc * a_k, a_m, a_k, depth, rows, mr, pa);
        for (int64_t j = jc; j < jn; j += nr) {
          const int cols = (int)min64(nr, jn - j);
          memset(tile, 0, sizeof(int32_t) * (size_t)(rows * nr));
          w->kernels->tile_i8((depth + 1) / 2, rows, pa, pb + (j - jc) * ECHO_KC, tile, nr);
          for (int r = 0; r < rows; ++r) {
            uint32_t* out = (uint32_t*)w->c + (i + r) * w->ldc + j;
            for (int q = 0; q < cols; ++q) {
              uint32_t before = kc || w->accumulate ? out[q] : 0;
              out[q] = before + (uint32_t)tile[r * nr + q];
            }
          }
        }
      }
    }
  }
}

static void run_task(void* context, int index, echo_scratch* scratch) {
  const job* w = context;
  int64_t from = index * w->per_task;
  int64_t m0 = w->split_m ? from : 0, n0 = w->split_m ? 0 : from;
  int64_t m1 = w->split_m ? min64(from + w->per_task, w->m) : w->m;
  int64_t n1 = w->split_m ? w->n : min64(from + w->per_task, w->n);
  if (w->type_a == ECHO_NPU_I8)
    multiply_int8(w, m0, m1, n0, n1, scratch);
  else
    multiply_float(w, m0, m1, n0, n1, scratch);
}

void echo_matmul(const echo_context* x, const echo_command* c, void* const at[ECHO_OPERANDS]) {
  job w = {.kernels = x->kernels,
           .a = at[ECHO_SRC1],
           .b = at[ECHO_SRC2],
           .c = at[ECHO_DST],
           .type_a = c->type1,
           .type_b = c->type2,
           .type_c = c->type_dst,
           .trans_a = (c->flags & ECHO_NPU_FLAG_TRANS_A) != 0,
           .trans_b = (c->flags & ECHO_NPU_FLAG_TRANS_B) != 0,
           .accumulate = (c->flags & ECHO_NPU_FLAG_ACCUMULATE) != 0,
           .m = c->p[ECHO_NPU_P_ROWS],
           .n = c->p[ECHO_NPU_P_COLS],
           .k = c->p[ECHO_NPU_P_K],
           .lda = c->p[ECHO_NPU_P_STRIDE1],
           .ldb = c->p[ECHO_NPU_P_STRIDE2],
           .ldc = c->p[ECHO_NPU_P_STRIDE_DST]};
  const int64_t unit_m = w.kernels->mr, unit_n = w.kernels->nr;
  const int64_t small =
      1 << 17;  // multiply-accumulates below which threads cost more than they give
  int threads = w.m * w.n * w.k < small || echo_overlaps(c) ? 1 : echo_pool_threads();
  w.split_m = w.m > w.n;
  int64_t length = w.split_m ? w.m : w.n, unit = w.split_m ? unit_m : unit_n;
  int64_t units = (length + unit - 1) / unit;
  w.per_task = (units + threads - 1) / threads * unit;
  echo_pool_run(run_task, &w, (int)((length + w.per_task - 1) / w.per_task), x->scratch);
}
