// Graph launch: one piece of work for a backend that captured, else call by call.
#include "graph/graph.h"
#include "ops/internal.h"

// Checked as any, since buffers may have been bound elsewhere.
static hy_status make_collective(hy_stream* stream, const hy_collective* c) {
  switch (c->kind) {
    case HY_COLLECTIVE_ALL_REDUCE:
      return hy_comm_all_reduce(c->comm, stream, c->send, c->recv, c->count, c->dtype, c->op);
    case HY_COLLECTIVE_ALL_GATHER:
      return hy_comm_all_gather(c->comm, stream, c->send, c->recv, c->count, c->dtype);
    case HY_COLLECTIVE_REDUCE_SCATTER:
      return hy_comm_reduce_scatter(c->comm, stream, c->send, c->recv, c->count, c->dtype, c->op);
    case HY_COLLECTIVE_BROADCAST:
      return hy_comm_broadcast(c->comm, stream, c->recv, c->count, c->dtype, c->root);
    case HY_COLLECTIVE_BARRIER: return hy_comm_barrier(c->comm, stream);
  }
  return hy_fail(HY_INTERNAL, "a graph has a collective of kind %d", (int)c->kind);
}

hy_status hy__graph_node_submit(const hy_device* device, void* stream, const hy__graph_node* node) {
  const hy_graph_node* as = &node->as;
  const hy_backend* backend = device->backend;
  if (node->variant) return node->provider->run_variant(device->handle, stream, as, node->variant);
  if (node->packed)
    return node->provider->run_packed(device->handle, stream, as->call,
                                      hy__packed_data(node->packed));
  switch (as->kind) {
    case HY_NODE_CALL:
      if (node->provider) return node->provider->run(device->handle, stream, as->call);
      return hy__reference_checked(as->call);
    case HY_NODE_COPY:
      return backend->copy(device->handle, stream, as->dst, as->src, as->bytes,
                           HY_COPY_DEVICE_TO_DEVICE);
    case HY_NODE_SET: return backend->set(device->handle, stream, as->dst, as->value, as->bytes);
    case HY_NODE_CHAIN: return node->provider->run_chain(device->handle, stream, as->chain);
    case HY_NODE_LAUNCH:
      return backend->kernel_launch(device->handle, stream, as->kernel, as->launch);
    case HY_NODE_COLLECTIVE: break;  // of replays, and not of backends
  }
  return hy_fail(HY_INTERNAL, "a graph has a node of kind %d", (int)as->kind);
}

// ---- by calls ----

static hy_status replay(const hy_graph* graph, hy_stream* stream) {
  const hy_device* device = stream->device;
  for (int i = 0; i < graph->count; i++) {
    const hy__graph_node* node = graph->nodes[i];
    if (node->as.kind == HY_NODE_CALL) {
      HY_TRY(hy__run_by(stream, node->as.call, node->provider, node->variant,
                        hy__packed_data(node->packed)));
      continue;
    }
    bool computes = node->as.kind == HY_NODE_LAUNCH || node->as.kind == HY_NODE_CHAIN;
    if (hy__fault(computes ? HY_FAULT_KERNEL : HY_FAULT_COPY)) {
      return hy_fail(HY_DEVICE_FAILED, "node %d of a graph on %s failed by an injected fault", i,
                     device->selector);
    }
    int64_t begin = hy__trace_begin();
    bool chain = node->as.kind == HY_NODE_CHAIN, talks = node->as.kind == HY_NODE_COLLECTIVE;
    hy_status status = talks ? make_collective(stream, node->as.collective)
                             : hy__graph_node_submit(device, stream->handle, node);
    hy__trace_end(begin,
                  &(hy__trace_event){.kind = chain ? HY__TRACE_OP : HY__TRACE_COPY,
                                     .name = chain   ? "chain"
                                             : talks ? hy_collective_name(node->collective.kind)
                                                     : "graph node",
                                     .provider = chain ? node->provider->name : NULL,
                                     .device = device,
                                     .bytes = node->as.bytes});
    HY_TRY(status);
  }
  return HY_OK;
}

// ---- by the backend ----

// The same work again, with the addresses and attributes of now, on a stream made for it.
static hy_status capture_again(const hy_graph* graph, void** handle) {
  const hy_device* device = graph->device;
  const hy_backend* backend = device->backend;
  void* stream;
  HY_TRY(backend->stream_create(device->handle, &stream));
  hy_status status = backend->capture_begin(device->handle, stream);
  if (status == HY_OK) {
    for (int i = 0; i < graph->count && status == HY_OK; i++) {
      status = hy__graph_node_submit(device, stream, graph->nodes[i]);
    }
    hy_status ended = backend->capture_end(device->handle, stream, status == HY_OK ? handle : NULL);
    if (status == HY_OK) status = ended;
  }
  backend->stream_destroy(device->handle, stream);
  return status;
}

void hy__graph_drop_handle(hy_graph* graph) {
  if (!graph->handle) return;
  hy_event_sync(graph->done);
  graph->device->backend->graph_destroy(graph->device->handle, graph->handle);
  graph->handle = NULL;
}

// Tells the backend's graph what has changed since it was captured.
static hy_status refresh(hy_graph* graph) {
  const hy_device* device = graph->device;
  const hy_backend* backend = device->backend;
  hy_status status = graph->handle && backend->graph_update ? HY_OK : HY_UNSUPPORTED;
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    if (!graph->nodes[i]->stale) continue;
    // Of these graph_update knows nothing.
    if (graph->nodes[i]->variant || graph->nodes[i]->packed) {
      status = HY_UNSUPPORTED;
      break;
    }
    status = backend->graph_update(device->handle, graph->handle, i, &graph->nodes[i]->as);
  }
  if (status == HY_UNSUPPORTED) {
    void* fresh = NULL;
    HY_TRY(capture_again(graph, &fresh));
    hy__graph_drop_handle(graph);
    graph->handle = fresh;
    status = HY_OK;
  }
  HY_TRY(status);
  for (int i = 0; i < graph->count; i++) graph->nodes[i]->stale = false;
  graph->stale = false;
  return HY_OK;
}

static hy_status launch_whole(hy_graph* graph, hy_stream* stream) {
  const hy_device* device = stream->device;
  if (graph->stale || !graph->handle) HY_TRY(refresh(graph));
  if (hy__fault(HY_FAULT_KERNEL)) {
    return hy_fail(HY_DEVICE_FAILED, "a graph of %d nodes on %s failed by an injected fault",
                   graph->count, device->selector);
  }
  int64_t begin = hy__trace_begin();
  hy_status status = device->backend->graph_launch(device->handle, graph->handle, stream->handle);
  hy__trace_end(begin, &(hy__trace_event){.kind = HY__TRACE_OP, .name = "graph", .device = device});
  return status;
}

static hy_status check_ready(const hy_graph* graph) {
  if (graph->building) {
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_graph_launch: the graph is under construction; call hy_graph_finish first");
  }
  if (graph->unplanned) {
    return hy_fail(HY_OUT_OF_MEMORY, "hy_graph_launch: passes failed and left the graph no memory");
  }
  for (int i = 0; i < graph->n_arguments; i++) {
    if (graph->arguments[i].bound) continue;
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_graph_launch: \"%s\" has no memory; hy_graph_set gives it",
                   graph->arguments[i].name);
  }
  return HY_OK;
}

hy_status hy_graph_launch(hy_graph* graph, hy_stream* stream) {
  if (!graph || !stream) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_launch: %s is NULL", graph ? "stream" : "graph");
  }
  if (!hy__same_device(graph->device, stream->device)) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_launch: the graph is of %s, the stream of %s",
                   graph->device->selector, stream->device->selector);
  }
  if (stream->capture) {
    return hy__capture_refuse(stream, "hy_graph_launch", "graphs do not contain graphs");
  }
  HY_TRY(check_ready(graph));
  HY_TRY(hy__stream_check(stream));
  if (!graph->agreed && graph->talks) HY_TRY(hy_graph_agree(graph, stream));
  if (!graph->done) return replay(graph, stream);
  if (graph->last && graph->last != stream) HY_TRY(hy_stream_wait_event(stream, graph->done));
  hy_status status = graph->native ? launch_whole(graph, stream) : replay(graph, stream);
  // Also after a failure: some of it may be under way.
  hy_status noted = hy_event_record(graph->done, stream);
  graph->last = stream;
  return status == HY_OK ? noted : status;
}
