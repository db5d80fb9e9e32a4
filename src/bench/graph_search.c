// hy_graph_optimize on single products: the graph with the tile that the search has chosen, in
// turns with the graph as the passes leave it.
#include "bench/graph_search.h"

#include <math.h>
#include <stdio.h>

#include "bench/call.h"

typedef struct product {
  const char* shape;
  hy_dtype dtype;
  int64_t m, n, k;
} product;

// Many short rows of weights, where tasks of more of them gain; beside them a head and a GEMM.
static const product products[] = {
    {"1 x 16384 x 64", HY_BF16, 1, 16384, 64},
    {"1 x 4096 x 256", HY_BF16, 1, 4096, 256},
    {"64 x 256 x 256", HY_F32, 64, 256, 256},
};

static hy_status build(hy_device* device, const product* p, hy_tensor t[3], hy_graph** graph) {
  hy_tensor in[3] = {0}, y = {0};
  HY_TRY(hy_graph_create(device, graph));
  HY_TRY(hy_graph_input(*graph, "x", p->dtype, 2, t[0].shape, &in[0]));
  HY_TRY(hy_graph_input(*graph, "w", p->dtype, 2, t[1].shape, &in[1]));
  hy_call call = {.op = HY_OP_linear, .n_in = 3, .n_out = 1, .in = in, .out = &y};
  HY_TRY(hy_graph_add(*graph, &call));
  HY_TRY(hy_graph_output(*graph, "y", &y));
  HY_TRY(hy_graph_finish(*graph));
  HY_TRY(hy_graph_set(*graph, "x", t[0].data));
  HY_TRY(hy_graph_set(*graph, "w", t[1].data));
  return hy_graph_set(*graph, "y", t[2].data);
}

static hy_status launch(hy_graph* graph, hy_stream* stream, double* best) {
  double start = bench_now();
  HY_TRY(hy_graph_launch(graph, stream));
  HY_TRY(hy_stream_sync(stream));
  *best = fmin(*best, bench_now() - start);
  return HY_OK;
}

static hy_status compare(hy_stream* stream, hy_graph* plain, hy_graph* searched, double best[2]) {
  enum { TURNS = 500 };
  best[0] = best[1] = INFINITY;
  for (int i = 0; i < TURNS; i++) {
    HY_TRY(launch(plain, stream, &best[0]));
    HY_TRY(launch(searched, stream, &best[1]));
  }
  return HY_OK;
}

static hy_status bench_product(hy_device* device, const product* p) {
  const double budget = 1;  // seconds
  bench_session session;
  hy_tensor t[3];
  hy_graph *plain = NULL, *searched = NULL;
  hy_optimize_report report;
  double best[2];
  hy_status status = bench_begin(&session, device);
  if (status == HY_OK) status = bench_tensor(&session, &t[0], p->dtype, 2, (int64_t[]){p->m, p->k});
  if (status == HY_OK) status = bench_tensor(&session, &t[1], p->dtype, 2, (int64_t[]){p->n, p->k});
  if (status == HY_OK) status = bench_tensor(&session, &t[2], p->dtype, 2, (int64_t[]){p->m, p->n});
  if (status == HY_OK) status = build(device, p, t, &plain);
  if (status == HY_OK) status = build(device, p, t, &searched);
  if (status == HY_OK) status = hy_graph_run_passes(plain, HY_PASS_ALL, NULL);
  if (status == HY_OK) status = hy_graph_optimize(searched, budget, &report);
  if (status == HY_OK) status = compare(session.stream, plain, searched, best);
  hy_graph_destroy(plain);
  hy_graph_destroy(searched);
  bench_end(&session);
  HY_TRY(status);
  char peer[sizeof report.choices + 16];
  snprintf(peer, sizeof peer, "without %s", report.choices[0] ? report.choices : "a choice");
  bench_row row = {.name = "search",
                   .shape = p->shape,
                   .dtype = hy_dtype_name(p->dtype),
                   .value = 1e6 * best[1],
                   .unit = "us",
                   .peer = peer,
                   .peer_value = 1e6 * best[0],
                   .ratio = best[0] / best[1]};
  bench_print(&row);
  return HY_OK;
}

hy_status bench_graph_search(hy_device* device) {
  for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
    const product* p = &products[i];
    if (bench_wanted("search", p->shape, hy_dtype_name(p->dtype))) HY_TRY(bench_product(device, p));
  }
  return HY_OK;
}
