// Fallback: running on the host what the device lacks, counted with its reason.
#include "ops/fallback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/internal.h"

// ---- the report ----

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static hy_fallback_entry* report;
static int report_count, report_capacity;
static uint64_t total;
static bool exit_line_registered;
static atomic_int strict = -1;  // -1: not set yet, the environment decides

static bool is_strict(void) {
  int value = atomic_load_explicit(&strict, memory_order_relaxed);
  if (value < 0) {
    const char* text = hy__env("HALYARD_STRICT");
    value = text && strcmp(text, "0") != 0;
    atomic_store_explicit(&strict, value, memory_order_relaxed);
  }
  return value;
}

void hy_set_strict(bool value) {
  atomic_store_explicit(&strict, value, memory_order_relaxed);
}

// The one line a user sees at exit when anything fell back; HALYARD_LOG=0 silences it.
static void print_exit_line(void) {
  const char* level = hy__env("HALYARD_LOG");
  pthread_mutex_lock(&mutex);
  if (total > 0 && !(level && strcmp(level, "0") == 0)) {
    const hy_fallback_entry* most = &report[0];
    for (int i = 1; i < report_count; i++) {
      if (report[i].count > most->count) most = &report[i];
    }
    fprintf(stderr,
            "halyard: %llu calls fell back to the cpu, most often %s %s on %s (%llu times: %s); "
            "'halyard ops' shows what runs natively\n",
            (unsigned long long)total, hy_op_name(most->op), hy_dtype_name(most->dtype),
            most->device, (unsigned long long)most->count, hy_support_text(most->reason));
  }
  pthread_mutex_unlock(&mutex);
}

static hy_fallback_entry* find_entry(const char* device, hy_op op, hy_dtype dtype,
                                     hy_support reason) {
  for (int i = 0; i < report_count; i++) {
    hy_fallback_entry* e = &report[i];
    if (e->op == op && e->dtype == dtype && e->reason == reason && strcmp(e->device, device) == 0)
      return e;
  }
  return NULL;
}

static hy_dtype main_dtype(const hy_call* call) {
  return call->n_in > 0 && hy__present(&call->in[0]) ? call->in[0].dtype : call->out[0].dtype;
}

static hy_status count_fallback(hy_stream* stream, const hy_call* call, hy_support reason,
                                uint64_t bytes) {
  const char* device = hy_device_selector(hy_stream_device(stream));
  hy_status status = HY_OK;
  pthread_mutex_lock(&mutex);
  hy_fallback_entry* e = find_entry(device, call->op, main_dtype(call), reason);
  if (!e && report_count == report_capacity) {
    int capacity = report_capacity ? 2 * report_capacity : 32;
    hy_fallback_entry* grown = hy__realloc(report, (size_t)capacity * sizeof *grown);
    if (grown) {
      report = grown;
      report_capacity = capacity;
    } else {
      status = hy_fail(HY_OUT_OF_MEMORY, "no host memory for the fallback report");
    }
  }
  if (!e && status == HY_OK) {
    e = &report[report_count++];
    memset(e, 0, sizeof *e);
    e->op = call->op;
    e->dtype = main_dtype(call);
    e->reason = reason;
    snprintf(e->device, sizeof e->device, "%s", device);
    hy_call_describe(call, e->example, sizeof e->example);
  }
  if (e) {
    e->count++;
    e->bytes_staged += bytes;
    total++;
    if (!exit_line_registered) exit_line_registered = atexit(print_exit_line) == 0;
  }
  pthread_mutex_unlock(&mutex);
  return status;
}

int hy_fallback_report(hy_fallback_entry* entries, int capacity) {
  pthread_mutex_lock(&mutex);
  for (int i = 0; entries && i < report_count && i < capacity; i++) entries[i] = report[i];
  int count = report_count;
  pthread_mutex_unlock(&mutex);
  return count;
}

uint64_t hy_fallback_count(void) {
  pthread_mutex_lock(&mutex);
  uint64_t count = total;
  pthread_mutex_unlock(&mutex);
  return count;
}

void hy_fallback_clear(void) {
  pthread_mutex_lock(&mutex);
  report_count = 0;
  total = 0;
  pthread_mutex_unlock(&mutex);
}

void hy__fallback_shutdown(void) {
  print_exit_line();
  pthread_mutex_lock(&mutex);
  hy__mfree(report);
  report = NULL;
  report_count = report_capacity = 0;
  total = 0;
  pthread_mutex_unlock(&mutex);
  atomic_store(&strict, -1);
}

// ---- staging ----

// A host copy of the stretch of device memory that a view can touch.
typedef struct staged {
  char* buffer;
  int64_t first, bytes;
} staged;

// Makes `host` the same view over host memory; fetches the device's bytes where the host needs
// them.
static hy_status stage(hy_stream* stream, const hy_tensor* t, bool fetch, staged* s,
                       hy_tensor* host) {
  int64_t last;
  hy_tensor_extent(t, &s->first, &last);
  s->bytes = last - s->first;
  s->buffer = hy__malloc(s->bytes > 0 ? (size_t)s->bytes : 1);
  if (!s->buffer)
    return hy_fail(HY_OUT_OF_MEMORY, "no host memory to stage %lld bytes", (long long)s->bytes);
  *host = *t;
  host->data = s->buffer - s->first;
  if (!fetch || s->bytes == 0) return HY_OK;
  return hy_memcpy(stream, s->buffer, (const char*)t->data + s->first, (size_t)s->bytes,
                   HY_COPY_DEVICE_TO_HOST);
}

hy_status hy__fall_back(hy_stream* stream, const hy_call* call, hy_support reason) {
  if (is_strict())
    return hy__call_fail(call, HY_FALLBACK_REFUSED,
                         "%s cannot run it (%s) and strict mode forbids the cpu",
                         hy_device_selector(hy_stream_device(stream)), hy_support_text(reason));
  int n = call->n_in + call->n_out;
  staged* stages = hy__calloc((size_t)n, sizeof *stages);
  hy_tensor* tensors = hy__calloc((size_t)n, sizeof *tensors);
  hy_status status = HY_OK;
  uint64_t bytes = 0;
  if (!stages || !tensors) {
    status =
        hy_fail(HY_OUT_OF_MEMORY, "no host memory to stage a call of %s", hy_op_name(call->op));
    goto done;
  }
  for (int i = 0; i < n && status == HY_OK; i++) {
    bool is_input = i < call->n_in;
    const hy_tensor* t = is_input ? &call->in[i] : &call->out[i - call->n_in];
    // An output with gaps is fetched, so that writing it back leaves what is between its
    // elements.
    if (hy__present(t))
      status = stage(stream, t, is_input || !hy_tensor_is_contiguous(t), &stages[i], &tensors[i]);
    bytes += (uint64_t)stages[i].bytes;
  }
  if (status == HY_OK) status = hy_stream_sync(stream);
  if (status == HY_OK) {
    hy_call on_host = *call;
    on_host.in = tensors;
    on_host.out = tensors + call->n_in;
    status = hy__reference_checked(&on_host);
  }
  for (int i = 0; i < call->n_out && status == HY_OK; i++) {
    const staged* s = &stages[call->n_in + i];
    if (s->bytes > 0)
      status = hy_memcpy(stream, (char*)call->out[i].data + s->first, s->buffer, (size_t)s->bytes,
                         HY_COPY_HOST_TO_DEVICE);
  }
  // Even after a failure: no copy may still be under way when the buffers go.
  hy_status settled = hy_stream_sync(stream);
  if (status == HY_OK) status = settled;
  if (status == HY_OK) status = count_fallback(stream, call, reason, bytes);
done:
  for (int i = 0; stages && i < n; i++) hy__mfree(stages[i].buffer);
  hy__mfree(stages);
  hy__mfree(tensors);
  return status;
}
