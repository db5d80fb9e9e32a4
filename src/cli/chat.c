// halyard chat: a conversation in Qwen's chat format.
#include <string.h>
#include <unistd.h>

#include "base/json_write.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/model_options.h"
#include "model/chat.h"
#include "model/model.h"

static int run(int argc, char** argv);
const cli_command cli_chat = {"chat", "", "Talk with a model",
                              "halyard chat --model DIR --temperature 0.7", run};

static const char help[] =
    "  /reset          forget what was said\n"
    "  /system TEXT    what the model is to be; forgets what was said\n"
    "  /temperature T  0 takes the likeliest token each time\n"
    "  /help, /quit    and Ctrl-C stops an answer\n";

// All that was said, as tokens. The context keeps what the model has read of it, so that each turn
// reads only what is new.
typedef struct conversation {
  hy_model* model;
  hy_context* context;
  model_options options;
  const char* first_system;
  char system[4096];
  hy__chat_markers markers;
  hy__chat_ids ids;
  string_builder answer;  // the last one, for --json
} conversation;

// ---- what was said ----

static hy_status add_message(conversation* c, const char* role, const char* words) {
  const hy__tokenizer* tokenizer = c->model->tokenizer;
  HY_TRY(hy__chat_put_open(tokenizer, &c->markers, role, words, strlen(words), &c->ids));
  return hy__chat_put_end(tokenizer, &c->markers, &c->ids);
}

static hy_status begin(conversation* c) {
  c->ids.n = 0;
  return c->system[0] ? add_message(c, "system", c->system) : HY_OK;
}

// Forgets what was said.
static hy_status set_system(conversation* c, const char* words) {
  if (strlen(words) >= sizeof c->system)
    return hy_fail(HY_INVALID_ARGUMENT, "the system's words are longer than %zu bytes",
                   sizeof c->system - 1);
  snprintf(c->system, sizeof c->system, "%s", words);
  return begin(c);
}

// ---- answers ----

static bool on_token(void* context, int32_t id, const char* words, size_t length) {
  conversation* c = context;
  (void)id;
  if (cli.json) {
    if (!string_append(&c->answer, words, length)) return false;
  } else {
    fwrite(words, 1, length, stdout);
    fflush(stdout);
  }
  return !interrupt_asked();
}

static void print_result(const conversation* c, const hy_generate_result* r) {
  double rate = r->decode_seconds > 0 ? (double)(r->tokens - 1) / r->decode_seconds : 0;
  if (!cli.json) {
    printf("%s\n", r->stop == HY_STOP_CALLER ? " ..." : "");
    return;
  }
  json_writer j = json_to(stdout);
  json_begin_object(&j, NULL);
  json_bytes(&j, "text", c->answer.bytes ? c->answer.bytes : "", c->answer.length);
  json_int(&j, "prompt_tokens", r->prompt_tokens);
  json_int(&j, "kept_tokens", r->kept_tokens);
  json_int(&j, "tokens", r->tokens);
  json_bool(&j, "interrupted", r->stop == HY_STOP_CALLER);
  json_real(&j, "decode_tok_s", rate);
  json_end_object(&j);
  json_newline(&j);
  fflush(stdout);
}

// The user's words, the model's answer. On failure the conversation is as it was.
static hy_status answer(conversation* c, const char* words) {
  const hy__tokenizer* tokenizer = c->model->tokenizer;
  hy__chat_ids* ids = &c->ids;
  int64_t before = ids->n, positions = hy_model_max_positions(c->model);
  hy_generate_result result;
  hy_generate_options* g = &c->options.generate;
  c->answer.length = 0;
  hy_status status = add_message(c, "user", words);
  if (status == HY_OK) status = hy__chat_put_open(tokenizer, &c->markers, "assistant", "", 0, ids);
  if (status == HY_OK && g->max_tokens > positions - ids->n)
    status = hy_fail(HY_INVALID_ARGUMENT,
                     "the conversation has %lld tokens and its answer up to %lld, more than the "
                     "model's %lld positions; /reset begins a new one",
                     (long long)ids->n, (long long)g->max_tokens, (long long)positions);
  if (status == HY_OK) status = hy__chat_reserve(ids, g->max_tokens);
  interrupt_clear();
  if (status == HY_OK)
    status = hy_context_generate(c->context, ids->list, ids->n, g, on_token, c, ids->list + ids->n,
                                 &result);
  if (status == HY_OK) {
    ids->n += result.tokens;
    print_result(c, &result);
    status = hy__chat_put_end(tokenizer, &c->markers, ids);
  }
  if (status != HY_OK) ids->n = before;
  interrupt_clear();
  g->seed++;
  return status;
}

// ---- the loop ----

static hy_status obey(conversation* c, const char* line, bool* leave) {
  if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0) {
    *leave = true;
  } else if (strcmp(line, "/reset") == 0) {
    return begin(c);
  } else if (strncmp(line, "/system", 7) == 0 && (line[7] == ' ' || !line[7])) {
    return set_system(c, line[7] ? line + 8 : "");
  } else if (strncmp(line, "/temperature ", 13) == 0) {
    char* end;
    double value = strtod(line + 13, &end);
    if (end == line + 13 || *end || !(value >= 0))
      return hy_fail(HY_INVALID_ARGUMENT, "'%s' is no temperature", line + 13);
    c->options.generate.temperature = value;
  } else {
    fputs(help, stderr);
  }
  return HY_OK;
}

static hy_status talk(conversation* c) {
  bool terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && !cli.json;
  bool leave = false;
  line_editor editor = line_editor_begin(terminal);
  hy_status status = set_system(c, c->first_system ? c->first_system : "");
  if (terminal) fputs(help, stderr);
  interrupt_clear();
  while (status == HY_OK && !leave) {
    line_result result = line_editor_read(&editor, "> ");
    if (result == LINE_END) break;
    if (result == LINE_INTERRUPTED) {
      interrupt_clear();
      if (terminal) fputs("(/quit leaves)\n", stderr);
      continue;
    }
    if (!editor.line[0]) continue;
    status = editor.line[0] == '/' ? obey(c, editor.line, &leave) : answer(c, editor.line);
    // A person goes on after an error; a script does not.
    if (status != HY_OK && terminal) {
      fprintf(stderr, "%s\n", hy_last_error());
      status = HY_OK;
    }
  }
  line_editor_end(&editor);
  return status;
}

// A chat ends its answers with a token that a base model's files may not name.
static hy_status check_model(conversation* c) {
  hy_model* model = c->model;
  if (!model->tokenizer)
    return hy_fail(HY_FORMAT, "the model has no tokenizer.json, and so no " HY__CHAT_START
                              " and " HY__CHAT_END " to chat with");
  HY_TRY(hy__chat_find_markers(model->tokenizer, &c->markers));
  for (int i = 0; i < model->n_ends; i++) {
    if (model->ends[i] == c->markers.end) return HY_OK;
  }
  if (model->n_ends < HY__MAX_ENDS) model->ends[model->n_ends++] = c->markers.end;
  return HY_OK;
}

static int run(int argc, char** argv) {
  conversation c = {0};
  cli_option all[MODEL_OPTIONS], options[MODEL_OPTIONS + 1];
  int n = 0, extra;
  model_options_init(&c.options, all);
  for (int i = 0; i < MODEL_OPTIONS; i++) {
    if (strcmp(all[i].name, "prompt") != 0 && strcmp(all[i].name, "ids") != 0)
      options[n++] = all[i];
  }
  options[n++] =
      (cli_option){"system", CLI_TEXT, &c.first_system, "TEXT", "what the model is to be"};
  int code = cli_parse(&cli_chat, options, n, argc, argv, &extra);
  if (code != CLI_DONE || extra < 0) return code;
  code = model_options_check(&cli_chat, &c.options);
  hy_device* device;
  if (code == CLI_DONE) code = cli_open_device(&device);
  if (code != CLI_DONE) return code;
  const hy_load_options load = model_load_options(&c.options);
  hy_status status = hy_model_load_with(device, c.options.folder, &load, &c.model);
  if (status == HY_OK) status = check_model(&c);
  if (status == HY_OK) status = hy_context_create(c.model, &c.context);
  if (status == HY_OK) status = talk(&c);
  if (status != HY_OK) code = cli_fail(status);
  hy__mfree(c.ids.list);
  free(c.answer.bytes);
  hy_context_destroy(c.context);
  hy_model_free(c.model);
  return code;
}
