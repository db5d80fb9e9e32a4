// Graph capture over a vendor's queues: what a queue is given while it is captured becomes a graph
// of the vendor's, with the memory of its calls' temporaries.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/common/vendor_runtime.h"

typedef struct graph {
  void* handle;            // the vendor's; NULL: there is none
  hy__vendor_arena arena;  // of its calls; while it is being captured, the stream's own
} graph;

hy_status hy__vendor_capture_begin(void* device, void* stream) {
  const hy__vendor* vendor = ((hy__vendor_device*)device)->vendor;
  hy__vendor_stream* s = stream;
  graph* g = calloc(1, sizeof *g);
  if (!g) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", vendor->name);
  HY__VENDOR_CALL_OR_FREE(device, "beginning a capture", g, vendor->capture_begin(s->queue));
  g->arena = s->arena;
  memset(&s->arena, 0, sizeof s->arena);
  s->capturing = g;
  return HY_OK;
}

hy_status hy__vendor_capture_end(void* device, void* stream, void** out) {
  const hy__vendor* vendor = ((hy__vendor_device*)device)->vendor;
  hy__vendor_stream* s = stream;
  graph* g = s->capturing;
  bool ended = false;
  int before = hy__vendor_enter(device);
  int error = vendor->capture_end(s->queue, &g->handle, &ended);
  // The stream must take work again: once more, and what comes of it is dropped.
  if (!ended) vendor->capture_end(s->queue, &g->handle, &ended);
  hy__vendor_leave(device, before);
  hy__vendor_arena streams = g->arena;
  g->arena = s->arena;
  s->arena = streams;
  s->capturing = NULL;
  if (!ended) {
    char message[100];
    snprintf(message, sizeof message, "%s: a capture does not end", vendor->name);
    hy__vendor_keep_error(s, HY_DEVICE_FAILED, HY_OP_NONE, message);
  }
  if (error || !out) {
    hy__vendor_graph_destroy(device, g);
    return error ? vendor->fail(error, "ending a capture") : HY_OK;
  }
  *out = g;
  return HY_OK;
}

hy_status hy__vendor_graph_launch(void* device, void* handle, void* stream) {
  const hy__vendor* vendor = ((hy__vendor_device*)device)->vendor;
  HY__VENDOR_CALL(
      device, "launching a graph",
      vendor->graph_launch(((graph*)handle)->handle, ((hy__vendor_stream*)stream)->queue));
  return HY_OK;
}

void hy__vendor_graph_destroy(void* device, void* handle) {
  const hy__vendor* vendor = ((hy__vendor_device*)device)->vendor;
  graph* g = handle;
  int before = hy__vendor_enter(device);
  if (g->handle) vendor->graph_destroy(g->handle);
  hy__vendor_arena_free(vendor, &g->arena);
  hy__vendor_leave(device, before);
  free(g);
}
