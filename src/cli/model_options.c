// Command-line options that the model commands share.
#include "cli/model_options.h"

#include <string.h>

#include "model/model.h"
#include "model/sampler.h"

void model_options_init(model_options* o, cli_option* options) {
  memset(o, 0, sizeof *o);
  hy_generate_defaults(&o->generate);
  hy_generate_options* g = &o->generate;
  const cli_option all[MODEL_OPTIONS] = {
      {"model", CLI_TEXT, &o->folder, "DIR",
       "folder with config.json, *.safetensors, tokenizer.json"},
      {"adapter", CLI_TEXT, &o->adapter, "DIR", "LoRA adapter in PEFT's format"},
      {"prompt", CLI_TEXT, &o->prompt, "TEXT", "text to continue"},
      {"ids", CLI_TEXT, &o->ids, "1,2,3", "token ids to continue, in place of a text"},
      {"dtype", CLI_TEXT, &o->dtype, "f32|bf16|q8|q4",
       "how weights are kept; as in the file when not given"},
      {"cache-packed", CLI_FLAG, &o->cache_packed, NULL,
       "keep the packed weights of q8 or q4 in the folder and take them from there"},
      {"max-tokens", CLI_INT, &g->max_tokens, "N", "new tokens at most (256)"},
      {"temperature", CLI_REAL, &g->temperature, "T",
       "0 (the default) takes the likeliest token each time"},
      {"top-k", CLI_INT, &g->top_k, "K", "only the K likeliest tokens"},
      {"top-p", CLI_REAL, &g->top_p, "P", "only the likeliest tokens that together reach P"},
      {"min-p", CLI_REAL, &g->min_p, "P",
       "only tokens at least P times as likely as the likeliest"},
      {"repetition-penalty", CLI_REAL, &g->repetition_penalty, "X",
       "above 1 discourages tokens that were seen"},
      {"seed", CLI_INT, &o->seed, "S", "of the random draws (0)"},
      {"stop", CLI_TEXTS, &o->stops, "TEXT", "ends the answer; may be given several times"},
      {"ignore-end", CLI_FLAG, &g->ignore_end, NULL, "go on past the model's end of text"},
  };
  memcpy(options, all, sizeof all);
}

int model_options_check(const cli_command* command, model_options* o) {
  if (!o->folder) return cli_usage(command, "--model is needed");
  if (o->generate.max_tokens < 1 || o->generate.max_tokens > INT32_MAX)
    return cli_usage(command, "--max-tokens is at least 1 and at most %d", INT32_MAX);
  if (!hy__weight_format_named(o->dtype, &o->format))
    return cli_usage(command, "--dtype is f32, bf16, q8 or q4, not '%s'", o->dtype);
  if (o->cache_packed && o->format != HY_WEIGHTS_Q8 && o->format != HY_WEIGHTS_Q4)
    return cli_usage(command, "--cache-packed goes with --dtype q8 or q4");
  o->generate.seed = (uint64_t)o->seed;
  o->generate.stops = o->stops.list;
  o->generate.n_stops = o->stops.n;
  if (hy__sampler_check(&o->generate) != HY_OK) return cli_usage(command, "%s", hy_last_error());
  return CLI_DONE;
}

hy_load_options model_load_options(const model_options* o) {
  return (hy_load_options){
      .adapter = o->adapter, .format = o->format, .cached = o->cache_packed, .device_layout = true};
}

static int64_t parse_ids(const char* text, int32_t* ids) {
  int64_t n = 0;
  for (const char* at = text; *at;) {
    char* end;
    long value = strtol(at, &end, 10);
    if (end == at || (*end && *end != ',') || value < 0 || value > INT32_MAX) return -1;
    ids[n++] = (int32_t)value;
    at = *end ? end + 1 : end;
  }
  return n;
}

bool string_append(string_builder* t, const char* more, size_t length) {
  char* grown = realloc(t->bytes, t->length + length + 1);
  if (!grown) return false;
  t->bytes = grown;
  memcpy(grown + t->length, more, length);
  grown[t->length += length] = 0;
  return true;
}

int model_prompt(const cli_command* command, const hy_model* model, const model_options* o,
                 int32_t** ids, int64_t* n) {
  const char* words = o->ids ? o->ids : o->prompt;
  // No token is shorter than a byte, but a model may put a token before the text.
  int64_t capacity = (int64_t)strlen(words) * 3 + 16;
  *ids = malloc((size_t)capacity * sizeof **ids);
  if (!*ids) return cli_fail(hy_fail(HY_OUT_OF_MEMORY, "no memory for the prompt"));
  int code = CLI_DONE;
  hy_status status = HY_OK;
  if (o->ids) {
    *n = parse_ids(words, *ids);
    if (*n < 0)
      code = cli_usage(command, "--ids takes numbers with commas between them, not '%s'", words);
  } else {
    status = hy_model_encode(model, words, strlen(words), HY_ENCODE_DEFAULT, *ids, capacity, n);
    if (status != HY_OK) code = cli_fail(status);
  }
  if (code == CLI_DONE) return code;
  free(*ids);
  *ids = NULL;
  return code;
}
