// Writing to a cache and attending over it. Packets need counts and addresses that come from index
// tensors on the device: these few numbers are read back first, which waits for the stream, once in
// a launch of a graph. The fallback would wait as well, and bring the whole cache along.
#include <stdlib.h>
#include <string.h>

#include "backends/echo/packets.h"

#define MOST_ROWS 2048
#define MOST_SEQUENCES 256

static hy_support check_index(const hy_tensor* t) {
  if (t->dtype != HY_I32 && t->dtype != HY_I64) return HY_SUPPORT_NO_DTYPE;
  return hy_tensor_is_contiguous(t) ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

static void widen(int64_t* numbers, size_t n) {
  for (size_t i = n; i-- > 0;) {
    int32_t narrow;
    memcpy(&narrow, (char*)numbers + i * sizeof narrow, sizeof narrow);
    numbers[i] = narrow;
  }
}

// Copies the numbers of contiguous index tensors to the host, memory to be freed, in one wait for
// the stream. On failure there is nothing to free.
static hy_status fetch(hy__echo_stream* stream, const hy_tensor* const* t, int count,
                       int64_t** numbers) {
  hy_status status = HY_OK;
  for (int i = 0; i < count; i++) {
    size_t n = (size_t)hy_tensor_numel(t[i]);
    numbers[i] = status == HY_OK ? malloc(n * sizeof **numbers + 1) : NULL;
    if (status == HY_OK && !numbers[i])
      status = hy__backend_host->fail(HY_OUT_OF_MEMORY, "echo: no host memory for %zu indices", n);
    if (status != HY_OK) continue;
    echoNpuError error = echoNpuMemcpyAsync(numbers[i], t[i]->data, hy_tensor_bytes(t[i]),
                                            ECHO_NPU_MEMCPY_DEVICE_TO_HOST, stream->queue);
    status = hy__echo_stream_result(stream, error, "reading indices");
  }
  // Whatever went wrong, no copy is under way once its memory is freed.
  hy_status idle = hy__echo_stream_sync(stream->device, stream);
  if (status == HY_OK) status = idle;
  for (int i = 0; i < count; i++) {
    if (status != HY_OK) {
      free(numbers[i]);
      numbers[i] = NULL;
    } else if (t[i]->dtype == HY_I32) {
      widen(numbers[i], (size_t)hy_tensor_numel(t[i]));
    }
  }
  return status;
}

// ---- what a launch of a graph knows ----

static hy__echo_known* find_known(const hy__echo_stream* s, const hy_tensor* t) {
  for (int i = 0; i < s->n_known; i++) {
    const hy_tensor* k = &s->known[i].tensor;
    if (k->data == t->data && k->dtype == t->dtype && hy_tensor_numel(k) == hy_tensor_numel(t))
      return &s->known[i];
  }
  return NULL;
}

hy_status hy__echo_expect_indices(hy__echo_stream* s, const hy_call* call) {
  int first = call->op == HY_OP_index_put ? 2 : call->op == HY_OP_paged_attention ? 3 : 0;
  int last = call->op == HY_OP_index_put ? 3 : call->op == HY_OP_paged_attention ? 6 : 0;
  for (int i = first; i < last; i++) {
    if (find_known(s, &call->in[i]) || hy_tensor_numel(&call->in[i]) == 0) continue;
    if (s->n_known == s->known_capacity) {
      int capacity = s->known_capacity ? 2 * s->known_capacity : 8;
      hy__echo_known* grown = realloc(s->known, (size_t)capacity * sizeof *grown);
      if (!grown) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "echo: no memory for a launch");
      s->known = grown;
      s->known_capacity = capacity;
    }
    s->known[s->n_known++] = (hy__echo_known){.tensor = call->in[i]};
  }
  return HY_OK;
}

hy_status hy__echo_learn_indices(hy__echo_stream* s) {
  if (s->n_known == 0) return HY_OK;
  const hy_tensor** tensors = malloc((size_t)s->n_known * sizeof *tensors);
  int64_t** numbers = calloc((size_t)s->n_known, sizeof *numbers);
  hy_status status = HY_OUT_OF_MEMORY;
  if (tensors && numbers) {
    for (int i = 0; i < s->n_known; i++) tensors[i] = &s->known[i].tensor;
    status = fetch(s, tensors, s->n_known, numbers);
    for (int i = 0; i < s->n_known; i++) s->known[i].numbers = numbers[i];
  } else {
    hy__backend_host->fail(HY_OUT_OF_MEMORY, "echo: no memory for a launch");
  }
  free(tensors);
  free(numbers);
  return status;
}

void hy__echo_forget_indices(hy__echo_stream* s, const void* memory, size_t bytes) {
  for (int i = 0; i < s->n_known; i++) {
    hy__echo_known* k = &s->known[i];
    const char *data = k->tensor.data, *changed = memory;
    if (!k->numbers || data >= changed + bytes || changed >= data + hy_tensor_bytes(&k->tensor))
      continue;
    free(k->numbers);
    k->numbers = NULL;
  }
}

void hy__echo_forget_all_indices(hy__echo_stream* s) {
  for (int i = 0; i < s->n_known; i++) free(s->known[i].numbers);
  s->n_known = 0;
}

// The numbers of contiguous index tensors, to be freed: those that a launch knows, or else read in
// one wait. False with the batch's status set and nothing to free.
static bool read_indices(hy__echo_batch* batch, const hy_tensor* t, int count, int64_t** numbers) {
  enum { MOST_TENSORS = 3 };
  const hy_tensor* tensors[MOST_TENSORS];
  bool known = batch->status == HY_OK;
  if (!known) return false;
  for (int i = 0; i < count; i++) {
    const hy__echo_known* k = find_known(batch->stream, &t[i]);
    known = known && k && k->numbers;
    tensors[i] = &t[i];
  }
  if (!known) {
    batch->status = fetch(batch->stream, tensors, count, numbers);
    return batch->status == HY_OK;
  }
  for (int i = 0; i < count; i++) {
    size_t bytes = (size_t)hy_tensor_numel(&t[i]) * sizeof **numbers;
    numbers[i] = malloc(bytes + 1);
    if (!numbers[i]) {
      while (i-- > 0) free(numbers[i]);
      batch->status = hy__backend_host->fail(HY_OUT_OF_MEMORY, "echo: no host memory for indices");
      return false;
    }
    memcpy(numbers[i], find_known(batch->stream, &t[i])->numbers, bytes);
  }
  return true;
}

// ---- index_put ----

static hy_status check_rows(const hy_call* call, int64_t* rows, int64_t n, int64_t size) {
  for (int64_t i = 0; i < n; i++) {
    if (rows[i] < -size || rows[i] >= size)
      return hy__backend_host->fail(HY_INDEX, "%s: index %lld at %lld, the dimension has %lld",
                                    hy__backend_host->op_name(call->op), (long long)rows[i],
                                    (long long)i, (long long)size);
    if (rows[i] < 0) rows[i] += size;
  }
  return HY_OK;
}

// Rows of the first dimension, set in the order of the indices: the last of equal ones stays.
hy_support hy__echo_index_put(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x, values;
  const hy_tensor* index = &call->in[2];
  if (call->attrs.accumulate.accumulate || call->n_in != 3) return HY_SUPPORT_NO_ATTRIBUTE;
  HY__ECHO_NEED(check_index(index));
  if (call->in[1].dtype != call->out[0].dtype || call->in[0].dtype != call->out[0].dtype)
    return HY_SUPPORT_NO_DTYPE;
  HY__ECHO_NEED(hy__echo_words(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_words(batch, &call->in[0], &x));
  HY__ECHO_NEED(hy__echo_words(batch, &call->in[1], &values));
  if (index->ndim != 1 || index->shape[0] > MOST_ROWS || hy__echo_numel(&out) == 0)
    return HY_SUPPORT_NO_SHAPE;
  int64_t n = index->shape[0], shape[HY_MAX_DIMS + 1];
  for (int d = 0; d < out.ndim; d++) shape[d] = out.shape[d];
  shape[0] = n;
  values = hy__echo_expand(&values, out.ndim, shape);
  if (!batch->stream) {
    hy__echo_operand to = hy__echo_slice(&out, 0, 0, 1), from = hy__echo_slice(&values, 0, 0, 1);
    HY__ECHO_NEED(hy__echo_copy(batch, &to, &from));
    if (batch->total > 2) return HY_SUPPORT_NO_LAYOUT;
    return call->out[0].data == call->in[0].data ? HY_SUPPORT_YES : hy__echo_copy(batch, &out, &x);
  }
  int64_t* rows;
  if (!read_indices(batch, index, 1, &rows)) return HY_SUPPORT_YES;
  hy_support answer = HY_SUPPORT_YES;
  batch->status = check_rows(call, rows, n, out.shape[0]);
  if (out.at != x.at) answer = hy__echo_copy(batch, &out, &x);
  for (int64_t i = 0, run; i < n && answer == HY_SUPPORT_YES; i += run) {
    for (run = 1; i + run < n && rows[i + run] == rows[i] + run;) run++;
    hy__echo_operand to = hy__echo_slice(&out, 0, rows[i], run);
    hy__echo_operand from = hy__echo_slice(&values, 0, i, run);
    answer = hy__echo_copy(batch, &to, &from);
  }
  free(rows);
  return answer;
}

// ---- paged_attention ----

typedef struct paged {
  hy__echo_operand out, q, k, v, table;
  bool table64;
  int64_t sequences, most_blocks;
  int64_t *block, *start, *length;  // on the host
} paged;

static hy_status check_sequences(const paged* p) {
  int64_t tokens = p->q.shape[0], block_size = p->k.shape[1];
  bool right = p->start[0] == 0 && p->start[p->sequences] == tokens;
  for (int64_t b = 0; right && b < p->sequences; b++) {
    int64_t queries = p->start[b + 1] - p->start[b], keys = p->length[b];
    right = queries >= 0 && keys >= queries && keys <= p->most_blocks * block_size;
    if (!right) break;
    for (int64_t i = 0; i * block_size < keys; i++) {
      int64_t block = p->block[b * p->most_blocks + i];
      if (block < 0 || block >= p->k.shape[0])
        return hy__backend_host->fail(HY_INDEX, "paged_attention: block %lld of %lld",
                                      (long long)block, (long long)p->k.shape[0]);
    }
  }
  if (right) return HY_OK;
  return hy__backend_host->fail(
      HY_INDEX,
      "paged_attention: query_start and context_length do not describe %lld "
      "tokens in at most %lld blocks each",
      (long long)tokens, (long long)p->most_blocks);
}

// [rows, heads, size] as [heads, rows, size].
static hy__echo_operand heads_first(const hy__echo_operand* t) {
  hy__echo_operand h = *t;
  h.shape[0] = t->shape[1];
  h.stride[0] = t->stride[1];
  h.shape[1] = t->shape[0];
  h.stride[1] = t->stride[0];
  return h;
}

// Blocks that follow each other as [heads, keys, size]; false where the cache has gaps.
static bool in_a_row(const hy__echo_operand* cache, int64_t first, int64_t blocks, int64_t keys,
                     hy__echo_operand* heads) {
  if (blocks > 1 && cache->shape[1] > 1 && cache->stride[0] != cache->stride[1] * cache->shape[1])
    return false;
  hy__echo_operand part = hy__echo_slice(cache, 0, first, blocks);
  hy__echo_operand rows = hy__echo_select(&part, 0, 0);
  if (cache->shape[1] == 1) rows.stride[0] = cache->stride[0];
  rows.shape[0] = keys;
  *heads = heads_first(&rows);
  return true;
}

// The keys or values of sequence b: in place if their blocks follow each other, else
// gathered.
static hy_support of_sequence(hy__echo_batch* batch, const paged* p, const hy__echo_operand* cache,
                              int64_t b, hy__echo_operand* heads) {
  int64_t keys = p->length[b], block_size = cache->shape[1];
  int64_t blocks = (keys + block_size - 1) / block_size;
  const int64_t* block = p->block + b * p->most_blocks;
  int64_t run = 1;
  while (run < blocks && block[run] == block[0] + run) run++;
  if (run == blocks && in_a_row(cache, block[0], blocks, keys, heads)) return HY_SUPPORT_YES;
  hy__echo_operand slices;
  if (!hy__echo_slices(cache, 0xe, &slices)) return HY_SUPPORT_NO_LAYOUT;
  int64_t shape[4] = {blocks, block_size, cache->shape[2], cache->shape[3]};
  hy__echo_operand packed = hy__echo_temporary(batch, cache->type, 4, shape), to, index = p->table;
  hy__echo_slices(&packed, 0xe, &to);
  to = hy__echo_expand(&to, 3, (int64_t[]){1, blocks, to.shape[1]});
  slices = hy__echo_expand(&slices, 3, (int64_t[]){1, slices.shape[0], slices.shape[1]});
  // A table of one block would repeat it: rows are gathered by their distance.
  if (cache->shape[0] == 1) slices.stride[1] = 0;
  index.at += (uint64_t)(b * p->most_blocks) * (p->table64 ? 8 : 4);
  HY__ECHO_NEED(hy__echo_gather(batch, &to, &slices, &index, p->table64));
  in_a_row(&packed, 0, blocks, keys, heads);
  return HY_SUPPORT_YES;
}

static hy_support attend_all(hy__echo_batch* batch, const hy_call* call, const paged* p) {
  for (int64_t b = 0; b < p->sequences; b++) {
    int64_t queries = p->start[b + 1] - p->start[b];
    if (queries == 0) continue;
    hy__echo_operand k, v, q = hy__echo_slice(&p->q, 0, p->start[b], queries);
    hy__echo_operand out = hy__echo_slice(&p->out, 0, p->start[b], queries);
    q = heads_first(&q);
    out = heads_first(&out);
    HY__ECHO_NEED(of_sequence(batch, p, &p->k, b, &k));
    HY__ECHO_NEED(of_sequence(batch, p, &p->v, b, &v));
    HY__ECHO_NEED(
        hy__echo_attend(batch, call->attrs.scale.scale, HY_CAUSAL_BOTTOM_RIGHT, &out, &q, &k, &v));
  }
  return HY_SUPPORT_YES;
}

// Rows of a head that the matrix engine can read, and blocks that can be gathered.
static bool is_plain(const hy__echo_operand* t) {
  hy__echo_operand slices;
  return hy__echo_slices(t, t->ndim == 4 ? 0xe : 0x6, &slices);
}

hy_support hy__echo_paged_attention(hy__echo_batch* batch, const hy_call* call) {
  const hy_tensor* table = &call->in[3];
  paged p = {.sequences = table->shape[0], .most_blocks = table->shape[1]};
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &p.out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &p.q));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[1], &p.k));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[2], &p.v));
  for (int i = 3; i < 6; i++) HY__ECHO_NEED(check_index(&call->in[i]));
  if (!is_plain(&p.out) || !is_plain(&p.q) || !is_plain(&p.k) || !is_plain(&p.v))
    return HY_SUPPORT_NO_LAYOUT;
  if (p.sequences > MOST_SEQUENCES || hy__echo_numel(&p.k) == 0 || hy__echo_numel(&p.v) == 0)
    return HY_SUPPORT_NO_SHAPE;
  if (!batch->stream || batch->status != HY_OK) return HY_SUPPORT_YES;
  p.table64 = table->dtype == HY_I64;
  int64_t* numbers[3];
  if (!read_indices(batch, table, 3, numbers)) return HY_SUPPORT_YES;
  p.block = numbers[0];
  p.start = numbers[1];
  p.length = numbers[2];
  hy_support answer = HY_SUPPORT_YES;
  batch->status = check_sequences(&p);
  if (batch->status == HY_OK) {
    uint64_t at = 0;
    if (hy_tensor_numel(table) > 0 && echoNpuGetAddress(table->data, NULL, &at) != ECHO_NPU_SUCCESS)
      batch->status = hy__echo_fail(ECHO_NPU_ERROR_INVALID_POINTER, "block_table");
    p.table.at = at;
    answer = attend_all(batch, call, &p);
  }
  for (int i = 0; i < 3; i++) free(numbers[i]);
  return answer;
}
