// Conformance of graph capture: calls of every op that the device runs itself, captured, launched
// twice and rebound to other memory, give the bits that they give when run.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "halyard/graph.h"
#include "verify/compare.h"
#include "verify/verify.h"

enum { CALLS_PER_OP = 3 };

typedef struct bench {
  hy_device* device;
  hy_stream* stream;
  hy__case* c;
  void *here, *there;                  // on the device: where it is captured, and where it is bound
  unsigned char *plain, *got, *image;  // on the host
  size_t room;
  char why[800];
} bench;

static bool fail(bench* b, const char* format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(bench* b, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(b->why, sizeof b->why, format, arguments);
  va_end(arguments);
  return false;
}

static void give_back(bench* b) {
  hy_free(b->device, b->here);
  hy_free(b->device, b->there);
  free(b->plain);
  free(b->got);
  b->here = b->there = b->plain = b->got = NULL;
  b->room = 0;
}

static hy_status make_room(bench* b, size_t bytes) {
  if (bytes <= b->room) return HY_OK;
  give_back(b);
  b->plain = malloc(bytes);
  b->got = malloc(bytes);
  if (!b->plain || !b->got) return hy_fail(HY_OUT_OF_MEMORY, "no host memory to verify graphs");
  HY_TRY(hy_alloc(b->stream, bytes, &b->here));
  HY_TRY(hy_alloc(b->stream, bytes, &b->there));
  b->room = bytes;
  return HY_OK;
}

// ---- one call ----

typedef struct moved {
  hy_call call;
  hy_tensor in[HY_MAX_INPUTS], out[HY_MAX_OUTPUTS];
} moved;

static void move_call(const hy__case* c, void* memory, moved* m) {
  m->call = c->call;
  m->call.in = m->in;
  m->call.out = m->out;
  for (int i = 0; i < c->call.n_in && i < HY_MAX_INPUTS; i++)
    m->in[i] = hy__rebase(c, &c->in[i], memory);
  for (int i = 0; i < c->call.n_out; i++) m->out[i] = hy__rebase(c, &c->out[i], memory);
}

static hy_status put(bench* b, void* memory) {
  HY_TRY(hy_memcpy(b->stream, memory, b->c->image, b->c->used, HY_COPY_HOST_TO_DEVICE));
  return hy_stream_sync(b->stream);
}

static hy_status get(bench* b, const void* memory, unsigned char* host) {
  HY_TRY(hy_memcpy(b->stream, host, memory, b->c->used, HY_COPY_DEVICE_TO_HOST));
  return hy_stream_sync(b->stream);
}

// Launches where the image is and holds the result against that of the plain run.
static hy_status launch(bench* b, hy_graph* graph, void* memory, const char* what, bool* same) {
  HY_TRY(put(b, memory));
  HY_TRY(hy_graph_launch(graph, b->stream));
  HY_TRY(get(b, memory, b->got));
  size_t at = 0;
  while (at < b->c->used && b->got[at] == b->plain[at]) at++;
  *same = at == b->c->used;
  if (!*same) fail(b, "%s gave other bits than the call itself, first at byte %zu", what, at);
  return HY_OK;
}

static hy_status launch_all(bench* b, hy_graph* graph, bool* same) {
  HY_TRY(launch(b, graph, b->here, "the captured call", same));
  if (*same) HY_TRY(launch(b, graph, b->here, "the second launch", same));
  if (!*same || hy_graph_node_count(graph) == 0) return HY_OK;
  HY_TRY(put(b, b->here));
  HY_TRY(hy_graph_bind(graph, &(hy_binding){b->here, b->c->used, b->there}, 1));
  HY_TRY(launch(b, graph, b->there, "the call bound to other memory", same));
  if (!*same) return HY_OK;
  HY_TRY(get(b, b->here, b->got));
  *same = memcmp(b->got, b->c->image, b->c->used) == 0;
  if (!*same) fail(b, "the call bound to other memory wrote where it was captured");
  return HY_OK;
}

// False with the reason in b->why.
static bool try_call(bench* b) {
  moved m;
  hy_graph* graph = NULL;
  bool same = false;
  move_call(b->c, b->here, &m);
  hy_status status = put(b, b->here);
  if (status == HY_OK) status = hy_run(b->stream, &m.call);
  if (status == HY_OK) status = get(b, b->here, b->plain);
  if (status != HY_OK) return fail(b, "the call itself failed: %s", hy_last_error());
  status = hy_capture_begin(b->stream);
  if (status == HY_OK) {
    hy_status recorded = hy_run(b->stream, &m.call);
    if (recorded != HY_OK) fail(b, "%s", hy_last_error());
    status = hy_capture_end(b->stream, &graph);
    if (recorded != HY_OK) return false;
  }
  if (status == HY_OK) status = launch_all(b, graph, &same);
  if (status != HY_OK) fail(b, "%s", hy_last_error());
  hy_graph_destroy(graph);
  if (status != HY_OK && hy_stream_sync(b->stream) != HY_OK) hy_stream_reset(b->stream);
  return status == HY_OK && same;
}

// ---- all ops ----

static hy_status verify_op(bench* b, hy_op op, hy__op_verdict* verdict) {
  int left = CALLS_PER_OP;
  for (int i = 0; i < hy__case_count(op) && left > 0; i++) {
    hy__case_key key = {.op = op, .seed = 1, .index = i, .quick = true};
    hy_status made = hy__case_make(b->c, &key);
    if (made == HY_NOT_FOUND) continue;
    HY_TRY(made);
    if (b->c->expected != HY_OK || b->c->used == 0) continue;
    HY_TRY(make_room(b, b->c->used));
    moved m;
    hy_placement placement;
    move_call(b->c, b->here, &m);
    HY_TRY(hy_place(b->device, &m.call, &placement));
    if (!placement.provider) continue;
    left--;
    verdict->cases++;
    if (try_call(b)) {
      verdict->passed++;
    } else if (verdict->failed++ == 0) {
      snprintf(verdict->failure, sizeof verdict->failure, "%s", b->why);
      hy_call_describe(&b->c->call, verdict->call, sizeof verdict->call);
    }
  }
  return HY_OK;
}

// Whether the backend captures, or leaves graphs to the library.
static hy_status captures(bench* b, bool* native) {
  hy_graph* graph;
  HY_TRY(hy_capture_begin(b->stream));
  HY_TRY(hy_capture_end(b->stream, &graph));
  *native = hy_graph_is_native(graph);
  hy_graph_destroy(graph);
  return HY_OK;
}

hy_status hy__verify_graphs(hy_device* device, hy__op_verdict* verdict) {
  bench b = {.device = device};
  bool native = false, was_deterministic = hy_deterministic();
  hy_status status = hy_stream_create(device, &b.stream);
  if (status == HY_OK) status = captures(&b, &native);
  if (status == HY_OK && native) {
    hy_set_deterministic(true);
    status = hy__case_create(&b.c);
    for (int i = 0; i < hy_op_count() && status == HY_OK; i++) {
      status = verify_op(&b, hy_op_at(i)->op, verdict);
    }
    hy_set_deterministic(was_deterministic);
  }
  give_back(&b);
  hy__case_destroy(b.c);
  hy_stream_destroy(b.stream);
  return status;
}
