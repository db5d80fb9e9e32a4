// echo_ops.c - elementwise and row operations.
#include <math.h>

#include "echo_build.h"
#include "echo_ops.h"

// ---- Elementwise ------------------------------------------------------------------------------

// n elements as one packet, or several above the largest dimension.
static echoNpuError elementwise(const char* name, uint32_t opcode, uint32_t fn, uint32_t flags,
                                float* out, const float* a, const float* b, float alpha, float beta,
                                size_t n, echoNpuStream stream) {
  echo_build build;
  if (n == 0) return ECHO_NPU_SUCCESS;
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "%s n=%zu", name, n);
  echo__build_begin(&build, stream);
  uint64_t x = echo__build_address(&build, a, n * 4);
  uint64_t y = b ? echo__build_address(&build, b, n * 4) : 0;
  uint64_t d = echo__build_address(&build, out, n * 4);
  for (uint64_t at = 0, cols; at < n && !build.error; at += cols) {
    cols = n - at < ECHO_NPU_MAX_DIM ? n - at : ECHO_NPU_MAX_DIM & ~63;
    echo__build_vector(&build, &(echo_vector_args){.opcode = opcode,
                                                   .fn = fn,
                                                   .flags = flags,
                                                   .dst = d + at * 4,
                                                   .x = x + at * 4,
                                                   .y = b ? y + at * 4 : 0,
                                                   .rows = 1,
                                                   .cols = cols,
                                                   .alpha = alpha,
                                                   .beta = beta});
  }
  return echo__build_submit(&build);
}

echoNpuError echo__elementwise(const char* name, uint32_t fn, uint32_t flags, float* out,
                               const float* a, const float* b, float alpha, float beta, size_t n,
                               echoNpuStream stream) {
  return elementwise(name, ECHO_NPU_OP_VECTOR, fn, flags, out, a, b, alpha, beta, n, stream);
}

echoNpuError echoNpuAddTensorAlpha(float* out, const float* a, const float* b, float alpha,
                                   size_t n, echoNpuStream stream) {
  if (!b) return echo__fail(ECHO_NPU_ERROR_INVALID_POINTER, "AddTensor: b is NULL");
  return elementwise("AddTensor", ECHO_NPU_OP_ADD_TENSOR, 0, 0, out, a, b, alpha, 0, n, stream);
}

echoNpuError echoNpuAddTensor(float* out, const float* a, const float* b, size_t n,
                              echoNpuStream stream) {
  return echoNpuAddTensorAlpha(out, a, b, 1, n, stream);
}

#define BINARY(Name, FN)                                                               \
  echoNpuError echoNpu##Name(float* out, const float* a, const float* b, size_t n,     \
                             echoNpuStream stream) {                                   \
    if (!b) return echo__fail(ECHO_NPU_ERROR_INVALID_POINTER, "%s: b is NULL", #Name); \
    return echo__elementwise(#Name, ECHO_NPU_FN_##FN, 0, out, a, b, 0, 0, n, stream);  \
  }
BINARY(SubTensor, SUB)
BINARY(MulTensor, MUL)
BINARY(DivTensor, DIV)
BINARY(PowTensor, POW)

#define UNARY(Name, FN)                                                                    \
  echoNpuError echoNpu##Name(float* out, const float* a, size_t n, echoNpuStream stream) { \
    return echo__elementwise(#Name, ECHO_NPU_FN_##FN, 0, out, a, NULL, 0, 0, n, stream);   \
  }
UNARY(Neg, NEG)
UNARY(Abs, ABS)
UNARY(Sqrt, SQRT)
UNARY(Rsqrt, RSQRT)
UNARY(Exp, EXP)
UNARY(Log, LOG)
UNARY(Cos, COS)
UNARY(Sin, SIN)
UNARY(Tanh, TANH)
UNARY(Sigmoid, SIGMOID)
UNARY(SiLU, SILU)
UNARY(GELU, GELU)
UNARY(ReLU, RELU)

echoNpuError echoNpuAddScalar(float* out, const float* a, float s, size_t n, echoNpuStream stream) {
  return echo__elementwise("AddScalar", ECHO_NPU_FN_ADD, ECHO_NPU_FLAG_SRC2_IMM, out, a, NULL, s, 0,
                           n, stream);
}

echoNpuError echoNpuMulScalar(float* out, const float* a, float s, size_t n, echoNpuStream stream) {
  return echo__elementwise("MulScalar", ECHO_NPU_FN_MUL, ECHO_NPU_FLAG_SRC2_IMM, out, a, NULL, s, 0,
                           n, stream);
}

// The exponents models use have exact forms of their own.
echoNpuError echoNpuPow(float* out, const float* a, float exponent, size_t n,
                        echoNpuStream stream) {
  if (exponent == 2)
    return echo__elementwise("Pow", ECHO_NPU_FN_MUL, 0, out, a, a, 0, 0, n, stream);
  return echo__elementwise("Pow", ECHO_NPU_FN_POW, ECHO_NPU_FLAG_SRC2_IMM, out, a, NULL, exponent,
                           0, n, stream);
}

echoNpuError echoNpuClone(float* out, const float* a, size_t n, echoNpuStream stream) {
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "Clone n=%zu", n);
  return echoNpuMemcpyAsync(out, a, n * 4, ECHO_NPU_MEMCPY_DEVICE_TO_DEVICE, stream);
}

echoNpuError echoNpuCast(void* out, int out_type, const void* a, int a_type, size_t n,
                         echoNpuStream stream) {
  echo_build b;
  if (n == 0) return ECHO_NPU_SUCCESS;
  if (out_type < 0 || out_type > 3 || a_type < 0 || a_type > 3)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "cast: type %d to %d", a_type, out_type);
  static const uint64_t sizes[] = {4, 2, 1, 4};
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "Cast n=%zu", n);
  echo__build_begin(&b, stream);
  uint64_t x = echo__build_address(&b, a, n * sizes[a_type]);
  uint64_t d = echo__build_address(&b, out, n * sizes[out_type]);
  echo__build_vector(&b, &(echo_vector_args){.fn = ECHO_NPU_FN_MOVE,
                                             .flags = (uint32_t)a_type << ECHO_NPU_FLAG_T1_SHIFT |
                                                      (uint32_t)out_type << ECHO_NPU_FLAG_TD_SHIFT,
                                             .dst = d,
                                             .x = x,
                                             .rows = 1,
                                             .cols = n});
  return echo__build_submit(&b);
}

echoNpuError echoNpuQuantize(int8_t* out, const float* a, float scale, int zero_point, size_t n,
                             echoNpuStream stream) {
  echo_build b;
  if (n == 0) return ECHO_NPU_SUCCESS;
  if (!isnormal(scale) || scale < 0 || zero_point < -128 || zero_point > 127)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE,
                      "quantize: scale %g is to be positive, zero point %d from -128 to 127",
                      (double)scale, zero_point);
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "Quantize n=%zu", n);
  echo__build_begin(&b, stream);
  uint64_t x = echo__build_address(&b, a, n * 4);
  uint64_t d = echo__build_address(&b, out, n);
  echo__build_vector(&b, &(echo_vector_args){.fn = ECHO_NPU_FN_SCALE,
                                             .flags = ECHO_NPU_I8 << ECHO_NPU_FLAG_TD_SHIFT,
                                             .dst = d,
                                             .x = x,
                                             .rows = 1,
                                             .cols = n,
                                             .alpha = 1 / scale,
                                             .beta = (float)zero_point});
  return echo__build_submit(&b);
}

// ---- Rows -------------------------------------------------------------------------------------

static echoNpuError row_function(const char* name, uint32_t fn, float* out, const float* a,
                                 const float* b, int b_is_one_row, size_t rows, size_t cols,
                                 size_t out_cols, float alpha, float beta, echoNpuStream stream) {
  echo_build build;
  if (rows == 0 || cols == 0) return ECHO_NPU_SUCCESS;
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "%s rows=%zu cols=%zu", name, rows, cols);
  echo__build_begin(&build, stream);
  uint64_t x = echo__build_address(&build, a, rows * cols * 4);
  uint64_t y = b ? echo__build_address(&build, b, (b_is_one_row ? 1 : rows) * cols * 4) : 0;
  uint64_t d = echo__build_address(&build, out, rows * out_cols * 4);
  echo__build_vector(&build, &(echo_vector_args){.fn = fn,
                                                 .dst = d,
                                                 .x = x,
                                                 .y = y,
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .stride_x = cols,
                                                 .stride_y = b && !b_is_one_row ? cols : 0,
                                                 .stride_dst = out_cols,
                                                 .alpha = alpha,
                                                 .beta = beta});
  return echo__build_submit(&build);
}

echoNpuError echoNpuSum(float* out, const float* a, size_t rows, size_t cols,
                        echoNpuStream stream) {
  return row_function("Sum", ECHO_NPU_FN_ROW_SUM, out, a, NULL, 0, rows, cols, 1, 0, 0, stream);
}
echoNpuError echoNpuMean(float* out, const float* a, size_t rows, size_t cols,
                         echoNpuStream stream) {
  return row_function("Mean", ECHO_NPU_FN_ROW_MEAN, out, a, NULL, 0, rows, cols, 1, 0,
                      1.0f / (float)cols, stream);
}
echoNpuError echoNpuMax(float* out, const float* a, size_t rows, size_t cols,
                        echoNpuStream stream) {
  return row_function("Max", ECHO_NPU_FN_ROW_MAX, out, a, NULL, 0, rows, cols, 1, 0, 0, stream);
}
echoNpuError echoNpuSoftmax(float* out, const float* a, size_t rows, size_t cols,
                            echoNpuStream stream) {
  return row_function("Softmax", ECHO_NPU_FN_SOFTMAX, out, a, NULL, 0, rows, cols, cols, 1, 0,
                      stream);
}
echoNpuError echoNpuRMSNorm(float* out, const float* a, const float* weight, size_t rows,
                            size_t cols, float epsilon, echoNpuStream stream) {
  if (!weight) return echo__fail(ECHO_NPU_ERROR_INVALID_POINTER, "RMSNorm: weight is NULL");
  return row_function("RMSNorm", ECHO_NPU_FN_RMS_NORM, out, a, weight, 1, rows, cols, cols, epsilon,
                      1.0f / (float)cols, stream);
}

echoNpuError echoNpuLayerNorm(float* out, const float* a, const float* weight, const float* bias,
                              size_t rows, size_t cols, float epsilon, echoNpuStream stream) {
  if (!weight) return echo__fail(ECHO_NPU_ERROR_INVALID_POINTER, "LayerNorm: weight is NULL");
  echoNpuError error = row_function("LayerNorm", ECHO_NPU_FN_LAYER_NORM, out, a, weight, 1, rows,
                                    cols, cols, epsilon, 1.0f / (float)cols, stream);
  if (error || !bias) return error;
  return row_function("LayerNorm bias", ECHO_NPU_FN_ADD, out, out, bias, 1, rows, cols, cols, 0, 0,
                      stream);
}

echoNpuError echoNpuRope(float* out, const float* x, const float* table, size_t tokens,
                         size_t heads, size_t dim, echoNpuStream stream) {
  echo_build b;
  if (tokens == 0 || heads == 0 || dim == 0) return ECHO_NPU_SUCCESS;
  if (dim % 2) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "rope: dim %zu is odd", dim);
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "Rope tokens=%zu heads=%zu dim=%zu", tokens, heads, dim);
  echo__build_begin(&b, stream);
  uint64_t src = echo__build_address(&b, x, tokens * heads * dim * 4);
  uint64_t y = echo__build_address(&b, table, tokens * dim * 4);
  uint64_t d = echo__build_address(&b, out, tokens * heads * dim * 4);
  echo__build_repeat(&b, (uint64_t[]){tokens, heads * dim, dim, heads * dim},
                     (uint64_t[]){1, 0, 0, 0});
  echo__build_vector(&b, &(echo_vector_args){.fn = ECHO_NPU_FN_ROPE,
                                             .dst = d,
                                             .x = src,
                                             .y = y,
                                             .rows = heads,
                                             .cols = dim / 2,
                                             .stride_x = dim,
                                             .stride_dst = dim});
  return echo__build_submit(&b);
}

// ---- Gradients --------------------------------------------------------------------------------

static echoNpuError binary(uint32_t fn, float* out, const float* a, const float* b, float alpha,
                           size_t n, echoNpuStream stream) {
  return echo__elementwise("gradient", fn, 0, out, a, b, alpha, 0, n, stream);
}

echoNpuError echoNpuCloneBackward(float* da, const float* dout, size_t n, echoNpuStream stream) {
  return da == dout ? ECHO_NPU_SUCCESS : echoNpuClone(da, dout, n, stream);
}

echoNpuError echoNpuAddTensorBackward(float* da, float* db, const float* dout, size_t n,
                                      echoNpuStream stream) {
  echoNpuError error = da ? echoNpuCloneBackward(da, dout, n, stream) : ECHO_NPU_SUCCESS;
  return error || !db ? error : echoNpuCloneBackward(db, dout, n, stream);
}

echoNpuError echoNpuAddScalarBackward(float* da, const float* dout, size_t n,
                                      echoNpuStream stream) {
  return echoNpuCloneBackward(da, dout, n, stream);
}

echoNpuError echoNpuSubTensorBackward(float* da, float* db, const float* dout, size_t n,
                                      echoNpuStream stream) {
  echoNpuError error = da ? echoNpuCloneBackward(da, dout, n, stream) : ECHO_NPU_SUCCESS;
  return error || !db ? error : echoNpuNeg(db, dout, n, stream);
}

echoNpuError echoNpuMulTensorBackward(float* da, float* db, const float* dout, const float* a,
                                      const float* b, size_t n, echoNpuStream stream) {
  echoNpuError error = da ? echoNpuMulTensor(da, dout, b, n, stream) : ECHO_NPU_SUCCESS;
  return error || !db ? error : echoNpuMulTensor(db, dout, a, n, stream);
}

echoNpuError echoNpuMulScalarBackward(float* da, const float* dout, float s, size_t n,
                                      echoNpuStream stream) {
  return echoNpuMulScalar(da, dout, s, n, stream);
}

// da = dout / b; db = -dout a / b / b
echoNpuError echoNpuDivTensorBackward(float* da, float* db, const float* dout, const float* a,
                                      const float* b, size_t n, echoNpuStream stream) {
  echoNpuError error = ECHO_NPU_SUCCESS;
  if (db) {
    error = echoNpuDivTensor(db, a, b, n, stream);
    if (!error) error = echoNpuDivTensor(db, db, b, n, stream);
    if (!error) error = echoNpuMulTensor(db, db, dout, n, stream);
    if (!error) error = echoNpuNeg(db, db, n, stream);
  }
  return error || !da ? error : echoNpuDivTensor(da, dout, b, n, stream);
}

echoNpuError echoNpuNegBackward(float* da, const float* dout, size_t n, echoNpuStream stream) {
  return echoNpuNeg(da, dout, n, stream);
}

// dout / (2 out)
echoNpuError echoNpuSqrtBackward(float* da, const float* dout, const float* out, size_t n,
                                 echoNpuStream stream) {
  echoNpuError error = echoNpuDivTensor(da, dout, out, n, stream);
  return error ? error : echoNpuMulScalar(da, da, 0.5f, n, stream);
}

// dout * -out^3 / 2; da must not be an input
echoNpuError echoNpuRsqrtBackward(float* da, const float* dout, const float* out, size_t n,
                                  echoNpuStream stream) {
  echoNpuError error = echoNpuMulTensor(da, out, out, n, stream);
  if (!error) error = echoNpuMulTensor(da, da, out, n, stream);
  if (!error) error = echoNpuMulTensor(da, da, dout, n, stream);
  return error ? error : echoNpuMulScalar(da, da, -0.5f, n, stream);
}

// dout * e a^(e-1); da must not be an input
echoNpuError echoNpuPowBackward(float* da, const float* dout, const float* a, float exponent,
                                size_t n, echoNpuStream stream) {
  echoNpuError error = echoNpuPow(da, a, exponent - 1, n, stream);
  if (!error) error = echoNpuMulTensor(da, da, dout, n, stream);
  return error ? error : echoNpuMulScalar(da, da, exponent, n, stream);
}

// Each row of da is dout[row] / cols.
echoNpuError echoNpuMeanBackward(float* da, const float* dout, size_t rows, size_t cols,
                                 echoNpuStream stream) {
  echo_build b;
  if (rows == 0 || cols == 0) return ECHO_NPU_SUCCESS;
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "MeanBackward rows=%zu cols=%zu", rows, cols);
  echo__build_begin(&b, stream);
  uint64_t g = echo__build_address(&b, dout, rows * 4);
  uint64_t d = echo__build_address(&b, da, rows * cols * 4);
  if (rows > ECHO_NPU_MAX_DIM || cols > ECHO_NPU_MAX_DIM)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "mean: a dimension is too large");
  echo__build_packet(
      &b, (echo_npu_packet){.opcode = ECHO_NPU_OP_COPY,
                            .src1 = g,
                            .dst = d,
                            .param = {(uint32_t)rows, (uint32_t)cols, 1, 0, (uint32_t)cols, 1}});
  echo__build_vector(&b, &(echo_vector_args){.fn = ECHO_NPU_FN_MUL,
                                             .flags = ECHO_NPU_FLAG_SRC2_IMM,
                                             .dst = d,
                                             .x = d,
                                             .rows = rows,
                                             .cols = cols,
                                             .stride_x = cols,
                                             .stride_dst = cols,
                                             .alpha = 1.0f / (float)cols});
  return echo__build_submit(&b);
}

// -dout sin(a); da must not be dout
echoNpuError echoNpuCosBackward(float* da, const float* dout, const float* a, size_t n,
                                echoNpuStream stream) {
  echoNpuError error = echoNpuSin(da, a, n, stream);
  if (!error) error = echoNpuMulTensor(da, da, dout, n, stream);
  return error ? error : echoNpuNeg(da, da, n, stream);
}

echoNpuError echoNpuSinBackward(float* da, const float* dout, const float* a, size_t n,
                                echoNpuStream stream) {
  echoNpuError error = echoNpuCos(da, a, n, stream);
  return error ? error : echoNpuMulTensor(da, da, dout, n, stream);
}

echoNpuError echoNpuSiLUBackward(float* da, const float* dout, const float* a, size_t n,
                                 echoNpuStream stream) {
  return binary(ECHO_NPU_FN_SILU_BWD, da, dout, a, 0, n, stream);
}

echoNpuError echoNpuSoftmaxBackward(float* da, const float* dout, const float* out, size_t rows,
                                    size_t cols, echoNpuStream stream) {
  return row_function("SoftmaxBackward", ECHO_NPU_FN_SOFTMAX_BWD, da, dout, out, 0, rows, cols,
                      cols, 1, 0, stream);
}
