// What becomes of a process whose GPU fails: too large a request is an OUT_OF_MEMORY and changes
// nothing; a kernel that follows a bad address loses the device, with a status that says so, and
// the cpu goes on.
//
//   lost_device [--backend cuda:0]
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "halyard/halyard.h"

static int failures;

static void check(bool right, const char* what) {
  printf("%s %s: %s\n", right ? "ok    " : "FAILED", what, hy_last_error());
  failures += !right;
}

static void must(hy_status status, const char* what) {
  if (status == HY_OK) return;
  fprintf(stderr, "%s: %s\n", what, hy_last_error());
  exit(2);
}

// out = x + 1 over 1024 numbers.
static hy_status add_one(hy_stream* stream, void* x, void* out) {
  hy_tensor in, to;
  int64_t shape[] = {1024};
  must(hy_tensor_init(&in, x, HY_F32, 1, shape), "shape");
  must(hy_tensor_init(&to, out, HY_F32, 1, shape), "shape");
  hy_call call = {.op = HY_OP_add_scalar, .n_in = 1, .n_out = 1, .in = &in, .out = &to};
  call.attrs.value_alpha.value = hy_float(1);
  call.attrs.value_alpha.alpha = hy_int(1);
  hy_status status = hy_run(stream, &call);
  return status == HY_OK ? hy_stream_sync(stream) : status;
}

int main(int argc, char** argv) {
  const char* backend = argc > 2 && !strcmp(argv[1], "--backend") ? argv[2] : "cuda:0";
  hy_device *device, *cpu;
  hy_stream *stream, *cpu_stream;
  void *memory, *huge = NULL;
  must(hy_device_get(backend, &device), backend);
  must(hy_device_get("cpu", &cpu), "cpu");
  must(hy_stream_create(device, &stream), "stream");
  must(hy_stream_default(cpu, &cpu_stream), "stream");
  must(hy_alloc(stream, 8192, &memory), "memory");
  check(hy_alloc(stream, (size_t)1 << 46, &huge) == HY_OUT_OF_MEMORY, "64 TiB are refused");
  check(add_one(stream, memory, (char*)memory + 4096) == HY_OK, "and work goes on");
  char* nowhere = (char*)memory + ((size_t)1 << 42);
  check(add_one(stream, nowhere, (char*)memory + 4096) == HY_DEVICE_FAILED,
        "a bad address fails the stream");
  check(hy_stream_reset(stream) != HY_OK || add_one(stream, memory, memory) == HY_DEVICE_FAILED,
        "the device stays lost");
  void* host;
  must(hy_alloc(cpu_stream, 8192, &host), "host memory");
  memset(host, 0, 8192);
  check(add_one(cpu_stream, host, (char*)host + 4096) == HY_OK && ((float*)host)[1024] == 1,
        "the cpu goes on");
  return failures != 0;
}
