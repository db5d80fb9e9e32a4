// Peaks of a GPU, measured: multiply-adds of f32 and f64 outside of tensor cores, memory reads and
// copies. What tensor cores can do at most has no kernel here.
#include "backends/gpu/gpu.h"

enum { THREADS = 256, STEPS = 4096, CHAINS = 16, LAUNCHES = 8 };

typedef struct sample {
  hy_peak kind;
  hy_dtype dtype;
  void* dst;
  const void* src;
  long long lines;
  uint64_t never;  // where nothing is written
} sample;

static void launch(hy__gpu_task* task, const sample* s, double* done) {
  unsigned blocks = (unsigned)task->device->multiprocessors * 8;
  int steps = STEPS;
  float f = 0.5f;
  double d = 0.5;
  bool wide = s->dtype == HY_F64;
  void** arguments;
  switch (s->kind) {
    case HY_PEAK_READ:
      hy__gpu_launch(task, hy__gpu_kernel(task, "peak", "peak_read", ""), hy__gpu_1d(blocks),
                     hy__gpu_1d(THREADS), 0,
                     HY__GPU_ARGS((void*)&s->src, (void*)&s->lines, (void*)&s->never));
      *done = 16.0 * (double)s->lines;
      break;
    case HY_PEAK_COPY:
      hy__gpu_launch(task, hy__gpu_kernel(task, "peak", "peak_copy", ""), hy__gpu_1d(blocks),
                     hy__gpu_1d(THREADS), 0,
                     HY__GPU_ARGS((void*)&s->dst, (void*)&s->src, (void*)&s->lines));
      *done = 32.0 * (double)s->lines;
      break;
    default:
      arguments = HY__GPU_ARGS(&steps, wide ? (void*)&d : (void*)&f, (void*)&s->never);
      hy__gpu_launch(task, hy__gpu_kernel(task, "peak", wide ? "peak_f64" : "peak_f32", ""),
                     hy__gpu_1d(blocks), hy__gpu_1d(THREADS), 0, arguments);
      *done = 2.0 * STEPS * CHAINS * THREADS * blocks;
  }
}

// The last LAUNCHES of twice as many, by events.
static hy_status measure(hy__gpu_task* task, const sample* s, double* per_second) {
  void *start = NULL, *stop = NULL;
  double done = 0, milliseconds = 0;
  hy_status status = hy__gpu_event_create(task->device, &start);
  if (status == HY_OK) status = hy__gpu_event_create(task->device, &stop);
  for (int i = 0; i < 2 * LAUNCHES && status == HY_OK; i++) {
    if (i == LAUNCHES) status = hy__gpu_event_record(task->device, start, task->stream);
    launch(task, s, &done);
    if (status == HY_OK) status = task->status;
  }
  if (status == HY_OK) status = hy__gpu_event_record(task->device, stop, task->stream);
  if (status == HY_OK) status = hy__gpu_stream_sync(task->device, task->stream);
  if (status == HY_OK) status = hy__gpu_event_elapsed(task->device, start, stop, &milliseconds);
  if (start) hy__gpu_event_destroy(task->device, start);
  if (stop) hy__gpu_event_destroy(task->device, stop);
  if (status == HY_OK) *per_second = done * LAUNCHES / (milliseconds * 1e-3);
  return status;
}

hy_status hy__gpu_peak(void* device, hy_peak kind, hy_dtype dtype, void* dst, const void* src,
                       size_t bytes, double* per_second) {
  hy__gpu_device* d = device;
  void* stream = NULL;
  if (kind == HY_PEAK_MULTIPLY_ADD ? dtype != HY_F32 && dtype != HY_F64 : bytes < 16)
    return hy__backend_host->fail(
        HY_UNSUPPORTED, "%s measures f32, f64 and memory of 16 bytes and more", d->api->name);
  HY_TRY(hy__gpu_stream_create(device, &stream));
  hy__gpu_task task = {.device = d, .stream = stream};
  bool entered = hy__gpu_enter(d);
  sample s = {kind, dtype, dst, src, (long long)(bytes / 16), hy__gpu_counters(&task)};
  hy_status status = task.status;
  if (status == HY_OK) status = measure(&task, &s, per_second);
  hy__gpu_leave(d, entered);
  hy__gpu_stream_destroy(device, stream);
  return status;
}
