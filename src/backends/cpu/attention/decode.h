// Decode attention: a few queries (m <= 16) over many keys. Keys and values are read in place, once
// for all queries that share them (GQA), and long contexts are split over the threads.
#ifndef HALYARD_CPU_ATTENTION_DECODE_H_
#define HALYARD_CPU_ATTENTION_DECODE_H_

#include "backends/cpu/family.h"

// A unit is a set of up to HY__GEMV_MAX_M queries with the same keys.
typedef struct hy__decode_attention {
  const hy__cpu_kernels* kernels;
  int64_t units, size, value_size;
  float scale;
  int64_t most_keys;  // of any unit
  void* context;
  // How many queries and keys the unit has.
  void (*describe)(const void* context, int64_t unit, int* queries, int64_t* keys);
  // The unit's queries as [queries, size].
  void (*load)(const void* context, int64_t unit, float* queries);
  // Matrices whose first rows are key and value number `first`, and how many rows they have.
  int64_t (*keys)(const void* context, int64_t unit, int64_t first, hy__matrix* k, hy__matrix* v);
  // -inf for keys that the query does not see; may be NULL.
  void (*mask)(const void* context, int64_t unit, int query, int64_t first, int n, float* scores);
  // A finished row, from any thread; `lse` is -inf where no key was seen.
  void (*store)(void* context, int64_t unit, int query, const float* sums, float factor, float lse);
} hy__decode_attention;

// False when there is no memory.
bool hy__attention_decode(const hy__decode_attention* f);

#endif  // HALYARD_CPU_ATTENTION_DECODE_H_
