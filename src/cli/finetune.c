// halyard finetune: trains a LoRA adapter, or all parameters of a small model, on a JSONL file.
#include <string.h>

#include "base/file.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/hub_folder.h"
#include "cli/interrupt.h"
#include "cli/out_folder.h"
#include "cli/parallel.h"
#include "cli/progress.h"
#include "model/adapter.h"
#include "model/load.h"
#include "model/model.h"
#include "model/train.h"

static int run(int argc, char** argv);
const cli_command cli_finetune = {
    "finetune", "", "Train a LoRA adapter on your texts",
    "halyard finetune --model DIR --data FILE.jsonl --out DIR --rank 16 --steps 200\n"
    "  mpirun -n 2 halyard finetune --parallel data --model DIR --data FILE.jsonl --out DIR",
    run};

#define STATE_FILE "training.safetensors"

typedef struct finetune_options {
  const char *model, *data, *out, *adapter, *targets, *dtype, *checkpoint;
  int64_t rank, seed, save_every, eval_every;
  double alpha, dropout, eval_share;
  bool resume, full;
  hy__train_options train;
  cli_parallel parallel;
} finetune_options;

typedef struct session {
  const finetune_options* options;
  const cli_parallel* parallel;  // rank 0 prints and writes
  hy_device* device;
  hy_model* model;
  hy__dataset* data;
  hy__trainer* trainer;
  hy__adapter_options adapter;
  char state[4096];  // the path of the saved training
  out_folder out;
} session;

// ---- options ----

static int parse(finetune_options* o, int argc, char** argv, int* extra) {
  hy__train_options* t = &o->train;
  *o = (finetune_options){.targets = "q_proj,k_proj,v_proj,o_proj", .rank = 16};
  *t = (hy__train_options){
      .batch = 4, .length = 256, .accumulate = CLI_NOT_GIVEN, .lr = 2e-4, .clip = 1};
  const cli_option options[] = {
      {"model", CLI_TEXT, &o->model, "DIR", "the model to train"},
      {"data", CLI_TEXT, &o->data, "FILE.jsonl",
       "lines {\"text\": ...} or {\"messages\": [{\"role\", \"content\"}, ...]}"},
      {"out", CLI_TEXT, &o->out, "DIR", "where the adapter goes, in PEFT's format"},
      {"steps", CLI_INT, &t->steps, "N", "steps in all (once over the data)"},
      {"batch", CLI_INT, &t->batch, "N", "sequences of a pass (4)"},
      {"accumulate", CLI_INT, &t->accumulate, "N", "passes of a step (1, or one a rank)"},
      {"seq", CLI_INT, &t->length, "N", "tokens of a sequence (256)"},
      {"lr", CLI_REAL, &t->lr, "X", "the highest learning rate (2e-4)"},
      {"warmup", CLI_INT, &t->warmup, "N", "steps until it is reached (0)"},
      {"weight-decay", CLI_REAL, &t->weight_decay, "X", "of AdamW (0)"},
      {"clip", CLI_REAL, &t->clip, "X", "the gradient's norm at most; 0: no bound (1)"},
      {"rank", CLI_INT, &o->rank, "R", "of the adapter (16)"},
      {"alpha", CLI_REAL, &o->alpha, "A", "the adapter is scaled by A / R (2 R)"},
      {"dropout", CLI_REAL, &o->dropout, "P", "of the adapter's input (0)"},
      {"targets", CLI_TEXT, &o->targets, "A,B,...",
       "layers that get one (q_proj,k_proj,v_proj,o_proj)"},
      {"adapter", CLI_TEXT, &o->adapter, "DIR", "start from this adapter instead of a fresh one"},
      {"full", CLI_FLAG, &o->full, NULL, "train all parameters; a whole model comes out"},
      {"dtype", CLI_TEXT, &o->dtype, "f32|bf16|q8|q4", "how the base's weights are kept"},
      {"checkpoint", CLI_TEXT, &o->checkpoint, "mlp|block",
       "what the backward computes again in place of keeping it: less memory, more time"},
      {"eval-share", CLI_REAL, &o->eval_share, "P", "of the texts, kept for evaluation (0)"},
      {"eval-every", CLI_INT, &o->eval_every, "N", "evaluate each N steps (at the end)"},
      {"save-every", CLI_INT, &o->save_every, "N", "save each N steps (at the end)"},
      {"seed", CLI_INT, &o->seed, "S", "of the adapter, the order and the dropout (0)"},
      {"resume", CLI_FLAG, &o->resume, NULL, "go on where the training in --out was saved"},
      {"parallel", CLI_TEXT, &o->parallel.how, "data",
       "processes that mpirun started share the passes of a step"},
  };
  int n = (int)(sizeof options / sizeof options[0]);
  int code = cli_parse(&cli_finetune, options, n, argc, argv, extra);
  if (code != CLI_DONE || *extra < 0) return code;
  if (!o->model || !o->data || !o->out)
    return cli_usage(&cli_finetune, "--model, --data and --out are needed");
  if (o->full && o->adapter) return cli_usage(&cli_finetune, "--full trains no --adapter");
  if (o->full && o->parallel.how)
    return cli_usage(&cli_finetune, "--parallel trains adapters, without --full");
  bool passes = t->accumulate == CLI_NOT_GIVEN || (t->accumulate >= 1 && t->accumulate <= 1 << 20);
  if (t->batch < 1 || t->batch > 1 << 20 || !passes || t->length < 2 || t->length > 1 << 24)
    return cli_usage(&cli_finetune, "--batch and --accumulate are at least 1, --seq at least 2");
  if (t->steps < 0 || o->save_every < 0 || o->eval_every < 0 || t->warmup < 0)
    return cli_usage(&cli_finetune, "numbers of steps are not negative");
  if (o->rank < 1 || o->rank > 1 << 16)
    return cli_usage(&cli_finetune, "--rank is at least 1, not %lld", (long long)o->rank);
  if (o->alpha < 0) return cli_usage(&cli_finetune, "--alpha is above 0, not %g", o->alpha);
  if (!(o->dropout >= 0 && o->dropout < 1))
    return cli_usage(&cli_finetune, "--dropout must be in 0 .. 1, not %g", o->dropout);
  if (o->checkpoint && strcmp(o->checkpoint, "mlp") != 0 && strcmp(o->checkpoint, "block") != 0)
    return cli_usage(&cli_finetune, "--checkpoint is mlp or block, not '%s'", o->checkpoint);
  if (!(t->lr > 0)) return cli_usage(&cli_finetune, "--lr is above 0, not %g", t->lr);
  if (t->weight_decay < 0)
    return cli_usage(&cli_finetune, "--weight-decay is not negative, not %g", t->weight_decay);
  if (t->clip < 0) return cli_usage(&cli_finetune, "--clip is not negative, not %g", t->clip);
  if (!(o->eval_share >= 0 && o->eval_share < 1))
    return cli_usage(&cli_finetune, "--eval-share must be in 0 .. 1, not %g", o->eval_share);
  if (o->eval_every > 0 && o->eval_share == 0)
    return cli_usage(&cli_finetune, "--eval-every needs an --eval-share to evaluate");
  if (o->alpha == 0) o->alpha = 2 * (double)o->rank;
  t->seed = (uint64_t)o->seed;
  if (o->checkpoint)
    t->checkpoint = strcmp(o->checkpoint, "mlp") == 0 ? HY__CHECKPOINT_MLP : HY__CHECKPOINT_BLOCK;
  t->all_parameters = o->full;
  return CLI_DONE;
}

// ---- setting up ----

// Quantised weights cannot be trained, only adapted.
static hy_status choose_format(const finetune_options* o, hy_weight_format* format) {
  if (!hy__weight_format_named(o->dtype, format))
    return hy_fail(HY_INVALID_ARGUMENT, "--dtype is f32, bf16, q8 or q4, not '%s'", o->dtype);
  if (o->full && (*format == HY_WEIGHTS_Q8 || *format == HY_WEIGHTS_Q4))
    return hy_fail(HY_INVALID_ARGUMENT, "--full trains f32 and bf16 weights, not %s", o->dtype);
  return HY_OK;
}

static hy_status load_data(session* s) {
  const finetune_options* o = s->options;
  if (!s->model->tokenizer) return hy_fail(HY_FORMAT, "%s: there is no tokenizer.json", o->model);
  hy__dataset_options options = {.length = o->train.length,
                                 .seed = (uint64_t)o->seed,
                                 .evaluation_share = o->eval_share,
                                 .end = hy__model_end_of_text(s->model)};
  HY_TRY(hy__dataset_create(s->model->tokenizer, &options, &s->data));
  HY_TRY(hy__dataset_add_file(s->data, o->data));
  if (o->eval_share > 0 && hy__dataset_rows(s->data, HY__DATA_EVALUATION) < 1)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: --eval-share %g of its texts is nothing; give more",
                   o->data, o->eval_share);
  return HY_OK;
}

static hy_status set_up_adapter(session* s) {
  const finetune_options* o = s->options;
  if (o->full) return HY_OK;
  if (o->adapter) return hy__adapter_describe(&s->model->transformer, &s->adapter);
  s->adapter = (hy__adapter_options){.rank = o->rank, .alpha = o->alpha, .dropout = o->dropout};
  snprintf(s->adapter.targets, sizeof s->adapter.targets, "%s", o->targets);
  return hy__adapter_create(s->model->stream, &s->adapter, HY_F32, (uint64_t)o->seed,
                            &s->model->transformer);
}

static hy_status set_up_trainer(session* s) {
  const finetune_options* o = s->options;
  hy__train_options train = o->train;
  train.comm = s->parallel->comm;
  if (train.accumulate == CLI_NOT_GIVEN)
    train.accumulate = train.comm ? hy_comm_size(train.comm) : 1;
  int64_t rows = hy__dataset_rows(s->data, HY__DATA_TRAINING),
          each = train.batch * train.accumulate;
  if (train.steps == 0) train.steps = (rows + each - 1) / each;
  if (rows < 1) return hy_fail(HY_FORMAT, "%s: there is nothing to learn from in it", o->data);
  HY_TRY(hy__trainer_create(s->model->stream, &s->model->transformer, &train, &s->trainer));
  if (hy__file_exists(s->state)) HY_TRY(hy__trainer_resume(s->trainer, s->state));
  return parallel_same(s->parallel, s->model->stream, "steps that were saved in --out",
                       hy__trainer_steps(s->trainer));
}

static hy_status check_state(const session* s) {
  const finetune_options* o = s->options;
  bool saved = hy__file_exists(s->state);
  if (saved && !o->resume)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "%s holds a training already; --resume goes on with it, another --out begins a "
                   "new one",
                   o->out);
  if (!saved && o->resume)
    fprintf(stderr, "halyard: nothing was saved in %s, the training begins anew\n", o->out);
  return HY_OK;
}

static hy_status set_up(session* s) {
  const finetune_options* o = s->options;
  hy_weight_format format;
  HY_TRY(choose_format(o, &format));
  HY_TRY(hy__join_path(o->out, STATE_FILE, s->state, sizeof s->state));
  if (s->parallel->rank == 0) HY_TRY(out_folder_open(o->out, &s->out));
  if (s->parallel->rank == 0) HY_TRY(check_state(s));
  HY_TRY(hy_model_load(s->device, o->model, o->adapter, format, &s->model));
  HY_TRY(load_data(s));
  HY_TRY(set_up_adapter(s));
  return set_up_trainer(s);
}

// ---- training ----

// What comes out first, then the state: a crash in between repeats steps, and loses none.
static hy_status save(session* s) {
  const finetune_options* o = s->options;
  hy__transformer* transformer = &s->model->transformer;
  if (s->parallel->rank > 0) return HY_OK;
  if (o->full) {
    HY_TRY(hy__transformer_save(s->model->stream, transformer, o->out));
    HY_TRY(hub_folder_copy(o->model, o->out));
  } else {
    HY_TRY(hy__adapter_save(s->model->stream, transformer, &s->adapter, o->model, o->out));
  }
  return hy__trainer_save(s->trainer, s->state);
}

typedef struct report {
  int64_t step;
  double loss, lr, eval_loss;
  bool evaluated;
} report;

static void write_step(const session* s, const progress* p, const report* r) {
  if (!cli.json || s->parallel->rank > 0) return;
  json_writer j = json_to(stdout);
  json_begin_object(&j, NULL);
  json_int(&j, "step", r->step);
  json_real(&j, "loss", r->loss);
  json_real(&j, "lr", r->lr);
  json_int(&j, "tokens", r->step * p->tokens);
  json_real(&j, "tok_s", progress_rate(p, r->step));
  json_uint(&j, "memory_peak", progress_memory(p));
  if (r->evaluated) json_real(&j, "eval_loss", r->eval_loss);
  json_end_object(&j);
  json_newline(&j);
  fflush(stdout);
}

static hy_status evaluate(session* s, progress* p, report* r) {
  int64_t every = s->options->eval_every;
  bool last = r->step == p->last;
  r->evaluated = s->options->eval_share > 0 && (last || (every > 0 && r->step % every == 0));
  if (!r->evaluated) return HY_OK;
  HY_TRY(hy__trainer_evaluate(s->trainer, s->data, &r->eval_loss));
  if (!cli.json && s->parallel->rank == 0) {
    progress_end(p);
    fprintf(stderr, "step %lld: evaluation loss %.4f\n", (long long)r->step, r->eval_loss);
  }
  return HY_OK;
}

static hy_status train(session* s, bool* interrupted) {
  const hy__train_options* t = hy__trainer_options(s->trainer);
  int64_t rows = t->batch * t->accumulate, n = rows * t->length;
  int32_t* tokens = hy__malloc((size_t)(2 * n) * sizeof *tokens);
  if (!tokens) return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)n);
  int64_t done = hy__trainer_steps(s->trainer);
  progress p =
      progress_begin("finetune", s->device, done, t->steps, n, cli.json || s->parallel->rank > 0);
  bool saved = done == t->steps, stop = interrupt_asked();
  hy_status status = parallel_any(s->parallel, s->model->stream, &stop);
  while (status == HY_OK && done < t->steps && !stop) {
    report r = {.lr = hy__trainer_lr(s->trainer)};
    status = hy__dataset_batch(s->data, done, rows, tokens, tokens + n);
    if (status == HY_OK) status = hy__trainer_step(s->trainer, tokens, tokens + n, &r.loss);
    if (status != HY_OK) break;
    r.step = ++done;
    progress_step(&p, done, r.loss);
    int64_t every = s->options->save_every;
    saved = done == t->steps || (every > 0 && done % every == 0);
    if (saved) status = save(s);
    if (status == HY_OK) status = evaluate(s, &p, &r);
    write_step(s, &p, &r);
    stop = interrupt_asked();
    if (status == HY_OK) status = parallel_any(s->parallel, s->model->stream, &stop);
  }
  *interrupted = status == HY_OK && done < t->steps;
  if (*interrupted && !saved) status = save(s);
  progress_end(&p);
  hy__mfree(tokens);
  return status;
}

static int run(int argc, char** argv) {
  finetune_options options;
  session s = {.options = &options, .parallel = &options.parallel, .out = {.lock = -1}};
  int extra;
  bool interrupted = false;
  int code = parse(&options, argc, argv, &extra);
  if (code != CLI_DONE || extra < 0) return code;
  code = parallel_open(&cli_finetune, "data", &options.parallel, &s.device);
  if (code != CLI_DONE) return code;
  hy_status status = set_up(&s);
  interrupt_watch_all();
  if (status == HY_OK) status = train(&s, &interrupted);
  const bool first = options.parallel.rank == 0;
  if (status != HY_OK)
    code = cli_fail(status);
  else if (interrupted && first)
    fprintf(stderr, "halyard: interrupted after step %lld, saved; --resume goes on\n",
            (long long)hy__trainer_steps(s.trainer));
  else if (!cli.json && first)
    fprintf(stderr, "The %s is in %s\n", options.full ? "model" : "adapter", options.out);
  hy__trainer_destroy(s.trainer);
  hy__dataset_free(s.data);
  hy_model_free(s.model);
  // A training that failed before it saved anything leaves nothing; a folder with something in it
  // stays.
  out_folder_close(&s.out, status != HY_OK);
  parallel_close(&options.parallel, status != HY_OK);
  if (!interrupted || status != HY_OK) return code;
  return interrupt_asked() ? interrupt_code()
                           : CLI_INTERRUPTED;  // a signal may reach one rank alone
}
