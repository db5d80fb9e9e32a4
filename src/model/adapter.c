// LoRA adapters: creating, reading and writing PEFT's files, merging into the weights.
#include "model/adapter.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "model/safetensors.h"

// The last part of a layer's name: "q_proj".
static const char* short_name(const char* name) {
  const char* dot = strrchr(name, '.');
  return dot ? dot + 1 : name;
}

static bool is_listed(const char* list, const char* word) {
  size_t length = strlen(word);
  for (const char* at = list; *at;) {
    size_t n = strcspn(at, ",");
    if (n == length && memcmp(at, word, n) == 0) return true;
    at += n + (at[n] == ',');
  }
  return false;
}

// ---- making ----

typedef struct creating {
  hy_stream* stream;
  hy_tape* tape;
  const hy__adapter_options* options;
  hy_dtype dtype;
  uint64_t seed, offset;
  char found[512];  // targets that some layer has
} creating;

static hy_status create_one(void* context, const char* name, hy__linear* layer, int64_t out,
                            int64_t in) {
  creating* c = context;
  const char* target = short_name(name);
  if (!is_listed(c->options->targets, target)) return HY_OK;
  if (!is_listed(c->found, target)) {
    size_t used = strlen(c->found);
    snprintf(c->found + used, sizeof c->found - used, "%s,", target);
  }
  hy__lora* lora = &layer->lora;
  const int64_t rank = c->options->rank, a_shape[2] = {rank, in}, b_shape[2] = {out, rank};
  HY_TRY(hy_array_empty(c->stream, &lora->a, c->dtype, 2, a_shape));
  HY_TRY(hy_array_zeros(c->stream, &lora->b, c->dtype, 2, b_shape));
  double bound = 1 / sqrt((double)in);
  HY_TRY(hy_array_uniform(c->tape, &lora->a, c->seed, c->offset, -bound, bound));
  c->offset += (uint64_t)(rank * in) / 4 + 1;
  lora->scaling = c->options->alpha / (double)rank;
  lora->dropout = c->options->dropout;
  return HY_OK;
}

hy_status hy__adapter_create(hy_stream* stream, const hy__adapter_options* options, hy_dtype dtype,
                             uint64_t seed, hy__transformer* model) {
  if (options->rank < 1 || options->rank > 65536)
    return hy_fail(HY_INVALID_ARGUMENT, "an adapter's rank is at least 1, not %lld",
                   (long long)options->rank);
  if (!(options->dropout >= 0 && options->dropout < 1))
    return hy_fail(HY_INVALID_ARGUMENT, "dropout must be in 0 .. 1, not %g", options->dropout);
  creating c = {.stream = stream, .options = options, .dtype = dtype, .seed = seed};
  HY_TRY(hy_tape_create(stream, &c.tape));
  hy_tape_set_recording(c.tape, false);
  hy_status status = hy__transformer_visit_linears(model, create_one, &c);
  hy_tape_destroy(c.tape);
  if (status != HY_OK) return status;
  for (const char* at = options->targets; *at;) {
    size_t n = strcspn(at, ",");
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)n, at);
    if (!is_listed(c.found, word))
      return hy_fail(HY_INVALID_ARGUMENT,
                     "no layer is called %s; there are q_proj, k_proj, v_proj, o_proj, gate_proj, "
                     "up_proj, down_proj",
                     word);
    at += n + (at[n] == ',');
  }
  return c.found[0] ? HY_OK
                    : hy_fail(HY_INVALID_ARGUMENT, "an adapter needs at least one target layer");
}

// ---- loading ----

static hy_status read_adapter_config(const hy__json* root, hy__adapter_options* o) {
  const char *type, *bias;
  bool dora, rslora, fan;
  HY_TRY(hy__json_get_text(root, "peft_type", "", &type));
  if (strcmp(type, "LORA") != 0)
    return hy_fail(HY_FORMAT, "\"peft_type\" is \"%s\"; only LORA is supported", type);
  HY_TRY(hy__json_get_int(root, "r", 8, &o->rank));
  HY_TRY(hy__json_get_real(root, "lora_alpha", 8, &o->alpha));
  HY_TRY(hy__json_get_real(root, "lora_dropout", 0, &o->dropout));
  HY_TRY(hy__json_get_text(root, "bias", "none", &bias));
  HY_TRY(hy__json_get_bool(root, "use_dora", false, &dora));
  HY_TRY(hy__json_get_bool(root, "use_rslora", false, &rslora));
  HY_TRY(hy__json_get_bool(root, "fan_in_fan_out", false, &fan));
  if (strcmp(bias, "none") != 0 || dora || fan)
    return hy_fail(HY_FORMAT, "a bias, DoRA and fan_in_fan_out are not supported in adapters");
  if (o->rank < 1) return hy_fail(HY_FORMAT, "\"r\" is %lld; it is at least 1", (long long)o->rank);
  if (rslora) o->alpha *= sqrt((double)o->rank);  // scaled by sqrt(r), not r
  return HY_OK;
}

static hy_status load_adapter_config(const char* folder, hy__adapter_options* options) {
  char path[4096], *text;
  size_t size;
  hy__json_document* document = NULL;
  memset(options, 0, sizeof *options);
  HY_TRY(hy__join_path(folder, "adapter_config.json", path, sizeof path));
  HY_TRY(hy__read_file(path, HY__CONFIG_LIMIT, &text, &size));
  hy_status status = hy__json_parse(path, text, size, &document);
  hy__mfree(text);
  if (status != HY_OK) return status;
  status = read_adapter_config(hy__json_root(document), options);
  if (status != HY_OK) hy_fail(status, "%s: %s", path, hy_last_error());
  hy__json_free(document);
  return status;
}

typedef struct loading {
  hy_stream* stream;
  const hy__weights* weights;
  const hy__adapter_options* options;
  const char* folder;
  const hy__shard* shard;
  int used;
} loading;

static hy_status load_matrix(loading* l, const char* layer, const char* part, int64_t rows,
                             int64_t columns, hy_array** out) {
  char name[256];
  snprintf(name, sizeof name, "base_model.model.%s.lora_%s.weight", layer, part);
  const hy__weight* w = hy__weights_find(l->weights, name);
  if (!w) return HY_OK;
  const hy_tensor* t = &w->tensor;
  hy__slice slice;
  HY_TRY(hy__shard_slice(l->shard, name, 2, (const int64_t[]){rows, columns}, &slice));
  if (t->ndim != 2 || t->shape[0] != slice.shape[0] || t->shape[1] != slice.shape[1] ||
      !(HY_DTYPE_BIT(t->dtype) & HY_FLOATS))
    return hy_fail(HY_FORMAT, "%s: %s is %s; the model needs [%lld, %lld]", l->folder, name,
                   hy_tensor_describe(t, (char[100]){0}, 100), (long long)slice.shape[0],
                   (long long)slice.shape[1]);
  hy_tensor own;
  void* copy;
  HY_TRY(hy__slice_take(&slice, t, &own, &copy));
  l->used++;
  hy_status status = hy_array_from_host(l->stream, out, own.dtype, 2, own.shape, own.data);
  hy__mfree(copy);
  return status;
}

static hy_status load_layer(void* context, const char* name, hy__linear* layer, int64_t out,
                            int64_t in) {
  loading* l = context;
  hy__lora* lora = &layer->lora;
  HY_TRY(load_matrix(l, name, "A", l->options->rank, in, &lora->a));
  HY_TRY(load_matrix(l, name, "B", out, l->options->rank, &lora->b));
  if (!lora->a != !lora->b)
    return hy_fail(HY_FORMAT, "%s: %s has only one of lora_A and lora_B", l->folder, name);
  lora->scaling = l->options->alpha / (double)l->options->rank;
  lora->dropout = l->options->dropout;
  return HY_OK;
}

hy_status hy__adapter_load(hy_stream* stream, const char* folder, hy__transformer* model) {
  hy__adapter_options options;
  hy__weights* weights = NULL;
  char path[4096];
  HY_TRY(load_adapter_config(folder, &options));
  HY_TRY(hy__join_path(folder, "adapter_model.safetensors", path, sizeof path));
  HY_TRY(hy__weights_open_file(path, &weights));
  loading l = {stream, weights, &options, folder, &model->shard, 0};
  hy_status status = hy__transformer_visit_linears(model, load_layer, &l);
  bool all_layers = hy__shard_is_first(l.shard) && hy__shard_is_last(l.shard);
  if (status == HY_OK && all_layers && l.used != hy__weights_count(weights))
    status = hy_fail(HY_FORMAT, "%s: %d of its %d tensors fit no layer of this model", path,
                     hy__weights_count(weights) - l.used, hy__weights_count(weights));
  if (status == HY_OK) status = hy_stream_sync(stream);
  hy__weights_close(weights);
  return status;
}

static hy_status describe_layer(void* context, const char* name, hy__linear* layer, int64_t out,
                                int64_t in) {
  hy__adapter_options* o = context;
  (void)out;
  (void)in;
  if (!layer->lora.a) return HY_OK;
  o->rank = hy_array_tensor(layer->lora.a)->shape[0];
  o->alpha = layer->lora.scaling * (double)o->rank;
  o->dropout = layer->lora.dropout;
  if (is_listed(o->targets, short_name(name))) return HY_OK;
  size_t used = strlen(o->targets);
  snprintf(o->targets + used, sizeof o->targets - used, "%s%s", used ? "," : "", short_name(name));
  return HY_OK;
}

hy_status hy__adapter_describe(hy__transformer* model, hy__adapter_options* options) {
  memset(options, 0, sizeof *options);
  HY_TRY(hy__transformer_visit_linears(model, describe_layer, options));
  return options->rank > 0 ? HY_OK : hy_fail(HY_INVALID_ARGUMENT, "the model has no adapter");
}

// ---- saving ----

enum { MAX_NAME = 256 };

typedef struct saving {
  hy_stream* stream;
  hy__weight* list;
  char (*names)[MAX_NAME];
  int count, capacity;
} saving;

static hy_status count_layer(void* context, const char* name, hy__linear* layer, int64_t out,
                             int64_t in) {
  (void)name;
  (void)out;
  (void)in;
  ((saving*)context)->capacity += layer->lora.a ? 2 : 0;
  return HY_OK;
}

static hy_status fetch_matrix(saving* s, const char* layer, const char* part, hy_array* array) {
  const hy_tensor* t = hy_array_tensor(array);
  hy__weight* w = &s->list[s->count];
  snprintf(s->names[s->count], MAX_NAME, "base_model.model.%s.lora_%s.weight", layer, part);
  w->name = s->names[s->count];
  void* data = hy__malloc(hy_tensor_bytes(t) + 1);
  if (!data) return hy_fail(HY_OUT_OF_MEMORY, "no memory to save %s", w->name);
  s->count++;
  hy_tensor_init(&w->tensor, data, t->dtype, t->ndim, t->shape);
  return hy_array_to_host(s->stream, array, data, hy_tensor_bytes(t));
}

static hy_status fetch_layer(void* context, const char* name, hy__linear* layer, int64_t out,
                             int64_t in) {
  (void)out;
  (void)in;
  if (!layer->lora.a) return HY_OK;
  HY_TRY(fetch_matrix(context, name, "A", layer->lora.a));
  return fetch_matrix(context, name, "B", layer->lora.b);
}

static void put_text(FILE* f, const char* text) {
  fputc('"', f);
  for (const unsigned char* c = (const unsigned char*)text; *c; c++) {
    if (*c == '"' || *c == '\\')
      fprintf(f, "\\%c", *c);
    else if (*c < 0x20)
      fprintf(f, "\\u%04x", *c);
    else
      fputc(*c, f);
  }
  fputc('"', f);
}

static hy_status save_config(const hy__adapter_options* o, const char* base, const char* folder) {
  char path[4096];
  hy__writer writer;
  HY_TRY(hy__join_path(folder, "adapter_config.json", path, sizeof path));
  HY_TRY(hy__write_begin(path, &writer));
  FILE* f = writer.file;
  fprintf(f,
          "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  "
          "\"base_model_name_or_path\": ");
  put_text(f, base ? base : "");
  fprintf(f,
          ",\n  \"r\": %lld,\n  \"lora_alpha\": %.17g,\n  \"lora_dropout\": %.17g,\n  "
          "\"target_modules\": [",
          (long long)o->rank, o->alpha, o->dropout);
  const char* separator = "";
  for (const char* at = o->targets; *at; separator = ", ") {
    size_t n = strcspn(at, ",");
    fprintf(f, "%s\"%.*s\"", separator, (int)n, at);
    at += n + (at[n] == ',');
  }
  fprintf(f,
          "],\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": false,\n  \"init_lora_weights\": "
          "true,\n  \"inference_mode\": true\n}\n");
  if (!ferror(f)) return hy__write_commit(&writer);
  hy__write_abandon(&writer);
  return hy_fail(HY_IO, "%s: cannot be written", path);
}

hy_status hy__adapter_save(hy_stream* stream, hy__transformer* model,
                           const hy__adapter_options* options, const char* base,
                           const char* folder) {
  if (mkdir(folder, 0777) != 0 && errno != EEXIST)
    return hy_fail(HY_IO, "%s: cannot be made: %s", folder, strerror(errno));
  char path[4096];
  HY_TRY(hy__join_path(folder, "adapter_model.safetensors", path, sizeof path));
  saving s = {.stream = stream};
  HY_TRY(hy__transformer_visit_linears(model, count_layer, &s));
  s.list = hy__calloc((size_t)s.capacity + 1, sizeof *s.list);
  s.names = hy__calloc((size_t)s.capacity + 1, sizeof *s.names);
  hy_status status = HY_OK;
  if (!s.list || !s.names) status = hy_fail(HY_OUT_OF_MEMORY, "no memory to save an adapter");
  if (status == HY_OK) status = hy__transformer_visit_linears(model, fetch_layer, &s);
  if (status == HY_OK) status = hy__weights_save(path, s.list, s.count);
  if (status == HY_OK) status = save_config(options, base, folder);
  for (int i = 0; s.list && i < s.count; i++) hy__mfree(s.list[i].tensor.data);
  hy__mfree(s.list);
  hy__mfree(s.names);
  return status;
}

// ---- merging ----

static hy_status merge_layer(void* context, const char* name, hy__linear* layer, int64_t out,
                             int64_t in) {
  hy_tape* tape = context;
  hy__lora* lora = &layer->lora;
  (void)out;
  (void)in;
  if (!lora->a) return HY_OK;
  if (layer->scale)
    return hy_fail(HY_UNSUPPORTED,
                   "%s is quantised; an adapter is merged into f32, bf16 or f16 weights", name);
  if (hy__linear_is_fractal_nz(layer))
    return hy_fail(HY_UNSUPPORTED, "%s is packed; load the model without device_layout to merge",
                   name);
  hy_dtype type = hy_array_tensor(layer->weight)->dtype;
  hy_array *a = NULL, *b = NULL, *wide = NULL, *merged = NULL;
  hy_status status = hy_array_cast(tape, &a, lora->a, HY_F32);
  if (status == HY_OK) status = hy_array_cast(tape, &b, lora->b, HY_F32);
  if (status == HY_OK) status = hy_array_cast(tape, &wide, layer->weight, HY_F32);
  if (status == HY_OK)
    status = hy_array_addmm(tape, &merged, wide, b, a, hy_int(1), hy_float(lora->scaling));
  if (status == HY_OK) {
    // In place: the layer may be rows of a joined one.
    hy_attrs attrs = {.cast = {type}};
    status = hy_array_apply_into(tape, HY_OP_cast, &merged, 1, &attrs, &layer->weight, 1);
  }
  if (status == HY_OK) {
    hy_array_release(lora->a);
    hy_array_release(lora->b);
    memset(lora, 0, sizeof *lora);
  }
  hy_array_release(a);
  hy_array_release(b);
  hy_array_release(wide);
  hy_array_release(merged);
  return status;
}

hy_status hy__adapter_merge(hy_tape* tape, hy__transformer* model) {
  return hy__transformer_visit_linears(model, merge_layer, tape);
}
