// The ECHO NPU's products beside those of the cpu backend: with the functional model both are the
// same processor's work, and the model's may not be much slower.
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"

enum { ROUNDS = 12, TURN = 4 };

// A product on one device.
typedef struct side {
  hy_device* device;
  hy_stream* stream;
  hy_tensor tensor[3];  // a, b and a b
  double best;
} side;

static hy_status prepare(side* s, const char* selector, int64_t size, const float* numbers) {
  *s = (side){.best = DBL_MAX};
  HY_TRY(hy_device_get(selector, &s->device));
  HY_TRY(hy_stream_default(s->device, &s->stream));
  for (int i = 0; i < 3; i++) {
    HY_TRY(hy_tensor_init(&s->tensor[i], NULL, HY_F32, 2, (int64_t[]){size, size}));
    size_t bytes = hy_tensor_bytes(&s->tensor[i]);
    HY_TRY(hy_alloc(s->stream, bytes, &s->tensor[i].data));
    HY_TRY(hy_memcpy(s->stream, s->tensor[i].data, numbers + i, bytes, HY_COPY_HOST_TO_DEVICE));
  }
  return hy_stream_sync(s->stream);
}

static void clear(side* s) {
  for (int i = 0; i < 3 && s->device; i++)
    if (s->tensor[i].data) hy_free(s->device, s->tensor[i].data);
}

// Several in a row: the other side's threads look out for more work for a while before they sleep.
static hy_status turn(side* s) {
  hy_call call = {.op = HY_OP_mm, .n_in = 2, .n_out = 1, .in = s->tensor, .out = &s->tensor[2]};
  for (int i = 0; i < TURN; i++) {
    double start = bench_now();
    HY_TRY(hy_run(s->stream, &call));
    HY_TRY(hy_stream_sync(s->stream));
    double taken = bench_now() - start;
    if (taken < s->best) s->best = taken;
  }
  return HY_OK;
}

static hy_status product(int64_t size, const float* numbers) {
  char text[64];
  snprintf(text, sizeof text, "%lldx%lldx%lld", (long long)size, (long long)size, (long long)size);
  if (!bench_wanted("mm", text, "f32")) return HY_OK;
  side npu = {0}, cpu = {0};
  double peak = 0;
  hy_status status = prepare(&npu, "echo", size, numbers);
  if (status == HY_OK) status = prepare(&cpu, "cpu", size, numbers);
  for (int i = 0; i < ROUNDS && status == HY_OK; i++) {
    status = turn(&npu);
    if (status == HY_OK) status = turn(&cpu);
    double sample = 1e-9 * bench_multiply_adds(cpu.device, HY_F32);
    if (sample > peak) peak = sample;
  }
  clear(&npu);
  clear(&cpu);
  HY_TRY(status);
  const double flops = 2e-9 * (double)size * (double)size * (double)size;
  bench_row row = {.name = "mm",
                   .shape = text,
                   .dtype = "f32",
                   .value = flops / npu.best,
                   .unit = "GFLOP/s",
                   .peer = "cpu",
                   .peer_value = flops / cpu.best,
                   .ratio = cpu.best / npu.best,
                   .floor = peak,
                   .of_floor = flops / npu.best / peak};
  bench_print(&row);
  return HY_OK;
}

hy_status bench_npu(hy_device* device) {
  (void)device;  // it compares two
  enum { LARGEST = 2048 };
  float* numbers = malloc(sizeof *numbers * ((size_t)LARGEST * LARGEST + 3));
  if (!numbers) return hy_fail(HY_OUT_OF_MEMORY, "bench: no memory for a matrix");
  for (int64_t i = 0; i < (int64_t)LARGEST * LARGEST + 3; i++)
    numbers[i] = (float)(i % 17 - 8) / 8.0f;
  hy_status status = HY_OK;
  for (int64_t size = 512; size <= LARGEST && status == HY_OK; size *= 2)
    status = product(size, numbers);
  free(numbers);
  return status;
}
