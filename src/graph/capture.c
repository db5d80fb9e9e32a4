// Graph capture: records what a stream is given, in place of running it.
#include <stdio.h>

#include "graph/graph.h"

typedef struct capture {
  hy__capture base;
  hy_graph* graph;
  hy__memory_event* events;
  int n_events, events_capacity;
  bool events_lost;  // no host memory for them: the graph will have no values
} capture;

static hy_graph* graph_of(const hy_stream* stream) {
  return ((capture*)stream->capture)->graph;
}

// Makes the calling thread's last failure the capture's.
static hy_status spoil(hy_stream* stream, hy_status status) {
  hy__capture* c = stream->capture;
  if (c->failed == HY_OK) {
    c->failed = status;
    snprintf(c->failure, sizeof c->failure, "%s", hy_last_error());
  }
  return status;
}

static hy_status record(hy_stream* stream, const hy_graph_node* from, const hy_provider* provider) {
  hy_graph* graph = graph_of(stream);
  hy__graph_node* node = NULL;
  hy_status status = hy__graph_node_create(from, provider, &node);
  if (status == HY_OK && graph->native) {
    status = hy__graph_node_submit(graph->device, stream->handle, node);
    if (status != HY_OK) hy__graph_node_destroy(node);
  }
  if (status == HY_OK) status = hy__graph_append(graph, node);
  return status == HY_OK ? HY_OK : spoil(stream, status);
}

static hy_status record_call(hy_stream* stream, const hy_call* call, const hy_provider* provider) {
  return record(stream, &(hy_graph_node){.kind = HY_NODE_CALL, .call = call}, provider);
}

static hy_status record_work(hy_stream* stream, const hy_graph_node* node) {
  if (node->kind == HY_NODE_COLLECTIVE && graph_of(stream)->native)
    return hy__capture_refuse(stream, hy_collective_name(node->collective->kind),
                              "the device captures graphs of its own, which hold no collectives");
  return record(stream, node, NULL);
}

static void note_memory(hy__capture* base, void* address, size_t bytes, bool taken) {
  capture* c = (capture*)base;
  hy_status status =
      hy__graph_grow((void**)&c->events, c->n_events, &c->events_capacity, sizeof *c->events);
  if (status != HY_OK) {
    c->events_lost = true;
    return;
  }
  c->events[c->n_events++] = (hy__memory_event){address, bytes, c->graph->count, taken};
}

static void drop(hy_stream* stream) {
  hy_capture_end(stream, NULL);
}

hy_status hy__graph_new(hy_device* device, hy_graph** out) {
  hy_graph* graph = hy__calloc(1, sizeof *graph);
  if (!graph) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a graph");
  graph->device = device;
  graph->next = HY__GRAPH_FIRST_ADDRESS;
  graph->native = device->backend->capture_begin != NULL;
  hy_status status = device->is_host ? HY_OK : hy_event_create(device, &graph->done);
  if (status != HY_OK) {
    hy__mfree(graph);
    return status;
  }
  *out = graph;
  return HY_OK;
}

hy_status hy_capture_begin(hy_stream* stream) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_capture_begin: stream is NULL");
  if (stream->capture) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_capture_begin: the stream is capturing already");
  }
  // Memory from the stream's cache may be in use by earlier work, which a launch on another stream
  // would not wait for.
  HY_TRY(hy_stream_sync(stream));
  hy_device* device = stream->device;
  capture* c = hy__calloc(1, sizeof *c);
  if (!c) return hy_fail(HY_OUT_OF_MEMORY, "hy_capture_begin: no host memory");
  c->base =
      (hy__capture){.call = record_call, .work = record_work, .memory = note_memory, .drop = drop};
  hy_status status = hy__graph_new(device, &c->graph);
  if (status != HY_OK) goto fail_graph;
  status = hy__allocator_capture_begin(device->allocator, stream, &c->base);
  if (status != HY_OK) goto fail_memory;
  if (c->graph->native) status = device->backend->capture_begin(device->handle, stream->handle);
  if (status != HY_OK) goto fail_backend;
  stream->capture = &c->base;
  return HY_OK;

fail_backend:
  c->graph->memory = hy__allocator_capture_end(device->allocator, stream);
fail_memory:
  hy_graph_destroy(c->graph);
fail_graph:
  hy__mfree(c);
  return status;
}

hy_status hy_capture_end(hy_stream* stream, hy_graph** graph) {
  if (graph) *graph = NULL;
  if (!stream || !stream->capture) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_capture_end: %s",
                   stream ? "the stream is not capturing" : "stream is NULL");
  }
  capture* c = (capture*)stream->capture;
  const hy_device* device = stream->device;
  hy_graph* g = c->graph;
  bool wanted = graph && c->base.failed == HY_OK;
  hy_status status = HY_OK;
  stream->capture = NULL;
  if (g->native) {
    status =
        device->backend->capture_end(device->handle, stream->handle, wanted ? &g->handle : NULL);
  }
  g->memory = hy__allocator_capture_end(device->allocator, stream);
  if (graph && c->base.failed != HY_OK) {
    status = hy_fail(c->base.failed, "the capture was spoilt: %s", c->base.failure);
  }
  if (wanted && status == HY_OK && !c->events_lost) {
    status = hy__graph_find_values(g, c->events, c->n_events);
  }
  if (wanted && status == HY_OK) {
    *graph = g;
  } else {
    hy_graph_destroy(g);
  }
  hy__mfree(c->events);
  hy__mfree(c);
  return status;
}

void hy_graph_destroy(hy_graph* graph) {
  if (!graph) return;
  const hy_device* device = graph->device;
  if (graph->done) hy_event_sync(graph->done);
  if (graph->handle) device->backend->graph_destroy(device->handle, graph->handle);
  hy__allocator_private_release(device->allocator, graph->memory);
  hy_event_destroy(graph->done);
  for (int i = 0; i < graph->count; i++) hy__graph_node_destroy(graph->nodes[i]);
  hy_free(graph->device, graph->arena);
  for (int i = 0; i < graph->n_arguments; i++) {
    hy_free(graph->device, graph->arguments[i].memory);
    hy__mfree(graph->arguments[i].name);
  }
  for (int i = 0; i < graph->n_integers; i++) hy__mfree(graph->integers[i].name);
  if (graph->own) hy_stream_destroy(graph->own);
  hy__mfree(graph->arguments);
  hy__mfree(graph->integers);
  hy__mfree(graph->values);
  hy__mfree(graph->nodes);
  hy__mfree(graph->bindings);
  hy__mfree(graph);
}
