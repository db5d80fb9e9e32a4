// halyard ops: what runs natively, by which provider, what falls back and why.
#include <string.h>

#include "cli/cli.h"
#include "verify/compare.h"
#include "verify/json.h"

static int run(int argc, char** argv);
const cli_command cli_ops = {"ops", "",
                             "Show what a device runs natively and what falls back, op by op",
                             "halyard ops --backend cpu", run};

// Types of an op by what becomes of their calls. A provider declares the types of which it runs
// every contiguous call; of others it may run some, and which is found by asking it about the calls
// that conformance makes.
typedef struct reach {
  uint32_t all, some;
  const char* provider[HY_DTYPE_COUNT];
  hy_support reason[HY_DTYPE_COUNT];
} reach;

enum { SEEDS = 16 };  // of the calls that are asked about

typedef struct prober {
  hy_device* device;
  hy_stream* stream;
  hy__case* c;
  void* memory;  // on the device
  size_t size;
} prober;

static hy_status make_room(prober* p) {
  if (p->c->used <= p->size) return HY_OK;
  hy_free(p->device, p->memory);
  p->memory = NULL;
  p->size = 0;
  HY_TRY(hy_alloc(p->stream, 2 * p->c->used, &p->memory));
  p->size = 2 * p->c->used;
  return HY_OK;
}

// Asks about one call.
static hy_status ask(prober* p, const hy__case_key* key, reach* r) {
  hy__case* c = p->c;
  hy_tensor in[HY_MAX_INPUTS], out[HY_MAX_OUTPUTS];
  hy_placement placement;
  hy_status made = hy__case_make(c, key);
  if (made == HY_NOT_FOUND || (made == HY_OK && c->expected != HY_OK)) return HY_OK;
  HY_TRY(made);
  if (r->all & HY_DTYPE_BIT(c->dtype) || r->some & HY_DTYPE_BIT(c->dtype)) return HY_OK;
  HY_TRY(make_room(p));
  hy_call call = c->call;
  call.in = in;
  call.out = out;
  for (int i = 0; i < call.n_in; i++) in[i] = hy__rebase(c, &c->in[i], p->memory);
  for (int i = 0; i < call.n_out; i++) out[i] = hy__rebase(c, &c->out[i], p->memory);
  HY_TRY(hy_place(p->device, &call, &placement));
  if (!placement.provider) return HY_OK;
  r->some |= HY_DTYPE_BIT(c->dtype);
  r->provider[c->dtype] = placement.provider;
  return HY_OK;
}

static hy_status find_reach(prober* p, const hy_op_info* op, reach* r) {
  bool open = false;
  memset(r, 0, sizeof *r);
  for (int d = 1; d < HY_DTYPE_COUNT; d++) {
    hy_placement placement;
    if (!(op->dtypes & HY_DTYPE_BIT(d))) continue;
    HY_TRY(hy_place_op(p->device, op->op, (hy_dtype)d, &placement));
    r->provider[d] = placement.provider;
    r->reason[d] = placement.reason;
    if (placement.provider) r->all |= HY_DTYPE_BIT(d);
    open = open || (!placement.provider && placement.reason == HY_SUPPORT_NO_DTYPE);
  }
  for (int i = 0, n = hy__case_count(op->op); open && i < SEEDS * n; i++) {
    hy__case_key key = {.op = op->op, .seed = (uint64_t)(i / n), .index = i % n, .quick = true};
    HY_TRY(ask(p, &key, r));
  }
  return HY_OK;
}

static void write_op(json* j, const hy_op_info* op, const reach* r) {
  json_begin_object(j, NULL);
  json_text(j, "op", op->name);
  json_bool(j, "differentiable", op->differentiable);
  json_begin_object(j, "dtypes");
  for (int d = 1; d < HY_DTYPE_COUNT; d++) {
    if (!(op->dtypes & HY_DTYPE_BIT(d))) continue;
    json_begin_object(j, hy_dtype_name((hy_dtype)d));
    if (r->provider[d])
      json_text(j, "provider", r->provider[d]);
    else
      json_text(j, "fallback", hy_support_text(r->reason[d]));
    if (r->some & HY_DTYPE_BIT(d)) json_text(j, "calls", "some");
    json_end_object(j);
  }
  json_end_object(j);
  json_end_object(j);
}

static bool same_fate(const reach* r, int d, int e) {
  return ((r->some >> d ^ r->some >> e) & 1) == 0 &&
         (r->provider[d] ? r->provider[d] == r->provider[e]
                         : !r->provider[e] && r->reason[d] == r->reason[e]);
}

// One line per op and fate: "add        f32 f64 f16 bf16   xeon".
static void print_op(const hy_op_info* op, const reach* r) {
  const char* name = op->name;
  uint32_t left = op->dtypes;
  for (int d = 1; d < HY_DTYPE_COUNT; d++) {
    char types[128] = "";
    for (int e = d; e < HY_DTYPE_COUNT && left & HY_DTYPE_BIT(d); e++) {
      if (!(left & HY_DTYPE_BIT(e)) || !same_fate(r, d, e)) continue;
      if (e > d) left &= ~HY_DTYPE_BIT(e);
      if (types[0]) strncat(types, " ", sizeof types - strlen(types) - 1);
      strncat(types, hy_dtype_name((hy_dtype)e), sizeof types - strlen(types) - 1);
    }
    if (!types[0]) continue;
    printf("%-24s %-52s %s%s%s\n", name, types, r->provider[d] ? "" : "falls back: ",
           r->provider[d] ? r->provider[d] : hy_support_text(r->reason[d]),
           r->some & HY_DTYPE_BIT(d) ? ", some calls" : "");
    name = "";
  }
}

static hy_status show(prober* p) {
  int all = 0, some = 0, pairs = 0;
  json j = json_to(stdout);
  if (cli.json) {
    json_begin_object(&j, NULL);
    json_text(&j, "backend", hy_device_backend(p->device));
    json_begin_array(&j, "ops");
  } else {
    printf("%-24s %-52s %s\n", "op", "types", "runs on");
  }
  for (int i = 0; i < hy_op_count(); i++) {
    const hy_op_info* op = hy_op_at(i);
    reach r;
    HY_TRY(find_reach(p, op, &r));
    all += __builtin_popcount(r.all);
    some += __builtin_popcount(r.some);
    pairs += __builtin_popcount(op->dtypes);
    if (cli.json)
      write_op(&j, op, &r);
    else
      print_op(op, &r);
  }
  if (cli.json) {
    json_end_array(&j);
    json_end_object(&j);
    json_newline(&j);
  } else {
    printf(
        "\n%s: %d ops; of their %d pairs of op and type %d run natively, %d for some calls, and %d "
        "fall back to the cpu\n",
        hy_device_selector(p->device), hy_op_count(), pairs, all, some, pairs - all - some);
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
  if (status == HY_OK) status = show(&p);
  hy_free(device, p.memory);
  hy_stream_destroy(p.stream);
  hy__case_destroy(p.c);
  return status == HY_OK ? CLI_DONE : cli_fail(status);
}
