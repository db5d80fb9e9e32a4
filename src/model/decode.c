// Decoding steps as captured graphs: one for each step that may wait to be read, with a place of
// its own for the tokens it chose. They reach the host by a stream of their own, so that the next
// step need not wait for their copy.
#include "model/decode.h"

#include <string.h>

#include "base/memory.h"
#include "model/decode_block.h"

enum { SLOTS = HY__DECODER_AHEAD };

struct hy__decoder {
  hy_model* model;
  hy__kv_cache* cache;
  hy__sampler* sampler;
  int* rows;             // of the sampler
  bool draws, stateful;  // what kind of sampler it was captured with
  bool deterministic;    // kernels were chosen so
  int batch;
  int64_t width;    // of the block table
  hy_array* words;  // tokens, lengths, the block table, starts: i64
  hy__decode_state state;
  hy_array* how;         // the sampler's settings and draws
  hy_array* row;         // (B) i64: the sampler's rows
  hy_array *keys, *cos;  // what was captured over, to tell whether it is still there
  hy_graph* graph[SLOTS];
  hy_array* chosen[SLOTS];  // (B) i64
  int64_t* host;            // what was chosen in each, pinned
  hy_stream* copies;        // NULL on the host, where there is nothing to wait for
  hy_event *chose[SLOTS], *done[SLOTS];
  int64_t launched, read;
};

void hy__decoder_destroy(hy__decoder* d) {
  if (!d) return;
  hy_stream_sync(d->model->stream);
  hy_stream_destroy(d->copies);
  hy_array* const arrays[] = {d->state.tokens, d->state.lengths, d->state.table,
                              d->state.starts, d->words,         d->how,
                              d->row,          d->keys,          d->cos};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) hy_array_release(arrays[i]);
  for (int i = 0; i < SLOTS; i++) {
    hy_array_release(d->chosen[i]);
    hy_graph_destroy(d->graph[i]);
    hy_event_destroy(d->chose[i]);
    hy_event_destroy(d->done[i]);
  }
  if (d->host) hy_host_free(hy_stream_device(d->model->stream), d->host);
  hy__mfree(d->rows);
  hy__mfree(d);
}

// ---- making ----

// A graph is worth more than calls where a capture becomes one piece of work for the device, and on
// the host, where launches neither check, choose nor allocate and passes fuse.
hy_status hy__model_find_captures(hy_model* model) {
  if (model->captures != HY__CAPTURES_UNKNOWN) return HY_OK;
  bool worth = hy_device_is_host(hy_stream_device(model->stream));
  if (!worth) {
    hy_graph* graph = NULL;
    HY_TRY(hy_capture_begin(model->stream));
    HY_TRY(hy_capture_end(model->stream, &graph));
    worth = hy_graph_is_native(graph);
    hy_graph_destroy(graph);
  }
  model->captures = worth ? HY__CAPTURES : HY__CAPTURES_NOT;
  return HY_OK;
}

// The parts of `words`, as arrays that outlive the scope.
static hy_status divide(hy__decoder* d) {
  hy_scope s;
  hy_scope_begin(&s, d->model->tape);
  int64_t b = d->batch, table = 2 * b, starts = table + b * d->width;
  d->state.tokens = hy_scope_give(&s, hy_s_slice(&s, d->words, 0, 0, b, 1));
  d->state.lengths = hy_scope_give(&s, hy_s_slice(&s, d->words, 0, b, 2 * b, 1));
  d->state.table = hy_scope_give(
      &s, hy_s_view(&s, hy_s_slice(&s, d->words, 0, table, starts, 1), HY_SIZES(b, d->width)));
  d->state.starts = hy_scope_give(&s, hy_s_slice(&s, d->words, 0, starts, starts + b + 1, 1));
  return hy_scope_end(&s);
}

static hy_status allocate(hy__decoder* d) {
  hy_stream* stream = d->model->stream;
  hy_device* device = hy_stream_device(stream);
  void* host = NULL;
  int64_t words = 3 * d->batch + 1 + d->batch * d->width;
  HY_TRY(hy_array_zeros(stream, &d->words, HY_I64, 1, &words));
  HY_TRY(divide(d));
  HY_TRY(hy_array_zeros(stream, &d->how, HY_F32, HY_SIZES(hy__sampler_words(d->batch))));
  HY_TRY(hy_array_zeros(stream, &d->row, HY_I64, HY_SIZES(d->batch)));
  HY_TRY(hy_host_alloc(device, (size_t)(SLOTS * d->batch) * sizeof *d->host, &host));
  d->host = host;
  for (int i = 0; i < SLOTS; i++) {
    HY_TRY(hy_event_create(device, &d->chose[i]));
    HY_TRY(hy_event_create(device, &d->done[i]));
  }
  return hy_device_is_host(device) ? HY_OK : hy_stream_create(device, &d->copies);
}

// One step: the tokens chosen become those to run, and every sequence is one longer. A token of -1,
// which says that there was no choice, is replaced: the host sees it and stops.
static void step(hy_scope* s, hy__decoder* d, int slot) {
  const hy__shard* shard = &d->model->transformer.shard;
  hy_array* logits = hy__decode_logits(s, &d->model->transformer, &d->state);
  hy_array* ids = shard->comm && !d->draws && !d->stateful
                      ? hy__shard_argmax(s, shard, logits)
                      : hy__sampler_apply(s, d->sampler, hy__shard_gather(s, shard, logits), d->how,
                                          d->row, d->batch);
  d->chosen[slot] = hy_scope_give(s, ids);
  hy_array* zero = hy_s_slice(s, d->state.starts, 0, 0, 1, 1);
  hy_s_apply_into(s, HY_OP_maximum, (hy_array*[]){ids, zero}, 2, NULL, d->state.tokens);
  const hy_attrs one_more = {.value_alpha = {hy_int(1), hy_int(1)}};
  hy_s_apply_into(s, HY_OP_add_scalar, &d->state.lengths, 1, &one_more, d->state.lengths);
}

static hy_status capture(hy__decoder* d, int slot) {
  hy_stream* stream = d->model->stream;
  HY_TRY(hy_capture_begin(stream));
  hy_scope s;
  hy_scope_begin(&s, d->model->tape);
  step(&s, d, slot);
  hy_status status = hy_scope_end(&s);
  hy_status ended = hy_capture_end(stream, &d->graph[slot]);
  HY_TRY(status == HY_OK ? ended : status);
  return hy_graph_run_passes(d->graph[slot], HY__EXACT_PASSES, NULL);
}

static hy_status build(hy__decoder* d, const int* rows) {
  d->rows = hy__malloc((size_t)d->batch * sizeof *d->rows);
  if (!d->rows) return hy_fail(HY_OUT_OF_MEMORY, "no memory to decode %d sequences", d->batch);
  memcpy(d->rows, rows, (size_t)d->batch * sizeof *d->rows);
  HY_TRY(allocate(d));
  d->keys = hy_array_retain(hy__kv_cache_keys(d->cache, 0));
  d->cos = hy_array_retain(d->model->rope.cos);
  d->state.cache = d->cache;
  d->state.rope = &d->model->rope;
  for (int slot = 0; slot < hy__decoder_ahead(d); slot++) HY_TRY(capture(d, slot));
  return HY_OK;
}

hy_status hy__decoder_create(hy_model* model, hy__kv_cache* cache, hy__sampler* sampler,
                             const int* rows, int batch, int64_t positions, hy__decoder** out) {
  *out = NULL;
  HY_TRY(hy__model_find_captures(model));
  if (model->captures != HY__CAPTURES) return HY_OK;
  hy__decoder* d = hy__calloc(1, sizeof *d);
  if (!d) return hy_fail(HY_OUT_OF_MEMORY, "no memory to decode %d sequences", batch);
  d->model = model;
  d->cache = cache;
  d->sampler = sampler;
  d->draws = hy__sampler_draws(sampler);
  d->stateful = hy__sampler_has_state(sampler);
  d->deterministic = hy_deterministic();
  d->batch = batch;
  d->width = (positions + HY__KV_BLOCK - 1) / HY__KV_BLOCK;
  hy_status status = build(d, rows);
  if (status == HY_OK) {
    *out = d;
    return HY_OK;
  }
  hy__decoder_destroy(d);
  // An op without a kernel there, as the NPU has none to sample: the pass before it may still be
  // one.
  if (status != HY_UNSUPPORTED) return status;
  model->captures = HY__CAPTURES_FORWARD;
  return HY_OK;
}

bool hy__decoder_serves(const hy__decoder* d, const hy__kv_cache* cache, const hy__sampler* sampler,
                        int batch, int64_t positions) {
  return d && d->cache == cache && d->keys == hy__kv_cache_keys(cache, 0) &&
         d->cos == d->model->rope.cos && d->batch == batch &&
         positions <= d->width * HY__KV_BLOCK && !hy__sampler_has_state(sampler) && !d->stateful &&
         d->draws == hy__sampler_draws(sampler) && d->deterministic == hy_deterministic();
}

// ---- stepping ----

static hy_status upload_settings(hy__decoder* d) {
  size_t n = (size_t)hy__sampler_words(d->batch);
  float* host = hy__malloc(n * sizeof *host);
  if (!host) return hy_fail(HY_OUT_OF_MEMORY, "no memory to sample %d sequences", d->batch);
  hy__sampler_fill(d->sampler, d->rows, d->batch, host);
  hy_status status =
      hy_upload(d->model->stream, hy_array_tensor(d->how)->data, host, n * sizeof *host);
  hy__mfree(host);
  return status;
}

static void fill_words(const hy__decoder* d, hy__sequence* const* sequences,
                       const int32_t* const* tokens, int64_t* words) {
  int64_t *lengths = words + d->batch, *table = lengths + d->batch;
  int64_t* starts = table + d->batch * d->width;
  for (int i = 0; i < d->batch; i++) {
    const hy__sequence* seq = sequences[i];
    words[i] = tokens[i][0];
    lengths[i] = seq->length + 1;
    for (int64_t b = 0; b < d->width; b++) *table++ = b < seq->n_blocks ? seq->blocks[b] : 0;
    starts[i] = i;
  }
  starts[d->batch] = d->batch;
}

hy_status hy__decoder_begin(hy__decoder* d, hy__sampler* sampler, const int* rows,
                            hy__sequence* const* sequences, const int32_t* const* tokens) {
  hy_stream* stream = d->model->stream;
  size_t bytes = hy_tensor_bytes(hy_array_tensor(d->words));
  int64_t* host = hy__malloc(bytes);
  if (!host) return hy_fail(HY_OUT_OF_MEMORY, "no memory to decode %d sequences", d->batch);
  fill_words(d, sequences, tokens, host);
  hy_status status = hy_upload(stream, hy_array_tensor(d->words)->data, host, bytes);
  for (int i = 0; i < d->batch; i++) host[i] = rows[i];
  if (status == HY_OK)
    status = hy_upload(stream, hy_array_tensor(d->row)->data, host, (size_t)d->batch * 8);
  hy__mfree(host);
  HY_TRY(status);
  memcpy(d->rows, rows, (size_t)d->batch * sizeof *d->rows);
  d->sampler = sampler;
  d->launched = d->read = 0;
  return hy__sampler_draws(sampler) ? HY_OK : upload_settings(d);
}

hy_status hy__decoder_launch(hy__decoder* d) {
  hy_stream* stream = d->model->stream;
  hy_stream* copies = d->copies ? d->copies : stream;
  int64_t slot = d->launched % hy__decoder_ahead(d);
  if (hy__sampler_draws(d->sampler)) HY_TRY(upload_settings(d));
  HY_TRY(hy_graph_launch(d->graph[slot], stream));
  HY_TRY(hy_event_record(d->chose[slot], stream));
  HY_TRY(hy_stream_wait_event(copies, d->chose[slot]));
  HY_TRY(hy_memcpy(copies, d->host + slot * d->batch, hy_array_tensor(d->chosen[slot])->data,
                   (size_t)d->batch * sizeof *d->host, HY_COPY_DEVICE_TO_HOST));
  HY_TRY(hy_event_record(d->done[slot], copies));
  d->launched++;
  return HY_OK;
}

int hy__decoder_ahead(const hy__decoder* d) {
  return hy_device_is_host(hy_stream_device(d->model->stream)) ? 1 : HY__DECODER_AHEAD;
}

int hy__decoder_unread(const hy__decoder* d) {
  return (int)(d->launched - d->read);
}

hy_status hy__decoder_read(hy__decoder* d, int64_t* next) {
  int64_t slot = d->read % hy__decoder_ahead(d);
  HY_TRY(hy_event_sync(d->done[slot]));
  d->read++;
  memcpy(next, d->host + slot * d->batch, (size_t)d->batch * sizeof *next);
  return hy__model_check_chosen(next, d->batch);
}
