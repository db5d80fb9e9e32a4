// halyard ops: what runs natively, by which provider, what falls back and why.
#include <string.h>

#include "cli/cli.h"
#include "verify/json.h"

static int run(int argc, char** argv);
const cli_command cli_ops = {"ops", "",
                             "Show what a device runs natively and what falls back, op by op",
                             "halyard ops --backend cpu", run};

static void write_json(hy_device* device) {
  json j = json_to(stdout);
  json_begin_object(&j, NULL);
  json_text(&j, "backend", hy_device_backend(device));
  json_begin_array(&j, "ops");
  for (int i = 0; i < hy_op_count(); i++) {
    const hy_op_info* op = hy_op_at(i);
    json_begin_object(&j, NULL);
    json_text(&j, "op", op->name);
    json_bool(&j, "differentiable", op->differentiable);
    json_begin_object(&j, "dtypes");
    for (int d = 1; d < HY_DTYPE_COUNT; d++) {
      hy_placement placement;
      if (!(op->dtypes & HY_DTYPE_BIT(d)) ||
          hy_place_op(device, op->op, (hy_dtype)d, &placement) != HY_OK)
        continue;
      json_begin_object(&j, hy_dtype_name((hy_dtype)d));
      if (placement.provider)
        json_text(&j, "provider", placement.provider);
      else
        json_text(&j, "fallback", hy_support_text(placement.reason));
      json_end_object(&j);
    }
    json_end_object(&j);
    json_end_object(&j);
  }
  json_end_array(&j);
  json_end_object(&j);
  json_newline(&j);
}

// One line per op and provider: "add        f32 f64 f16 bf16   xeon".
static void print_op(hy_device* device, const hy_op_info* op, int* native, int* fallen) {
  const char* printed[HY_DTYPE_COUNT];
  int n_printed = 0;
  for (int d = 1; d < HY_DTYPE_COUNT; d++) {
    hy_placement placement;
    if (!(op->dtypes & HY_DTYPE_BIT(d)) ||
        hy_place_op(device, op->op, (hy_dtype)d, &placement) != HY_OK)
      continue;
    const char* where = placement.provider ? placement.provider : hy_support_text(placement.reason);
    *(placement.provider ? native : fallen) += 1;
    bool seen = false;
    for (int i = 0; i < n_printed; i++) seen = seen || printed[i] == where;
    if (seen) continue;
    printed[n_printed++] = where;
    char types[128] = "";
    for (int e = d; e < HY_DTYPE_COUNT; e++) {
      hy_placement other;
      if (!(op->dtypes & HY_DTYPE_BIT(e)) ||
          hy_place_op(device, op->op, (hy_dtype)e, &other) != HY_OK)
        continue;
      const char* there = other.provider ? other.provider : hy_support_text(other.reason);
      if (there != where) continue;
      if (types[0]) strncat(types, " ", sizeof types - strlen(types) - 1);
      strncat(types, hy_dtype_name((hy_dtype)e), sizeof types - strlen(types) - 1);
    }
    printf("%-24s %-52s %s%s\n", n_printed == 1 ? op->name : "", types,
           placement.provider ? "" : "falls back: ", where);
  }
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
  if (cli.json) {
    write_json(device);
    return CLI_DONE;
  }
  int native = 0, fallen = 0;
  printf("%-24s %-52s %s\n", "op", "types", "runs on");
  for (int i = 0; i < hy_op_count(); i++) print_op(device, hy_op_at(i), &native, &fallen);
  printf(
      "\n%s: %d ops; of their %d pairs of op and type %d run natively and %d fall back to the "
      "cpu\n",
      hy_device_selector(device), hy_op_count(), native + fallen, native, fallen);
  return CLI_DONE;
}
