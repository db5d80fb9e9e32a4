// halyard npu report: a model's packets on the ECHO NPU, and what a chip architect wants to know of
// them: cycles by unit and by op, tokens a second at a clock, other sizes of the device.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "echo_report.h"
#include "model/create.h"
#include "model/load.h"
#include "model/shapes.h"

static int run(int argc, char** argv);
const cli_command cli_npu = {
    "npu", "report ", "Show where the cycles of the ECHO NPU go when it runs a model",
    "halyard npu report --model qwen2.5-0.5b --step decode --clock 1GHz --sweep", run};

typedef struct npu_options {
  const char *model, *step, *clock, *bottom, *svg, *record;
  int64_t tokens, context;
  bool sweep, calls;
} npu_options;

static hy_status open_model(hy_device* device, const char* name, hy_model** model) {
  if (strcmp(name, "demo") == 0) {
    hy__config config = demo_config(&demo_sizes[DEMO_MEDIUM], DEMO_MERGES);
    return hy__model_create(device, &config, NULL, -1, 1, model);
  }
  if (strcmp(name, "qwen2.5-0.5b") == 0)
    return hy__model_create(device, &shape_qwen2_half_billion, NULL, -1, 1, model);
  return hy_model_load(device, name, NULL, HY_WEIGHTS_AS_FILE, model);
}

static hy_status recorded(echoNpuError error) {
  return error ? hy_fail(HY_IO, "%s", echoNpuGetLastErrorMessage()) : HY_OK;
}

static hy_status run_tokens(hy_model* model, const hy__step* step) {
  hy_scope s;
  hy_scope_begin(&s, model->tape);
  hy__model_forward(&s, model, step);
  HY_SCOPE_TRY(&s, hy_stream_sync(model->stream));
  return hy_scope_end(&s);
}

// Runs `context` tokens, then records the pass over `tokens` more.
static hy_status record_step(hy_model* model, int64_t context, int64_t tokens, const char* path) {
  const int64_t vocab = hy_model_vocab_size(model), all = context + tokens;
  int32_t* ids = malloc((size_t)all * sizeof *ids);
  hy__kv_cache* cache = NULL;
  hy__sequence sequence = {0};
  hy__sequence* sequences[] = {&sequence};
  const int32_t* next = ids;
  hy_status status =
      ids ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)all);
  for (int64_t i = 0; i < all && status == HY_OK; i++) ids[i] = (int32_t)((i * 7919 + 13) % vocab);
  if (status == HY_OK)
    status = hy__kv_cache_create(model->stream, &model->transformer.config, hy__model_dtype(model),
                                 all, &cache);
  if (status == HY_OK && context > 0)
    status = run_tokens(model, &(hy__step){cache, sequences, &next, &context, 1, NULL});
  hy_fallback_clear();
  if (status == HY_OK) status = recorded(echoNpuRecordStart(path));
  next = ids + context;
  if (status == HY_OK)
    status = run_tokens(model, &(hy__step){cache, sequences, &next, &tokens, 1, NULL});
  if (status == HY_OK) status = recorded(echoNpuRecordStop());
  hy__sequence_free(cache, &sequence);
  hy__kv_cache_destroy(cache);
  free(ids);
  return status;
}

static void print_fallbacks(void) {
  hy_fallback_entry entries[32];
  int n = hy_fallback_report(entries, 32);
  for (int i = 0; i < n && i < 32; i++)
    printf("%s%llu x %s",
           i ? ", " : "\non the host instead: ", (unsigned long long)entries[i].count,
           hy_op_name(entries[i].op));
  printf(n ? "\n" : "\nnothing fell back to the host\n");
}

static int print_report(const npu_options* o, const char* path, double clock) {
  char reason[256];
  echo_trace trace;
  echo_report report;
  const char* latency = getenv("ECHO_NPU_RAM_LATENCY");
  echo_report_options options = {.tokens = (uint64_t)o->tokens,
                                 .clock = clock,
                                 .latency = latency ? (uint32_t)atoi(latency) : 40,
                                 .sweep = o->sweep};
  snprintf(options.title, sizeof options.title, "%.40s, %s of %lld token%s, %lld before", o->model,
           o->step, (long long)o->tokens, o->tokens == 1 ? "" : "s", (long long)o->context);
  int failed = echo_trace_read(path, &trace, reason, sizeof reason);
  if (!failed) {
    failed = echo_report_make(&trace, &options, &report, reason, sizeof reason);
    echo_trace_free(&trace);
  }
  if (!failed && cli.json) echo_report_json(&report, stdout);
  if (!failed && !cli.json) {
    echo_report_text(&report, stdout);
    print_fallbacks();
  }
  if (!failed && o->svg) failed = echo_report_svg(&report, o->svg, reason, sizeof reason);
  return failed ? cli_fail(hy_fail(HY_IO, "%s", reason)) : CLI_DONE;
}

static int record_and_print(npu_options* o, double clock) {
  char temporary[] = "/tmp/halyard-npu-XXXXXX";
  hy_device* device;
  hy_model* model = NULL;
  if (!cli.backend) cli.backend = "echo";
  if (o->bottom) setenv("ECHO_NPU_BACKEND", o->bottom, 1);
  int code = cli_open_device(&device);
  if (code != CLI_DONE) return code;
  if (strncmp(hy_device_selector(device), "echo", 4) != 0)
    return cli_usage(&cli_npu, "%s is not an ECHO NPU", hy_device_selector(device));
  const char* path = o->record;
  if (!path) {
    int file = mkstemp(temporary);
    if (file < 0) return cli_fail(hy_fail(HY_IO, "no file can be made in /tmp"));
    close(file);
    path = temporary;
  }
  hy_status status = open_model(device, o->model, &model);
  if (status == HY_OK) {
    model->captures = o->calls ? HY__CAPTURES_NOT : HY__CAPTURES_FORWARD;
    status = record_step(model, o->context, o->tokens, path);
  }
  hy_model_free(model);
  code = status == HY_OK ? print_report(o, path, clock) : cli_fail(status);
  if (!o->record) unlink(temporary);
  return code;
}

static int run(int argc, char** argv) {
  npu_options o = {.model = "demo",
                   .step = "decode",
                   .clock = "1GHz",
                   .tokens = CLI_NOT_GIVEN,
                   .context = CLI_NOT_GIVEN};
  const cli_option options[] = {
      {"model", CLI_TEXT, &o.model, "demo|qwen2.5-0.5b|DIR",
       "a shape with random weights, or a folder (demo)"},
      {"step", CLI_TEXT, &o.step, "decode|prefill", "one token, or a prompt (decode)"},
      {"tokens", CLI_INT, &o.tokens, "N", "length of the prompt (128)"},
      {"context", CLI_INT, &o.context, "N", "tokens before the step (16; 0 for prefill)"},
      {"clock", CLI_TEXT, &o.clock, "HZ", "for times, such as 800MHz (1GHz)"},
      {"bottom", CLI_TEXT, &o.bottom, "cmodel|rtlmodel",
       "estimated cycles, or the Verilog's (cmodel; $ECHO_NPU_BACKEND)"},
      {"sweep", CLI_FLAG, &o.sweep, NULL, "time the same packets with other arrays and memories"},
      {"svg", CLI_TEXT, &o.svg, "FILE", "draw it too"},
      {"record", CLI_TEXT, &o.record, "FILE", "keep the packets, for echo_report"},
      {"calls", CLI_FLAG, &o.calls, NULL, "the step call by call, not as one command list"},
  };
  int extra;
  int code =
      cli_parse(&cli_npu, options, (int)(sizeof options / sizeof options[0]), argc, argv, &extra);
  if (code != CLI_DONE || extra < 0) return code;
  if (extra != 1 || strcmp(argv[0], "report") != 0)
    return cli_usage(&cli_npu, "'halyard npu report' is all there is");
  bool prefill = strcmp(o.step, "prefill") == 0;
  if (!prefill && strcmp(o.step, "decode") != 0)
    return cli_usage(&cli_npu, "--step is decode or prefill, not '%s'", o.step);
  if (o.tokens == CLI_NOT_GIVEN) o.tokens = prefill ? 128 : 1;
  if (o.context == CLI_NOT_GIVEN) o.context = prefill ? 0 : 16;
  if (o.tokens < 1 || o.tokens > 4096 || o.context < 0 || o.context > 4096)
    return cli_usage(&cli_npu, "--tokens is 1 to 4096, --context 0 to 4096");
  if (!prefill && o.tokens != 1) return cli_usage(&cli_npu, "decode is of one token");
  double clock = echo_report_clock(o.clock);
  if (clock == 0) return cli_usage(&cli_npu, "--clock is like 800MHz, not '%s'", o.clock);
  return record_and_print(&o, clock);
}
