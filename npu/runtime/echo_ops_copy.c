// echo_ops_copy.c - embedding, cat, strided copies, and their gradients.
#include "echo_build.h"

static int code_of_size(size_t size) {
  return size == 1 ? ECHO_NPU_I8 : size == 2 ? ECHO_NPU_BF16 : ECHO_NPU_I32;
}

// ---- Embedding --------------------------------------------------------------------------------

static echoNpuError by_index(uint32_t opcode, float* dst, const float* src, const int64_t* indices,
                             size_t count, size_t dim, size_t table_rows, echoNpuStream stream) {
  echo_build b;
  const int gather = opcode == ECHO_NPU_OP_GATHER;
  if (count > ECHO_NPU_MAX_DIM || dim > ECHO_NPU_MAX_DIM || table_rows > ECHO_NPU_MAX_DIM)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "embedding: a dimension is above %d",
                      ECHO_NPU_MAX_DIM);
  echo__build_begin(&b, stream);
  uint64_t table = table_rows * dim * 4, rows = count * dim * 4;
  uint64_t s = echo__build_address(&b, src, gather ? table : rows);
  uint64_t i = echo__build_address(&b, indices, count * 8);
  uint64_t d = echo__build_address(&b, dst, gather ? rows : table);
  echo__build_packet(&b, (echo_npu_packet){.opcode = opcode,
                                           .flags = ECHO_NPU_FLAG_INDEX64,
                                           .src1 = s,
                                           .src2 = i,
                                           .dst = d,
                                           .param = {(uint32_t)count, (uint32_t)dim, (uint32_t)dim,
                                                     0, (uint32_t)dim, (uint32_t)table_rows}});
  return echo__build_submit(&b);
}

echoNpuError echoNpuEmbedding(float* out, const float* table, const int64_t* indices, size_t count,
                              size_t dim, size_t table_rows, echoNpuStream stream) {
  if (count == 0 || dim == 0) return ECHO_NPU_SUCCESS;
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "Embedding count=%zu dim=%zu table=%zu", count, dim,
              table_rows);
  return by_index(ECHO_NPU_OP_GATHER, out, table, indices, count, dim, table_rows, stream);
}

echoNpuError echoNpuEmbeddingBackward(float* dtable, const float* dout, const int64_t* indices,
                                      size_t count, size_t dim, size_t table_rows,
                                      echoNpuStream stream) {
  if (dim == 0 || table_rows == 0) return ECHO_NPU_SUCCESS;
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "EmbeddingBackward count=%zu dim=%zu table=%zu", count, dim,
              table_rows);
  echoNpuStream s;
  echoNpuError error = echo__stream(stream, &s);
  if (!error) error = echoNpuMemsetAsync(dtable, 0, table_rows * dim * 4, s);
  if (error || count == 0) return error;
  return by_index(ECHO_NPU_OP_SCATTER_ADD, dtable, dout, indices, count, dim, table_rows, s);
}

// ---- Strided copies ---------------------------------------------------------------------------

#define MAX_DIMS 9

typedef struct walk {
  size_t dims;
  size_t shape[MAX_DIMS], src[MAX_DIMS], dst[MAX_DIMS];
} walk;

// Drops dimensions of size 1 and joins neighbours that are one run in both operands.
static void simplify(walk* w) {
  size_t n = 0;
  for (size_t i = 0; i < w->dims; ++i) {
    if (w->shape[i] == 1) continue;
    if (n && w->src[n - 1] == w->src[i] * w->shape[i] && w->dst[n - 1] == w->dst[i] * w->shape[i]) {
      w->shape[n - 1] *= w->shape[i];
    } else {
      w->shape[n] = w->shape[i];
      n++;
    }
    w->src[n - 1] = w->src[i];
    w->dst[n - 1] = w->dst[i];
  }
  w->dims = n;
}

// Elements from the first to the last that the strides reach.
static uint64_t reach(const walk* w, const size_t* stride) {
  uint64_t last = 0;
  for (size_t i = 0; i < w->dims; ++i) last += (w->shape[i] - 1) * stride[i];
  return last + 1;
}

// The inner four dimensions are one command; the outer ones are loops here.
static void emit(echo_build* b, const walk* w, size_t dim, uint64_t src, uint64_t dst,
                 size_t size) {
  if (w->dims - dim > 4) {
    for (size_t i = 0; i < w->shape[dim] && !b->error; ++i)
      emit(b, w, dim + 1, src + i * w->src[dim] * size, dst + i * w->dst[dim] * size, size);
    return;
  }
  size_t shape[4] = {1, 1, 1, 1}, s[4] = {0, 0, 0, 0}, d[4] = {0, 0, 0, 0};
  for (size_t i = dim, at = 4 - (w->dims - dim); i < w->dims; ++i, ++at) {
    shape[at] = w->shape[i];
    s[at] = w->src[i];
    d[at] = w->dst[i];
  }
  for (int i = 0; i < 4; ++i)
    if (!b->error &&
        (shape[i] > ECHO_NPU_MAX_DIM || s[i] > ECHO_NPU_MAX_STRIDE || d[i] > ECHO_NPU_MAX_STRIDE))
      b->error =
          echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "copy: a dimension or stride is too large");
  if (!d[3]) d[3] = 1;
  echo__build_repeat(b, (uint64_t[]){shape[0], s[0], 0, d[0]},
                     (uint64_t[]){shape[1], s[1], 0, d[1]});
  uint32_t type = (uint32_t)code_of_size(size);
  echo__build_packet(
      b, (echo_npu_packet){.opcode = ECHO_NPU_OP_COPY,
                           .flags = type << ECHO_NPU_FLAG_T1_SHIFT | type << ECHO_NPU_FLAG_TD_SHIFT,
                           .src1 = src,
                           .dst = dst,
                           .param = {(uint32_t)shape[2], (uint32_t)shape[3], (uint32_t)s[2],
                                     (uint32_t)s[3], (uint32_t)d[2], (uint32_t)d[3]}});
}

echoNpuError echoNpuCopyStrided(void* dst, const size_t* dst_stride, const void* src,
                                const size_t* src_stride, const size_t* shape, size_t dims,
                                size_t element_size, echoNpuStream stream) {
  if (dims > MAX_DIMS - 1 ||
      (element_size != 1 && element_size != 2 && element_size != 4 && element_size != 8))
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "copy: %zu dimensions of %zu-byte elements",
                      dims, element_size);
  walk w = {.dims = dims};
  size_t unit = element_size == 8 ? 2 : 1;  // 8-byte elements are pairs of words
  for (size_t i = 0; i < dims; ++i) {
    if (shape[i] == 0) return ECHO_NPU_SUCCESS;
    w.shape[i] = shape[i];
    w.src[i] = src_stride[i] * unit;
    w.dst[i] = dst_stride[i] * unit;
  }
  if (unit == 2) {
    w.shape[dims] = 2;
    w.src[dims] = w.dst[dims] = 1;
    ++w.dims;
    element_size = 4;
  }
  simplify(&w);
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "CopyStrided dims=%zu", w.dims);
  echo_build b;
  echo__build_begin(&b, stream);
  uint64_t s = echo__build_address(&b, src, reach(&w, w.src) * element_size);
  uint64_t d = echo__build_address(&b, dst, reach(&w, w.dst) * element_size);
  emit(&b, &w, 0, s, d, element_size);
  return echo__build_submit(&b);
}

static void contiguous_strides(const size_t* shape, size_t dims, size_t* stride) {
  size_t step = 1;
  for (size_t i = dims; i-- > 0; step *= shape[i]) stride[i] = step;
}

echoNpuError echoNpuContiguous(void* out, const void* in, const size_t* shape, const size_t* stride,
                               size_t dims, size_t element_size, echoNpuStream stream) {
  size_t packed[MAX_DIMS];
  if (dims >= MAX_DIMS)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "contiguous: %zu dimensions", dims);
  contiguous_strides(shape, dims, packed);
  return echoNpuCopyStrided(out, packed, in, stride, shape, dims, element_size, stream);
}

echoNpuError echoNpuContiguousBackward(void* din, const void* dout, const size_t* shape,
                                       const size_t* stride, size_t dims, size_t element_size,
                                       echoNpuStream stream) {
  size_t packed[MAX_DIMS];
  if (dims >= MAX_DIMS)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "contiguous: %zu dimensions", dims);
  contiguous_strides(shape, dims, packed);
  return echoNpuCopyStrided(din, stride, dout, packed, shape, dims, element_size, stream);
}

// ---- Cat --------------------------------------------------------------------------------------

static echoNpuError join(void* whole, void* const* parts, const size_t* inner, size_t count,
                         size_t outer, size_t element_size, int split, echoNpuStream stream) {
  size_t total = 0, at = 0;
  for (size_t i = 0; i < count; ++i) total += inner[i];
  for (size_t i = 0; i < count; ++i) {
    const size_t shape[] = {outer, inner[i]}, part[] = {inner[i], 1}, full[] = {total, 1};
    char* place = (char*)whole + at * element_size;
    at += inner[i];
    if (!parts[i] || !inner[i]) continue;
    echoNpuError error =
        split ? echoNpuCopyStrided(parts[i], part, place, full, shape, 2, element_size, stream)
              : echoNpuCopyStrided(place, full, parts[i], part, shape, 2, element_size, stream);
    if (error) return error;
  }
  return ECHO_NPU_SUCCESS;
}

echoNpuError echoNpuCat(void* out, const void* const* inputs, const size_t* inner, size_t count,
                        size_t outer, size_t element_size, echoNpuStream stream) {
  for (size_t i = 0; i < count; ++i)
    if (!inputs[i] && inner[i] && outer)
      return echo__fail(ECHO_NPU_ERROR_INVALID_POINTER, "cat: input %zu is NULL", i);
  return join(out, (void* const*)inputs, inner, count, outer, element_size, 0, stream);
}

echoNpuError echoNpuCatBackward(void* const* dinputs, const void* dout, const size_t* inner,
                                size_t count, size_t outer, size_t element_size,
                                echoNpuStream stream) {
  return join((void*)dout, dinputs, inner, count, outer, element_size, 1, stream);
}
