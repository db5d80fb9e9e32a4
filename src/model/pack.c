// Weight quantisation while loading, and its cache file.
#include "model/pack.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "model/load.h"

// Bytes of a file's weights that are on the device at once while they are packed.
enum { CHUNK = 16 << 20, Q4_GROUP = 32, CACHE_VERSION = 1, STAMP = 3 };

typedef struct packing {
  hy_stream* stream;
  const char* folder;
  hy_dtype dtype;  // of the blocks' layers
  const hy__weights* source;
  const hy__weights* cache;  // NULL: there is none, or it is of other weights
  // What is to be written to the cache.
  bool keep;
  hy__weight* list;
  int count, capacity;
  hy__load_progress* progress;
  const hy__shard* shard;
} packing;

static hy_status choose_group(hy_dtype dtype, const char* name, int64_t in, int64_t* group) {
  *group = dtype == HY_I8 ? hy__int8_group(in) : Q4_GROUP;
  if (dtype == HY_I8 || in % Q4_GROUP == 0) return HY_OK;
  return hy_fail(HY_UNSUPPORTED, "%s: rows of %lld cannot be quantised in groups of %d", name,
                 (long long)in, Q4_GROUP);
}

hy_status hy__pack_choose(hy_weight_format format, const char* name, int64_t in, hy_dtype* dtype,
                          int64_t* scales) {
  int64_t group;
  *dtype = format == HY_WEIGHTS_Q8 ? HY_I8 : HY_I4;
  HY_TRY(choose_group(*dtype, name, in, &group));
  *scales = group > 0 ? in / group : 1;
  return HY_OK;
}

// ---- from the model's own weights ----

// Rows first .. first + rows - 1 of a matrix.
static hy_tensor rows_of(const hy_tensor* t, int64_t first, int64_t rows) {
  hy_tensor part = *t;
  part.data = (char*)t->data + hy_tensor_bytes(t) / (size_t)t->shape[0] * (size_t)first;
  part.shape[0] = rows;
  return part;
}

// A device that reads the host's memory reads the mapped file itself.
static hy_status pack_rows(hy_stream* stream, const hy_tensor* from, hy_tensor* weight,
                           hy_tensor* scale, int64_t group) {
  bool aligned = (uintptr_t)from->data % hy_dtype_size(from->dtype) == 0;
  if (hy_device_is_host(hy_stream_device(stream)) && aligned)
    return hy_quantize(stream, weight, scale, from, weight->dtype, group);
  hy_array* raw = NULL;
  HY_TRY(hy_array_from_host(stream, &raw, from->dtype, 2, from->shape, from->data));
  hy_status status = hy_quantize(stream, weight, scale, hy_array_tensor(raw), weight->dtype, group);
  hy_array_release(raw);
  return status;
}

static hy_status pack(hy_stream* stream, const hy_tensor* from, int64_t group, hy_array* weight,
                      hy_array* scale) {
  int64_t rows = from->shape[0], bytes = (int64_t)hy_tensor_bytes(from) / rows;
  int64_t chunk = bytes < CHUNK ? CHUNK / bytes : 1;
  for (int64_t first = 0; first < rows; first += chunk) {
    int64_t here = rows - first < chunk ? rows - first : chunk;
    hy_tensor raw = rows_of(from, first, here);
    hy_tensor packed = rows_of(hy_array_tensor(weight), first, here);
    hy_tensor scales = rows_of(hy_array_tensor(scale), first, here);
    HY_TRY(pack_rows(stream, &raw, &packed, &scales, group));
    hy__weights_forget(&raw);
  }
  return HY_OK;
}

static hy_status pack_from_source(const packing* p, const char* name, const int64_t shape[2],
                                  int64_t group, hy_array* weight, hy_array* scale) {
  const hy__weight* w;
  hy__slice slice;
  hy_tensor part;
  void* copy;
  char full[160];
  snprintf(full, sizeof full, "%s.weight", name);
  HY_TRY(hy__find_parameter(p->source, p->folder, full, 2, shape, p->shard, &w, &slice));
  HY_TRY(hy__slice_take(&slice, &w->tensor, &part, &copy));
  hy_status status = pack(p->stream, &part, group, weight, scale);
  if (copy) hy__weights_forget(&w->tensor);
  hy__mfree(copy);
  return status;
}

// ---- the cache ----

// int4 is in the file as bytes of two numbers each.
static hy_tensor as_stored(const hy_tensor* t) {
  hy_tensor stored = *t;
  if (t->dtype != HY_I4) return stored;
  const int64_t shape[2] = {t->shape[0], t->shape[1] / 2};
  hy_tensor_init(&stored, t->data, HY_U8, 2, shape);
  return stored;
}

static hy_status copy_from_cache(const packing* p, const char* name, const char* part,
                                 hy_array* to) {
  char full[160];
  snprintf(full, sizeof full, "%s.%s", name, part);
  const hy__weight* w = hy__weights_find(p->cache, full);
  hy_tensor wanted = as_stored(hy_array_tensor(to));
  bool fits = w && w->tensor.dtype == wanted.dtype && w->tensor.ndim == 2 &&
              w->tensor.shape[0] == wanted.shape[0] && w->tensor.shape[1] == wanted.shape[1];
  if (!fits) return hy_fail(HY_FORMAT, "%s: the packed %s is not as it should be", p->folder, full);
  HY_TRY(hy_memcpy(p->stream, wanted.data, w->tensor.data, hy_tensor_bytes(&wanted),
                   HY_COPY_HOST_TO_DEVICE));
  HY_TRY(hy_stream_sync(p->stream));
  hy__weights_forget(&w->tensor);
  return HY_OK;
}

static hy_status keep(packing* p, const char* name, const char* part, const hy_array* array) {
  if (p->count == p->capacity) {
    int capacity = p->capacity ? 2 * p->capacity : 64;
    hy__weight* list = hy__realloc(p->list, (size_t)capacity * sizeof *list);
    if (!list) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a list of %d weights", capacity);
    p->list = list;
    p->capacity = capacity;
  }
  char full[160];
  snprintf(full, sizeof full, "%s.%s", name, part);
  hy_tensor stored = as_stored(hy_array_tensor(array));
  size_t bytes = hy_tensor_bytes(&stored);
  hy__weight* w = &p->list[p->count];
  *w = (hy__weight){hy__strdup(full), stored};
  w->tensor.data = hy__malloc(bytes + 1);
  p->count++;
  if (!w->name || !w->tensor.data)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory to keep the packed %s", full);
  return hy_array_to_host(p->stream, array, w->tensor.data, bytes);
}

static void make_stamp(const hy__weights* source, int64_t stamp[STAMP]) {
  stamp[0] = CACHE_VERSION;
  hy__weights_identify(source, &stamp[1], &stamp[2]);
}

static hy_status cache_path(const char* folder, hy_weight_format format, char* path, size_t size) {
  return hy__join_path(
      folder, format == HY_WEIGHTS_Q8 ? "halyard-q8.safetensors" : "halyard-q4.safetensors", path,
      size);
}

// Gives NULL where the file is not of these weights, and says why: who asked for a cache is told
// that it did not serve.
static hy__weights* open_cache(const char* path, const hy__weights* source) {
  hy__weights* cache = NULL;
  int64_t wanted[STAMP], found[STAMP];
  if (!hy__file_exists(path)) return NULL;
  if (hy__weights_open_file(path, &cache) != HY_OK) {
    hy__log(0, "%s is ignored and written anew: %s", path, hy_last_error());
    return NULL;
  }
  make_stamp(source, wanted);
  const hy__weight* stamp = hy__weights_find(cache, "source");
  if (stamp && stamp->tensor.dtype == HY_I64 && hy_tensor_numel(&stamp->tensor) == STAMP) {
    memcpy(found, stamp->tensor.data, sizeof found);
    if (memcmp(found, wanted, sizeof found) == 0) return cache;
  }
  hy__log(0, "%s is ignored and written anew: it was made of other weights", path);
  hy__weights_close(cache);
  return NULL;
}

static hy_status write_cache(packing* p, const char* path) {
  int64_t stamp[STAMP];
  const int64_t size = STAMP;
  make_stamp(p->source, stamp);
  hy__weight* list = hy__realloc(p->list, (size_t)(p->count + 1) * sizeof *list);
  if (!list) return hy_fail(HY_OUT_OF_MEMORY, "%s: no memory to write it", path);
  p->list = list;
  list[p->count].name = "source";
  HY_TRY(hy_tensor_init(&list[p->count].tensor, stamp, HY_I64, 1, &size));
  return hy__weights_save(path, list, p->count + 1);
}

// ---- the layers ----

static hy_status pack_layer(packing* p, const char* name, hy_dtype dtype, hy__linear* layer,
                            int64_t out, int64_t in) {
  int64_t group;
  HY_TRY(choose_group(dtype, name, in, &group));
  const int64_t shape[2] = {out, in}, scales[2] = {out, group > 0 ? in / group : 1};
  if (!layer->weight) HY_TRY(hy_array_empty(p->stream, &layer->weight, dtype, 2, shape));
  if (!layer->scale) HY_TRY(hy_array_empty(p->stream, &layer->scale, HY_F32, 2, scales));
  HY_TRY(hy__load_goes_on(p->progress, out * in));
  if (p->cache) {
    HY_TRY(copy_from_cache(p, name, "weight", layer->weight));
    return copy_from_cache(p, name, "scale", layer->scale);
  }
  HY_TRY(pack_from_source(p, name, shape, group, layer->weight, layer->scale));
  if (!p->keep) return HY_OK;
  HY_TRY(keep(p, name, "weight", layer->weight));
  return keep(p, name, "scale", layer->scale);
}

static hy_status pack_one(void* context, const char* name, hy__linear* layer, int64_t out,
                          int64_t in) {
  packing* p = context;
  return pack_layer(p, name, p->dtype, layer, out, in);
}

static void tie(hy__transformer* model) {
  if (!model->config.tied_embeddings) return;
  hy_array_release(model->embedding);
  model->embedding = hy_array_retain(model->head.weight);
  model->embedding_scale = hy_array_retain(model->head.scale);
}

static hy_status pack_all(packing* p, hy__transformer* model) {
  const hy__config* c = &model->config;
  bool embeds = c->tied_embeddings && hy__shard_is_first(&model->shard);
  if (embeds || hy__shard_is_last(&model->shard)) {
    HY_TRY(pack_layer(p, c->tied_embeddings ? "model.embed_tokens" : "lm_head", HY_I8, &model->head,
                      hy__shard_vocab(&model->shard, c), c->hidden_size));
    tie(model);
  }
  HY_TRY(hy__transformer_visit_linears(model, pack_one, p));
  return hy__transformer_use_activation_group(hy_stream_device(p->stream), model);
}

hy_status hy__pack_load(hy_stream* stream, const char* folder, const hy__weights* weights,
                        hy__load_progress* progress, hy__transformer* model) {
  char path[4096];
  hy_weight_format format = progress->options->format;
  bool cached = progress->options->cached;
  packing p = {.stream = stream,
               .folder = folder,
               .source = weights,
               .progress = progress,
               .shard = &model->shard};
  p.dtype = format == HY_WEIGHTS_Q8 ? HY_I8 : HY_I4;
  HY_TRY(cache_path(folder, format, path, sizeof path));
  hy__weights* cache = cached ? open_cache(path, weights) : NULL;
  p.cache = cache;
  p.keep = cached && !cache;
  hy_status status = pack_all(&p, model);
  if (status == HY_OK && p.keep) status = write_cache(&p, path);
  for (int i = 0; i < p.count; i++) {
    hy__mfree((void*)(uintptr_t)p.list[i].name);
    hy__mfree(p.list[i].tensor.data);
  }
  hy__mfree(p.list);
  hy__weights_close(cache);
  return status;
}

// ---- a model that is there already ----

typedef struct quantising {
  hy_tape* tape;
  hy_dtype dtype;
} quantising;

static hy_status quantise(void* context, const char* name, hy__linear* layer, int64_t out,
                          int64_t in) {
  const quantising* q = context;
  int64_t group;
  hy_array *weight = NULL, *scale = NULL;
  (void)out;
  HY_TRY(choose_group(q->dtype, name, in, &group));
  HY_TRY(hy_array_quantize(q->tape, &weight, &scale, layer->weight, q->dtype, group));
  hy_array_release(layer->weight);
  layer->weight = weight;
  layer->scale = scale;
  return HY_OK;
}

hy_status hy__transformer_quantise(hy_tape* tape, hy__transformer* model, hy_weight_format format) {
  if (!hy__format_is_packed(format)) return HY_OK;
  const hy__config* c = &model->config;
  quantising head = {tape, HY_I8}, blocks = {tape, format == HY_WEIGHTS_Q8 ? HY_I8 : HY_I4};
  HY_TRY(quantise(&head, "lm_head", &model->head, c->vocab_size, c->hidden_size));
  tie(model);
  HY_TRY(hy__transformer_visit_fused(model, quantise, &blocks));
  HY_TRY(hy__transformer_split(hy_tape_stream(tape), model));
  return hy__transformer_use_activation_group(hy_stream_device(hy_tape_stream(tape)), model);
}
