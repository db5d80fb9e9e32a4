// halyard bench graph: what graphs are worth. Chains beside the calls they are made of, decoding
// steps beside the same steps by calls, and the memory of activations before and after planning.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "bench/call.h"
#include "bench/graph_search.h"
#include "graph/graph.h"
#include "model/adapter.h"
#include "model/create.h"
#include "model/shapes.h"
#include "model/step_graph.h"
#include "model/train.h"
#include "ops/internal.h"

enum {
  ELEMENTS = 16 << 20,
  ROUNDS = 7,
  WINDOW = 8,  // tokens that are timed together
  CONTEXT = 512,
  PROMPT = 256,
  LONG_PROMPT = 2048,
  TINY_NODES = 1000,
  TRAIN_BATCH = 2,
  TRAIN_LENGTH = 256
};

static void least(double* best, double seconds) {
  if (*best == 0 || seconds < *best) *best = seconds;
}

// ---- a chain of six ops ----

static hy_status six_ops(hy_stream* stream, hy_tensor* t, const hy_tensor* x, const hy_tensor* y) {
  HY_TRY(hy_mul_scalar(stream, &t[0], x, hy_float(0.5)));
  HY_TRY(hy_add_scalar(stream, &t[1], &t[0], hy_float(1), hy_int(1)));
  HY_TRY(hy_relu(stream, &t[2], &t[1]));
  HY_TRY(hy_mul_scalar(stream, &t[3], &t[2], hy_float(3)));
  HY_TRY(hy_neg(stream, &t[4], &t[3]));
  hy_tensor out = *y;
  return hy_add_scalar(stream, &out, &t[4], hy_float(2), hy_int(1));
}

static hy_status capture_six(hy_stream* stream, const hy_tensor* x, const hy_tensor* y,
                             hy_graph** graph) {
  hy_tensor t[5];
  hy_status status = hy_capture_begin(stream);
  if (status != HY_OK) return status;
  for (int i = 0; i < 5 && status == HY_OK; i++) {
    t[i] = *x;
    status = hy_alloc(stream, hy_tensor_bytes(x), &t[i].data);
  }
  if (status == HY_OK) status = six_ops(stream, t, x, y);
  for (int i = 0; i < 5 && status == HY_OK; i++)
    status = hy_free(hy_stream_device(stream), t[i].data);
  hy_status ended = hy_capture_end(stream, graph);
  return status == HY_OK ? ended : status;
}

static hy_status bench_chain(hy_device* device) {
  bench_session session;
  const int64_t size[1] = {ELEMENTS};
  hy_tensor x, y, t[5];
  hy_graph* graph = NULL;
  double calls = 0, fused = 0;
  hy_status status = bench_begin(&session, device);
  if (status == HY_OK) status = bench_tensor(&session, &x, HY_F32, 1, size);
  if (status == HY_OK) status = bench_tensor(&session, &y, HY_F32, 1, size);
  for (int i = 0; i < 5 && status == HY_OK; i++)
    status = bench_tensor(&session, &t[i], HY_F32, 1, size);
  if (status == HY_OK) status = capture_six(session.stream, &x, &y, &graph);
  if (status == HY_OK) status = hy_graph_run_passes(graph, HY_PASS_ALL, NULL);
  for (int round = 0; round <= ROUNDS && status == HY_OK; round++) {
    double start = bench_now();
    status = six_ops(session.stream, t, &x, &y);
    if (status == HY_OK) status = hy_stream_sync(session.stream);
    double middle = bench_now();
    if (status == HY_OK) status = hy_graph_launch(graph, session.stream);
    if (status == HY_OK) status = hy_stream_sync(session.stream);
    if (round == 0) continue;
    least(&calls, middle - start);
    least(&fused, bench_now() - middle);
  }
  hy_graph_destroy(graph);
  bench_end(&session);
  HY_TRY(status);
  bench_row row = {.name = "chain",
                   .shape = "6 ops, 16M",
                   .dtype = "f32",
                   .value = 1e3 * fused,
                   .unit = "ms",
                   .peer = "by calls",
                   .peer_value = 1e3 * calls,
                   .ratio = calls / fused};
  bench_print(&row);
  return HY_OK;
}

// ---- softmax(x W + b), written out ----

typedef struct softmax_layer {
  hy_tensor x, w, b, t, y;
} softmax_layer;

// With the kernel that is written for it.
static hy_status by_kernel(hy_stream* stream, softmax_layer* l) {
  HY_TRY(hy_linear(stream, &l->t, &l->x, &l->w, &l->b));
  return hy_softmax(stream, &l->y, &l->t, 1);
}

static hy_status add_call(hy_graph* graph, hy_op op, int n, const hy_tensor* in, hy_attrs attrs,
                          hy_tensor* out) {
  *out = (hy_tensor){0};
  hy_call call = {.op = op, .n_in = n, .n_out = 1, .in = in, .out = out, .attrs = attrs};
  return hy_graph_add(graph, &call);
}

static hy_status written_out(hy_graph* graph, const softmax_layer* l) {
  const hy_attrs rows = {.reduce = {{{1}, 1}, true}}, once = {.alpha = {hy_int(1)}};
  hy_tensor x, w, b, t, most, shifted, e, sum, y;
  HY_TRY(hy_graph_input(graph, "x", HY_F32, 2, l->x.shape, &x));
  HY_TRY(hy_graph_input(graph, "w", HY_F32, 2, l->w.shape, &w));
  HY_TRY(hy_graph_input(graph, "b", HY_F32, 1, l->b.shape, &b));
  HY_TRY(add_call(graph, HY_OP_linear, 3, (hy_tensor[]){x, w, b}, (hy_attrs){0}, &t));
  HY_TRY(add_call(graph, HY_OP_max, 1, &t, rows, &most));
  HY_TRY(add_call(graph, HY_OP_sub, 2, (hy_tensor[]){t, most}, once, &shifted));
  HY_TRY(add_call(graph, HY_OP_exp, 1, &shifted, (hy_attrs){0}, &e));
  HY_TRY(add_call(graph, HY_OP_sum, 1, &e, rows, &sum));
  HY_TRY(add_call(graph, HY_OP_div, 2, (hy_tensor[]){e, sum}, (hy_attrs){0}, &y));
  HY_TRY(hy_graph_output(graph, "y", &y));
  HY_TRY(hy_graph_finish(graph));
  HY_TRY(hy_graph_set(graph, "x", l->x.data));
  HY_TRY(hy_graph_set(graph, "w", l->w.data));
  HY_TRY(hy_graph_set(graph, "b", l->b.data));
  return hy_graph_set(graph, "y", l->y.data);
}

static hy_status time_softmax(hy_stream* stream, hy_graph* graph, softmax_layer* l, double* kernel,
                              double* fused) {
  for (int round = 0; round <= ROUNDS; round++) {
    double start = bench_now();
    HY_TRY(by_kernel(stream, l));
    HY_TRY(hy_stream_sync(stream));
    double middle = bench_now();
    HY_TRY(hy_graph_launch(graph, stream));
    HY_TRY(hy_stream_sync(stream));
    if (round == 0) continue;
    least(kernel, middle - start);
    least(fused, bench_now() - middle);
  }
  return HY_OK;
}

static hy_status bench_softmax_layer(hy_device* device) {
  enum { M = 512, K = 256, N = 2048 };
  bench_session session;
  softmax_layer l;
  hy_graph* graph = NULL;
  double kernel = 0, fused = 0;
  hy_status status = bench_begin(&session, device);
  if (status == HY_OK) status = bench_tensor(&session, &l.x, HY_F32, 2, (int64_t[]){M, K});
  if (status == HY_OK) status = bench_tensor(&session, &l.w, HY_F32, 2, (int64_t[]){N, K});
  if (status == HY_OK) status = bench_tensor(&session, &l.b, HY_F32, 1, (int64_t[]){N});
  if (status == HY_OK) status = bench_tensor(&session, &l.t, HY_F32, 2, (int64_t[]){M, N});
  if (status == HY_OK) status = bench_tensor(&session, &l.y, HY_F32, 2, (int64_t[]){M, N});
  if (status == HY_OK) status = hy_graph_create(device, &graph);
  if (status == HY_OK) status = written_out(graph, &l);
  if (status == HY_OK) status = hy_graph_run_passes(graph, HY_PASS_ALL, NULL);
  if (status == HY_OK) status = time_softmax(session.stream, graph, &l, &kernel, &fused);
  hy_graph_destroy(graph);
  bench_end(&session);
  HY_TRY(status);
  bench_row row = {.name = "softmax(x W + b)",
                   .shape = "512 x 2048",
                   .dtype = "f32",
                   .value = 1e3 * fused,
                   .unit = "ms",
                   .peer = "by its kernel",
                   .peer_value = 1e3 * kernel,
                   .ratio = kernel / fused};
  bench_print(&row);
  return HY_OK;
}

// ---- decoding ----

static const hy__config tiny_shape = {.vocab_size = 4096,
                                      .hidden_size = 256,
                                      .intermediate_size = 704,
                                      .n_layers = 4,
                                      .n_heads = 4,
                                      .n_kv_heads = 2,
                                      .head_dim = 64,
                                      .max_positions = 4096,
                                      .norm_eps = 1e-6,
                                      .tied_embeddings = true,
                                      .qkv_bias = true,
                                      .dtype = HY_BF16,
                                      .rope_theta = 10000};

// Seconds, best of several rounds taken in turns: a token of the engine by calls and by graph, a
// token of its prompt likewise, a step of a graph that was captured before, behind the same prompt.
// Tokens are timed in windows so short that some of them meet no other work of the machine; what an
// engine does once, such as to capture, is in none of them.
typedef struct decode_times {
  double calls, engine, graph;
  double prompt_calls, prompt;
} decode_times;

static const int32_t* prompt_ids(void) {
  static int32_t ids[PROMPT];
  for (int i = 0; i < PROMPT; i++) ids[i] = i;
  return ids;
}

typedef struct windows {
  int tokens;
  double start, best;
} windows;

// A token is there: behind the first, and then every WINDOW of them, a window ends.
static bool note_token(void* context, int32_t id, const char* text, size_t length) {
  windows* w = context;
  (void)id;
  (void)text;
  (void)length;
  if (w->tokens++ % WINDOW != 0) return true;
  double now = bench_now();
  if (w->tokens > 1) least(&w->best, (now - w->start) / WINDOW);
  w->start = bench_now();
  return true;
}

static hy_status time_steps(hy__step_graph* g, int n, double* best) {
  windows w = {.best = *best};
  int64_t token;
  HY_TRY(hy__step_graph_prompt(g, prompt_ids(), PROMPT));
  for (int i = 0; i <= n; i++) {
    HY_TRY(hy__step_graph_launch(g));
    HY_TRY(hy__step_graph_token(g, &token));
    note_token(&w, (int32_t)token, NULL, 0);
  }
  *best = w.best;
  return HY_OK;
}

static hy_status time_engine(hy_model* model, hy__captures captures, int n, double* decode,
                             double* prefill) {
  windows w = {.best = *decode};
  hy_generate_options options;
  hy_generate_result result;
  hy_generate_defaults(&options);
  options.max_tokens = n + 1;
  options.ignore_end = true;
  model->captures = captures;
  HY_TRY(hy_model_generate(model, prompt_ids(), PROMPT, &options, note_token, &w, NULL, &result));
  *decode = w.best;
  least(prefill, result.prefill_seconds / PROMPT);
  return HY_OK;
}

static hy_status time_decode(hy_model* model, int tokens, int rounds, decode_times* t, int* nodes) {
  hy_generate_options options;
  hy__step_graph* g;
  hy_generate_defaults(&options);
  *t = (decode_times){0};
  HY_TRY(hy__step_graph_create(model, 1, CONTEXT, &options, &g));
  hy_status status = hy_graph_run_passes(hy__step_graph_get(g), HY_PASS_ALL, NULL);
  *nodes = hy_graph_node_count(hy__step_graph_get(g));
  for (int round = 0; round < rounds && status == HY_OK; round++) {
    status = time_engine(model, HY__CAPTURES_NOT, tokens, &t->calls, &t->prompt_calls);
    if (status == HY_OK)
      status = time_engine(model, HY__CAPTURES_UNKNOWN, tokens, &t->engine, &t->prompt);
    if (status == HY_OK) status = time_steps(g, tokens, &t->graph);
  }
  hy__step_graph_destroy(g);
  return status;
}

static void print_speed(const char* name, const char* shape, const char* dtype, double seconds,
                        double by_calls) {
  bench_row row = {.name = name,
                   .shape = shape,
                   .dtype = dtype,
                   .value = 1 / seconds,
                   .unit = "tok/s",
                   .peer = "by calls",
                   .peer_value = 1 / by_calls,
                   .ratio = by_calls / seconds};
  bench_print(&row);
}

static void print_decode(const char* shape, const char* dtype, const decode_times* t) {
  print_speed("engine decode", shape, dtype, t->engine, t->calls);
  print_speed("graph decode", shape, dtype, t->graph, t->calls);
  print_speed("engine prefill 256", shape, dtype, t->prompt, t->prompt_calls);
}

// What a replay costs beside the kernels: per node, of calls on one element, times the nodes.
static hy_status print_overhead(hy_device* device, int nodes) {
  hy_stream* stream;
  hy_graph* graph = NULL;
  float value = 1;
  hy_tensor x;
  double replayed = 0, plain = 0;
  HY_TRY(hy_tensor_init(&x, &value, HY_F32, 0, NULL));
  HY_TRY(hy_stream_create(device, &stream));
  hy_status status = hy_capture_begin(stream);
  for (int i = 0; i < TINY_NODES && status == HY_OK; i++) status = hy_neg(stream, &x, &x);
  hy_status ended = hy_capture_end(stream, &graph);
  if (status == HY_OK) status = ended;
  for (int round = 0; round < 4 * ROUNDS && status == HY_OK; round++) {
    double start = bench_now();
    status = hy_graph_launch(graph, stream);
    double middle = bench_now();
    for (int i = 0; i < TINY_NODES && status == HY_OK; i++) {
      const hy__graph_node* node = graph->nodes[i];
      status = node->provider->run(device->handle, stream->handle, &node->call);
    }
    least(&replayed, middle - start);
    least(&plain, bench_now() - middle);
  }
  hy_graph_destroy(graph);
  hy_stream_destroy(stream);
  HY_TRY(status);
  double each = fmax(0, replayed - plain) / TINY_NODES;
  char shape[40];
  snprintf(shape, sizeof shape, "%d nodes", nodes);
  bench_row row = {.name = "graph overhead",
                   .shape = shape,
                   .dtype = "",
                   .value = 1e6 * each * nodes,
                   .unit = "us"};
  bench_print(&row);
  return HY_OK;
}

// ---- memory ----

static void print_memory(const char* name, const char* shape, const char* dtype,
                         const hy_graph_report* r) {
  bench_row row = {.name = name,
                   .shape = shape,
                   .dtype = dtype,
                   .value = 1e-6 * (double)r->memory_after,
                   .unit = "MB",
                   .peer = "by calls",
                   .peer_value = 1e-6 * (double)r->allocated_before,
                   .ratio = (double)r->allocated_before / (double)r->memory_after,
                   .floor = 1e-6 * (double)r->lower_bound,
                   .of_floor = (double)r->lower_bound / (double)r->memory_after};
  bench_print(&row);
}

static hy_status prefill_memory(hy_model* model, const char* shape, const char* dtype) {
  hy_generate_options options;
  hy__step_graph* g;
  hy_graph_report report;
  hy_generate_defaults(&options);
  HY_TRY(hy__step_graph_create(model, LONG_PROMPT, LONG_PROMPT, &options, &g));
  hy_status status = hy_graph_run_passes(hy__step_graph_get(g), HY_PASS_ALL, &report);
  hy__step_graph_destroy(g);
  if (status == HY_OK) print_memory("prefill 2048", shape, dtype, &report);
  return status;
}

// Of a LoRA step by a captured forward and backward.
static hy_status train_memory(hy_model* model, const char* name, hy__checkpoint checkpoint,
                              const char* shape, const char* dtype) {
  enum { TOKENS = TRAIN_BATCH * TRAIN_LENGTH };
  static int32_t tokens[TOKENS];
  hy__train_options options = {.batch = TRAIN_BATCH,
                               .length = TRAIN_LENGTH,
                               .accumulate = 1,
                               .steps = 100,
                               .lr = 1e-4,
                               .checkpoint = checkpoint,
                               .graph = true};
  hy__trainer* trainer;
  double loss;
  for (int i = 0; i < TOKENS; i++) tokens[i] = (int32_t)(i * 7919L % 4000);
  HY_TRY(hy__trainer_create(model->stream, &model->transformer, &options, &trainer));
  hy_status status = hy__trainer_step(trainer, tokens, tokens, &loss);
  if (status == HY_OK) print_memory(name, shape, dtype, hy__trainer_report(trainer));
  hy__trainer_destroy(trainer);
  return status;
}

static hy_status lora_memory(hy_model* model, const char* shape, const char* dtype) {
  hy__adapter_options adapter = {.rank = 16, .alpha = 32, .targets = "q_proj,k_proj,v_proj,o_proj"};
  HY_TRY(hy__adapter_create(model->stream, &adapter, HY_F32, 1, &model->transformer));
  HY_TRY(train_memory(model, "LoRA step 2x256", HY__KEEP_ALL, shape, dtype));
  return train_memory(model, "the same, MLP recomputed", HY__CHECKPOINT_MLP, shape, dtype);
}

// ---- all of it ----

static hy_status with_model(hy_device* device, const hy__config* config, const char* shape,
                            int tokens, int rounds, bool memory) {
  hy_model* model;
  decode_times times;
  int nodes = 0;
  if (!bench_wanted("graph", shape, hy_dtype_name(config->dtype))) return HY_OK;
  HY_TRY(hy__model_create(device, config, NULL, -1, 1, &model));
  hy_status status = time_decode(model, tokens, rounds, &times, &nodes);
  if (status == HY_OK) print_decode(shape, hy_dtype_name(config->dtype), &times);
  if (status == HY_OK && hy_device_is_host(device)) status = print_overhead(device, nodes);
  if (status == HY_OK && memory)
    status = prefill_memory(model, shape, hy_dtype_name(config->dtype));
  if (status == HY_OK && memory) status = lora_memory(model, shape, hy_dtype_name(config->dtype));
  hy_model_free(model);
  hy_empty_cache(device);
  return status;
}

hy_status bench_graph(hy_device* device) {
  hy__config tiny = tiny_shape;
  tiny.arch = shape_qwen2_half_billion.arch;
  if (bench_wanted("chain", "6 ops, 16M", "f32")) HY_TRY(bench_chain(device));
  if (bench_wanted("softmax(x W + b)", "512 x 2048", "f32")) HY_TRY(bench_softmax_layer(device));
  HY_TRY(bench_graph_search(device));
  HY_TRY(with_model(device, &tiny, "256 x 4 layers", 12 * WINDOW, 3 * ROUNDS, true));
  return with_model(device, &shape_qwen2_half_billion, "Qwen2.5-0.5B", 3 * WINDOW, 4, true);
}
