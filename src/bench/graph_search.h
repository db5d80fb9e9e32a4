// What hy_graph_optimize finds, a part of `halyard bench graph`.
#ifndef HALYARD_BENCH_GRAPH_SEARCH_H_
#define HALYARD_BENCH_GRAPH_SEARCH_H_

#include "halyard/halyard.h"

hy_status bench_graph_search(hy_device* device);

#endif  // HALYARD_BENCH_GRAPH_SEARCH_H_
