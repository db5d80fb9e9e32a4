// Conformance of a backend's optional functions: native and foreign streams, priorities, device of
// a pointer, peers, memory between processes, runtime compilation, host threads. What a backend
// lacks makes no case.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/internal.h"
#include "halyard/compile.h"
#include "verify/device_checks.h"

// ---- streams ----

enum { STEPS = 64, STEP_BYTES = 4096 };

// One stream writes, the other copies what it wrote, by turns: only in order is every copy right.
static hy_status alternate(hy_stream* a, hy_stream* b, char* memory, unsigned char* got) {
  for (int i = 0; i < STEPS; i++) {
    HY_TRY(hy_memset(i % 2 ? a : b, memory, i, STEP_BYTES));
    HY_TRY(hy_memcpy(i % 2 ? b : a, memory + (size_t)(i + 1) * STEP_BYTES, memory, STEP_BYTES,
                     HY_COPY_DEVICE_TO_DEVICE));
  }
  HY_TRY(
      hy_memcpy(a, got, memory + STEP_BYTES, (size_t)STEPS * STEP_BYTES, HY_COPY_DEVICE_TO_HOST));
  return hy_stream_sync(a);
}

static bool in_order(const unsigned char* got) {
  for (int i = 0; i < STEPS; i++) {
    for (int k = 0; k < STEP_BYTES; k++) {
      if (got[i * STEP_BYTES + k] != i) return false;
    }
  }
  return true;
}

static hy_status verify_native(hy_device* device, hy_stream* stream, char* memory,
                               unsigned char* got, hy__op_verdict* v) {
  void *native = NULL, *again = NULL;
  if (!hy__judge_status(v, hy_stream_native(stream, &native), "stream_native")) return HY_OK;
  HY_TRY(hy_stream_native(stream, &again));
  hy__judge(v, native == again, "stream_native gave two handles for one stream");
  if (!device->backend->stream_wrap) return HY_OK;
  hy_stream* foreign;
  if (!hy__judge_status(v, hy_stream_wrap(device, native, &foreign), "stream_wrap")) return HY_OK;
  again = NULL;
  hy_status status = hy_stream_native(foreign, &again);
  if (hy__judge(v, status == HY_OK && again == native,
                "a foreign stream has another native handle")) {
    status = alternate(stream, foreign, memory, got);
    hy__judge(v, status == HY_OK && in_order(got), "a stream and one over its native handle: %s",
              status == HY_OK ? "work ran out of order" : hy_last_error());
  }
  hy_stream_destroy(foreign);
  status = alternate(stream, stream, memory, got);
  hy__judge(v, status == HY_OK && in_order(got),
            "destroying the foreign stream left the native one unusable");
  return HY_OK;
}

static hy_status verify_priorities(hy_device* device, char* memory, unsigned char* got,
                                   hy__op_verdict* v) {
  int least, greatest;
  if (!hy__judge_status(v, hy_stream_priority_range(device, &least, &greatest),
                        "stream_priority_range"))
    return HY_OK;
  if (!hy__judge(v, greatest <= 0 && least >= 0, "priorities from %d to %d leave out 0", greatest,
                 least))
    return HY_OK;
  const int ends[] = {greatest, least};
  for (int i = 0; i < 2; i++) {
    hy_stream* s;
    if (!hy__judge_status(v, hy_stream_create_priority(device, ends[i], &s),
                          "stream_create_with_priority"))
      continue;
    hy_status status = alternate(s, s, memory, got);
    hy__judge(v, status == HY_OK && in_order(got), "a stream of priority %d does not work",
              ends[i]);
    hy_stream_destroy(s);
  }
  return HY_OK;
}

hy_status hy__verify_streams(hy_device* device, hy__op_verdict* v) {
  const hy_backend* backend = device->backend;
  if (!backend->stream_native && !backend->stream_create_with_priority) return HY_OK;
  const size_t bytes = (size_t)STEPS * STEP_BYTES;
  hy_stream* stream = NULL;
  void* memory = NULL;
  unsigned char* got = malloc(bytes);
  hy_status status = got ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no host memory to verify streams");
  if (status == HY_OK) status = hy_stream_create(device, &stream);
  if (status == HY_OK) status = hy_alloc(stream, bytes + STEP_BYTES, &memory);
  if (status == HY_OK && backend->stream_native)
    status = verify_native(device, stream, memory, got, v);
  if (status == HY_OK && backend->stream_create_with_priority)
    status = verify_priorities(device, memory, got, v);
  hy_free(device, memory);
  hy_stream_destroy(stream);
  free(got);
  return status;
}

// ---- device of a pointer ----

hy_status hy__verify_pointers(hy_device* device, hy__op_verdict* v) {
  const hy_backend* backend = device->backend;
  if (!backend->pointer_device) return HY_OK;
  void* memory;
  int32_t index = -2, local = 0;
  HY_TRY(hy_alloc_raw(device, 1000, &memory));
  hy_status status = backend->pointer_device((char*)memory + 999, &index);
  if (hy__judge_status(v, status, "pointer_device"))
    hy__judge(v, index == device->index, "pointer_device says %d of memory on device %d", index,
              device->index);
  status = backend->pointer_device(&local, &index);
  if (hy__judge_status(v, status, "pointer_device of host memory") && !device->is_host)
    hy__judge(v, index == -1, "pointer_device says %d of host memory", index);
  hy_free_raw(device, memory);
  return HY_OK;
}

// ---- peers ----

static hy_status copy_sizes(hy_device* device, hy_device* peer, hy__op_verdict* v) {
  static const size_t sizes[] = {1, 255, 4096, ((size_t)1 << 20) + 3};
  enum { MOST = (1 << 20) + 3 };
  hy_stream *to = NULL, *from = NULL;
  void *dst = NULL, *src = NULL;
  unsigned char *sent = malloc(MOST), *got = malloc(MOST);
  hy_status status =
      sent && got ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no host memory to verify peers");
  if (status == HY_OK) status = hy_stream_create(device, &to);
  if (status == HY_OK) status = hy_stream_create(peer, &from);
  if (status == HY_OK) status = hy_alloc(to, MOST, &dst);
  if (status == HY_OK) status = hy_alloc(from, MOST, &src);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && status == HY_OK; i++) {
    for (size_t k = 0; k < MOST; k++) sent[k] = (unsigned char)(k * 31 + i);
    HY_TRY(hy_memset(to, dst, 0xee, MOST));
    status = hy_memcpy(from, src, sent, MOST, HY_COPY_HOST_TO_DEVICE);
    if (status == HY_OK) status = hy_memcpy_peer(to, dst, from, src, sizes[i]);
    hy__judge(v, status == HY_OK, "copy_peer of %zu bytes: %s", sizes[i], hy_last_error());
    if (status != HY_OK) break;
    status = hy_memcpy(to, got, dst, MOST, HY_COPY_DEVICE_TO_HOST);
    if (status == HY_OK) status = hy_stream_sync(to);
    if (status != HY_OK) break;
    bool same = memcmp(got, sent, sizes[i]) == 0;
    bool clean = sizes[i] == MOST || got[sizes[i]] == 0xee;
    hy__judge(v, same && clean, "copy_peer of %zu bytes gave %s", sizes[i],
              same ? "more than that" : "other bytes");
  }
  hy_free(peer, src);
  hy_free(device, dst);
  hy_stream_destroy(from);
  hy_stream_destroy(to);
  free(sent);
  free(got);
  return status;
}

hy_status hy__verify_peers(hy_device* device, hy__op_verdict* v) {
  hy_backend_report report;
  if (!device->backend->copy_peer) return HY_OK;
  HY_TRY(hy_backend_find(device->backend->name, &report));
  for (int i = 0; i < report.device_count; i++) {
    char selector[40];
    hy_device* peer;
    bool possible;
    if (i == device->index) continue;
    snprintf(selector, sizeof selector, "%s:%d", device->backend->name, i);
    HY_TRY(hy_device_get(selector, &peer));
    if (!hy__judge_status(v, hy_device_peer_access(device, peer, &possible), "peer_access"))
      continue;
    if (possible) HY_TRY(copy_sizes(device, peer, v));
  }
  return HY_OK;
}

// ---- memory between processes ----

// This process's half: handles are made and told apart, wrong ones are refused. The other half
// takes a second process, which tests/unit/test_ipc.c has.
hy_status hy__verify_sharing(hy_device* device, hy__op_verdict* v) {
  const hy_backend* backend = device->backend;
  if (!backend->memory_export) return HY_OK;
  hy_memory_blob first = {{0}}, second = {{0}}, wrong;
  void *a = NULL, *b = NULL, *imported = NULL;
  HY_TRY(hy_alloc_raw(device, 100000, &a));
  hy_status status = hy_alloc_raw(device, 100000, &b);
  if (status == HY_OK) {
    status = backend->memory_export(device->handle, a, &first);
    if (hy__judge_status(v, status, "memory_export") &&
        hy__judge_status(v, backend->memory_export(device->handle, b, &second), "memory_export"))
      hy__judge(v, memcmp(&first, &second, sizeof first) != 0, "two allocations share one handle");
    status = HY_OK;
    memset(&wrong, 0xa5, sizeof wrong);
    hy__judge(v, backend->memory_import(device->handle, &wrong, &imported) != HY_OK,
              "memory_import took bytes that are no handle");
  }
  hy_free_raw(device, b);
  hy_free_raw(device, a);
  return status;
}

// ---- compilation ----

// out = x0 * s0 + x1 in the languages that are known here.
static const struct {
  const char *language, *source;
} sources[] = {
    {"postfix", "axpy: x0 s0 * x1 +"},
    {"cuda",
     "extern \"C\" __global__ void axpy(float* out, const float* x0, const float* x1, float s0,\n"
     "                                unsigned long long n) {\n"
     "  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;\n"
     "  if (i < n) out[i] = x0[i] * s0 + x1[i];\n"
     "}\n"},
    {"hip",
     "extern \"C\" __global__ void axpy(float* out, const float* x0, const float* x1, float s0,\n"
     "                                unsigned long long n) {\n"
     "  unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;\n"
     "  if (i < n) out[i] = x0[i] * s0 + x1[i];\n"
     "}\n"},
};

enum { ELEMENTS = 1000, BLOCK = 128 };

static hy_status launch_axpy(hy_stream* stream, hy_kernel* kernel, float* memory, float s0) {
  float *out = memory, *x0 = memory + ELEMENTS, *x1 = memory + 2 * (size_t)ELEMENTS;
  const uint64_t n = ELEMENTS;
  const hy_kernel_arg args[] = {{&out, sizeof out, 1},
                                {&x0, sizeof x0, 1},
                                {&x1, sizeof x1, 1},
                                {&s0, sizeof s0, 0},
                                {&n, sizeof n, 0}};
  return hy_kernel_launch(stream, kernel,
                          &(hy_launch){.size = sizeof(hy_launch),
                                       .grid = {(ELEMENTS + BLOCK - 1) / BLOCK, 1, 1},
                                       .block = {BLOCK, 1, 1},
                                       .args = args,
                                       .n_args = 5});
}

static hy_status verify_kernel(hy_stream* stream, hy_kernel* kernel, hy__op_verdict* v) {
  static float values[3 * ELEMENTS];
  void* memory;
  for (int i = 0; i < 3 * ELEMENTS; i++) values[i] = (float)(i % 17);
  HY_TRY(hy_alloc(stream, sizeof values, &memory));
  hy_status status = hy_memcpy(stream, memory, values, sizeof values, HY_COPY_HOST_TO_DEVICE);
  if (status == HY_OK) status = hy_stream_sync(stream);
  if (status == HY_OK) status = launch_axpy(stream, kernel, memory, 3);
  if (status == HY_OK)
    status = hy_memcpy(stream, values, memory, sizeof values, HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy_stream_sync(stream);
  if (hy__judge_status(v, status, "kernel_launch")) {
    int wrong = 0;
    for (int i = 0; i < ELEMENTS; i++)
      wrong += values[i] != values[ELEMENTS + i] * 3 + values[2 * ELEMENTS + i];
    hy__judge(v, wrong == 0, "a compiled kernel gave %d wrong values of %d", wrong, ELEMENTS);
  }
  hy_free(hy_stream_device(stream), memory);
  return HY_OK;
}

static hy_status verify_source(hy_device* device, const char* source, hy__op_verdict* v) {
  hy_module* module;
  hy_kernel* kernel;
  hy_stream* stream;
  HY_TRY(hy_stream_create(device, &stream));
  hy_status status = HY_OK;
  if (hy__judge_status(v, hy_compile(device, source, "", &module), "compile")) {
    hy__judge(v, hy_module_kernel(module, "no_such_kernel", &kernel) != HY_OK,
              "module_kernel found a kernel that is not there");
    if (hy__judge_status(v, hy_module_kernel(module, "axpy", &kernel), "module_kernel"))
      status = verify_kernel(stream, kernel, v);
    hy_module_destroy(module);
  }
  hy_stream_destroy(stream);
  return status;
}

hy_status hy__verify_compilation(hy_device* device, hy__op_verdict* v) {
  char flags[512];
  hy_module* module;
  if (!device->backend->compile) return HY_OK;
  if (!hy__judge_status(v, hy_compile_flags(device, flags, sizeof flags), "compile_flags"))
    return HY_OK;
  hy_status status = hy_compile(device, "this is ( no program", "", &module);
  hy__judge(v, status == HY_INVALID_ARGUMENT && hy_last_error()[0],
            "a source that is none must be INVALID_ARGUMENT with the compiler's words, not %s",
            hy_status_name(status));
  if (status == HY_OK) hy_module_destroy(module);
  for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
    size_t length = strlen(sources[i].language);
    if (strncmp(flags, sources[i].language, length) != 0 || (flags[length] && flags[length] != ' '))
      continue;
    return verify_source(device, sources[i].source, v);
  }
  return HY_OK;
}

// ---- threads of the host ----

hy_status hy__verify_threads(hy_device* device, hy__op_verdict* v) {
  int before, now = 0;
  if (!device->backend->set_threads) return HY_OK;
  if (!hy__judge_status(v, hy_device_threads(device, &before), "threads")) return HY_OK;
  hy__judge(v, before >= 1, "threads says %d", before);
  for (int n = 1; n <= 2; n++) {
    if (!hy__judge_status(v, hy_device_set_threads(device, n), "set_threads")) continue;
    HY_TRY(hy_device_threads(device, &now));
    hy__judge(v, now == n, "set_threads to %d, and threads says %d", n, now);
  }
  for (int n = -1; n <= 0; n++) {
    hy_status status = hy_device_set_threads(device, n);
    HY_TRY(hy_device_threads(device, &now));
    hy__judge(v, status == HY_INVALID_ARGUMENT && now == 2,
              "set_threads to %d answers %s, and threads says %d", n, hy_status_name(status), now);
  }
  return hy_device_set_threads(device, before);
}
