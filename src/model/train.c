// Training: passes, gradients and the optimizer's step.
#include <math.h>

#include "base/memory.h"
#include "model/arch/arch.h"
#include "model/model.h"
#include "model/trainer.h"

// cos and sin of `batch` sequences that all begin at position 0.
static hy_status make_positions(hy__trainer* t) {
  int64_t n = t->options.batch * t->options.length;
  int64_t* host = hy__malloc((size_t)n * sizeof *host);
  if (!host) return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld positions", (long long)n);
  for (int64_t i = 0; i < n; i++) host[i] = i % t->options.length;
  hy__rope rope = {0};
  hy_scope s;
  hy_scope_begin(&s, t->tape);
  HY_SCOPE_TRY(&s, hy__rope_reserve(t->stream, &t->model->config, t->options.length, &rope));
  hy_array* positions = hy_s_from_host(&s, HY_I64, 1, &n, host);
  t->cos = hy_scope_give(&s, hy__rope_at(&s, rope.cos, positions));
  t->sin = hy_scope_give(&s, hy__rope_at(&s, rope.sin, positions));
  hy__rope_release(&rope);
  hy__mfree(host);
  return hy_scope_end(&s);
}

static hy_status check_options(const hy__train_options* o, const hy__config* c) {
  if (o->batch < 1 || o->length < 2 || o->accumulate < 1 || o->steps < 1)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "training needs at least one sequence of two tokens and one step");
  if (o->length > c->max_positions)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "sequences of %lld tokens exceed the model's %lld positions",
                   (long long)o->length, (long long)c->max_positions);
  if (!(o->lr > 0))
    return hy_fail(HY_INVALID_ARGUMENT, "the learning rate is %g; it is above 0", o->lr);
  if (o->graph && o->accumulate != 1)
    return hy_fail(HY_UNSUPPORTED, "a captured step has one pass, not %lld",
                   (long long)o->accumulate);
  if (!o->comm) return HY_OK;
  if (o->graph || o->all_parameters)
    return hy_fail(HY_UNSUPPORTED, "ranks share the training of adapters, by calls");
  if (o->accumulate % hy_comm_size(o->comm) != 0)
    return hy_fail(HY_INVALID_ARGUMENT, "%d ranks cannot share %lld passes of a step evenly",
                   hy_comm_size(o->comm), (long long)o->accumulate);
  return HY_OK;
}

// The loss needs the head's weight as floats.
static hy_status make_head(hy__trainer* t) {
  const hy__linear* head = &t->model->head;
  if (head->scale)
    return hy_array_dequantize(t->tape, &t->head, head->weight, head->scale,
                               t->model->config.dtype);
  t->head = hy_array_retain(head->weight);
  return HY_OK;
}

static hy_status refuse_packed(void* context, const char* name, hy__linear* layer, int64_t out,
                               int64_t in) {
  (void)context;
  (void)out;
  (void)in;
  if (!hy__linear_is_fractal_nz(layer)) return HY_OK;
  return hy_fail(HY_UNSUPPORTED,
                 "%s is packed and has no gradient; load the model without device_layout to train",
                 name);
}

static hy_status refuse_dropout(void* context, const char* name, hy__linear* layer, int64_t out,
                                int64_t in) {
  (void)context;
  (void)out;
  (void)in;
  if (!layer->lora.a || !(layer->lora.dropout > 0)) return HY_OK;
  return hy_fail(HY_UNSUPPORTED, "a captured step would repeat the draws of the dropout of %s",
                 name);
}

static hy_status set_up(hy__trainer* t) {
  HY_TRY(hy__transformer_visit_linears(t->model, refuse_packed, NULL));
  if (t->options.graph) HY_TRY(hy__transformer_visit_linears(t->model, refuse_dropout, NULL));
  HY_TRY(hy_tape_create(t->stream, &t->tape));
  HY_TRY(make_head(t));
  HY_TRY(make_positions(t));
  HY_TRY(hy__train_parameters_take(&t->parameters, t->tape, t->model, &t->options));
  hy_attrs_adamw adamw = hy_adamw_defaults();
  adamw.lr = t->options.lr;
  adamw.weight_decay = t->options.weight_decay;
  return hy_adamw_create(t->stream, t->parameters.arrays, t->parameters.n, &adamw, &t->optimizer);
}

hy_status hy__trainer_create(hy_stream* stream, hy__transformer* model,
                             const hy__train_options* options, hy__trainer** out) {
  *out = NULL;
  HY_TRY(check_options(options, &model->config));
  hy__trainer* t = hy__calloc(1, sizeof *t);
  if (!t) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a trainer");
  t->stream = stream;
  t->model = model;
  t->options = *options;
  hy_status status = set_up(t);
  if (status != HY_OK)
    hy__trainer_destroy(t);
  else
    *out = t;
  return status;
}

static void destroy_graph(hy__trainer* t) {
  hy_graph_destroy(t->graph);
  hy_array* const arrays[] = {t->ids, t->wanted, t->scale, t->mean};
  for (int i = 0; i < 4; i++) hy_array_release(arrays[i]);
}

void hy__trainer_destroy(hy__trainer* t) {
  if (!t) return;
  destroy_graph(t);
  hy_optimizer_destroy(t->optimizer);
  hy__train_parameters_release(&t->parameters, t->model);
  hy_array_release(t->head);
  hy_array_release(t->cos);
  hy_array_release(t->sin);
  hy_tape_destroy(t->tape);
  hy__mfree(t);
}

// ---- a pass ----

// What a block that is computed twice must find again: the draws where they stood.
typedef struct block_call {
  hy__trainer* trainer;
  int layer;
  hy__draws draws;
  bool recompute_mlp;
} block_call;

static hy_status run_block(hy_tape* tape, void* context, hy_array* const* inputs, int n_inputs,
                           hy_array** outputs, int n_outputs) {
  const block_call* call = context;
  const hy__trainer* t = call->trainer;
  (void)n_inputs;
  (void)n_outputs;
  hy__whole_sequences sequences = {t->options.length};
  hy__tf_attention attention = hy__attend_whole(&sequences);
  hy__draws draws = call->draws;
  hy_scope s;
  hy_scope_begin(&s, tape);
  hy__tf_pass p = {.s = &s,
                   .model = t->model,
                   .cos = t->cos,
                   .sin = t->sin,
                   .attention = &attention,
                   .draws = &draws,
                   .recompute_mlp = call->recompute_mlp};
  const hy__tf_block* block = &t->model->blocks[call->layer];
  outputs[0] = hy_scope_give(&s, t->model->config.arch->block(&p, block, inputs[0]));
  return hy_scope_end(&s);
}

// Each pass has its seed and each block its own stretch, so that recomputing one does not depend on
// the others.
static hy__draws draws_of(const hy__trainer* t, int64_t pass, int layer) {
  uint64_t number = (uint64_t)(t->steps * t->options.accumulate + pass + 1);
  return (hy__draws){t->options.seed + number * 0x9e3779b97f4a7c15u, (uint64_t)layer << 40};
}

// A block's result; in a checkpoint of its own where asked.
static hy_array* apply_block(hy_scope* s, hy__trainer* t, int64_t pass, bool learning, int layer,
                             hy_array* x) {
  if (s->status != HY_OK) return NULL;
  hy__checkpoint checkpoint = learning ? t->options.checkpoint : HY__KEEP_ALL;
  block_call here = {t, layer, draws_of(t, pass, layer), checkpoint == HY__CHECKPOINT_MLP};
  hy_array* out = NULL;
  if (checkpoint != HY__CHECKPOINT_BLOCK) {
    hy_status status = run_block(t->tape, &here, &x, 1, &out, 1);
    return hy_scope_keep(s, status, out);
  }
  block_call* kept = hy__malloc(sizeof *kept);
  if (!kept) return hy_scope_keep(s, hy_fail(HY_OUT_OF_MEMORY, "no memory for a checkpoint"), NULL);
  *kept = here;
  hy_status status = hy_checkpoint(t->tape, run_block, kept, hy__mfree, &x, 1, &out, 1);
  return hy_scope_keep(s, status, out);
}

static hy_array* upload(hy_scope* s, const int32_t* values, int64_t n) {
  int64_t* wide = hy__malloc((size_t)n * sizeof *wide);
  if (!wide)
    return hy_scope_keep(s, hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)n),
                         NULL);
  for (int64_t i = 0; i < n; i++) wide[i] = values[i];
  hy_array* array = hy_s_from_host(s, HY_I64, 1, &n, wide);
  hy__mfree(wide);
  return array;
}

// The summed loss of one pass; recorded when learning.
static hy_array* pass_loss(hy_scope* s, hy__trainer* t, int64_t pass, bool learning, hy_array* ids,
                           hy_array* wanted) {
  const hy__config* c = &t->model->config;
  int mark = hy_scope_mark(s);
  hy_array* x = hy__embed(s, t->model, ids);
  for (int layer = 0; layer < c->n_layers; layer++)
    x = hy_scope_pop(s, mark, apply_block(s, t, pass, learning, layer, x));
  hy_array* hidden = hy_s_rms_norm(s, x, t->model->norm, 1, c->norm_eps);
  if (s->status != HY_OK) return NULL;
  hy_array* loss = NULL;
  hy_status status = hy_array_linear_cross_entropy(s->tape, &loss, hidden, t->head, wanted,
                                                   HY__IGNORE, HY_REDUCTION_SUM, HY__LOSS_ROWS);
  // The backward holds what it needs itself.
  return hy_scope_pop(s, mark, hy_scope_keep(s, status, loss));
}

static int64_t count_targets(const hy__trainer* t, const int32_t* targets) {
  int64_t n = t->options.accumulate * t->options.batch * t->options.length, counted = 0;
  for (int64_t i = 0; i < n; i++) counted += targets[i] != HY__IGNORE;
  return counted;
}

// A pass's part of the mean loss over the `counted` targets of a step, and when learning its
// gradients.
static hy_array* run_pass(hy_scope* s, hy__trainer* t, bool learning, int64_t pass,
                          const int32_t* tokens, const int32_t* targets, int64_t counted) {
  int64_t n = t->options.batch * t->options.length;
  if (learning) hy__train_parameters_begin_pass(s, &t->parameters);
  hy_tape_set_recording(t->tape, learning);
  hy_array *ids = upload(s, tokens + pass * n, n), *wanted = upload(s, targets + pass * n, n);
  hy_array* sum = pass_loss(s, t, pass, learning, ids, wanted);
  hy_array* mean = hy_s_mul_scalar(s, sum, hy_float(1.0 / (double)counted));
  if (learning) HY_SCOPE_TRY(s, hy_backward(t->tape, mean, NULL));
  return mean;
}

// Runs the passes of a step one after the other.
static hy_status run_passes(hy__trainer* t, bool learning, const int32_t* tokens,
                            const int32_t* targets, int64_t counted, double* loss) {
  *loss = 0;
  for (int64_t pass = 0; pass < t->options.accumulate; pass++) {
    double value = 0;
    hy_scope s;
    hy_scope_begin(&s, t->tape);
    hy_array* mean = run_pass(&s, t, learning, pass, tokens, targets, counted);
    if (learning) {
      hy_tape_set_recording(t->tape, false);
      hy__train_parameters_add_pass(&s, &t->parameters, t->parameters.pass, pass == 0);
    }
    HY_SCOPE_TRY(&s, hy_array_item(t->stream, mean, &value));
    HY_TRY(hy_scope_end(&s));
    *loss += value;
  }
  return HY_OK;
}

// ---- passes of several ranks ----

// Element r of the result is rank r's x.
static hy_array* gather(hy_scope* s, const hy__trainer* t, const hy_array* x) {
  if (s->status != HY_OK) return NULL;
  const hy_tensor* own = hy_array_tensor(x);
  int64_t n = hy_tensor_numel(own);
  hy_array* all = hy_s_empty(s, own->dtype, HY_SIZES(hy_comm_size(t->options.comm), n));
  if (s->status != HY_OK) return NULL;
  HY_SCOPE_TRY(s, hy_comm_all_gather(t->options.comm, t->stream, own->data,
                                     hy_array_tensor(all)->data, n, own->dtype));
  return all;
}

// One pass of each rank, from pass `first` on. Gradients are added in the order of the passes.
static hy_status run_round(hy__trainer* t, int64_t first, const int32_t* tokens,
                           const int32_t* targets, int64_t counted, double* loss) {
  hy_scope s;
  hy_scope_begin(&s, t->tape);
  int rank = hy_comm_rank(t->options.comm), size = hy_comm_size(t->options.comm);
  hy_array* mean = run_pass(&s, t, true, first + rank, tokens, targets, counted);
  hy_tape_set_recording(t->tape, false);
  hy_array *means = gather(&s, t, mean), *passes = gather(&s, t, t->parameters.pass);
  for (int r = 0; r < size; r++) {
    double value = 0;
    hy_array* of_rank = hy_s_select(&s, hy_s_select(&s, means, 1, 0), 0, r);
    HY_SCOPE_TRY(&s, hy_array_item(t->stream, of_rank, &value));
    *loss += value;
    hy__train_parameters_add_pass(&s, &t->parameters, hy_s_select(&s, passes, 0, r),
                                  first + r == 0);
  }
  return hy_scope_end(&s);
}

static hy_status run_shared_passes(hy__trainer* t, const int32_t* tokens, const int32_t* targets,
                                   int64_t counted, double* loss) {
  hy_status status = HY_OK;
  *loss = 0;
  for (int64_t pass = 0; pass < t->options.accumulate && status == HY_OK;
       pass += hy_comm_size(t->options.comm))
    status = run_round(t, pass, tokens, targets, counted, loss);
  return status;
}

// ---- a pass by a graph ----

// The calls of a pass, recorded in place of being run.
static hy_status record_pass(hy__trainer* t) {
  hy_scope s;
  HY_TRY(hy_capture_begin(t->stream));
  hy_scope_begin(&s, t->tape);
  hy__train_parameters_begin_pass(&s, &t->parameters);
  hy_tape_set_recording(t->tape, true);
  hy_array* mean = hy_s_mul(&s, pass_loss(&s, t, 0, true, t->ids, t->wanted), t->scale);
  HY_SCOPE_TRY(&s, hy_backward(t->tape, mean, NULL));
  hy_tape_set_recording(t->tape, false);
  hy__train_parameters_add_pass(&s, &t->parameters, t->parameters.pass, true);
  t->mean = hy_scope_give(&s, mean);
  hy_status status = hy_scope_end(&s);
  hy_status ended = hy_capture_end(t->stream, status == HY_OK ? &t->graph : NULL);
  return status == HY_OK ? ended : status;
}

static hy_status capture_pass(hy__trainer* t) {
  int64_t n = t->options.batch * t->options.length;
  HY_TRY(hy_array_zeros(t->stream, &t->ids, HY_I64, 1, &n));
  HY_TRY(hy_array_zeros(t->stream, &t->wanted, HY_I64, 1, &n));
  HY_TRY(hy_array_zeros(t->stream, &t->scale, HY_F32, 0, NULL));
  HY_TRY(record_pass(t));
  return hy_graph_run_passes(t->graph, HY__EXACT_PASSES, &t->report);
}

static hy_status put(hy__trainer* t, const hy_array* array, const int32_t* values) {
  const hy_tensor* to = hy_array_tensor(array);
  int64_t n = hy_tensor_numel(to), *wide = hy__malloc((size_t)n * sizeof *wide);
  if (!wide) return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)n);
  for (int64_t i = 0; i < n; i++) wide[i] = values[i];
  hy_status status = hy_upload(t->stream, to->data, wide, hy_tensor_bytes(to));
  hy__mfree(wide);
  return status;
}

// What run_passes does, by one launch. The loss is in t->mean when the device is done.
static hy_status launch_pass(hy__trainer* t, const int32_t* tokens, const int32_t* targets,
                             int64_t counted) {
  float scale = (float)(1.0 / (double)counted);
  if (!t->graph) HY_TRY(capture_pass(t));
  HY_TRY(put(t, t->ids, tokens));
  HY_TRY(put(t, t->wanted, targets));
  HY_TRY(hy_upload(t->stream, hy_array_tensor(t->scale)->data, &scale, sizeof scale));
  return hy_graph_launch(t->graph, t->stream);
}

const hy_graph_report* hy__trainer_report(const hy__trainer* t) {
  return t->graph ? &t->report : NULL;
}

hy_status hy__trainer_evaluate(hy__trainer* t, const hy__dataset* dataset, double* loss) {
  int64_t rows = t->options.accumulate * t->options.batch, n = rows * t->options.length;
  int64_t counted = 0, last = hy__dataset_rows(dataset, HY__DATA_EVALUATION);
  int32_t* tokens = hy__malloc((size_t)(2 * n) * sizeof *tokens);
  if (!tokens) return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)n);
  hy_status status = HY_OK;
  double sum = 0;
  for (int64_t row = 0; row < last && status == HY_OK; row += rows) {
    hy__dataset_evaluation(dataset, row, rows, tokens, tokens + n);
    int64_t here = count_targets(t, tokens + n);
    double mean;
    if (here == 0) continue;
    status = run_passes(t, false, tokens, tokens + n, here, &mean);
    sum += mean * (double)here;
    counted += here;
  }
  hy__mfree(tokens);
  if (status == HY_OK && counted == 0)
    status = hy_fail(HY_INVALID_ARGUMENT, "nothing in the data for evaluation counts");
  *loss = status == HY_OK ? sum / (double)counted : 0;
  return status;
}

hy_status hy__trainer_step(hy__trainer* t, const int32_t* tokens, const int32_t* targets,
                           double* loss) {
  int64_t counted = count_targets(t, targets);
  if (counted == 0)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "none of the tokens of this step counts: there is nothing to learn from");
  hy_status status = t->options.graph  ? launch_pass(t, tokens, targets, counted)
                     : t->options.comm ? run_shared_passes(t, tokens, targets, counted, loss)
                                       : run_passes(t, true, tokens, targets, counted, loss);
  double norm = 0;
  if (status == HY_OK) status = hy__train_parameters_end_passes(&t->parameters);
  if (status == HY_OK) {
    double bound = t->options.clip > 0 ? t->options.clip : INFINITY;
    status = hy_clip_grad_norm(t->stream, t->parameters.arrays, t->parameters.n, bound, &norm);
  }
  // Not before: what the host prepares for clipping it does while the device computes.
  if (status == HY_OK && t->options.graph) status = hy_array_item(t->stream, t->mean, loss);
  if (status == HY_OK && !(isfinite(*loss) && isfinite(norm)))
    status = hy_fail(
        HY_DEVICE_FAILED,
        "step %lld: the loss is %g and the gradient's norm %g; a lower learning rate may help",
        (long long)t->steps + 1, *loss, norm);
  if (status == HY_OK) {
    hy_optimizer_set_lr(t->optimizer, hy__trainer_lr(t));
    status = hy_optimizer_step(t->optimizer);
  }
  if (status == HY_OK) status = hy__train_parameters_refresh(&t->parameters, t->tape);
  hy_optimizer_zero_grad(t->optimizer);
  if (status == HY_OK) t->steps++;
  return status;
}

const hy__train_options* hy__trainer_options(const hy__trainer* t) {
  return &t->options;
}

int64_t hy__trainer_steps(const hy__trainer* t) {
  return t->steps;
}

double hy__trainer_lr(const hy__trainer* t) {
  return hy_schedule_cosine(t->steps + 1, t->options.warmup, t->options.steps + 1, t->options.lr,
                            0);
}
