// halyard ops: what runs natively, by which provider, what falls back and why.
#include <string.h>

#include "base/json_write.h"
#include "cli/cli.h"
#include "verify/compare.h"

static int run(int argc, char** argv);
const cli_command cli_ops = {"ops", "",
                             "Show what a device runs natively and what falls back, op by op",
                             "halyard ops --backend cpu", run};

enum {
  SEEDS = 16,      // of the calls that are asked about
  FULL_SEEDS = 4,  // of those asked about even where one runner is known
  MOST_RUNNERS = 31,
};

// What becomes of the calls of an op and type. A provider declares the types of which it runs every
// contiguous call; who runs the others is found by asking about the calls that conformance makes.
typedef struct fate {
  bool declared;
  uint32_t runners;   // those of the prober that take some calls; none: all fall back
  hy_support reason;  // why they fall back
} fate;

typedef struct prober {
  hy_device* device;
  hy_stream* stream;
  hy__case* c;
  void* memory;  // on the device
  size_t size;
  const char* runners[MOST_RUNNERS];  // providers and others that run calls, as they were met
  int n_runners;
} prober;

static uint32_t runner_bit(prober* p, const char* name) {
  int i = 0;
  while (i < p->n_runners && strcmp(p->runners[i], name) != 0) i++;
  if (i == MOST_RUNNERS) return 0;
  if (i == p->n_runners) p->runners[p->n_runners++] = name;
  return 1u << i;
}

// In the order in which they are asked: the device's providers come first.
static void list_runners(prober* p) {
  hy_provider_report report;
  for (int i = 0; hy_backend_provider_at(hy_device_backend(p->device), i, &report) == HY_OK; i++)
    runner_bit(p, report.name);
}

static hy_status make_room(prober* p) {
  if (p->c->used <= p->size) return HY_OK;
  hy_free(p->device, p->memory);
  p->memory = NULL;
  p->size = 0;
  HY_TRY(hy_alloc(p->stream, 2 * p->c->used, &p->memory));
  p->size = 2 * p->c->used;
  return HY_OK;
}

// Asks about one call, unless its type has its answer.
static hy_status ask(prober* p, const hy__case_key* key, fate* fates) {
  hy__case* c = p->c;
  hy_tensor in[HY_MAX_INPUTS], out[HY_MAX_OUTPUTS];
  hy_placement placement;
  hy_status made = hy__case_make(c, key);
  if (made == HY_NOT_FOUND || (made == HY_OK && c->expected != HY_OK)) return HY_OK;
  HY_TRY(made);
  fate* f = &fates[c->dtype];
  if (f->declared || (f->runners && key->seed >= FULL_SEEDS)) return HY_OK;
  HY_TRY(make_room(p));
  hy_call call = c->call;
  call.in = in;
  call.out = out;
  for (int i = 0; i < call.n_in; i++) in[i] = hy__rebase(c, &c->in[i], p->memory);
  for (int i = 0; i < call.n_out; i++) out[i] = hy__rebase(c, &c->out[i], p->memory);
  HY_TRY(hy_place(p->device, &call, &placement));
  if (placement.provider) f->runners |= runner_bit(p, placement.provider);
  return HY_OK;
}

static hy_status find_fates(prober* p, const hy_op_info* op, fate* fates) {
  uint32_t open = 0;
  bool undeclared = true;  // by every provider, for any type: one that runs some calls is rare
  memset(fates, 0, HY_DTYPE_COUNT * sizeof *fates);
  for (int d = 1; d < HY_DTYPE_COUNT; d++) {
    hy_placement placement;
    fate* f = &fates[d];
    if (!(op->dtypes & HY_DTYPE_BIT(d))) continue;
    HY_TRY(hy_place_op(p->device, op->op, (hy_dtype)d, &placement));
    f->reason = placement.reason;
    f->declared = placement.provider && strcmp(placement.provider, "reference") != 0;
    if (f->declared)
      f->runners = runner_bit(p, placement.provider);
    else
      open |= HY_DTYPE_BIT(d);
    undeclared = undeclared && !placement.provider && placement.reason == HY_SUPPORT_NO_OP;
  }
  for (int i = 0, n = hy__case_count(op->op); open && i < (undeclared ? 1 : SEEDS) * n; i++) {
    hy__case_key key = {.op = op->op, .seed = (uint64_t)(i / n), .index = i % n, .quick = true};
    HY_TRY(ask(p, &key, fates));
    for (int d = 1; i + 1 == FULL_SEEDS * n && d < HY_DTYPE_COUNT; d++)
      if (fates[d].runners) open &= ~HY_DTYPE_BIT(d);
  }
  return HY_OK;
}

// Whether some calls run on the device and others fall back, or by different runners.
static bool depends(const prober* p, const fate* f) {
  return f->runners && !f->declared &&
         (!hy_device_is_host(p->device) || __builtin_popcount(f->runners) > 1);
}

static void write_op(json_writer* j, const prober* p, const hy_op_info* op, const fate* fates) {
  json_begin_object(j, NULL);
  json_text(j, "op", op->name);
  json_bool(j, "differentiable", op->differentiable);
  json_begin_object(j, "dtypes");
  for (int d = 1; d < HY_DTYPE_COUNT; d++) {
    const fate* f = &fates[d];
    if (!(op->dtypes & HY_DTYPE_BIT(d))) continue;
    json_begin_object(j, hy_dtype_name((hy_dtype)d));
    if (f->runners)
      json_text(j, "provider", p->runners[__builtin_ctz(f->runners)]);
    else
      json_text(j, "fallback", hy_support_text(f->reason));
    if (depends(p, f)) {
      json_text(j, "calls", "some");
      json_begin_array(j, "providers");
      for (int i = 0; i < p->n_runners; i++)
        if (f->runners >> i & 1) json_text(j, NULL, p->runners[i]);
      json_end_array(j);
    }
    json_end_object(j);
  }
  json_end_object(j);
  json_end_object(j);
}

static bool same_fate(const fate* a, const fate* b) {
  return a->declared == b->declared && a->runners == b->runners &&
         (a->runners || a->reason == b->reason);
}

static void print_fate(const prober* p, const fate* f) {
  if (!f->runners) printf("falls back: %s", hy_support_text(f->reason));
  const char* separator = "";
  for (int i = 0; i < p->n_runners; i++) {
    if (!(f->runners >> i & 1)) continue;
    printf("%s%s", separator, p->runners[i]);
    separator = ", else ";
  }
  printf("%s\n", depends(p, f) && !hy_device_is_host(p->device) ? ", some calls" : "");
}

// One line per op and fate: "add        f32 f64 f16 bf16   xeon".
static void print_op(const prober* p, const hy_op_info* op, const fate* fates) {
  const char* name = op->name;
  uint32_t left = op->dtypes;
  for (int d = 1; d < HY_DTYPE_COUNT; d++) {
    char types[128] = "";
    for (int e = d; e < HY_DTYPE_COUNT && left & HY_DTYPE_BIT(d); e++) {
      if (!(left & HY_DTYPE_BIT(e)) || !same_fate(&fates[d], &fates[e])) continue;
      if (e > d) left &= ~HY_DTYPE_BIT(e);
      if (types[0]) strncat(types, " ", sizeof types - strlen(types) - 1);
      strncat(types, hy_dtype_name((hy_dtype)e), sizeof types - strlen(types) - 1);
    }
    if (!types[0]) continue;
    printf("%-24s %-52s ", name, types);
    print_fate(p, &fates[d]);
    name = "";
  }
}

static hy_status show(prober* p) {
  int declared = 0, some = 0, pairs = 0;
  uint32_t reference = runner_bit(p, "reference");
  json_writer j = json_to(stdout);
  if (cli.json) {
    json_begin_object(&j, NULL);
    json_text(&j, "backend", hy_device_backend(p->device));
    json_begin_array(&j, "ops");
  } else {
    printf("%-24s %-52s %s\n", "op", "types", "runs on");
  }
  for (int i = 0; i < hy_op_count(); i++) {
    const hy_op_info* op = hy_op_at(i);
    fate fates[HY_DTYPE_COUNT];
    HY_TRY(find_fates(p, op, fates));
    for (int d = 1; d < HY_DTYPE_COUNT; d++) {
      pairs += (op->dtypes & HY_DTYPE_BIT(d)) != 0;
      declared += fates[d].declared;
      some += !fates[d].declared && fates[d].runners & ~reference;
    }
    if (cli.json)
      write_op(&j, p, op, fates);
    else
      print_op(p, op, fates);
  }
  if (cli.json) {
    json_end_array(&j);
    json_end_object(&j);
    json_newline(&j);
  } else {
    printf(
        "\n%s: %d ops; of their %d pairs of op and type %d run natively, %d for some calls, and %d "
        "%s\n",
        hy_device_selector(p->device), hy_op_count(), pairs, declared, some,
        pairs - declared - some,
        hy_device_is_host(p->device) ? "by the reference alone" : "fall back to the cpu");
  }
  return HY_OK;
}

static void print_arguments(const hy_argument* arguments, int n) {
  for (int i = 0; i < n; i++) {
    const char* mark = arguments[i].kind == HY_ARGUMENT_OPTIONAL ? "?"
                       : arguments[i].kind == HY_ARGUMENT_LIST   ? "..."
                                                                 : "";
    printf("%s%s%s", i ? ", " : "", arguments[i].name, mark);
  }
}

// The op table as a page: docs/ops.md.
static void print_markdown(void) {
  printf(
      "# The operators\n\nWritten by `halyard ops --markdown` from the op table; `make docs` "
      "renews it. `?` marks an "
      "optional tensor, `...` a\nlist. Types are those of the first tensor; floats are f32, f64, "
      "f16 and bf16, ints i8, "
      "i16, i32, i64 and u8.\n\n| op | inputs | outputs | attributes | types | gradient "
      "|\n|---|---|---|---|---|---|\n");
  for (int i = 0; i < hy_op_count(); i++) {
    const hy_op_info* op = hy_op_at(i);
    printf("| %s | ", op->name);
    print_arguments(op->inputs, op->n_inputs);
    printf(" | ");
    print_arguments(op->outputs, op->n_outputs);
    printf(" | ");
    for (int a = 0; a < op->n_attrs; a++) printf("%s%s", a ? ", " : "", op->attrs[a].name);
    printf(" |");
    uint32_t rest = op->dtypes;
    if ((rest & HY_FLOATS) == HY_FLOATS) printf(" floats"), rest &= ~(uint32_t)HY_FLOATS;
    if ((rest & HY_INTS) == HY_INTS) printf(" ints"), rest &= ~(uint32_t)HY_INTS;
    for (int d = 1; d < HY_DTYPE_COUNT; d++) {
      if (rest & HY_DTYPE_BIT(d)) printf(" %s", hy_dtype_name((hy_dtype)d));
    }
    printf(" | %s |\n", op->differentiable ? "yes" : "");
  }
}

static int run(int argc, char** argv) {
  int extra;
  bool markdown = false;
  const cli_option options[] = {
      {"markdown", CLI_FLAG, &markdown, NULL, "print the op table as a page, whatever the device"},
  };
  int code = cli_parse(&cli_ops, options, 1, argc, argv, &extra);
  if (code != CLI_DONE || extra < 0) return code;
  if (markdown) {
    print_markdown();
    return CLI_DONE;
  }
  hy_device* device;
  code = cli_open_device(&device);
  if (code != CLI_DONE) return code;
  prober p = {.device = device};
  hy_status status = hy__case_create(&p.c);
  if (status == HY_OK) status = hy_stream_create(device, &p.stream);
  list_runners(&p);
  if (status == HY_OK) status = show(&p);
  hy_free(device, p.memory);
  hy_stream_destroy(p.stream);
  hy__case_destroy(p.c);
  return status == HY_OK ? CLI_DONE : cli_fail(status);
}
