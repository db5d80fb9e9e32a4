// Kernels: every op of the table, by the library's reference on the worker thread.
#include <stdlib.h>
#include <string.h>

#include "guarded.h"

hy_op guarded_failing_op;
char guarded_ends[HY_OP_END];

static const struct {
  const char* name;
  hy_declaration declaration;
} table[] = {
#define HY_OP(id, name, outputs, inputs, attrs, dtypes, ...) {#name, {HY_OP_##name, dtypes}},
#include "halyard/ops.def"
};
enum { N_OPS = sizeof table / sizeof *table };

static hy_declaration declared[N_OPS];
static uint32_t dtypes_of[HY_OP_END];  // by op; 0: there is no kernel

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  if (call->op <= HY_OP_NONE || call->op >= HY_OP_END || !dtypes_of[call->op]) {
    return HY_SUPPORT_NO_OP;
  }
  const hy_tensor* first = call->n_in ? &call->in[0] : &call->out[0];
  return dtypes_of[call->op] & HY_DTYPE_BIT(first->dtype) ? HY_SUPPORT_YES : HY_SUPPORT_NO_DTYPE;
}

// Makes the tensor's data a pointer into the store.
static hy_status localize(guarded_device* device, hy_tensor* t) {
  if (hy_tensor_is_absent(t)) return HY_OK;
  int64_t first, last;
  hy_tensor_extent(t, &first, &last);
  if (first == last) return HY_OK;
  char* bytes;
  HY_TRY(guarded_memory_reach(&device->memory, (char*)t->data + first, (size_t)(last - first),
                              &bytes));
  t->data = bytes - first;
  return HY_OK;
}

hy_status guarded_localize(guarded_device* device, hy_tensor* tensors, int n) {
  for (int i = 0; i < n; i++) HY_TRY(localize(device, &tensors[i]));
  return HY_OK;
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  guarded_graph* graph = guarded_queue_capturing(stream);
  if (graph) {
    return guarded_graph_add(graph, &(hy_graph_node){.kind = HY_NODE_CALL, .call = call});
  }
  hy_tensor in[HY_MAX_INPUTS], out[HY_MAX_OUTPUTS];
  if (call->n_in > HY_MAX_INPUTS || call->n_out > HY_MAX_OUTPUTS) {
    return guarded_host->fail(HY_INVALID_ARGUMENT, "guarded: too many tensors");
  }
  for (int i = 0; i < call->n_in; i++) in[i] = call->in[i];
  for (int i = 0; i < call->n_out; i++) out[i] = call->out[i];
  HY_TRY(guarded_localize(device, in, call->n_in));
  HY_TRY(guarded_localize(device, out, call->n_out));
  hy_call local = *call;
  local.in = in;
  local.out = out;
  return guarded_push_call(stream, &local);
}

hy_provider guarded_provider = {
    .size = sizeof(hy_provider),
    .name = "guarded",
    .version = "1",
    .declares = declared,
    .supports = supports,
    .run = run,
};

static int find_op(const char* name, size_t length) {
  for (int i = 0; i < N_OPS; i++) {
    if (strlen(table[i].name) == length && strncmp(table[i].name, name, length) == 0) return i;
  }
  return -1;
}

static hy_status unknown_op(const char* variable, const char* name, size_t length) {
  return guarded_host->fail(HY_INVALID_ARGUMENT, "%s: \"%.*s\" is no op", variable, (int)length,
                            name);
}

static void declare(int i) {
  hy_declaration d = table[i].declaration;
  if (dtypes_of[d.op]) return;
  dtypes_of[d.op] = d.dtypes;
  declared[guarded_provider.n_declares++] = d;
}

// "exp:crash,tanh:hang,sin:exit"
static hy_status read_ends(void) {
  const char* text = getenv("HALYARD_GUARDED_END");
  memset(guarded_ends, 0, sizeof guarded_ends);
  while (text && *text) {
    size_t whole = strcspn(text, ","), length = strcspn(text, ":,");
    int i = find_op(text, length);
    if (i < 0 || length + 1 >= whole) return unknown_op("HALYARD_GUARDED_END", text, whole);
    guarded_ends[table[i].declaration.op] = text[length + 1];
    text += whole + (text[whole] == ',');
  }
  return HY_OK;
}

hy_status guarded_kernels_init(void) {
  memset(dtypes_of, 0, sizeof dtypes_of);
  guarded_provider.n_declares = 0;
  const char* ops = getenv("HALYARD_GUARDED_OPS");
  if (!ops) {
    for (int i = 0; i < N_OPS; i++) declare(i);
  }
  while (ops && *ops) {
    size_t length = strcspn(ops, ",");
    int i = find_op(ops, length);
    if (i < 0) return unknown_op("HALYARD_GUARDED_OPS", ops, length);
    declare(i);
    ops += length + (ops[length] == ',');
  }
  const char* failing = getenv("HALYARD_GUARDED_FAIL");
  guarded_failing_op = HY_OP_NONE;
  if (failing && *failing) {
    int i = find_op(failing, strlen(failing));
    if (i < 0) return unknown_op("HALYARD_GUARDED_FAIL", failing, strlen(failing));
    guarded_failing_op = table[i].declaration.op;
  }
  return read_ends();
}

uint32_t guarded_dtypes(void) {
  uint32_t dtypes = 0;
  bool all = guarded_provider.n_declares == N_OPS;
  for (int i = 0; i < HY_OP_END; i++) dtypes |= dtypes_of[i];
  return all ? HY_ALL_DTYPES | HY_FLOAT8S | HY_DTYPE_BIT(HY_I4) : dtypes;
}

uint32_t guarded_capabilities(void) {
  uint32_t capabilities = 0;
  if (dtypes_of[HY_OP_mm] && dtypes_of[HY_OP_add])
    capabilities |= HY_CAP_FP32 | HY_CAP_FP64 | HY_CAP_FP16 | HY_CAP_BF16;
  if (dtypes_of[HY_OP_int_mm]) capabilities |= HY_CAP_INT8;
  if (dtypes_of[HY_OP_linear_quantized]) capabilities |= HY_CAP_INT4 | HY_CAP_FP8;
  if (dtypes_of[HY_OP_linear_sparse_2_4]) capabilities |= HY_CAP_SPARSE_2_4;
  if (dtypes_of[HY_OP_paged_attention]) capabilities |= HY_CAP_PAGED_ATTENTION;
  if (dtypes_of[HY_OP_fused_moe]) capabilities |= HY_CAP_FUSED_MOE;
  return capabilities;
}
