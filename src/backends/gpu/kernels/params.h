// What the host passes to the larger kernels, by value: plain C for both sides. Strides count
// elements, sizes fit an int where they are one.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_PARAMS_H_
#define HALYARD_BACKENDS_GPU_KERNELS_PARAMS_H_

// out[m, n] = alpha a[m, k] b[k, n] + beta addend[m, n], once for each of a batch. One of each
// operand's two dimensions has stride 1, which one is known where the kernel is compiled; `a_step`
// and `b_step` are the other's.
typedef struct hy_gemm {
  const void *a, *b, *addend;  // addend NULL: none
  void* out;
  int m, n, k, batch;
  long long a_step, a_batch, b_step, b_batch;
  long long addend_row, addend_column, addend_batch;
  long long out_row, out_column, out_batch;
  double alpha, beta;
  long long alpha_int, beta_int;
  int splits;     // split-K: parts of k, each a block's
  void* partial;  // their sums, [splits, batch, m, n] as accumulated, where there are several
} hy_gemm;

// out[m, n] = x[m, k] weight[n, k] + bias[n], where the weight is `q`, a number of few bits, times
// the scale of its group: `group` numbers along k share one, scale[n, k / group].
typedef struct hy_quantized_linear {
  const void *x, *q, *bias;  // bias NULL: none
  const float *x_scale, *scale;
  void* out;
  int m, n, k;
  int x_group, group;
  long long x_row, q_row, out_row, out_column;
  long long x_scale_row, scale_row, bias_step;
  // Split-K among blocks: sums of a part each, [splits, m, n], and a word of 0 for each tile.
  int splits;
  float* partial;
  unsigned* counters;
} hy_quantized_linear;

// out = f(norm(x) weight^T + bias) + residual, where the norm, the bias and the residual may be
// NULL and f multiplies one half by SiLU of the other, or nothing. A weight of few bits has
// `groups` scales in a row, one for each `group` numbers. All contiguous but for the steps between
// rows.
typedef struct hy_fused_linear {
  const void *x, *norm, *weight, *bias, *residual;
  const float* scale;
  void* out;
  int m, n, k, rows;  // rows of the weight: n, or twice that where `gated`
  int group, groups, gated;
  int wide;   // out is f32 whatever x is
  int early;  // weight and norm may be read before the kernel before is done
  long long x_row, out_row, residual_row;
  double eps;
  // Split-K of gemm_batch.cu: sums of a part each, and a word of 0 for each tile.
  int splits;
  float* partial;
  unsigned* counters;
} hy_fused_linear;

// One new token of each sequence: q and k turn by its position, k and v go into the paged cache,
// and q attends to all of it. qkv [sequences, heads + 2 kv_heads, size]; angles [positions, size /
// 2].
typedef struct hy_decode {
  const void *qkv, *cosine, *sine;
  void *k, *v, *out;  // caches [blocks, block, kv_heads, size]
  const void *table, *length;
  float* partial;  // [sequences, heads, splits, size + 2]: sums, then the largest score, the total
  unsigned* counters;
  int sequences, heads, kv_heads, size, blocks, block, most_blocks, positions;
  int splits, early;
  int table_dtype, length_dtype, angle_dtype;  // hy_dtype
  double scale;
} hy_decode;

// New tokens: q and k turn by their positions, k and v go to their slots of the paged cache. qkv
// [tokens, heads + 2 kv_heads, size]; qk [tokens, heads + kv_heads, size]; angles [positions, half
// a size]; caches [slots, kv_heads, size].
typedef struct hy_rope_cache {
  const void *qkv, *cosine, *sine, *position, *slot;
  void *k, *v, *qk;
  long long tokens, slots, positions;
  int heads, kv_heads, size;
  int position_dtype, slot_dtype, angle_dtype;  // hy_dtype
} hy_rope_cache;

// Contiguous rows whose numbers share a scale in groups; a row is a whole number of groups.
typedef struct hy_quantize {
  const void* x;
  void* q;
  float* scale;
  void* out;         // dequantize
  long long groups;  // of all rows
  int group;         // numbers
  int early;         // q and scale may be read before the kernel before is done
} hy_quantize;

// out[m, n] = x[m, k] weight[n, k] + bias[n], with two of every four weights: values[n, k / 2] and
// their places, codes[n, k / 8].
typedef struct hy_sparse_linear {
  const void *x, *values, *bias;
  const unsigned char* codes;
  void* out;
  int m, n, k;
} hy_sparse_linear;

// Mixture of experts over contiguous tensors. A choice is a token's c-th expert, token * chosen +
// c.
typedef struct hy_moe {
  const void *x, *gate_up,
      *down;                // [tokens, size], [experts, 2 hidden, size], [experts, size, hidden]
  const void *weight, *id;  // [tokens, chosen]
  void* out;                // [tokens, size]
  int* first;               // [experts + 1]: where an expert's choices begin in `order`
  int* order;               // [tokens chosen]: choices by expert, ascending
  void* inner;              // [tokens chosen, hidden], as accumulated
  void* partial;            // [tokens chosen, size], as accumulated
  int tokens, size, hidden, experts, chosen;
  int weight_dtype, id_dtype;  // hy_dtype
} hy_moe;

// A chain of elementwise calls over tensors of n elements. Contiguous, or rows of `columns` vectors
// of 16 bytes, each as many vectors behind the one before as its *_row says.
#define HY_CHAIN_INPUTS 4
#define HY_CHAIN_OUTPUTS 3
typedef struct hy_chain_tensors {
  const void* in[HY_CHAIN_INPUTS];
  void* out[HY_CHAIN_OUTPUTS];
  long long n, columns;
  long long in_row[HY_CHAIN_INPUTS], out_row[HY_CHAIN_OUTPUTS];
} hy_chain_tensors;

// Heads of attention: q [batch, heads, queries, size], k and v [batch, kv_heads, keys, size or
// value_size]; the last dimension has stride 1. The mask may be repeated by strides of 0.
typedef struct hy_heads {
  void* data;
  long long batch, head, row;
} hy_heads;

typedef struct hy_attention {
  hy_heads q, k, v, out;
  hy_heads dout, dq, dk, dv;  // backward
  void *lse, *delta;          // [batch, heads, queries], contiguous
  // Where dk and dv are summed by query head first: [dk, dv][batch, heads, keys, padded size]. Of a
  // forward whose keys fall into parts: [splits, batch, heads, queries, value_size].
  float* partial;
  float* partial_lse;  // [splits, batch, heads, queries]
  const void* mask;
  long long mask_batch, mask_head, mask_row, mask_column;
  int batches, heads, kv_heads, queries, keys, size, value_size;
  int splits;      // parts of the keys, each a block's
  int causal;      // hy_causal
  int mask_dtype;  // hy_dtype
  double scale;
} hy_attention;

// Attention over a paged cache: q [tokens, heads, size], caches [blocks, block, kv_heads, size or
// value_size], contiguous indices. Each sequence's context falls into `splits` parts, which meet in
// `partial` and `partial_lse`; with one part they are not used.
typedef struct hy_paged {
  const void *q, *k, *v;
  void* out;
  const void *table, *start, *length;
  float* partial;      // [splits, tokens, heads, value_size]
  float* partial_lse;  // [splits, tokens, heads]
  long long q_token, q_head, out_token, out_head;
  long long k_block, k_row, k_head, v_block, v_row, v_head;
  int tokens, heads, kv_heads, size, value_size;
  int sequences, blocks, block, most_blocks;
  int splits;
  int table_dtype, start_dtype, length_dtype;  // hy_dtype
  double scale;
} hy_paged;

// A convolution's sizes; tensors contiguous, [images, channels, h, w] and [out, in / groups, kh,
// kw].
typedef struct hy_conv {
  const void *x, *weight, *bias, *dy;
  void *out, *dx, *dweight, *dbias;
  void*
      partial;  // sums of dweight over a part of the pixels each, [splits, dweight], as accumulated
  int images, in_channels, out_channels, groups, group_in, group_out;
  int h, w, out_h, out_w, kernel_h, kernel_w;
  int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  int splits;
} hy_conv;

// Windows over planes; tensors contiguous.
typedef struct hy_pool {
  const void *x, *dy;
  void *out, *dx;
  const long long* index_in;
  long long* index;
  long long planes;
  int h, w, out_h, out_w, kernel_h, kernel_w;
  int stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
  int count_padding;
  long long divisor;
} hy_pool;

#endif  // HALYARD_BACKENDS_GPU_KERNELS_PARAMS_H_
