// Random tensors on a GPU backend and on the cpu, and ops that run on both and are compared, or
// timed on the GPU. For programs of one file: everything is static.
#ifndef HALYARD_TESTS_GPU_TWINS_H_
#define HALYARD_TESTS_GPU_TWINS_H_

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "halyard/halyard.h"

static hy_device *gpu, *cpu;
static hy_stream *gpu_stream, *cpu_stream;
static const char* only;
static bool timing;
static int failures, runs;

static void must(hy_status status, const char* what) {
  if (status == HY_OK) return;
  fprintf(stderr, "%s: %s\n", what, hy_last_error());
  exit(2);
}

// ---- data: the same on both sides ----

typedef struct twin {
  hy_tensor host, device;
} twin;

static uint64_t state = 1;
static double uniform(void) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 11) * 0x1p-53;
}

static twin place(hy_dtype dtype, int ndim, const int64_t* shape) {
  twin t;
  must(hy_tensor_init(&t.host, NULL, dtype, ndim, shape), "shape");
  t.device = t.host;
  size_t bytes = hy_tensor_bytes(&t.host) + 64;
  must(hy_alloc(cpu_stream, bytes, &t.host.data), "host memory");
  must(hy_alloc(gpu_stream, bytes, &t.device.data), "device memory");
  memset(t.host.data, 0, bytes);
  return t;
}

static void upload(twin* t) {
  must(hy_memcpy(gpu_stream, t->device.data, t->host.data, hy_tensor_bytes(&t->host),
                 HY_COPY_HOST_TO_DEVICE),
       "upload");
  must(hy_stream_sync(gpu_stream), "upload");
}

static void put(void* at, hy_dtype dtype, int64_t i, double v) {
  float f = (float)v;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  switch (dtype) {
    case HY_F32: ((float*)at)[i] = f; break;
    case HY_F64: ((double*)at)[i] = v; break;
    case HY_BF16: ((uint16_t*)at)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); break;
    case HY_F16: {
      _Float16 h = (_Float16)f;
      memcpy((uint16_t*)at + i, &h, 2);
      break;
    }
    case HY_I8: ((int8_t*)at)[i] = (int8_t)v; break;
    case HY_I32: ((int32_t*)at)[i] = (int32_t)v; break;
    case HY_I64: ((int64_t*)at)[i] = (int64_t)v; break;
    default: ((uint8_t*)at)[i] = (uint8_t)v; break;
  }
}

static double get(const void* at, hy_dtype dtype, int64_t i) {
  switch (dtype) {
    case HY_F32: return ((const float*)at)[i];
    case HY_F64: return ((const double*)at)[i];
    case HY_BF16: {
      uint32_t bits = (uint32_t)((const uint16_t*)at)[i] << 16;
      float f;
      memcpy(&f, &bits, 4);
      return f;
    }
    case HY_F16: {
      _Float16 h;
      memcpy(&h, (const uint16_t*)at + i, 2);
      return (double)h;
    }
    case HY_I8: return ((const int8_t*)at)[i];
    case HY_I32: return ((const int32_t*)at)[i];
    case HY_I64: return (double)((const int64_t*)at)[i];
    default: return ((const uint8_t*)at)[i];
  }
}

static twin random_tensor(hy_dtype dtype, int ndim, const int64_t* shape, double low, double high) {
  twin t = place(dtype, ndim, shape);
  int64_t all = hy_tensor_numel(&t.host), block = (1 << 20) + 64;
  int64_t n =
      timing && all > block ? block : all;  // time needs random data, but not all of it anew
  if (dtype == HY_I4)
    for (int64_t i = 0; i < n / 2; i++) ((uint8_t*)t.host.data)[i] = (uint8_t)(uniform() * 256);
  else if (dtype == HY_F8E4M3 || dtype == HY_F8E5M2)  // finite ones
    for (int64_t i = 0; i < n; i++)
      ((uint8_t*)t.host.data)[i] = (uint8_t)((uniform() < 0.5 ? 128 : 0) + uniform() * 64);
  else
    for (int64_t i = 0; i < n; i++) put(t.host.data, dtype, i, low + (high - low) * uniform());
  size_t filled = (size_t)n * (size_t)hy_dtype_bits(dtype) / 8, bytes = hy_tensor_bytes(&t.host);
  for (size_t at = filled; at < bytes; at += filled)
    memcpy((char*)t.host.data + at, t.host.data, bytes - at < filled ? bytes - at : filled);
  upload(&t);
  return t;
}

static twin absent(void) {
  twin t = {hy_tensor_absent(), hy_tensor_absent()};
  return t;
}

static void release(twin* t) {
  if (t->host.dtype == HY_NONE) return;
  hy_free(cpu, t->host.data);
  hy_free(gpu, t->device.data);
}

// ---- one call on both sides ----

static double unit(hy_dtype dtype) {
  return dtype == HY_BF16  ? 0x1p-8
         : dtype == HY_F16 ? 0x1p-11
         : dtype == HY_F64 ? 0x1p-53
                           : 0x1p-24;
}

// `loose`: units that the largest element may be off by, relative to the output's largest.
static void compare(const char* name, const twin* t, int output, double loose) {
  size_t bytes = hy_tensor_bytes(&t->host);
  void* got = malloc(bytes);
  must(hy_memcpy(gpu_stream, got, t->device.data, bytes, HY_COPY_DEVICE_TO_HOST), "download");
  must(hy_stream_sync(gpu_stream), name);
  int64_t n = hy_tensor_numel(&t->host), bad = -1;
  double largest = 0, worst = 0;
  for (int64_t i = 0; i < n; i++) {
    double want = get(t->host.data, t->host.dtype, i);
    if (isfinite(want) && fabs(want) > largest) largest = fabs(want);
  }
  for (int64_t i = 0; i < n; i++) {
    double a = get(t->host.data, t->host.dtype, i), b = get(got, t->host.dtype, i);
    double off =
        a == b || (isnan(a) && isnan(b)) ? 0 : fabs(a - b) / (largest * unit(t->host.dtype));
    if (!(off <= worst)) {
      worst = off;
      bad = i;
    }
  }
  if (!(worst <= loose)) {
    failures++;
    printf(
        "FAILED %s, output %d: element %lld of %lld is %g, should be %g (%.1f units of the "
        "largest)\n",
        name, output, (long long)bad, (long long)n, get(got, t->host.dtype, bad),
        get(t->host.data, t->host.dtype, bad), worst);
  }
  free(got);
}

static double time_call(hy_call* call) {
  hy_event *start, *stop;
  must(hy_event_create(gpu, &start), "event");
  must(hy_event_create(gpu, &stop), "event");
  double best = INFINITY;
  for (int round = 0; round < 5; round++) {
    double ms;
    const int each = 20;
    must(hy_event_record(start, gpu_stream), "event");
    for (int i = 0; i < each; i++) must(hy_run(gpu_stream, call), "run");
    must(hy_event_record(stop, gpu_stream), "event");
    must(hy_event_sync(stop), "event");
    must(hy_event_elapsed(start, stop, &ms), "event");
    if (ms / each < best) best = ms / each;
  }
  hy_event_destroy(start);
  hy_event_destroy(stop);
  return best * 1e3;
}

static void check(const char* name, hy_op op, const hy_attrs* attrs, int n_in, twin* in,
                  double loose, double flops, double bytes) {
  hy_tensor host_in[8], device_in[8], host_out[HY_MAX_OUTPUTS], device_out[HY_MAX_OUTPUTS];
  twin out[HY_MAX_OUTPUTS];
  for (int i = 0; i < n_in; i++) {
    host_in[i] = in[i].host;
    device_in[i] = in[i].device;
  }
  hy_call call = {.op = op, .n_in = n_in, .in = host_in, .out = host_out, .attrs = *attrs};
  must(hy_infer(&call, host_out), name);
  call.n_out = hy_op_describe(op)->n_outputs;
  for (int o = 0; o < call.n_out; o++) {
    out[o] = place(host_out[o].dtype, host_out[o].ndim, host_out[o].shape);
    out[o].host.layout = out[o].device.layout = host_out[o].layout;
    host_out[o] = out[o].host;
    device_out[o] = out[o].device;
  }
  hy_call on_gpu = call;
  on_gpu.in = device_in;
  on_gpu.out = device_out;
  runs++;
  must(hy_run(gpu_stream, &on_gpu), name);
  must(hy_stream_sync(gpu_stream), name);
  if (!timing) {
    must(hy_run(cpu_stream, &call), name);
    for (int o = 0; o < call.n_out; o++)
      compare(name, &out[o], o, out[o].host.dtype == HY_F32 && loose < 64 ? 64 : loose);
  } else {
    double us = time_call(&on_gpu);
    printf("%-64s %9.1f us %8.1f TFLOP/s %8.0f GB/s\n", name, us, flops / us * 1e-6,
           bytes / us * 1e-3);
  }
  for (int o = 0; o < call.n_out; o++) release(&out[o]);
  for (int i = 0; i < n_in; i++) release(&in[i]);
}

static bool wanted(const char* name) {
  return !only || strstr(name, only);
}

// ---- the program ----

// [--backend cuda:0] [--only TEXT] [--time]; the exit status.
static int run_twins(int argc, char** argv, void (*correctness)(void), void (*speed)(void)) {
  const char* backend = "cuda:0";
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--backend") && i + 1 < argc)
      backend = argv[++i];
    else if (!strcmp(argv[i], "--only") && i + 1 < argc)
      only = argv[++i];
    else if (!strcmp(argv[i], "--time"))
      timing = true;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  must(hy_init(), "init");
  must(hy_device_get(backend, &gpu), backend);
  must(hy_device_get("cpu", &cpu), "cpu");
  must(hy_stream_default(gpu, &gpu_stream), "stream");
  must(hy_stream_default(cpu, &cpu_stream), "stream");
  hy_set_strict(true);
  if (timing)
    speed();
  else
    correctness();
  printf("%d calls, %d failed\n", runs, failures);
  hy_shutdown();
  return failures != 0;
}

#endif  // HALYARD_TESTS_GPU_TWINS_H_
