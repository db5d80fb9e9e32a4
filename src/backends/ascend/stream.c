// Ascend streams, and graph capture over AscendCL's.
#include <stdlib.h>
#include <string.h>

#include "backends/ascend/ascend.h"

hy_status hy__ascend_stream_create(void* device, void** stream) {
  hy__vendor_stream* s = calloc(1, sizeof *s);
  if (!s) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
  hy_status status = hy__vendor_stream_init(device, s);
  if (status != HY_OK)
    hy__ascend_stream_destroy(device, s);
  else
    *stream = s;
  return status;
}

void hy__ascend_stream_destroy(void* device, void* stream) {
  (void)device;
  hy__vendor_stream_release(stream);
  free(stream);
}

// ---- Graphs ----

// What a graph needs besides its own: the temporaries of its calls.
typedef struct graph {
  void* model;
  hy__vendor_arena arena;
} graph;

// aclmdlRICaptureMode
enum { CAPTURE_RELAXED = 2 };

hy_status hy__ascend_capture_begin(void* device, void* stream) {
  hy__vendor_stream* s = stream;
  graph* g = calloc(1, sizeof *g);
  if (!g) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
  int before = hy__vendor_enter(device);
  int error = hy__acl.aclmdlRICaptureBegin(s->queue, CAPTURE_RELAXED);
  hy__vendor_leave(device, before);
  if (error) {
    free(g);
    return hy__ascend_fail(error, "beginning a capture");
  }
  g->arena = s->arena;  // the stream's, until the end
  memset(&s->arena, 0, sizeof s->arena);
  s->capturing = g;
  return HY_OK;
}

hy_status hy__ascend_capture_end(void* device, void* stream, void** out) {
  hy__vendor_stream* s = stream;
  graph* g = s->capturing;
  int before = hy__vendor_enter(device);
  int error = hy__acl.aclmdlRICaptureEnd(s->queue, &g->model);
  // The stream must take work again: once more, and what comes of it is dropped.
  bool stuck = error && hy__acl.aclmdlRICaptureEnd(s->queue, &g->model);
  hy__vendor_leave(device, before);
  hy__vendor_arena streams = g->arena;
  g->arena = s->arena;
  s->arena = streams;
  s->capturing = NULL;
  if (stuck)
    hy__vendor_keep_error(s, HY_DEVICE_FAILED, HY_OP_NONE, "ascend: a capture does not end");
  if (error || !out) {
    hy__ascend_graph_destroy(device, g);
    return error ? hy__ascend_fail(error, "ending a capture") : HY_OK;
  }
  *out = g;
  return HY_OK;
}

hy_status hy__ascend_graph_launch(void* device, void* handle, void* stream) {
  hy__vendor_stream* s = stream;
  HY__VENDOR_CALL(device, "launching a graph",
                  hy__acl.aclmdlRIExecuteAsync(((graph*)handle)->model, s->queue));
  return HY_OK;
}

void hy__ascend_graph_destroy(void* device, void* handle) {
  graph* g = handle;
  int before = hy__vendor_enter(device);
  if (g->model) hy__acl.aclmdlRIDestroy(g->model);
  hy__vendor_arena_free(&hy__ascend_vendor, &g->arena);
  hy__vendor_leave(device, before);
  free(g);
}
