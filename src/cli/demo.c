// halyard demo: a small language model from nothing, in about a minute.
//
// Learns a tokenizer and a model of Qwen2's shape from the project's own C, then an adapter from
// its own Verilog, and writes both as folders that `halyard run` and transformers load.
#include <stdarg.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/corpus.h"
#include "cli/curve.h"
#include "cli/interrupt.h"
#include "cli/out_folder.h"
#include "cli/progress.h"
#include "model/adapter.h"
#include "model/byte_tokenizer.h"
#include "model/create.h"
#include "model/load.h"
#include "model/shapes.h"
#include "model/train.h"

static int run(int argc, char** argv);
const cli_command cli_demo = {"demo", "",
                              "Train a small language model here and now, and let it write",
                              "halyard demo --out /tmp/demo", run};

enum { BATCH = 4, LENGTH = 128, MAX_STEPS = 100000, SAMPLE = 4096 };

typedef struct demo_options {
  const char *out, *size;
  int64_t seconds, steps, lora_steps, tokens, seed;
  double temperature;
} demo_options;

static const demo_size* size_named(const char* name) {
  for (int i = 0; i < DEMO_SIZES; i++) {
    if (strcmp(name, demo_sizes[i].name) == 0) return &demo_sizes[i];
  }
  return NULL;
}

typedef struct phase {
  const char* title;
  int64_t steps;
  double* losses;
  double tok_s;
} phase;

typedef struct demo {
  demo_options options;
  hy_device* device;
  hy__bpe_merge merges[DEMO_MERGES];
  int n_merges;
  const demo_size* size;
  int64_t parameters;
  hy_model* model;
  hy__dataset *code, *verilog;
  phase base, lora;
  char samples[4][SAMPLE];  // untrained, C, Verilog without the adapter and with it
} demo;

// What it is asked to go on from: nothing of it stands in the texts.
enum { N_PROMPTS = 2 };
static const char* const code_prompts[N_PROMPTS] = {"hy_status hy_event_copy(",
                                                    "static bool is_same_device("};
static const char* const verilog_prompts[N_PROMPTS] = {"module echo_npu_counter (",
                                                       "  always @(posedge clk)\n    if (enable"};

static void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char* format, ...) {
  va_list arguments;
  if (cli.json) return;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  fflush(stdout);
}

// ---- parts ----

// From the first text alone: an adapter cannot teach tokens that the model never saw.
static hy_status learn_tokenizer(demo* d) {
  corpus_text code = corpus_code();
  return hy__bpe_train(code.text, code.length, hy__byte_tokenizer_pattern, DEMO_MERGES, d->merges,
                       &d->n_merges);
}

static hy_status make_model(demo* d, const demo_size* size, hy_model** model) {
  char* text;
  hy__tokenizer* tokenizer;
  hy__config config = demo_config(size, d->n_merges);
  HY_TRY(hy__byte_tokenizer_json(d->merges, d->n_merges, &text));
  hy_status status = hy__tokenizer_parse("the demo's tokenizer", text, strlen(text), &tokenizer);
  hy__mfree(text);
  if (status != HY_OK) return status;
  return hy__model_create(d->device, &config, tokenizer, HY__BYTE_TOKEN_END,
                          (uint64_t)d->options.seed, model);
}

// Each piece that ends with `ending` is a text of its own: a function, a paragraph.
static hy_status make_dataset(demo* d, corpus_text text, const char* ending,
                              hy__dataset** dataset) {
  hy__dataset_options options = {.length = LENGTH,
                                 .seed = (uint64_t)d->options.seed,
                                 .end = HY__BYTE_TOKEN_END,
                                 .repack = true};
  HY_TRY(hy__dataset_create(d->model->tokenizer, &options, dataset));
  size_t size = strlen(ending);
  for (const char *at = text.text, *end = at + text.length; at < end;) {
    const char* found = memmem(at, (size_t)(end - at), ending, size);
    const char* next = found ? found + size : end;
    HY_TRY(hy__dataset_add_text(*dataset, at, (size_t)(next - at)));
    at = next;
  }
  return HY_OK;
}

// ---- training ----

static hy_status step(hy__trainer* trainer, hy__dataset* data, double* loss) {
  int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
  HY_TRY(hy__dataset_batch(data, hy__trainer_steps(trainer), BATCH, tokens, targets));
  return hy__trainer_step(trainer, tokens, targets, loss);
}

// Tokens a second of the size that is measured: of its best step, since the first ones warm up,
// less what a long run loses beside it.
static double seconds_now(void) {
  return 1e-9 * (double)hy__now_ns();
}

static hy_status measure(demo* d, double* rate) {
  hy__train_options options = {.batch = BATCH,
                               .length = LENGTH,
                               .accumulate = 1,
                               .steps = MAX_STEPS,
                               .lr = 1e-3,
                               .clip = 1,
                               .all_parameters = true};
  hy__trainer* trainer = NULL;
  HY_TRY(hy__trainer_create(d->model->stream, &d->model->transformer, &options, &trainer));
  hy_status status = HY_OK;
  double begin = seconds_now();
  *rate = 0;
  while (status == HY_OK && (seconds_now() - begin < 1.5 || hy__trainer_steps(trainer) < 3)) {
    double loss, start = seconds_now();
    status = step(trainer, d->code, &loss);
    double here = BATCH * LENGTH / (seconds_now() - start);
    if (here > *rate) *rate = here;
  }
  *rate *= 0.85;
  hy__trainer_destroy(trainer);
  return status;
}

// The largest size that sees enough tokens in its time, and how many steps that time has. Time goes
// with the parameters, near enough.
static void choose_size(demo* d, double rate) {
  double seconds = 0.4 * (double)d->options.seconds, chosen_rate = rate;
  hy__config measured = demo_config(&demo_sizes[DEMO_MEDIUM], d->n_merges);
  double weight = (double)hy__config_parameters(&measured);
  d->size = &demo_sizes[0];
  for (int i = 0; i < DEMO_SIZES; i++) {
    hy__config config = demo_config(&demo_sizes[i], d->n_merges);
    double here = rate * weight / (double)hy__config_parameters(&config);
    if (here * seconds < (double)demo_sizes[i].tokens) continue;
    d->size = &demo_sizes[i];
    chosen_rate = here;
  }
  d->base.steps = (int64_t)(chosen_rate * seconds / (BATCH * LENGTH));
  // Below some number of steps it writes nonsense: a slow or busy machine takes its time.
  int64_t readable = 5 * d->base.steps / 2 < 480 ? 5 * d->base.steps / 2 : 480;
  if (d->base.steps < readable) d->base.steps = readable;
  // An adapter's step takes about as long: no gradient of the weights, but products of its own.
  d->lora.steps = d->base.steps;
  say("  It trains about %.0f tokens a second here: a %s model, %lld steps, then %lld.\n", rate,
      d->size->name, (long long)d->base.steps, (long long)d->lora.steps);
}

static hy_status train(demo* d, phase* p, hy__dataset* data, double lr, bool all) {
  hy__train_options options = {.batch = BATCH,
                               .length = LENGTH,
                               .accumulate = 1,
                               .steps = p->steps,
                               .warmup = p->steps / 20,
                               .lr = lr,
                               .weight_decay = all ? 0.05 : 0,
                               .clip = 1,
                               .all_parameters = all,
                               .seed = (uint64_t)d->options.seed};
  hy__trainer* trainer = NULL;
  p->losses = hy__calloc((size_t)p->steps + 1, sizeof *p->losses);
  if (!p->losses) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a loss curve");
  HY_TRY(hy__trainer_create(d->model->stream, &d->model->transformer, &options, &trainer));
  progress line = progress_begin(p->title, d->device, 0, p->steps, BATCH * LENGTH, cli.json);
  hy_status status = HY_OK;
  for (int64_t i = 0; i < p->steps && status == HY_OK; i++) {
    status = step(trainer, data, &p->losses[i]);
    if (status == HY_OK) progress_step(&line, i + 1, p->losses[i]);
    if (status == HY_OK && interrupt_asked())
      status = hy_fail(HY_NOT_READY, "interrupted; nothing was written");
  }
  p->tok_s = progress_rate(&line, p->steps);
  progress_end(&line);
  hy__trainer_destroy(trainer);
  return status;
}

static curve curve_of(const phase* p) {
  return (curve){p->title, p->losses, (int)p->steps};
}

static void show_curve(const phase* p) {
  curve c = curve_of(p);
  if (!cli.json) curve_print(stdout, &c);
}

// ---- writing ----

typedef struct sample {
  char* text;
  size_t length;
} sample;

static bool take_text(void* context, int32_t id, const char* text, size_t length) {
  sample* s = context;
  (void)id;
  if (length > SAMPLE - 1 - s->length) length = SAMPLE - 1 - s->length;
  memcpy(s->text + s->length, text, length);
  s->text[s->length += length] = 0;
  if (!cli.json) {
    fwrite(text, 1, length, stdout);
    fflush(stdout);
  }
  return !interrupt_asked();
}

// The length of the longest stretch of a text that stands in another.
static size_t longest_copy(const char* text, size_t length, corpus_text source) {
  size_t longest = 0;
  for (size_t at = 0; at + longest < length; at++) {
    while (at + longest < length && memmem(source.text, source.length, text + at, longest + 1))
      longest++;
  }
  return longest;
}

// Goes on from each prompt to the end of the text, or for so many tokens. `text` gets the first
// answer.
static hy_status write_samples(demo* d, const char* heading, const char* const* prompts, int n,
                               int64_t tokens, corpus_text source, char* text) {
  char unused[SAMPLE];
  double made = 0, seconds = 0;
  size_t written = 0, copied = 0;
  hy_generate_options options;
  hy_generate_defaults(&options);
  options.max_tokens = tokens;
  options.temperature = d->options.temperature;
  options.top_p = 0.9;
  options.seed = (uint64_t)d->options.seed;
  say("\n%s\n", heading);
  for (int i = 0; i < n; i++) {
    int32_t ids[64] = {HY__BYTE_TOKEN_END};  // a text begins where another has ended
    int64_t count;
    hy_generate_result result;
    HY_TRY(hy_model_encode(d->model, prompts[i], strlen(prompts[i]), HY_ENCODE_DEFAULT, ids + 1, 63,
                           &count));
    say("\n%s", prompts[i]);
    sample s = {i == 0 ? text : unused, 0};
    s.text[0] = 0;
    HY_TRY(hy_model_generate(d->model, ids, count + 1, &options, take_text, &s, NULL, &result));
    made += (double)(result.tokens - 1);
    seconds += result.decode_seconds;
    size_t here = longest_copy(s.text, s.length, source);
    written += s.length;
    if (here > copied) copied = here;
    if (s.length == 0 || s.text[s.length - 1] != '\n') say("\n");
  }
  say("\n  (%.0f tokens a second; of these %zu characters, %zu in a row are the longest copy of "
      "its "
      "source)\n",
      seconds > 0 ? made / seconds : 0, written, copied);
  return HY_OK;
}

// ---- saving ----

static hy_status save_model(demo* d, char* path, size_t size) {
  HY_TRY(hy__join_path(d->options.out, "model", path, size));
  HY_TRY(hy__transformer_save(d->model->stream, &d->model->transformer, path));
  return hy__byte_tokenizer_save(d->merges, d->n_merges, path);
}

static hy_status save_adapter(demo* d, const hy__adapter_options* adapter, const char* base) {
  char path[4096];
  const curve curves[] = {curve_of(&d->base), curve_of(&d->lora)};
  HY_TRY(hy__join_path(d->options.out, "adapter", path, sizeof path));
  HY_TRY(hy__adapter_save(d->model->stream, &d->model->transformer, adapter, base, path));
  HY_TRY(hy__join_path(d->options.out, "loss.svg", path, sizeof path));
  return curve_save_svg(path, "halyard demo: loss", curves, 2);
}

// ---- the show ----

static hy_status choose(demo* d) {
  const demo_options* o = &d->options;
  double rate;
  d->size = o->size ? size_named(o->size) : &demo_sizes[0];
  d->base.steps = o->steps;
  d->lora.steps = o->lora_steps;
  if (o->steps > 0) return HY_OK;
  HY_TRY(make_model(d, &demo_sizes[DEMO_MEDIUM], &d->model));
  HY_TRY(make_dataset(d, corpus_code(), "\n\n", &d->code));
  HY_TRY(measure(d, &rate));
  choose_size(d, rate);
  if (d->base.steps < 20) d->base.steps = 20;
  if (d->lora.steps < 10) d->lora.steps = 10;
  if (d->base.steps > MAX_STEPS) d->base.steps = MAX_STEPS;
  hy__dataset_free(d->code);
  hy_model_free(d->model);
  d->code = NULL;
  d->model = NULL;
  return HY_OK;
}

static hy_status prepare(demo* d) {
  corpus_text code = corpus_code(), verilog = corpus_verilog();
  say("Halyard trains a language model on its own source, on %s.\n\n",
      hy_device_selector(d->device));
  HY_TRY(learn_tokenizer(d));
  say("  Texts: %zu KB of C and %zu KB of Verilog; a vocabulary of %d tokens learnt from the C.\n",
      code.length / 1000, verilog.length / 1000, HY__BYTE_TOKENS + d->n_merges);
  HY_TRY(choose(d));
  HY_TRY(make_model(d, d->size, &d->model));
  d->parameters = hy__config_parameters(&d->model->transformer.config);
  HY_TRY(make_dataset(d, code, "\n\n", &d->code));
  HY_TRY(make_dataset(d, verilog, "\n\n", &d->verilog));
  say("  Model: Qwen2's shape, %lld layers of %lld, %.2f million parameters, random at first.\n",
      (long long)d->size->layers, (long long)d->size->hidden, 1e-6 * (double)d->parameters);
  return HY_OK;
}

static hy_status show(demo* d) {
  char path[4096];
  d->base.title = "C, all parameters";
  d->lora.title = "Verilog, a LoRA adapter";
  HY_TRY(prepare(d));
  int64_t tokens = d->options.tokens;
  HY_TRY(write_samples(d, "Before any training it writes:", code_prompts, 1, tokens / 4 + 1,
                       corpus_code(), d->samples[0]));
  say("\n");
  HY_TRY(train(d, &d->base, d->code, 3e-3, true));
  show_curve(&d->base);
  HY_TRY(write_samples(
      d, "Trained on C, and asked for functions that it has never seen, it writes:", code_prompts,
      N_PROMPTS, tokens, corpus_code(), d->samples[1]));
  HY_TRY(write_samples(d, "Asked for Verilog it still writes:", verilog_prompts, 1, tokens / 3 + 1,
                       corpus_code(), d->samples[2]));
  HY_TRY(save_model(d, path, sizeof path));
  hy__adapter_options adapter = {
      .rank = 64,
      .alpha = 128,
      .targets = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"};
  HY_TRY(hy__adapter_create(d->model->stream, &adapter, HY_F32, (uint64_t)d->options.seed,
                            &d->model->transformer));
  say("\n");
  HY_TRY(train(d, &d->lora, d->verilog, 4e-3, false));
  show_curve(&d->lora);
  HY_TRY(write_samples(d, "With the adapter it writes:", verilog_prompts, N_PROMPTS, tokens,
                       corpus_verilog(), d->samples[3]));
  return save_adapter(d, &adapter, path);
}

static void write_phase(json_writer* j, const char* key, const phase* p) {
  json_begin_object(j, key);
  json_int(j, "steps", p->steps);
  json_real(j, "first_loss", p->losses[0]);
  json_real(j, "loss", p->losses[p->steps - 1]);
  json_real(j, "tok_s", p->tok_s);
  json_end_object(j);
}

static void write_json(const demo* d) {
  json_writer j = json_to(stdout);
  json_begin_object(&j, NULL);
  json_text(&j, "device", hy_device_selector(d->device));
  json_int(&j, "parameters", d->parameters);
  json_text(&j, "size", d->size->name);
  write_phase(&j, "base", &d->base);
  write_phase(&j, "lora", &d->lora);
  static const char* const names[] = {"untrained", "code", "verilog_before", "verilog"};
  for (int i = 0; i < 4; i++) json_text(&j, names[i], d->samples[i]);
  json_text(&j, "out", d->options.out);
  json_end_object(&j);
  json_newline(&j);
}

static int parse(demo_options* o, int argc, char** argv, int* extra) {
  *o = (demo_options){.out = "halyard-demo",
                      .seconds = 60,
                      .tokens = 200,
                      .seed = 1,
                      .temperature = 0.5,
                      .steps = CLI_NOT_GIVEN,
                      .lora_steps = CLI_NOT_GIVEN};
  const cli_option options[] = {
      {"out", CLI_TEXT, &o->out, "DIR", "where model, adapter and loss.svg go (halyard-demo)"},
      {"seconds", CLI_INT, &o->seconds, "N", "about how long it may take (60)"},
      {"steps", CLI_INT, &o->steps, "N", "of the model, instead of measuring"},
      {"lora-steps", CLI_INT, &o->lora_steps, "N", "of the adapter, with --steps"},
      {"size", CLI_TEXT, &o->size, "small|medium|large|huge", "of the model, with --steps"},
      {"tokens", CLI_INT, &o->tokens, "N", "of each text it writes (200)"},
      {"temperature", CLI_REAL, &o->temperature, "T", "of the texts (0.5)"},
      {"seed", CLI_INT, &o->seed, "S", "of weights, order and texts (1)"},
  };
  int code = cli_parse(&cli_demo, options, 8, argc, argv, extra);
  if (code != CLI_DONE || *extra < 0) return code;
  bool steps = o->steps != CLI_NOT_GIVEN, lora = o->lora_steps != CLI_NOT_GIVEN;
  if (o->size && !size_named(o->size))
    return cli_usage(&cli_demo, "--size is small, medium, large or huge, not '%s'", o->size);
  if (steps != lora || (o->size && !steps))
    return cli_usage(&cli_demo, "--steps and --lora-steps go together, and --size with them");
  if (steps &&
      (o->steps < 1 || o->steps > MAX_STEPS || o->lora_steps < 1 || o->lora_steps > MAX_STEPS))
    return cli_usage(&cli_demo, "--steps and --lora-steps must be in 1 .. %d", MAX_STEPS);
  if (o->tokens < 4 || o->tokens > 1024)
    return cli_usage(&cli_demo, "--tokens must be in 4 .. 1024, not %lld", (long long)o->tokens);
  if (o->seconds < 1)
    return cli_usage(&cli_demo, "--seconds is at least 1, not %lld", (long long)o->seconds);
  if (!(o->temperature >= 0))
    return cli_usage(&cli_demo, "--temperature is 0 or more, not %g", o->temperature);
  return CLI_DONE;
}

static int run(int argc, char** argv) {
  static demo d;
  int extra;
  int code = parse(&d.options, argc, argv, &extra);
  if (code != CLI_DONE || extra < 0) return code;
  code = cli_open_device(&d.device);
  if (code != CLI_DONE) return code;
  interrupt_watch_all();
  out_folder folder;
  hy_status status = out_folder_open(d.options.out, &folder);
  if (status == HY_OK) status = show(&d);
  bool stopped = status != HY_OK && interrupt_asked();
  if (status != HY_OK)
    code = cli_fail(status);
  else if (cli.json)
    write_json(&d);
  if (status == HY_OK)
    say("\nThe model, the adapter and the loss curve are in %s. Try:\n"
        "  halyard run --model %s/model --prompt 'hy_status hy_' --temperature 0.5\n"
        "  halyard run --model %s/model --adapter %s/adapter --prompt 'module echo_npu_' "
        "--temperature 0.5\n",
        d.options.out, d.options.out, d.options.out, d.options.out);
  hy__mfree(d.base.losses);
  hy__mfree(d.lora.losses);
  hy__dataset_free(d.code);
  hy__dataset_free(d.verilog);
  hy_model_free(d.model);
  out_folder_close(&folder, status != HY_OK);
  return stopped ? interrupt_code() : code;
}
