// From calls to packets. A kernel of the provider is a function that writes packets for a call;
// asked with a batch that has no stream it writes nothing and only says whether it could, so that
// "supports" and "run" cannot disagree.
#ifndef HALYARD_BACKENDS_ECHO_PACKETS_H_
#define HALYARD_BACKENDS_ECHO_PACKETS_H_

#include "backends/echo/echo.h"

#define HY__ECHO_BATCH 64

typedef struct hy__echo_batch {
  hy__echo_stream* stream;  // NULL: a question
  hy_op op;
  hy_status status;  // the first failure; what follows it writes nothing
  size_t total;      // packets written so far, submitted or not
  size_t count;
  echo_npu_packet packets[HY__ECHO_BATCH];
} hy__echo_batch;

void hy__echo_begin(hy__echo_batch* batch, hy__echo_stream* stream, hy_op op);
hy_status hy__echo_end(hy__echo_batch* batch);

// A tensor as packets see it. Strides are in elements and never negative. Elements of 8 bytes are
// pairs of words.
typedef struct hy__echo_operand {
  uint64_t at;    // physical
  uint32_t type;  // ECHO_NPU_F32 ...: how arithmetic reads it, or the word that copies move
  int ndim;
  int64_t shape[HY_MAX_DIMS + 1], stride[HY_MAX_DIMS + 1];
} hy__echo_operand;

uint32_t hy__echo_size(uint32_t type);  // bytes of an element
// For arithmetic in f32: f32 and bf16.
hy_support hy__echo_float(hy__echo_batch* batch, const hy_tensor* t, hy__echo_operand* operand);
// For arithmetic in the types the NPU has: i8 and i32 besides.
hy_support hy__echo_number(hy__echo_batch* batch, const hy_tensor* t, hy__echo_operand* operand);
// For moving: any type, as words of its size.
hy_support hy__echo_words(hy__echo_batch* batch, const hy_tensor* t, hy__echo_operand* operand);
// Contiguous device memory until the end of the call.
hy__echo_operand hy__echo_temporary(hy__echo_batch* batch, uint32_t type, int ndim,
                                    const int64_t* shape);

int64_t hy__echo_numel(const hy__echo_operand* operand);
// The same elements seen in a larger shape, repeated by strides of 0.
hy__echo_operand hy__echo_expand(const hy__echo_operand* operand, int ndim, const int64_t* shape);
// One index of a dimension, which goes away.
hy__echo_operand hy__echo_select(const hy__echo_operand* operand, int dim, int64_t index);
// Part of a dimension.
hy__echo_operand hy__echo_slice(const hy__echo_operand* operand, int dim, int64_t start,
                                int64_t count);
// The dimensions of `mask` as one last dimension of stride 1, the others before it; false where the
// strides do not allow it.
bool hy__echo_slices(const hy__echo_operand* operand, uint32_t mask, hy__echo_operand* slices);
// The same for an input, by a copy where need be.
hy_support hy__echo_pack_slices(hy__echo_batch* batch, const hy__echo_operand* operand,
                                uint32_t mask, hy__echo_operand* slices);

// ---- Commands ----

// dst = src, of one shape and type.
hy_support hy__echo_copy(hy__echo_batch* batch, const hy__echo_operand* dst,
                         const hy__echo_operand* src);
hy_support hy__echo_fill(hy__echo_batch* batch, const hy__echo_operand* dst, uint32_t pattern);
// An F32 constant in memory, for functions that take no immediate.
hy__echo_operand hy__echo_constant(hy__echo_batch* batch, float value);

// dst = function(x, y), element by element; x and y are expanded to dst. y may be NULL.
hy_support hy__echo_map(hy__echo_batch* batch, uint32_t function, float alpha, float beta,
                        const hy__echo_operand* dst, const hy__echo_operand* x,
                        const hy__echo_operand* y);
// dst = function(x, immediate), or function(immediate, x) where swapped.
hy_support hy__echo_map_number(hy__echo_batch* batch, uint32_t function, float immediate,
                               bool swapped, const hy__echo_operand* dst,
                               const hy__echo_operand* x);

typedef struct hy__echo_row_function {
  uint32_t function, flags;
  float alpha, beta;
  uint32_t causal;  // with ECHO_NPU_FLAG_CAUSAL, in place of beta
} hy__echo_row_function;

// A function of rows: the last dimension of x. y (which may be NULL) has the dimensions of x or can
// be expanded to them; dst has them too, without the last for reductions.
hy_support hy__echo_rows(hy__echo_batch* batch, const hy__echo_row_function* f,
                         const hy__echo_operand* dst, const hy__echo_operand* x,
                         const hy__echo_operand* y);

// c = a b, or c += a b: the last two dimensions are matrices, those before them are equal.
hy_support hy__echo_matmul(hy__echo_batch* batch, bool accumulate, const hy__echo_operand* c,
                           const hy__echo_operand* a, const hy__echo_operand* b);
// out[o, i, :] = table[o, index[i], :].
hy_support hy__echo_gather(hy__echo_batch* batch, const hy__echo_operand* out,
                           const hy__echo_operand* table, const hy__echo_operand* index,
                           bool index64);
// table[index[i], :] += x[i, :], table in f32.
hy_support hy__echo_scatter_add(hy__echo_batch* batch, const hy__echo_operand* table,
                                const hy__echo_operand* x, const hy__echo_operand* index,
                                bool index64);

// out = softmax(scale q k^T) v for [..., heads, rows, size]; a scale of 0 is 1 / sqrt(size).
hy_support hy__echo_attend(hy__echo_batch* batch, double scale, hy_causal causal,
                           const hy__echo_operand* out, const hy__echo_operand* q,
                           const hy__echo_operand* k, const hy__echo_operand* v);

#define HY__ECHO_NEED(expression)              \
  do {                                         \
    hy_support need_ = (expression);           \
    if (need_ != HY_SUPPORT_YES) return need_; \
  } while (0)

// ---- The kernels, by family ----

typedef hy_support (*hy__echo_kernel)(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_elementwise(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_chain(hy__echo_batch* batch, const hy_chain* chain);
hy_support hy__echo_elementwise_scalar(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_relu_backward(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_addc(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_clamp(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_move(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_fill_op(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_join(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_embedding(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_embedding_backward(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_index_select(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_reduce(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_softmax(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_softmax_backward(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_norm(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_rope(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_product(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_addmm(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_linear(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_sdpa(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_index_put(hy__echo_batch* batch, const hy_call* call);
hy_support hy__echo_paged_attention(hy__echo_batch* batch, const hy_call* call);

#endif  // HALYARD_BACKENDS_ECHO_PACKETS_H_
