// halyard graph: a model's step as a graph, printed or drawn, before or after the passes.
#include <string.h>

#include "base/json_write.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "model/step_graph.h"

static int run(int argc, char** argv);
const cli_command cli_graph = {"graph", "",
                               "Show a model's step as a graph: text, SVG, DOT, a file",
                               "halyard graph --model DIR --step decode --svg step.svg", run};

typedef struct graph_options {
  const char *folder, *step, *svg, *dot, *save;
  int64_t tokens, seconds;
  bool plain, optimize;
} graph_options;

static const char* const pass_names[HY_GRAPH_PASSES] = {
    "fold", "views", "common", "dead", "epilogue", "recompute", "fuse", "order", "in place"};

static hy_status print_text(const hy_graph* graph) {
  size_t size = hy_graph_describe(graph, NULL, 0) + 1;
  char* text = hy__malloc(size);
  if (!text) return hy_fail(HY_OUT_OF_MEMORY, "no memory for the text of a graph");
  hy_graph_describe(graph, text, size);
  fputs(text, stdout);
  hy__mfree(text);
  return HY_OK;
}

static void print_report(const hy_graph_report* r) {
  if (cli.json) {
    json_writer j = json_to(stdout);
    json_begin_object(&j, NULL);
    json_int(&j, "nodes_before", r->nodes_before);
    json_int(&j, "nodes_after", r->nodes_after);
    json_uint(&j, "allocated_before", r->allocated_before);
    json_uint(&j, "memory_after", r->memory_after);
    json_uint(&j, "lower_bound", r->lower_bound);
    json_begin_object(&j, "changes");
    for (int i = 0; i < HY_GRAPH_PASSES; i++) json_int(&j, pass_names[i], r->changes[i]);
    json_end_object(&j);
    json_end_object(&j);
    json_newline(&j);
    return;
  }
  printf("%d nodes, %d after the passes:", r->nodes_before, r->nodes_after);
  for (int i = 0; i < HY_GRAPH_PASSES; i++) {
    if (r->changes[i]) printf(" %s %d", pass_names[i], r->changes[i]);
  }
  printf("\n%.3f MB of values by calls, %.3f MB planned, %.3f MB alive at most\n",
         1e-6 * (double)r->allocated_before, 1e-6 * (double)r->memory_after,
         1e-6 * (double)r->lower_bound);
}

static void print_search(const hy_optimize_report* r) {
  print_report(&r->passes);
  if (cli.json) return;
  if (r->seconds_before == 0) {
    printf("no search: results are to be deterministic, or there are no seconds for it\n");
    return;
  }
  printf("%s: %s; %.1f us a launch, %.1f us by the passes alone (%.2fx)\n",
         r->cached ? "found before" : "found", r->choices[0] ? r->choices : "nothing better",
         1e6 * r->seconds_after, 1e6 * r->seconds_before, r->seconds_before / r->seconds_after);
  if (!r->cached)
    printf("%d candidates, %d with other values, %d timed\n", r->candidates, r->refused, r->timed);
}

static hy_status show(const graph_options* o, hy_graph* graph) {
  if (o->save) HY_TRY(hy_graph_save(graph, o->save));
  if (o->optimize) {
    hy_optimize_report report;
    HY_TRY(hy_graph_optimize(graph, (double)o->seconds, &report));
    print_search(&report);
  } else if (!o->plain) {
    hy_graph_report report;
    HY_TRY(hy_graph_run_passes(graph, HY_PASS_ALL, &report));
    print_report(&report);
  }
  if (o->svg) HY_TRY(hy_graph_write_svg(graph, o->svg));
  if (o->dot) HY_TRY(hy_graph_write_dot(graph, o->dot));
  return o->svg || o->dot || o->save || cli.json ? HY_OK : print_text(graph);
}

// What a search measures: the last token of the context, or the prompt.
static hy_status begin_step(hy__step_graph* step, const graph_options* o, bool decode) {
  int32_t* ids = hy__calloc((size_t)o->tokens, sizeof *ids);
  if (!ids) return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)o->tokens);
  hy_status status = hy__step_graph_begin(step, decode ? o->tokens - 1 : 0, ids);
  hy__mfree(ids);
  return status;
}

static hy_status run_graph(hy_device* device, const graph_options* o, bool decode) {
  hy_model* model;
  hy__step_graph* step;
  hy_generate_options options;
  hy_generate_defaults(&options);
  HY_TRY(hy_model_load(device, o->folder, NULL, HY_WEIGHTS_AS_FILE, &model));
  int64_t tokens = decode ? 1 : o->tokens;
  hy_status status =
      hy__step_graph_create(model, tokens, o->tokens < 1 ? 1 : o->tokens, &options, &step);
  if (status == HY_OK) {
    if (o->optimize) status = begin_step(step, o, decode);
    if (status == HY_OK && o->optimize) status = hy__step_graph_fix_weights(step);
    if (status == HY_OK) status = show(o, hy__step_graph_get(step));
    hy__step_graph_destroy(step);
  }
  hy_model_free(model);
  return status;
}

static int run(int argc, char** argv) {
  int n;
  graph_options o = {.step = "decode", .tokens = 128, .seconds = 10};
  const cli_option options[] = {
      {"model", CLI_TEXT, &o.folder, "DIR", "the model's folder"},
      {"step", CLI_TEXT, &o.step, "decode|prefill", "which step (decode)"},
      {"tokens", CLI_INT, &o.tokens, "N", "of the context, or of the prompt (128)"},
      {"plain", CLI_FLAG, &o.plain, NULL, "as captured, without passes"},
      {"optimize", CLI_FLAG, &o.optimize, NULL,
       "search among equivalent graphs, and keep the best"},
      {"seconds", CLI_INT, &o.seconds, "N", "for how long to search (10)"},
      {"svg", CLI_TEXT, &o.svg, "FILE", "draw it"},
      {"dot", CLI_TEXT, &o.dot, "FILE", "write it for Graphviz"},
      {"save", CLI_TEXT, &o.save, "FILE", "save it as captured, for hy_graph_load"},
  };
  int code =
      cli_parse(&cli_graph, options, (int)(sizeof options / sizeof options[0]), argc, argv, &n);
  if (code != CLI_DONE || n < 0) return code;
  if (n > 0) return cli_usage(&cli_graph, "takes no arguments, and got '%s'", argv[0]);
  if (!o.folder) return cli_usage(&cli_graph, "which model? --model DIR");
  bool decode = strcmp(o.step, "decode") == 0;
  if (!decode && strcmp(o.step, "prefill") != 0)
    return cli_usage(&cli_graph, "--step is decode or prefill, not '%s'", o.step);
  if (o.tokens < 1) return cli_usage(&cli_graph, "--tokens is at least 1");
  if (o.seconds < 0) return cli_usage(&cli_graph, "--seconds is at least 0");
  if (o.plain && o.optimize) return cli_usage(&cli_graph, "--plain is without --optimize");
  hy_device* device;
  code = cli_open_device(&device);
  if (code != CLI_DONE) return code;
  hy_status status = run_graph(device, &o, decode);
  return status == HY_OK ? CLI_DONE : cli_fail(status);
}
