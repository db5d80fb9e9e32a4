// Packed weights: matrices that products multiply by, in the form in which their kernels read them.
//
// Copies are shared by the graphs of a device that say the same of the same memory, and live as
// long as a node reads them. What memory holds is known by the number that the caller gave its
// contents: a copy never changes, other contents get another one.
#include <pthread.h>
#include <string.h>

#include "graph/graph.h"

struct hy__packed {
  struct hy__packed* next;
  int32_t readers;  // nodes
  hy_device* device;
  const hy_provider* provider;
  hy_tensor matrix;
  uint64_t contents, bytes;
  void* data;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static hy__packed* copies;

static bool same_matrix(const hy_tensor* a, const hy_tensor* b) {
  return a->data == b->data && a->dtype == b->dtype && a->shape[0] == b->shape[0] &&
         a->shape[1] == b->shape[1] && a->stride[0] == b->stride[0] && a->stride[1] == b->stride[1];
}

static hy__packed* find(const hy__packed* like) {
  hy__packed* p = copies;
  while (p && !(p->device == like->device && p->provider == like->provider &&
                p->contents == like->contents && same_matrix(&p->matrix, &like->matrix)))
    p = p->next;
  return p;
}

static hy_status make(hy_graph* graph, const hy__packed* like, hy__packed** made) {
  hy_stream* stream;
  HY_TRY(hy__graph_stream(graph, &stream));
  hy__packed* p = hy__calloc(1, sizeof *p);
  if (!p) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a packed weight");
  *p = *like;
  hy_status status = hy_alloc(stream, p->bytes, &p->data);
  if (status == HY_OK)
    status = p->provider->pack(graph->device->handle, stream->handle, &p->matrix, p->data);
  if (status == HY_OK) status = hy_stream_sync(stream);
  if (status != HY_OK) {
    hy_free(graph->device, p->data);
    hy__mfree(p);
    return status;
  }
  p->next = copies;
  copies = *made = p;
  return HY_OK;
}

void hy__packed_release(hy__packed* packed) {
  if (!packed) return;
  pthread_mutex_lock(&mutex);
  if (--packed->readers == 0) {
    hy__packed** at = &copies;
    while (*at != packed) at = &(*at)->next;
    *at = packed->next;
    hy_free(packed->device, packed->data);
    hy__mfree(packed);
  }
  pthread_mutex_unlock(&mutex);
}

const void* hy__packed_data(const hy__packed* packed) {
  return packed ? packed->data : NULL;
}

// What the node would have packed, in bytes; 0: nothing.
static uint64_t packs(const hy_graph* graph, const hy__graph_node* node, hy_tensor* matrix) {
  if (node->as.kind != HY_NODE_CALL || node->variant || !node->provider ||
      !node->provider->packed_bytes)
    return 0;
  return node->provider->packed_bytes(graph->device->handle, &node->call, matrix);
}

void hy__packed_check(const hy_graph* graph, hy__graph_node* node) {
  hy_tensor matrix;
  if (!node->packed) return;
  if (packs(graph, node, &matrix) && node->provider == node->packed->provider &&
      same_matrix(&matrix, &node->packed->matrix))
    return;
  if (graph->done) (void)hy_event_sync(graph->done);
  hy__packed_release(node->packed);
  node->packed = NULL;
}

// Whether the matrix is somebody's, wholly in the range.
static bool is_inside(const hy__graph_node* node, const hy_tensor* matrix, const char* captured,
                      size_t bytes) {
  for (int k = 0; k < node->n_operands; k++) {
    const hy__operand* o = &node->operands[k];
    uintptr_t first = (uintptr_t)o->captured + (uintptr_t)o->first;
    if (o->value < 0 && !o->writes && *o->now == matrix->data &&
        first - (uintptr_t)captured < bytes &&
        (uintptr_t)(o->last - o->first) <= bytes - (first - (uintptr_t)captured))
      return true;
  }
  return false;
}

static hy_status take(hy_graph* graph, hy__graph_node* node, const hy__packed* like) {
  pthread_mutex_lock(&mutex);
  hy__packed* found = find(like);
  hy_status status = found ? HY_OK : make(graph, like, &found);
  if (status == HY_OK) {
    found->readers++;
    node->packed = found;
  }
  pthread_mutex_unlock(&mutex);
  return status;
}

static void give_up(const hy_graph* graph, const char* captured, size_t bytes) {
  for (int i = 0; i < graph->count; i++) {
    hy__graph_node* node = graph->nodes[i];
    if (!node->packed || !is_inside(node, &node->packed->matrix, captured, bytes)) continue;
    hy__packed_release(node->packed);
    node->packed = NULL;
    node->stale = true;
  }
}

hy_status hy_graph_pack(hy_graph* graph, const void* captured, size_t bytes, uint64_t contents,
                        uint64_t* bytes_packed) {
  if (!graph || !captured || bytes == 0 || graph->building)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_pack: %s",
                   !graph             ? "graph is NULL"
                   : !graph->building ? "the range is empty"
                                      : "the graph is under construction; call hy_graph_finish");
  int writer = hy__graph_writer_of(graph, captured, bytes);
  if (writer >= 0)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_pack: node %d writes there", writer);
  if (graph->done) HY_TRY(hy_event_sync(graph->done));
  uint64_t total = 0;
  hy_status status = HY_OK;
  give_up(graph, captured, bytes);
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    hy__graph_node* node = graph->nodes[i];
    hy__packed like = {.device = graph->device, .provider = node->provider, .contents = contents};
    like.bytes = packs(graph, node, &like.matrix);
    if (!like.bytes || !is_inside(node, &like.matrix, captured, bytes)) continue;
    total += like.bytes;
    if (contents) status = take(graph, node, &like);
    node->stale |= node->packed != NULL;
  }
  if (status != HY_OK) give_up(graph, captured, bytes);
  for (int i = 0; i < graph->count; i++) graph->stale |= graph->nodes[i]->stale;
  if (bytes_packed) *bytes_packed = total;
  return status;
}
