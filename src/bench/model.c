// Whole models: prompts, single tokens and training steps a second.
//
// Without --model the weights are random, in the shape of Qwen2.5-0.5B.
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/file.h"
#include "base/memory.h"
#include "bench/call.h"
#include "model/adapter.h"
#include "model/context.h"
#include "model/create.h"
#include "model/pack.h"
#include "model/prompt.h"
#include "model/shapes.h"
#include "model/train.h"

enum {
  PROMPT = 512,
  LONG_PROMPT = 2048,
  PROMPTS = 8,
  NEW_TOKENS = 32,
  MOST_NEW_TOKENS = 256,
  BATCH = 64,
  ROUNDS = 4,
  PREFILL_ROUNDS = 10,
  TRAIN_ROUNDS = 3,
  TRAIN_TOKENS = 8 * 512,
  READ_PIECE = 8 << 20
};

typedef struct model_bench {
  bench_session session;
  hy_model* model;
  char shape[64];
  double weight_bytes;  // that a token reads: of the linear layers and the head
  double weights;       // how many
} model_bench;

static void add_weight(model_bench* b, const hy__linear* layer) {
  const hy_tensor* weight = hy_array_tensor(layer->weight);
  b->weight_bytes += (double)hy_tensor_bytes(weight);
  b->weights += (double)hy_tensor_numel(weight);
  if (layer->scale) b->weight_bytes += (double)hy_tensor_bytes(hy_array_tensor(layer->scale));
}

static hy_status add_layer(void* context, const char* name, hy__linear* layer, int64_t out,
                           int64_t in) {
  (void)name;
  (void)out;
  (void)in;
  add_weight(context, layer);
  return HY_OK;
}

static hy_status make_random(hy_device* device, hy_weight_format format, hy_model** model) {
  hy__config config = shape_qwen2_half_billion;
  if (format == HY_WEIGHTS_F32) config.dtype = HY_F32;
  HY_TRY(hy__model_create(device, &config, NULL, -1, 1, model));
  return hy__transformer_quantise((*model)->tape, &(*model)->transformer, format);
}

static hy_status begin(model_bench* b, hy_device* device) {
  hy_weight_format format;
  memset(b, 0, sizeof *b);
  if (!hy__weight_format_named(bench_options.dtype, &format))
    return hy_fail(HY_INVALID_ARGUMENT, "--dtype is f32, bf16, q8 or q4, not '%s'",
                   bench_options.dtype);
  HY_TRY(bench_begin(&b->session, device));
  if (bench_options.model)
    HY_TRY(hy_model_load(device, bench_options.model, NULL, format, &b->model));
  else
    HY_TRY(make_random(device, format, &b->model));
  HY_TRY(hy__transformer_visit_linears(&b->model->transformer, add_layer, b));
  add_weight(b, &b->model->transformer.head);
  snprintf(b->shape, sizeof b->shape, "%.0fM %s", 1e-6 * b->weights,
           bench_options.model ? "from file" : "Qwen2.5-0.5B");
  return HY_OK;
}

static void end(model_bench* b) {
  hy_model_free(b->model);
  if (b->session.device) hy_empty_cache(b->session.device);
  bench_end(&b->session);
}

static const char* dtype_name(const model_bench* b) {
  return bench_options.dtype ? bench_options.dtype : hy_dtype_name(hy__model_dtype(b->model));
}

static void print(const model_bench* b, const char* name, const char* shape, double rate,
                  double floor) {
  bench_row row = {.name = name,
                   .shape = shape,
                   .dtype = dtype_name(b),
                   .value = rate,
                   .unit = "tok/s",
                   .floor = floor,
                   .of_floor = floor > 0 ? rate / floor : 0};
  bench_print(&row);
}

// ---- memory ----

static hy_status add_parameter(void* context, const char* name, hy_array** slot, int ndim,
                               const int64_t* shape) {
  (void)name;
  (void)ndim;
  (void)shape;
  *(double*)context += (double)hy_tensor_bytes(hy_array_tensor(*slot));
  return HY_OK;
}

static hy_status add_scales(void* context, const char* name, hy__linear* layer, int64_t out,
                            int64_t in) {
  (void)name;
  (void)out;
  (void)in;
  if (layer->scale) *(double*)context += (double)hy_tensor_bytes(hy_array_tensor(layer->scale));
  return HY_OK;
}

// Bytes of all weights, of the keys and values of `tokens` tokens, and of what is held at once
// while they pass through a block: x, its norm, a sum, the gated layer's three, and the logits.
static double computed_bytes(hy_model* model, int64_t tokens) {
  hy__transformer* t = &model->transformer;
  const hy__config* c = &t->config;
  double bytes = 0, size = (double)hy_dtype_size(c->dtype);
  hy__transformer_visit(t, add_parameter, &bytes);
  hy__transformer_visit_linears(t, add_scales, &bytes);
  add_scales(&bytes, NULL, &t->head, 0, 0);
  bytes += 2.0 * size * (double)(c->n_layers * c->n_kv_heads * c->head_dim * tokens);
  bytes += size * (double)(tokens * (3 * c->hidden_size + 3 * c->intermediate_size));
  return bytes + 8.0 * (double)c->vocab_size;
}

// The most memory that the process has held, beside what it had to. Random weights are made in
// another type than they are kept in, so that only models from files are judged.
static void print_peak(const model_bench* b, const char* shape, int64_t tokens) {
  struct rusage usage;
  if (!bench_options.model || getrusage(RUSAGE_SELF, &usage) != 0) return;
  double peak = 1024.0 * (double)usage.ru_maxrss, computed = computed_bytes(b->model, tokens);
  bench_row row = {.name = "memory",
                   .shape = shape,
                   .dtype = dtype_name(b),
                   .value = 1e-6 * peak,
                   .unit = "MB",
                   .floor = 1e-6 * computed,
                   .of_floor = computed / peak};
  bench_print(&row);
}

// ---- loading ----

// Seconds to read the file into fresh memory.
static hy_status read_once(const char* path, double* seconds, double* bytes) {
  double start = bench_now();
  char* text;
  size_t size;
  HY_TRY(hy__read_file(path, SIZE_MAX - 1, &text, &size));
  *seconds = bench_now() - start;
  *bytes = (double)size;
  hy__mfree(text);
  return HY_OK;
}

// Loading beside reading the file, alternately. Both find it in the system's cache after the first.
hy_status bench_load(hy_device* device) {
  hy_weight_format format;
  char path[4096], shape[64];
  if (!bench_options.model)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "bench load: needs --model, a folder with model.safetensors");
  if (!hy__weight_format_named(bench_options.dtype, &format))
    return hy_fail(HY_INVALID_ARGUMENT, "--dtype is f32, bf16, q8 or q4, not '%s'",
                   bench_options.dtype);
  HY_TRY(hy__join_path(bench_options.model, "model.safetensors", path, sizeof path));
  double ours = 0, theirs = 0, bytes = 0, seconds;
  for (int round = 0; round <= ROUNDS; round++) {
    hy_model* model;
    HY_TRY(read_once(path, &seconds, &bytes));
    if (round > 0 && (theirs == 0 || seconds < theirs)) theirs = seconds;
    double start = bench_now();
    HY_TRY(hy_model_load(device, bench_options.model, NULL, format, &model));
    seconds = bench_now() - start;
    if (round > 0 && (ours == 0 || seconds < ours)) ours = seconds;
    hy_model_free(model);
    HY_TRY(hy_empty_cache(device));
  }
  snprintf(shape, sizeof shape, "%.0f MB", 1e-6 * bytes);
  bench_row row = {.name = "load",
                   .shape = shape,
                   .dtype = bench_options.dtype ? bench_options.dtype : "file",
                   .value = ours,
                   .unit = "s",
                   .peer = "reading the file",
                   .peer_value = theirs,
                   .ratio = theirs / ours,
                   .floor = theirs,
                   .of_floor = theirs / ours};
  bench_print(&row);
  return HY_OK;
}

// ---- generating ----

// Bytes a second that can be read for half a second on end, of as many as a token reads: the
// session's floor is the best of short samples, which nobody holds on a machine that others use,
// and a part of the weights, read again and again, would come from a cache. NULL: that floor.
static double sustained_read(const model_bench* b, const char* memory) {
  size_t pieces = (size_t)b->weight_bytes / READ_PIECE;
  if (!memory) return b->session.floors.read;
  double seconds = 0, bytes = 0;
  for (size_t i = 0; seconds < 0.5; i++, bytes += READ_PIECE)
    seconds +=
        READ_PIECE / bench_read(b->session.device, memory + i % pieces * READ_PIECE, READ_PIECE);
  return bytes / seconds;
}

// Memory of the size of the weights, touched first by all threads as those are, so that it lies
// where they would; NULL where sustained_read wants none.
static hy_status make_read_memory(const model_bench* b, void** memory) {
  *memory = NULL;
  if (b->weight_bytes < 16 * READ_PIECE || !hy_device_is_host(b->session.device)) return HY_OK;
  const int64_t n = (int64_t)b->weight_bytes / 4;
  hy_tensor all;
  HY_TRY(hy_alloc(b->session.stream, (size_t)n * 4, memory));
  HY_TRY(hy_tensor_init(&all, *memory, HY_F32, 1, &n));
  return hy_fill(b->session.stream, &all, hy_float(1));
}

static void fill_prompt(const model_bench* b, int seed, int32_t* ids, int64_t n) {
  int64_t vocab = hy_model_vocab_size(b->model);
  for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 7919 + 13 * (seed + 1)) % vocab);
}

static hy_generate_options options_for(int64_t tokens) {
  hy_generate_options options;
  hy_generate_defaults(&options);
  options.max_tokens = tokens;
  options.ignore_end = true;
  return options;
}

// Best of several rounds of a short prompt and some tokens more; and, alternately, of reading.
static hy_status generate(model_bench* b, int64_t prompt, int64_t tokens, double* decode,
                          double* read) {
  int32_t ids[PROMPT];
  const hy_generate_options options = options_for(tokens);
  hy_generate_result result;
  fill_prompt(b, 0, ids, prompt);
  *decode = *read = 0;
  hy_context* context;
  void* memory;
  HY_TRY(hy_context_create(b->model, &context));
  hy_status status = make_read_memory(b, &memory);
  for (int round = 0; round < ROUNDS && status == HY_OK; round++) {
    double rate = sustained_read(b, memory);
    if (rate > *read) *read = rate;
    // A captured decoding step is the context's, and stays.
    status = hy_context_generate(context, ids, prompt, &options, NULL, NULL, NULL, &result);
    if (status != HY_OK) break;
    double later = (double)(result.tokens - 1) / result.decode_seconds;
    if (later > *decode) *decode = later;
  }
  hy_free(b->session.device, memory);
  hy_context_destroy(context);
  return status;
}

// Tokens a second of BATCH sequences together.
static hy_status generate_batch(model_bench* b, int64_t prompt, int64_t tokens, double* rate) {
  static int32_t prompts[BATCH][PROMPT], answers[BATCH][MOST_NEW_TOKENS];
  const int32_t* in[BATCH];
  int32_t* out[BATCH];
  int64_t lengths[BATCH], counts[BATCH];
  const hy_generate_options options = options_for(tokens);
  hy_generate_result result;
  for (int i = 0; i < BATCH; i++) {
    fill_prompt(b, i, prompts[i], prompt);
    in[i] = prompts[i];
    out[i] = answers[i];
    lengths[i] = prompt;
  }
  *rate = 0;
  for (int round = 0; round < ROUNDS; round++) {
    HY_TRY(hy_model_generate_batch(b->model, in, lengths, BATCH, &options, out, counts, &result));
    double now = (double)(result.tokens - BATCH) / result.decode_seconds;
    if (now > *rate) *rate = now;
  }
  return HY_OK;
}

// A device apart has time for longer answers, and for many at once.
hy_status bench_decode(hy_device* device) {
  model_bench b;
  double rate, read;
  char shape[96];
  int64_t tokens = hy_device_is_host(device) ? NEW_TOKENS : MOST_NEW_TOKENS;
  hy_status status = begin(&b, device);
  if (status == HY_OK) status = generate(&b, 16, tokens, &rate, &read);
  if (status == HY_OK) {
    print(&b, "decode", b.shape, rate, read / b.weight_bytes);
    print_peak(&b, b.shape, 16 + tokens);
  }
  if (status == HY_OK && tokens == MOST_NEW_TOKENS) {
    status = generate_batch(&b, 16, tokens, &rate);
    snprintf(shape, sizeof shape, "%s, %d sequences", b.shape, BATCH);
    if (status == HY_OK) print(&b, "decode", shape, rate, BATCH * read / b.weight_bytes);
  }
  end(&b);
  return status;
}

typedef struct prompt_shape {
  int batch;
  int64_t length;
} prompt_shape;

// Where the model captures prompts, as many rounds as show it by calls and by graph.
static int prefill_rounds(const model_bench* b) {
  return b->model->prompts ? HY__PROMPTS_BEFORE + 1 + PREFILL_ROUNDS : ROUNDS;
}

// Seconds of reading the prompts, by rounds, and how many rounds there were.
static hy_status read_prompts(model_bench* b, const prompt_shape* shape, double* seconds,
                              int* rounds) {
  static int32_t prompts[PROMPTS][LONG_PROMPT];
  const int32_t* in[PROMPTS];
  int32_t answers[PROMPTS], *out[PROMPTS];
  int64_t lengths[PROMPTS], counts[PROMPTS];
  const hy_generate_options options = options_for(1);
  hy_generate_result result;
  hy_context* context;
  for (int i = 0; i < shape->batch; i++) {
    fill_prompt(b, i, prompts[i], shape->length);
    in[i] = prompts[i];
    out[i] = &answers[i];
    lengths[i] = shape->length;
  }
  HY_TRY(hy_context_create(b->model, &context));
  hy_status status = HY_OK;
  *rounds = 0;
  do {
    if (shape->batch == 1)
      status = hy_context_generate(context, in[0], lengths[0], &options, NULL, NULL, NULL, &result);
    else
      status = hy_model_generate_batch(b->model, in, lengths, shape->batch, &options, out, counts,
                                       &result);
    hy__context_clear(context);  // the next round reads it anew
    seconds[(*rounds)++] = result.prefill_seconds;
  } while (status == HY_OK && *rounds < prefill_rounds(b));
  hy_context_destroy(context);
  return status;
}

static double least_of(const double* seconds, int n) {
  double least = seconds[0];
  for (int i = 1; i < n; i++) least = seconds[i] < least ? seconds[i] : least;
  return least;
}

// What prompts take before their shape is captured, and the one that captures it.
static void print_first(const model_bench* b, const char* shape, double tokens,
                        const double* seconds) {
  char name[112];
  snprintf(name, sizeof name, "%s by calls", shape);
  print(b, "prefill", name, tokens / least_of(seconds, HY__PROMPTS_BEFORE), 0);
  bench_row row = {.name = "prefill capture",
                   .shape = shape,
                   .dtype = dtype_name(b),
                   .value = 1e3 * seconds[HY__PROMPTS_BEFORE],
                   .unit = "ms"};
  bench_print(&row);
}

static hy_status prefill_row(model_bench* b, const prompt_shape* sizes) {
  double seconds[HY__PROMPTS_BEFORE + 1 + PREFILL_ROUNDS];
  char shape[96];
  int rounds;
  HY_TRY(read_prompts(b, sizes, seconds, &rounds));
  // The head runs once for a prompt.
  double head = (double)hy_tensor_numel(hy_array_tensor(b->model->transformer.head.weight));
  double flops = 2 * (b->weights - head) + 2 * head / (double)sizes->length;
  bool bytes = b->model->transformer.head.scale != NULL;
  hy_dtype products = bytes ? HY_I8 : hy__model_dtype(b->model);
  double least = bench_least(&b->session, &(bench_needs){products, flops, 0});
  if (sizes->batch == 1)
    snprintf(shape, sizeof shape, "%s, %lld", b->shape, (long long)sizes->length);
  else
    snprintf(shape, sizeof shape, "%s, %dx%lld", b->shape, sizes->batch, (long long)sizes->length);
  double tokens = (double)(sizes->batch * sizes->length);
  print(b, "prefill", shape, tokens / least_of(seconds, rounds), least > 0 ? 1 / least : 0);
  if (rounds > HY__PROMPTS_BEFORE) print_first(b, shape, tokens, seconds);
  print_peak(b, shape, sizes->batch * sizes->length);
  return HY_OK;
}

// More than one prompt where the device is fast enough to capture them.
hy_status bench_prefill(hy_device* device) {
  static const prompt_shape shapes[] = {{1, PROMPT}, {1, LONG_PROMPT}, {PROMPTS, PROMPT}};
  model_bench b;
  hy_status status = begin(&b, device);
  for (int i = 0; i < 3 && status == HY_OK && (i == 0 || b.model->prompts); i++)
    status = prefill_row(&b, &shapes[i]);
  end(&b);
  return status;
}

// What a training step gets: a device apart has room for more.
typedef struct train_shape {
  int64_t batch, length;
  bool graph;
  hy__checkpoint checkpoint;
} train_shape;

static hy_status train(model_bench* b, const train_shape* shape, double* rate) {
  static int32_t tokens[TRAIN_TOKENS], targets[TRAIN_TOKENS];
  hy__train_options options = {.batch = shape->batch,
                               .length = shape->length,
                               .accumulate = 1,
                               .steps = 100,
                               .lr = 1e-4,
                               .clip = 1,
                               .checkpoint = shape->checkpoint,
                               .graph = shape->graph};
  hy__trainer* trainer = NULL;
  int64_t vocab = hy_model_vocab_size(b->model), n = shape->batch * shape->length;
  for (int64_t i = 0; i < n; i++) tokens[i] = (int32_t)((i * 7919 + 13) % vocab);
  for (int64_t i = 0; i < n; i++) targets[i] = tokens[(i + 1) % n];
  HY_TRY(hy__trainer_create(b->model->stream, &b->model->transformer, &options, &trainer));
  hy_status status = HY_OK;
  *rate = 0;
  for (int round = 0; round < TRAIN_ROUNDS && status == HY_OK; round++) {
    double loss, start = bench_now();
    status = hy__trainer_step(trainer, tokens, targets, &loss);
    double here = (double)n / (bench_now() - start);
    if (here > *rate) *rate = here;
  }
  hy__trainer_destroy(trainer);
  return status;
}

// Bytes that a step cannot do without: the weights, what the backward reads again of every block
// (six vectors of the hidden size, keys and values, two of the MLP's unless they are computed
// again) and of an adapter, and the logits of a part of the rows, whose gradient takes their place.
static double train_bytes(const model_bench* b, const train_shape* shape) {
  const hy__transformer* t = &b->model->transformer;
  const hy__config* c = &t->config;
  double tokens = (double)(shape->batch * shape->length),
         type = (double)hy_dtype_size(hy__model_dtype(b->model));
  double block = 6.0 * (double)c->hidden_size + 2.0 * (double)(c->n_kv_heads * c->head_dim);
  if (shape->checkpoint == HY__KEEP_ALL) block += 2.0 * (double)c->intermediate_size;
  double logits = 4.0 * HY__LOSS_ROWS * (double)c->vocab_size;
  return b->weight_bytes + tokens * type * block * (double)c->n_layers + logits;
}

static void print_memory(const model_bench* b, hy_device* device, const train_shape* sizes,
                         const char* shape) {
  hy_memory_stats memory;
  if (hy_memory_get_stats(device, &memory) != HY_OK) return;
  double peak = 1e-9 * (double)memory.reserved_peak, computed = 1e-9 * train_bytes(b, sizes);
  bench_row row = {.name = "train memory",
                   .shape = shape,
                   .dtype = dtype_name(b),
                   .value = peak,
                   .unit = "GB",
                   .floor = computed,
                   .of_floor = computed / peak};
  bench_print(&row);
}

static hy_status train_row(model_bench* b, hy_device* device, const train_shape* sizes) {
  double rate;
  char shape[160];
  // Each way has its own peak.
  HY_TRY(hy_empty_cache(device));
  HY_TRY(hy_memory_reset_peak(device));
  HY_TRY(train(b, sizes, &rate));
  snprintf(shape, sizeof shape, "%s, LoRA 16, %lldx%lld%s%s", b->shape, (long long)sizes->batch,
           (long long)sizes->length, sizes->graph ? ", captured" : "",
           sizes->checkpoint == HY__CHECKPOINT_MLP ? ", MLP recomputed" : "");
  // Forward, and backward through the activations: two products of each weight.
  print(b, "train", shape, rate, b->session.floors.f32 / (4 * b->weights));
  print_memory(b, device, sizes, shape);
  return HY_OK;
}

hy_status bench_train(hy_device* device) {
  model_bench b;
  hy__adapter_options adapter = {.rank = 16, .alpha = 32, .targets = "q_proj,k_proj,v_proj,o_proj"};
  bool host = hy_device_is_host(device);
  hy_status status = begin(&b, device);
  if (status == HY_OK)
    status = hy__adapter_create(b.model->stream, &adapter, HY_F32, 1, &b.model->transformer);
  static const train_shape on_host = {4, 256, false, HY__KEEP_ALL};
  static const train_shape apart[] = {{8, 512, false, HY__KEEP_ALL},
                                      {8, 512, true, HY__KEEP_ALL},
                                      {8, 512, true, HY__CHECKPOINT_MLP}};
  for (int i = 0; i < (host ? 1 : 3) && status == HY_OK; i++)
    status = train_row(&b, device, host ? &on_host : &apart[i]);
  end(&b);
  return status;
}
