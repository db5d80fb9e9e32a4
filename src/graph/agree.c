// Agreement of ranks: before a graph with collectives is launched for the first time, they gather a
// hash of one another's lists.
//
// A graph may talk by several communicators; each has a list of its own, and they are compared in
// the order in which they first appear. A communicator that one rank's graph alone uses ends by its
// time limit there, as any collective does that the others do not make.
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

// FNV-1a.
static const uint64_t empty_list = 0xcbf29ce484222325u;
static uint64_t hash_number(uint64_t hash, uint64_t number) {
  for (int i = 0; i < 64; i += 8) hash = (hash ^ (number >> i & 0xff)) * 0x100000001b3u;
  return hash;
}

// All that ranks have in common; not the addresses.
static uint64_t hash_collective(uint64_t hash, const hy_collective* c) {
  hash = hash_number(hash, (uint64_t)c->kind << 32 | (uint64_t)c->dtype);
  hash = hash_number(hash, (uint64_t)c->op << 32 | (uint32_t)c->root);
  return hash_number(hash, (uint64_t)c->count);
}

// The next collective of the communicator from node `*at` on; NULL: there is none.
static const hy_collective* next_of(const hy_graph* graph, const hy_comm* comm, int* at) {
  for (; *at < graph->count; ++*at) {
    const hy__graph_node* node = graph->nodes[*at];
    if (node->as.kind == HY_NODE_COLLECTIVE && node->collective.comm == comm)
      return &graph->nodes[(*at)++]->collective;
  }
  return NULL;
}

// n numbers of every rank, by rank, through memory of the device.
static hy_status gather(hy_comm* comm, hy_stream* stream, const uint64_t* own, int64_t n,
                        uint64_t* all) {
  void *send = NULL, *recv = NULL;
  size_t bytes = (size_t)n * sizeof *own;
  hy_device* device = hy_stream_device(stream);
  hy_status status = hy_alloc(stream, bytes, &send);
  if (status == HY_OK) status = hy_alloc(stream, bytes * (size_t)hy_comm_size(comm), &recv);
  if (status == HY_OK) status = hy_memcpy(stream, send, own, bytes, HY_COPY_HOST_TO_DEVICE);
  if (status == HY_OK) status = hy_comm_all_gather(comm, stream, send, recv, n, HY_I64);
  if (status == HY_OK)
    status =
        hy_memcpy(stream, all, recv, bytes * (size_t)hy_comm_size(comm), HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy_stream_sync(stream);
  hy_free(device, send);
  hy_free(device, recv);
  return status;
}

// Every rank comes here with the same `shortest`, finds the same place, and says what it has there.
static hy_status explain(const hy_graph* graph, hy_comm* comm, hy_stream* stream, int64_t shortest,
                         const uint64_t* lengths) {
  int ranks = hy_comm_size(comm), at = 0;
  int64_t first = 0;
  uint64_t hash = empty_list;
  uint64_t* hashes = hy__calloc((size_t)(shortest + 1) * (size_t)(ranks + 1), sizeof *hashes);
  if (!hashes) return hy_fail(HY_OUT_OF_MEMORY, "no host memory to compare graphs of ranks");
  for (int64_t i = 0; i < shortest; i++)
    hashes[i] = hash = hash_collective(hash, next_of(graph, comm, &at));
  uint64_t* all = hashes + shortest + 1;
  hy_status status = shortest > 0 ? gather(comm, stream, hashes, shortest, all) : HY_OK;
  for (bool same = true; status == HY_OK && first < shortest; first++) {
    for (int r = 1; r < ranks; r++) same = same && all[r * shortest + first] == all[first];
    if (!same) break;
  }
  hy__mfree(hashes);
  HY_TRY(status);
  const hy_collective* here = NULL;
  at = 0;
  for (int64_t i = 0; i <= first; i++) here = next_of(graph, comm, &at);
  char words[96] = "there is none";
  if (here)
    snprintf(words, sizeof words, "it is %s of %lld %s", hy_collective_name(here->kind),
             (long long)here->count, hy_dtype_name(here->dtype));
  return hy_fail(HY_INVALID_ARGUMENT,
                 "the ranks' graphs differ from collective %lld on: on rank %d of %d, with %llu of "
                 "them, %s; ranks launch the same work",
                 (long long)first, hy_comm_rank(comm), ranks,
                 (unsigned long long)lengths[2 * hy_comm_rank(comm)], words);
}

// Length and hash of the list; the same verdict on every rank.
static hy_status compare(const hy_graph* graph, hy_comm* comm, hy_stream* stream) {
  int ranks = hy_comm_size(comm), at = 0;
  uint64_t own[2] = {0, empty_list};
  for (const hy_collective* c; (c = next_of(graph, comm, &at)) != NULL; own[0]++)
    own[1] = hash_collective(own[1], c);
  uint64_t* all = hy__calloc((size_t)ranks, sizeof own);
  if (!all) return hy_fail(HY_OUT_OF_MEMORY, "no host memory to compare graphs of ranks");
  hy_status status = gather(comm, stream, own, 2, all);
  bool same = true;
  uint64_t shortest = own[0];
  for (int r = 0; r < ranks && status == HY_OK; r++) {
    same = same && memcmp(&all[(size_t)2 * r], own, sizeof own) == 0;
    if (all[2 * r] < shortest) shortest = all[2 * r];
  }
  // Where any two differ, some rank differs from this one: all see it.
  if (status == HY_OK && !same) status = explain(graph, comm, stream, (int64_t)shortest, all);
  hy__mfree(all);
  return status;
}

static bool is_first(const hy_graph* graph, int index) {
  int at = 0;
  return next_of(graph, graph->nodes[index]->collective.comm, &at) != NULL && at == index + 1;
}

hy_status hy_graph_agree(hy_graph* graph, hy_stream* stream) {
  if (!graph || !stream)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_agree: %s is NULL", graph ? "stream" : "graph");
  for (int i = 0; i < graph->count; i++) {
    const hy__graph_node* node = graph->nodes[i];
    if (node->as.kind == HY_NODE_COLLECTIVE && is_first(graph, i))
      HY_TRY(compare(graph, node->collective.comm, stream));
  }
  graph->agreed = true;
  return HY_OK;
}
