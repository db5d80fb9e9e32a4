// echo_build.c - packet lists: operands checked and encoded, scratch memory taken as needed.
#include "echo_build.h"

void echo__build_begin(echo_build* b, echoNpuStream stream) {
  b->count = 0;
  b->scratch_count = 0;
  b->stream = NULL;
  b->error = echo__stream(stream, &b->stream);
}

uint64_t echo__build_address(echo_build* b, const void* ptr, uint64_t bytes) {
  echo_device* d;
  uint64_t address = 0;
  if (b->error) return 0;
  b->error = echo__resolve(ptr, bytes, &d, &address);
  if (!b->error && d != b->stream->device)
    b->error = echo__fail(ECHO_NPU_ERROR_INVALID_POINTER,
                          "%p is memory of %s device %d, the stream is of %s device %d", ptr,
                          d->driver->name, d->index, b->stream->device->driver->name,
                          b->stream->device->index);
  return b->error ? 0 : address;
}

uint64_t echo__build_scratch(echo_build* b, uint64_t bytes) {
  uint64_t address = 0;
  if (b->error) return 0;
  if (b->scratch_count == ECHO_BUILD_SCRATCH) {
    b->error = echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "too many scratch buffers");
    return 0;
  }
  b->error = echo__reserve(b->stream->device, bytes, -1, &address);
  if (!b->error) b->scratch[b->scratch_count++] = address;
  return address;
}

void echo__build_packet(echo_build* b, echo_npu_packet packet) {
  if (b->error) return;
  if (b->count == ECHO_BUILD_MAX) {
    // Packets of one operation may be split anywhere but after a REPEAT, which never comes last
    // here.
    b->error = echo__submit(b->stream, b->packets, b->count);
    b->count = 0;
    if (b->error) return;
  }
  b->packets[b->count++] = packet;
}

void echo__build_repeat(echo_build* b, const uint64_t outer[4], const uint64_t inner[4]) {
  if (outer[0] == 1 && inner[0] == 1) return;
  echo_npu_packet p = {.opcode = ECHO_NPU_OP_REPEAT};
  for (int i = 0; i < 4; ++i) {
    uint64_t limit = i ? ECHO_NPU_MAX_STRIDE : ECHO_NPU_MAX_DIM;
    if (!b->error && (outer[i] > limit || inner[i] > limit))
      b->error = echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "a batch or its stride is too large");
    p.param[ECHO_NPU_P_OUTER + i] = (uint32_t)outer[i];
    p.param[ECHO_NPU_P_INNER + i] = (uint32_t)inner[i];
  }
  if (b->count + 2 > ECHO_BUILD_MAX && !b->error) {
    b->error = echo__submit(b->stream, b->packets, b->count);
    b->count = 0;
  }
  echo__build_packet(b, p);
}

echoNpuError echo__build_submit(echo_build* b) {
  if (!b->error) b->error = echo__submit(b->stream, b->packets, b->count);
  for (int i = 0; i < b->scratch_count; ++i)
    // A refused release has released at once: the stream holds no work any more.
    (void)echo__submit_release(b->stream, b->scratch[i]);
  return b->error;
}

static int dims_ok(echo_build* b, uint64_t x, uint64_t y, uint64_t z) {
  if (!b->error && (x > ECHO_NPU_MAX_DIM || y > ECHO_NPU_MAX_DIM || z > ECHO_NPU_MAX_DIM))
    b->error =
        echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "a dimension is above %d", ECHO_NPU_MAX_DIM);
  return !b->error;
}

static int strides_ok(echo_build* b, uint64_t x, uint64_t y, uint64_t z) {
  if (!b->error && (x > ECHO_NPU_MAX_STRIDE || y > ECHO_NPU_MAX_STRIDE || z > ECHO_NPU_MAX_STRIDE))
    b->error =
        echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "a stride is above %d", ECHO_NPU_MAX_STRIDE);
  return !b->error;
}

void echo__build_vector(echo_build* b, const echo_vector_args* v) {
  if (v->rows == 0 || v->cols == 0) return;
  if (!dims_ok(b, v->rows, v->cols, 1) || !strides_ok(b, v->stride_x, v->stride_y, v->stride_dst))
    return;
  echo_npu_packet p = {
      .opcode = v->opcode ? v->opcode : ECHO_NPU_OP_VECTOR,
      .flags = v->fn << ECHO_NPU_FLAG_FN_SHIFT | v->flags,
      .src1 = v->x,
      .src2 = v->y,
      .dst = v->dst,
      .param = {(uint32_t)v->rows, (uint32_t)v->cols, (uint32_t)v->stride_x, (uint32_t)v->stride_y,
                (uint32_t)v->stride_dst, echo__bits(v->alpha), echo__bits(v->beta), 0}};
  echo__build_packet(b, p);
}

void echo__build_matmul(echo_build* b, const echo_matmul_args* a) {
  if (!dims_ok(b, a->m, a->n, a->k) || !strides_ok(b, a->lda, a->ldb, a->ldc)) return;
  echo_npu_packet p = {.opcode = ECHO_NPU_OP_MATMUL,
                       .flags = a->flags,
                       .src1 = a->a,
                       .src2 = a->b,
                       .dst = a->c,
                       .param = {(uint32_t)a->m, (uint32_t)a->n, (uint32_t)a->lda, (uint32_t)a->ldb,
                                 (uint32_t)a->ldc, (uint32_t)a->k, 0, 0}};
  echo__build_packet(b, p);
}
