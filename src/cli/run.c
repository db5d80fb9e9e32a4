// halyard run: a model continues a prompt.
#include <string.h>

#include "base/json_write.h"
#include "cli/cli.h"
#include "cli/fallback_table.h"
#include "cli/model_options.h"
#include "model/model.h"

static int run(int argc, char** argv);
const cli_command cli_run = {
    "run", "", "Let a model continue a prompt",
    "halyard run --model DIR --prompt 'Once upon a time' --max-tokens 64 --temperature 0.8", run};

static bool on_token(void* context, int32_t id, const char* words, size_t length) {
  (void)id;
  if (cli.json) return string_append(context, words, length);
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

static void write_result(hy_device* device, const hy_model* model, const string_builder* answer,
                         const int32_t* prompt, const int32_t* ids, const hy_generate_result* r) {
  hy_memory_stats memory = {0};
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
  cli_write_fallbacks(&j, "fallbacks");
  json_end_object(&j);
  json_newline(&j);
}

static int generate(hy_device* device, hy_model* model, const model_options* o) {
  int32_t *prompt = NULL, *ids = NULL;
  int64_t n;
  string_builder answer = {0};
  int code = model_prompt(&cli_run, model, o, &prompt, &n);
  if (code != CLI_DONE) return code;
  ids = malloc((size_t)o->generate.max_tokens * sizeof *ids);
  hy_generate_result result;
  hy_status status = ids && string_append(&answer, "", 0)
                         ? HY_OK
                         : hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens",
                                   (long long)o->generate.max_tokens);
  if (status == HY_OK)
    status = hy_model_generate(model, prompt, n, &o->generate, on_token, &answer, ids, &result);
  if (status != HY_OK)
    code = cli_fail(status);
  else if (cli.json)
    write_result(device, model, &answer, prompt, ids, &result);
  else
    fprintf(stderr, "\n[%lld prompt tokens at %.1f/s, %lld new at %.1f/s, on %s]\n",
            (long long)result.prompt_tokens, rate(result.prompt_tokens, result.prefill_seconds),
            (long long)result.tokens, rate(result.tokens - 1, result.decode_seconds),
            hy_device_selector(device));
  free(prompt);
  free(ids);
  free(answer.bytes);
  return code;
}

static int run(int argc, char** argv) {
  model_options o;
  bool report = false;
  cli_option options[MODEL_OPTIONS + 1];
  model_options_init(&o, options);
  options[MODEL_OPTIONS] = (cli_option){"report", CLI_FLAG, &report, NULL,
                                        "at the end, every op that fell back to the cpu, and why"};
  int extra;
  int code = cli_parse(&cli_run, options, MODEL_OPTIONS + 1, argc, argv, &extra);
  if (code != CLI_DONE || extra < 0) return code;
  code = model_options_check(&cli_run, &o);
  if (code == CLI_DONE && !o.prompt == !o.ids)
    code = cli_usage(&cli_run, "give --prompt or --ids, one of them");
  hy_device* device;
  if (code == CLI_DONE) code = cli_open_device(&device);
  if (code != CLI_DONE) return code;
  hy_model* model;
  hy_status status = model_load(device, &o, &model);
  if (status != HY_OK) return cli_fail(status);
  code = generate(device, model, &o);
  if (report && code == CLI_DONE) cli_print_fallbacks(stderr);
  hy_model_free(model);
  return code;
}
