// test_units.c - each unit against the plain loops of docs/isa.md, bit for bit.
#include <math.h>

#include "bench_model.h"
#include "echo_float.h"
#include "echo_ucode.h"

#define A BENCH_DATA
#define B (BENCH_DATA + 4 * BENCH_MIB)
#define C (BENCH_DATA + 8 * BENCH_MIB)
#define SPAN (4 * BENCH_MIB)

static echo_cmodel* model;
static uint8_t *a, *b, *c;
static uint64_t seed = 1;

static int open_model(void** state) {
  (void)state;
  model = bench_open();
  bench_reset(model);
  a = echo_cmodel_memory(model, A, SPAN);
  b = echo_cmodel_memory(model, B, SPAN);
  c = echo_cmodel_memory(model, C, SPAN);
  return 0;
}

static int close_model(void** state) {
  (void)state;
  echo_cmodel_destroy(model);
  return 0;
}

static uint32_t below(uint32_t n) {
  return (uint32_t)(bench_random(&seed) % n);
}

static void put(uint8_t* base, int type, size_t i, float v) {
  uint32_t bits = bench_bits(v);
  if (type == ECHO_NPU_F32) memcpy(base + 4 * i, &bits, 4);
  if (type == ECHO_NPU_BF16) {
    uint16_t h = echo_to_bf16(bits);
    memcpy(base + 2 * i, &h, 2);
  }
  if (type == ECHO_NPU_I8) ((int8_t*)base)[i] = (int8_t)echo_f2i(bits);
  if (type == ECHO_NPU_I32) ((int32_t*)base)[i] = echo_f2i(bits);
}

static uint32_t get(const uint8_t* base, int type, size_t i) {
  uint32_t v = 0;
  if (type == ECHO_NPU_F32) memcpy(&v, base + 4 * i, 4);
  if (type == ECHO_NPU_BF16) v = (uint32_t)((const uint16_t*)base)[i] << 16;
  if (type == ECHO_NPU_I8) v = echo_i2f(((const int8_t*)base)[i]);
  if (type == ECHO_NPU_I32) v = echo_i2f(((const int32_t*)base)[i]);
  return v;
}

static float value(int wild) {
  if (wild && below(50) == 0) {
    static const float odd[] = {INFINITY, -INFINITY, NAN, 0x1p-140f, -0.0f, 0x1p-126f, 3e38f};
    return odd[below(7)];
  }
  return ((float)below(1 << 20) - (1 << 19)) / (1 << 17) * (wild ? 0x1p-60f : 1);
}

static void matmul_case(int m, int n, int k, int ta, int tb, int t1, int t2, int td, int acc,
                        int wild) {
  uint32_t lda = (uint32_t)(ta ? m : k) + below(5), ldb = (uint32_t)(tb ? k : n) + below(5),
           ldc = (uint32_t)n + below(5);
  for (size_t i = 0; i < (size_t)lda * (size_t)(ta ? k : m); ++i)
    put(a, t1, i, t1 == ECHO_NPU_I8 ? (float)(int)below(256) - 128 : value(wild));
  for (size_t i = 0; i < (size_t)ldb * (size_t)(tb ? n : k); ++i)
    put(b, t2, i, t2 == ECHO_NPU_I8 ? (float)(int)below(256) - 128 : value(wild));
  for (size_t i = 0; i < (size_t)ldc * (size_t)m; ++i)
    put(c, td, i, td == ECHO_NPU_I32 ? (float)below(1000) : value(wild));
  size_t bytes = (size_t)ldc * (size_t)m * (td == ECHO_NPU_BF16 ? 2 : 4);
  uint8_t* want = malloc(bytes);
  assert_non_null(want);
  memcpy(want, c, bytes);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      size_t at = (size_t)i * ldc + (size_t)j;
      if (td == ECHO_NPU_I32) {
        uint32_t sum = acc ? ((uint32_t*)want)[at] : 0;
        for (int q = 0; q < k; ++q)
          sum +=
              (uint32_t)(((int8_t*)
                              a)[ta ? (size_t)q * lda + (size_t)i : (size_t)i * lda + (size_t)q] *
                         ((int8_t*)
                              b)[tb ? (size_t)j * ldb + (size_t)q : (size_t)q * ldb + (size_t)j]);
        ((uint32_t*)want)[at] = sum;
        continue;
      }
      uint32_t sum = acc ? get(want, td, at) : 0;
      for (int q = 0; q < k; ++q)
        sum = echo_fma(get(a, t1, ta ? (size_t)q * lda + (size_t)i : (size_t)i * lda + (size_t)q),
                       get(b, t2, tb ? (size_t)j * ldb + (size_t)q : (size_t)q * ldb + (size_t)j),
                       sum);
      if (td == ECHO_NPU_F32)
        memcpy(want + 4 * at, &sum, 4);
      else
        ((uint16_t*)want)[at] = echo_to_bf16(sum);
    }
  echo_npu_packet p = {
      .opcode = ECHO_NPU_OP_MATMUL,
      .flags = (uint32_t)(t1 << ECHO_NPU_FLAG_T1_SHIFT | t2 << ECHO_NPU_FLAG_T2_SHIFT |
                          td << ECHO_NPU_FLAG_TD_SHIFT) |
               (ta ? ECHO_NPU_FLAG_TRANS_A : 0) | (tb ? ECHO_NPU_FLAG_TRANS_B : 0) |
               (acc ? ECHO_NPU_FLAG_ACCUMULATE : 0),
      .src1 = A,
      .src2 = B,
      .dst = C,
      .param = {(uint32_t)m, (uint32_t)n, lda, ldb, ldc, (uint32_t)k}};
  assert_int_equal(bench_send(model, &p), 0);
  if (memcmp(want, c, bytes))
    fail_msg("matmul %dx%dx%d ta %d tb %d types %d %d %d acc %d", m, n, k, ta, tb, t1, t2, td, acc);
  free(want);
}

static void matmul_is_one_ascending_chain(void** state) {
  (void)state;
  static const char* const sets[] = {"scalar", "avx2", "avx512"};
  for (int s = 0; s < 3; ++s) {
    if (echo_cmodel_use_kernels(model, sets[s]) != 0) continue;
    for (int i = 0; i < 60; ++i) {
      int m = 1 + (int)below(i % 4 ? 40 : 3), n = 1 + (int)below(70), k = 1 + (int)below(90);
      if (i % 3 == 2)
        matmul_case(m, n, k, i & 1, i >> 1 & 1, ECHO_NPU_I8, ECHO_NPU_I8, ECHO_NPU_I32, i >> 2 & 1,
                    0);
      else
        matmul_case(m, n, k, i & 1, i >> 1 & 1, (int)below(2), (int)below(2), (int)below(2),
                    i >> 2 & 1, i % 5 == 0);
    }
  }
  matmul_case(70, 600, 300, 0, 1, ECHO_NPU_F32, ECHO_NPU_BF16, ECHO_NPU_F32, 0, 0);
  matmul_case(1200, 33, 270, 0, 0, ECHO_NPU_F32, ECHO_NPU_F32, ECHO_NPU_BF16, 0, 0);
  for (int m = 1; m <= 2; ++m)
    for (int t = 0; t < 8; ++t)
      matmul_case(m, 300, 270 + t, t & 1, t >> 1 & 1, t & 1, t >> 2 & 1, t & 1, t >> 1 & 1, t == 5);
  matmul_case(40, 530, 520, 1, 0, ECHO_NPU_I8, ECHO_NPU_I8, ECHO_NPU_I32, 1, 0);
}

static void splitting_k_changes_nothing(void** state) {
  (void)state;
  enum { M = 9, N = 33, K = 700, CUT = 123 };
  for (size_t i = 0; i < M * K; ++i) put(a, ECHO_NPU_F32, i, value(0));
  for (size_t i = 0; i < K * N; ++i) put(b, ECHO_NPU_F32, i, value(0));
  echo_npu_packet p = {
      .opcode = ECHO_NPU_OP_MATMUL, .src1 = A, .src2 = B, .dst = C, .param = {M, N, K, N, N, K}};
  assert_int_equal(bench_send(model, &p), 0);
  p.dst = C + 65536;
  p.param[5] = CUT;
  assert_int_equal(bench_send(model, &p), 0);
  p.flags |= ECHO_NPU_FLAG_ACCUMULATE;
  p.src1 += 4 * CUT;
  p.src2 += 4 * CUT * N;
  p.param[5] = K - CUT;
  assert_int_equal(bench_send(model, &p), 0);
  assert_memory_equal(c, c + 65536, 4 * M * N);
}

static uint32_t reference_sum(const uint8_t* row, int n) {
  uint32_t acc[128] = {0};
  for (int j = 0; j < n; ++j)
    acc[j % 128] = echo_fma(acc[j % 128], 0x3f800000, get(row, ECHO_NPU_F32, (size_t)j));
  for (int h = 64; h; h /= 2)
    for (int p = 0; p < h; ++p) acc[p] = echo_fma(acc[p], 0x3f800000, acc[p + h]);
  return acc[0];
}

static echo_npu_packet vector(uint32_t fn, uint32_t rows, uint32_t cols) {
  int y = echo_ucode_loads_y(echo_ucode_find(fn)) != 0;
  return (echo_npu_packet){.opcode = ECHO_NPU_OP_VECTOR,
                           .flags = fn << ECHO_NPU_FLAG_FN_SHIFT,
                           .src1 = A,
                           .src2 = y ? B : 0,
                           .dst = C,
                           .param = {rows, cols, cols, y ? cols : 0, cols, 0, 0, 0}};
}

static void row_sums_follow_the_tree(void** state) {
  (void)state;
  for (int n = 1; n < 2000; n = n * 3 / 2 + 1) {
    for (size_t i = 0; i < (size_t)(3 * n); ++i) put(a, ECHO_NPU_F32, i, value(i % 7 == 0));
    echo_npu_packet p = vector(ECHO_NPU_FN_ROW_SUM, 3, (uint32_t)n);
    p.param[4] = 2;
    assert_int_equal(bench_send(model, &p), 0);
    for (int r = 0; r < 3; ++r)
      assert_int_equal(get(c, ECHO_NPU_F32, (size_t)(2 * r)), reference_sum(a + 4 * r * n, n));
  }
}

static float f(const uint8_t* base, size_t i) {
  return echo_from_bits(get(base, ECHO_NPU_F32, i));
}

static void softmax_is_softmax(void** state) {
  (void)state;
  enum { R = 5, N = 300 };
  for (int mode = 0; mode < 4; ++mode) {  // plain, masked, causal, log
    for (size_t i = 0; i < R * N; ++i) {
      put(a, ECHO_NPU_F32, i, value(0) * 3);
      put(b, ECHO_NPU_F32, i, i % 11 == 3 ? -INFINITY : value(0));
    }
    echo_npu_packet p = vector(mode == 1   ? ECHO_NPU_FN_SOFTMAX_MASK
                               : mode == 3 ? ECHO_NPU_FN_LOG_SOFTMAX
                                           : ECHO_NPU_FN_SOFTMAX,
                               R, N);
    p.param[5] = bench_bits(0.7f);
    if (mode == 2) {
      p.flags |= ECHO_NPU_FLAG_CAUSAL;
      p.param[6] = 7;
    }
    assert_int_equal(bench_send(model, &p), 0);
    for (int r = 0; r < R; ++r) {
      int v = mode == 2 ? 7 + r : N;
      double top = -INFINITY, sum = 0, total = 0;
      for (int j = 0; j < v; ++j) {
        double s =
            0.7f * (double)f(a, (size_t)(r * N + j)) + (mode == 1 ? f(b, (size_t)(r * N + j)) : 0);
        if (s > top) top = s;
      }
      for (int pass = 0; pass < 2; ++pass)
        for (int j = 0; j < N; ++j) {
          double s = 0.7f * (double)f(a, (size_t)(r * N + j)) +
                     (mode == 1 ? f(b, (size_t)(r * N + j)) : 0);
          if (pass == 0) {
            if (j < v) sum += exp(s - top);
            continue;
          }
          double want = mode == 3 ? s - top - log(sum) : j < v ? exp(s - top) / sum : 0;
          assert_true(fabs(f(c, (size_t)(r * N + j)) - want) <= 3e-6 * fabs(want) + 1e-30);
          total += f(c, (size_t)(r * N + j));
        }
      if (mode != 3) assert_true(fabs(total - 1) < 1e-5);
    }
  }
}

static void norms_and_rope(void** state) {
  (void)state;
  enum { R = 4, N = 200 };
  for (size_t i = 0; i < R * N; ++i) put(a, ECHO_NPU_F32, i, value(0));
  for (size_t i = 0; i < 2 * N; ++i) put(b, ECHO_NPU_F32, i, value(0));
  for (int layer = 0; layer < 2; ++layer) {
    echo_npu_packet p = vector(layer ? ECHO_NPU_FN_LAYER_NORM : ECHO_NPU_FN_RMS_NORM, R, N);
    p.param[3] = 0;
    p.param[5] = bench_bits(1e-5f);
    p.param[6] = bench_bits(1.0f / N);
    assert_int_equal(bench_send(model, &p), 0);
    for (int r = 0; r < R; ++r) {
      double mean = 0, square = 0;
      for (int j = 0; layer && j < N; ++j) mean += f(a, (size_t)(r * N + j)) / N;
      for (int j = 0; j < N; ++j) square += pow(f(a, (size_t)(r * N + j)) - mean, 2) / N;
      for (int j = 0; j < N; ++j) {
        double want = (f(a, (size_t)(r * N + j)) - mean) / sqrt(square + 1e-5) * f(b, (size_t)j);
        assert_true(fabs(f(c, (size_t)(r * N + j)) - want) <= 4e-6 * (1 + fabs(want)));
      }
    }
  }
  enum { H = 32 };
  echo_npu_packet p = vector(ECHO_NPU_FN_ROPE, 3, H);
  p.param[2] = p.param[4] = 2 * H;
  p.param[3] = 0;
  assert_int_equal(bench_send(model, &p), 0);
  for (int r = 0; r < 3; ++r)
    for (int j = 0; j < H; ++j) {
      float x0 = f(a, (size_t)(r * 2 * H + j)), x1 = f(a, (size_t)(r * 2 * H + H + j));
      float co = f(b, (size_t)j), si = f(b, (size_t)(H + j));
      assert_true(fabsf(f(c, (size_t)(r * 2 * H + j)) - (x0 * co - x1 * si)) < 1e-4f);
      assert_true(fabsf(f(c, (size_t)(r * 2 * H + H + j)) - (x1 * co + x0 * si)) < 1e-4f);
    }
}

static void operand_forms(void** state) {
  (void)state;
  for (size_t i = 0; i < 60; ++i) {
    put(a, ECHO_NPU_BF16, i, (float)i);
    put(b, ECHO_NPU_I32, i, (float)(2 * i));
  }
  echo_npu_packet p = vector(ECHO_NPU_FN_SUB, 3, 5);
  p.flags |= ECHO_NPU_BF16 << ECHO_NPU_FLAG_T1_SHIFT | ECHO_NPU_I32 << ECHO_NPU_FLAG_T2_SHIFT |
             ECHO_NPU_FLAG_SRC2_BCAST | ECHO_NPU_FLAG_SWAP;
  p.param[3] = 1;
  assert_int_equal(bench_send(model, &p), 0);
  for (int r = 0; r < 3; ++r)
    for (int j = 0; j < 5; ++j)
      assert_true(f(c, (size_t)(r * 5 + j)) == (float)(2 * r - (5 * r + j)));
  for (size_t i = 0; i < 60; ++i) put(a, ECHO_NPU_F32, i, (float)i);
  p = vector(ECHO_NPU_FN_MUL, 3, 5);
  p.flags |= ECHO_NPU_FLAG_SRC2_IMM;
  p.src2 = 0;
  p.param[3] = 0;
  p.param[5] = bench_bits(3);
  assert_int_equal(bench_send(model, &p), 0);
  for (size_t i = 0; i < 15; ++i) assert_true(f(c, i) == 3 * (float)i);
}

// ADD_TENSOR is src1 + alpha src2, rounded once; beta means nothing to it and is refused.
static void add_tensor_takes_alpha(void** state) {
  (void)state;
  static const float alphas[] = {1, -1, 0, 0.5f, 2.75f, 1e-30f};
  for (size_t t = 0; t < sizeof alphas / sizeof *alphas; ++t) {
    for (size_t i = 0; i < 15; ++i) put(a, ECHO_NPU_F32, i, 0.1f * (float)i);
    for (size_t i = 0; i < 15; ++i) put(b, ECHO_NPU_F32, i, 3.3f - (float)i);
    echo_npu_packet p = vector(ECHO_NPU_FN_ADD, 3, 5);
    p.opcode = ECHO_NPU_OP_ADD_TENSOR;
    p.param[5] = bench_bits(alphas[t]);
    assert_int_equal(bench_send(model, &p), 0);
    for (size_t i = 0; i < 15; ++i) assert_true(f(c, i) == fmaf(alphas[t], f(b, i), f(a, i)));
    p.dst = A;  // in place
    assert_int_equal(bench_send(model, &p), 0);
    assert_memory_equal(a, c, 15 * sizeof(float));
  }
  echo_npu_packet p = vector(ECHO_NPU_FN_ADD, 3, 5);
  p.opcode = ECHO_NPU_OP_ADD_TENSOR;
  p.param[6] = bench_bits(1);
  assert_int_equal(bench_send(model, &p), ECHO_NPU_FAULT_RESERVED);
  bench_reset(model);
}

static void copies(void** state) {
  (void)state;
  for (size_t i = 0; i < 4000; ++i) a[i] = (uint8_t)bench_random(&seed);
  memset(c, 0xee, 8000);
  echo_npu_packet p = {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = A + 3, .dst = C + 5, .param = {1001}};
  assert_int_equal(bench_send(model, &p), 0);
  assert_memory_equal(c + 5, a + 3, 1001);
  assert_int_equal(c[4], 0xee);
  assert_int_equal(c[1006], 0xee);
  static const int types[] = {ECHO_NPU_I8, ECHO_NPU_BF16, ECHO_NPU_F32};
  for (int t = 0; t < 3; ++t) {
    uint32_t size = 1u << t, rows = 7, cols = 11;
    p = (echo_npu_packet){.opcode = ECHO_NPU_OP_COPY,
                          .flags = (uint32_t)types[t] << ECHO_NPU_FLAG_T1_SHIFT |
                                   (uint32_t)types[t] << ECHO_NPU_FLAG_TD_SHIFT,
                          .src1 = A,
                          .dst = C,
                          .param = {rows, cols, 13, 1, 1, 9}};  // a transpose
    assert_int_equal(bench_send(model, &p), 0);
    for (uint32_t i = 0; i < rows; ++i)
      for (uint32_t j = 0; j < cols; ++j)
        assert_memory_equal(c + size * (i + 9 * j), a + size * (13 * i + j), size);
    p = (echo_npu_packet){.opcode = ECHO_NPU_OP_FILL,
                          .flags = (uint32_t)types[t] << ECHO_NPU_FLAG_TD_SHIFT,
                          .dst = C,
                          .param = {3, 4, 0, 0, 5, 1, 0xa1b2c3d4}};
    assert_int_equal(bench_send(model, &p), 0);
    uint32_t pattern = 0xa1b2c3d4;
    for (uint32_t i = 0; i < 3; ++i)
      for (uint32_t j = 0; j < 4; ++j) assert_memory_equal(c + size * (5 * i + j), &pattern, size);
  }
}

static void gather_and_scatter(void** state) {
  (void)state;
  enum { TABLE = 10, COLS = 9, ROWS = 6 };
  const int64_t index[ROWS] = {3, 9, 0, 3, 3, 7};
  const int32_t narrow[ROWS] = {3, 9, 0, 3, 3, 7};
  for (size_t i = 0; i < TABLE * COLS; ++i) put(a, ECHO_NPU_F32, i, value(0));
  memcpy(b, index, sizeof index);
  echo_npu_packet p = {.opcode = ECHO_NPU_OP_GATHER,
                       .flags = ECHO_NPU_FLAG_INDEX64,
                       .src1 = A,
                       .src2 = B,
                       .dst = C,
                       .param = {ROWS, COLS, COLS, 0, COLS + 1, TABLE}};
  assert_int_equal(bench_send(model, &p), 0);
  for (int r = 0; r < ROWS; ++r)
    assert_memory_equal(c + 4 * r * (COLS + 1), a + 4 * index[r] * COLS, 4 * COLS);
  memcpy(b, narrow, sizeof narrow);
  memset(c, 0, 4 * TABLE * COLS);
  p.opcode = ECHO_NPU_OP_SCATTER_ADD;
  p.flags = 0;
  p.param[4] = COLS;
  assert_int_equal(bench_send(model, &p), 0);
  for (size_t j = 0; j < COLS; ++j)
    assert_true(f(c, 3 * COLS + j) == (f(a, j) + f(a, 3 * COLS + j)) + f(a, 4 * COLS + j));
  ((int32_t*)b)[4] = TABLE;
  assert_int_equal(bench_send(model, &p), ECHO_NPU_FAULT_INDEX);
  assert_int_equal(bench_fault_addr(model), B + 16);
  bench_reset(model);
  ((int32_t*)b)[4] = -1;
  assert_int_equal(bench_send(model, &p), ECHO_NPU_FAULT_INDEX);
  bench_reset(model);
}

static void repeat_loops_the_next_packet(void** state) {
  (void)state;
  // Four dimensions: out[i][j][r][c] = in[j][i][c][r], sizes 2 3 4 5.
  for (size_t i = 0; i < 120; ++i) put(a, ECHO_NPU_F32, i, (float)i);
  echo_npu_packet loops = {.opcode = ECHO_NPU_OP_REPEAT, .param = {2, 20, 0, 60, 3, 40, 0, 20}};
  echo_npu_packet p = {
      .opcode = ECHO_NPU_OP_COPY, .src1 = A, .dst = C, .param = {4, 5, 1, 4, 5, 1}};
  assert_int_equal(bench_send(model, &loops), 0);
  assert_int_equal(bench_send(model, &p), 0);
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 3; ++j)
      for (size_t r = 0; r < 4; ++r)
        for (size_t q = 0; q < 5; ++q)
          assert_true(f(c, ((i * 3 + j) * 4 + r) * 5 + q) == (float)(j * 40 + i * 20 + q * 4 + r));
  // It applies once.
  memset(c, 0, 480);
  assert_int_equal(bench_send(model, &p), 0);
  assert_true(f(c, 20) == 0);
  echo_npu_packet nop = {0};
  assert_int_equal(bench_send(model, &loops), 0);
  assert_int_equal(bench_send(model, &nop), ECHO_NPU_FAULT_REPEAT);
  bench_reset(model);
}

static void sync_stores_its_value(void** state) {
  (void)state;
  memset(c, 0, 32);
  echo_npu_packet p = {.opcode = ECHO_NPU_OP_SYNC,
                       .flags = ECHO_NPU_FLAG_IRQ,
                       .dst = C + 8,
                       .param = {0x89abcdef, 0x01234567}};
  assert_int_equal(bench_send(model, &p), 0);
  uint64_t v;
  memcpy(&v, c + 8, 8);
  assert_int_equal(v, 0x0123456789abcdefu);
  memcpy(&v, c + 16, 8);
  assert_int_equal(v, 0);
  assert_int_equal(echo_cmodel_read(model, ECHO_NPU_REG_IRQ_STATUS),
                   ECHO_NPU_IRQ_PACKET | ECHO_NPU_IRQ_DRAINED);
  echo_cmodel_write(model, ECHO_NPU_REG_IRQ_STATUS, 7);
  p.flags = ECHO_NPU_FLAG_STAMP;
  p.dst = C + 16;
  assert_int_equal(bench_send(model, &p), 0);
  memcpy(&v, c + 24, 8);
  assert_true(v > 0);
  assert_int_equal(echo_cmodel_read(model, ECHO_NPU_REG_IRQ_STATUS), ECHO_NPU_IRQ_DRAINED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(matmul_is_one_ascending_chain),
      cmocka_unit_test(splitting_k_changes_nothing),
      cmocka_unit_test(row_sums_follow_the_tree),
      cmocka_unit_test(softmax_is_softmax),
      cmocka_unit_test(norms_and_rope),
      cmocka_unit_test(operand_forms),
      cmocka_unit_test(add_tensor_takes_alpha),
      cmocka_unit_test(copies),
      cmocka_unit_test(gather_and_scatter),
      cmocka_unit_test(repeat_loops_the_next_packet),
      cmocka_unit_test(sync_stores_its_value),
  };
  return cmocka_run_group_tests(tests, open_model, close_model);
}
