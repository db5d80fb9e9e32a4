// Graph capture over the driver's own: kernels, copies and memsets of a capturing stream become a
// graph, which a launch gives to the device as one piece of work.
//
// What captured kernels need beside their tensors (workspace, counters, a place for faults) belongs
// to the graph, so that it may be launched on any stream, also when the one that captured is gone.
// Relaxed mode: memory may be allocated and modules loaded meanwhile, by any thread.
#include <stdlib.h>

#include "backends/gpu/gpu.h"

typedef struct graph {
  void* executable;  // the driver's
  hy__gpu_resources use;
} graph;

static void set_capturing(hy__gpu_stream* s, bool capturing) {
  pthread_mutex_lock(&s->device->mutex);
  s->capturing = capturing;
  pthread_mutex_unlock(&s->device->mutex);
}

// The stream's own resources again; those of the capture are in `of_capture`.
static void swap_back(hy__gpu_stream* s, hy__gpu_resources* of_capture) {
  *of_capture = s->use;
  s->use = s->aside;
  s->aside = (hy__gpu_resources){0};
  s->written = (hy__gpu_written){.unknown = true};
  set_capturing(s, false);
}

hy_status hy__gpu_capture_begin(void* device, void* stream) {
  enum { RELAXED = 2 };
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  hy__gpu_resources fresh;
  HY_TRY(hy__gpu_resources_create(d, &fresh));
  bool entered = hy__gpu_enter(d);
  hy_status status = hy__gpu_resources_count(d, s->queue, &fresh);
  int error = 0;
  if (status == HY_OK) error = d->api->driver.capture_begin(s->queue, RELAXED);
  hy__gpu_leave(d, entered);
  if (error) status = hy__gpu_fail(d, error, "beginning a capture");
  if (status != HY_OK) {
    hy__gpu_resources_destroy(d, &fresh);
    return status;
  }
  s->aside = s->use;
  s->use = fresh;
  s->written = (hy__gpu_written){0};  // a launch begins when all before it is done
  set_capturing(s, true);
  return HY_OK;
}

hy_status hy__gpu_capture_end(void* device, void* stream, void** out) {
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  const hy__gpu_driver* driver = &d->api->driver;
  void* captured = NULL;
  graph* g = calloc(1, sizeof *g);
  bool entered = hy__gpu_enter(d);
  int error = driver->capture_end(s->queue, &captured);
  hy__gpu_resources use;
  swap_back(s, &use);
  hy_status status = HY_OK;
  if (out && !error && g) error = driver->graph_instantiate(&g->executable, captured, 0);
  if (captured) driver->graph_destroy(captured);
  hy__gpu_leave(d, entered);
  if (!g) status = hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", d->api->name);
  if (error && out) status = hy__gpu_fail(d, error, "ending a capture");
  if (!out || !g || status != HY_OK) {
    hy__gpu_resources_destroy(d, &use);
    free(g);
    return status;
  }
  g->use = use;
  *out = g;
  return HY_OK;
}

// The stream looks at the graph's faults from now on.
static void watch(hy__gpu_stream* s, hy__gpu_fault_cell* cell) {
  pthread_mutex_lock(&s->mutex);
  int kept = 0;
  bool known = false;
  for (int i = 0; i < s->n_graphs; i++) {
    hy__gpu_fault_cell* old = s->graphs[i];
    known |= old == cell;
    bool gone = __atomic_load_n(&old->references, __ATOMIC_ACQUIRE) == 1 &&
                !__atomic_load_n(&old->fault->op, __ATOMIC_ACQUIRE);
    if (gone)
      hy__gpu_faults_release(s->device, old);
    else
      s->graphs[kept++] = old;
  }
  // Of more than it can look at, the last graph takes the place of another.
  if (!known && kept == HY__GPU_GRAPHS) hy__gpu_faults_release(s->device, s->graphs[--kept]);
  if (!known) {
    __atomic_add_fetch(&cell->references, 1, __ATOMIC_ACQ_REL);
    s->graphs[kept++] = cell;
  }
  s->n_graphs = kept;
  pthread_mutex_unlock(&s->mutex);
}

hy_status hy__gpu_graph_launch(void* device, void* handle, void* stream) {
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  graph* g = handle;
  if (d->lost) return hy__gpu_fail(d, -1, "launching a graph");
  watch(s, g->use.faults);
  s->written = (hy__gpu_written){.unknown = true};
  s->last_op = HY_OP_NONE;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.graph_launch(g->executable, s->queue);
  hy__gpu_leave(d, entered);
  return error ? hy__gpu_fail(d, error, "launching a graph") : HY_OK;
}

void hy__gpu_graph_destroy(void* device, void* handle) {
  hy__gpu_device* d = device;
  graph* g = handle;
  bool entered = hy__gpu_enter(d);
  d->api->driver.executable_destroy(g->executable);
  hy__gpu_leave(d, entered);
  hy__gpu_resources_destroy(d, &g->use);
  free(g);
}
