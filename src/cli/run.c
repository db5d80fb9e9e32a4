// halyard run: a model continues a prompt.
#include <string.h>

#include "base/json_write.h"
#include "cli/cli.h"
#include "cli/fallback_table.h"
#include "cli/model_options.h"
#include "cli/parallel.h"
#include "model/model.h"

static int run(int argc, char** argv);
const cli_command cli_run = {
    "run", "", "Let a model continue a prompt",
    "halyard run --model DIR --prompt 'Once upon a time' --max-tokens 64 --temperature 0.8\n"
    "  mpirun -n 2 halyard run --parallel tensor --model DIR --prompt 'Once upon a time'",
    run};

// What a run collects: of several ranks the first one writes.
typedef struct output {
  string_builder answer;
  bool silent;
} output;

static bool on_token(void* context, int32_t id, const char* words, size_t length) {
  output* out = context;
  (void)id;
  if (out->silent) return true;
  if (cli.json) return string_append(&out->answer, words, length);
  fwrite(words, 1, length, stdout);
  fflush(stdout);
  return true;
}

static const char* stop_name(hy_stop_reason reason) {
  switch (reason) {
    case HY_STOP_LENGTH: return "length";
    case HY_STOP_END: return "end";
    case HY_STOP_TEXT: return "stop";
    case HY_STOP_CALLER: return "interrupted";
  }
  return "?";
}

static void write_ids(json_writer* j, const char* key, const int32_t* ids, int64_t n) {
  json_begin_array(j, key);
  for (int64_t i = 0; i < n; i++) json_int(j, NULL, ids[i]);
  json_end_array(j);
}

static double rate(int64_t tokens, double seconds) {
  return seconds > 0 ? (double)tokens / seconds : 0;
}

// Bytes that this rank has loaded for all stages, and that the files have for them.
typedef struct weight_bytes {
  int64_t loaded, files;
} weight_bytes;

static weight_bytes weights_of(const hy_model* model) {
  weight_bytes sum = {0, 0};
  for (; model; model = model->next) {
    sum.loaded += model->transformer.shard.loaded_bytes;
    sum.files += model->transformer.shard.file_bytes;
  }
  return sum;
}

static void write_result(hy_device* device, const hy_model* model, const string_builder* answer,
                         const int32_t* prompt, const int32_t* ids, const hy_generate_result* r) {
  hy_memory_stats memory = {0};
  weight_bytes weights = weights_of(model);
  hy_memory_get_stats(device, &memory);
  json_writer j = json_to(stdout);
  json_begin_object(&j, NULL);
  write_ids(&j, "prompt_ids", prompt, r->prompt_tokens);
  write_ids(&j, "ids", ids, r->tokens);
  json_bytes(&j, "text", model->tokenizer ? answer->bytes : NULL, answer->length);
  json_text(&j, "stop", stop_name(r->stop));
  json_real(&j, "prefill_tok_s", rate(r->prompt_tokens, r->prefill_seconds));
  json_real(&j, "decode_tok_s", rate(r->tokens - 1, r->decode_seconds));
  json_uint(&j, "memory_peak", memory.reserved_peak);
  json_int(&j, "loaded_bytes", weights.loaded);
  json_int(&j, "file_bytes", weights.files);
  cli_write_fallbacks(&j, "fallbacks");
  json_end_object(&j);
  json_newline(&j);
}

static void print_summary(hy_device* device, const hy_model* model, const hy_generate_result* r) {
  int ranks = model->transformer.shard.size;
  weight_bytes weights = weights_of(model);
  fprintf(stderr, "\n[%lld prompt tokens at %.1f/s, %lld new at %.1f/s, on %s",
          (long long)r->prompt_tokens, rate(r->prompt_tokens, r->prefill_seconds),
          (long long)r->tokens, rate(r->tokens - 1, r->decode_seconds), hy_device_selector(device));
  if (ranks > 1)
    fprintf(stderr, "; %d ranks, of which this loaded %.1f of %.1f MB", ranks,
            1e-6 * (double)weights.loaded, 1e-6 * (double)weights.files);
  for (const hy_model* stage = model->next; stage; stage = stage->next)
    fprintf(stderr, ", layers from %lld on %s", (long long)stage->transformer.shard.layers.first,
            hy_device_selector(hy_stream_device(stage->stream)));
  fprintf(stderr, "]\n");
}

static int generate(hy_device* device, hy_model* model, const model_options* o, bool silent) {
  int32_t *prompt = NULL, *ids = NULL;
  int64_t n;
  output out = {.silent = silent};
  int code = model_prompt(&cli_run, model, o, &prompt, &n);
  if (code != CLI_DONE) return code;
  ids = malloc((size_t)o->generate.max_tokens * sizeof *ids);
  hy_generate_result result;
  hy_status status = ids && string_append(&out.answer, "", 0)
                         ? HY_OK
                         : hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens",
                                   (long long)o->generate.max_tokens);
  if (status == HY_OK)
    status = hy_model_generate(model, prompt, n, &o->generate, on_token, &out, ids, &result);
  if (status != HY_OK)
    code = cli_fail(status);
  else if (cli.json && !silent)
    write_result(device, model, &out.answer, prompt, ids, &result);
  else if (!silent)
    print_summary(device, model, &result);
  free(prompt);
  free(ids);
  free(out.answer.bytes);
  return code;
}

static int run(int argc, char** argv) {
  model_options o;
  bool report = false;
  cli_parallel parallel = {.how = NULL};
  const cli_option own[] = {
      {"report", CLI_FLAG, &report, NULL,
       "at the end, every op that fell back to the cpu, and why"},
      {"parallel", CLI_TEXT, &parallel.how, "tensor",
       "processes that mpirun started share each layer"},
      {"devices", CLI_TEXT, &parallel.device_list, "A,B,C",
       "devices that take the layers in turn, as their memory allows"},
      {"split", CLI_TEXT, &parallel.split, "4,2", "how many layers each of --devices takes"},
  };
  enum { OWN = sizeof own / sizeof own[0] };
  cli_option options[MODEL_OPTIONS + OWN];
  model_options_init(&o, options);
  memcpy(options + MODEL_OPTIONS, own, sizeof own);
  int extra;
  int code = cli_parse(&cli_run, options, MODEL_OPTIONS + OWN, argc, argv, &extra);
  if (code != CLI_DONE || extra < 0) return code;
  code = model_options_check(&cli_run, &o);
  if (code == CLI_DONE && !o.prompt == !o.ids)
    code = cli_usage(&cli_run, "give --prompt or --ids, one of them");
  hy_device* device;
  if (code == CLI_DONE) code = parallel_open(&cli_run, "tensor", &parallel, &device);
  if (code != CLI_DONE) return code;
  hy_model* model = NULL;
  hy_load_options load = model_load_options(&o);
  parallel_load_options(&parallel, &load);
  hy_status status = hy_model_load_with(device, o.folder, &load, &model);
  code = status == HY_OK ? generate(device, model, &o, parallel.rank > 0) : cli_fail(status);
  if (report && code == CLI_DONE && parallel.rank == 0) cli_print_fallbacks(stderr);
  hy_model_free(model);
  parallel_close(&parallel, code != CLI_DONE);
  return code;
}
