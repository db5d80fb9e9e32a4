// The native provider: communicators by the backend's own slots of plugin.h.
#include "comm/provider.h"

// A backend with groups binds its vendor's library for an empty one, and says what is missing.
static hy_status available(const hy_device* device) {
  const hy_backend* b = device->backend;
  if (!b->group_begin) return HY_OK;
  HY_TRY(b->group_begin(device->handle));
  return b->group_end(device->handle);
}

static hy_status unique_id(hy_device* device, hy_comm_id* id) {
  return device->backend->comm_unique_id(device->handle, id);
}

static hy_status init_rank(hy_device* device, int n_ranks, const hy_comm_id* id, int rank,
                           void** handle) {
  return device->backend->comm_init_rank(device->handle, n_ranks, id, rank, handle);
}

static void destroy(hy_device* device, void* handle) {
  device->backend->comm_destroy(device->handle, handle);
}

static hy_status abort_comm(hy_device* device, void* handle) {
  return device->backend->comm_abort(device->handle, handle);
}

static hy_status async_error(hy_device* device, void* handle, hy_async_error* error) {
  return device->backend->comm_async_error(device->handle, handle, error);
}

static hy_status run(hy_device* device, void* handle, const hy__comm_call* c) {
  const hy_backend* b = device->backend;
  void *d = device->handle, *s = c->stream->handle;
  switch (c->kind) {
    case HY__ALL_REDUCE:
      return b->all_reduce(d, handle, s, c->send, c->recv, c->count, c->dtype, c->op);
    case HY__ALL_GATHER: return b->all_gather(d, handle, s, c->send, c->recv, c->count, c->dtype);
    case HY__REDUCE_SCATTER:
      return b->reduce_scatter(d, handle, s, c->send, c->recv, c->count, c->dtype, c->op);
    case HY__BROADCAST: return b->broadcast(d, handle, s, c->recv, c->count, c->dtype, c->peer);
    case HY__SEND: return b->send(d, handle, s, c->send, c->count, c->dtype, c->peer);
    case HY__RECV: return b->recv(d, handle, s, c->recv, c->count, c->dtype, c->peer);
    default: return b->barrier(d, handle, s);
  }
}

static hy_status group(hy_device* device, hy_status (*slot)(void*)) {
  if (!slot) return hy_fail(HY_UNSUPPORTED, "%s has no groups of collectives", device->selector);
  return slot(device->handle);
}

static hy_status group_begin(hy_device* device) {
  return group(device, device->backend->group_begin);
}

static hy_status group_end(hy_device* device) {
  return group(device, device->backend->group_end);
}

const hy__comm_provider hy__comm_native = {
    .name = "native",
    .available = available,
    .unique_id = unique_id,
    .init_rank = init_rank,
    .destroy = destroy,
    .abort = abort_comm,
    .async_error = async_error,
    .run = run,
    .group_begin = group_begin,
    .group_end = group_end,
};
