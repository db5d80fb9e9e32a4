// The table behind the capability bits.
#include "verify/capability.h"

#include <string.h>

// Behind each bit, the calls that back it: an op with one of the types in that argument. Every row
// of a claimed bit must have been declared, have run on the device and have passed. The collective
// libraries' bits stand for communicators, which have a conformance of their own.
typedef struct row {
  hy_capability capability;
  hy_op op;
  int argument;
  uint32_t dtypes;
} row;

#define BIT(dtype) HY_DTYPE_BIT(dtype)
static const row rows[] = {
    {HY_CAP_FP32, HY_OP_mm, 0, BIT(HY_F32)},
    {HY_CAP_FP32, HY_OP_add, 0, BIT(HY_F32)},
    {HY_CAP_FP64, HY_OP_mm, 0, BIT(HY_F64)},
    {HY_CAP_FP64, HY_OP_add, 0, BIT(HY_F64)},
    {HY_CAP_FP16, HY_OP_mm, 0, BIT(HY_F16)},
    {HY_CAP_FP16, HY_OP_add, 0, BIT(HY_F16)},
    {HY_CAP_BF16, HY_OP_mm, 0, BIT(HY_BF16)},
    {HY_CAP_BF16, HY_OP_add, 0, BIT(HY_BF16)},
    {HY_CAP_FP8, HY_OP_linear_quantized, 1, HY_FLOAT8S},
    {HY_CAP_INT8, HY_OP_int_mm, 0, BIT(HY_I8)},
    {HY_CAP_INT4, HY_OP_linear_quantized, 1, BIT(HY_I4)},
    {HY_CAP_SPARSE_2_4, HY_OP_linear_sparse_2_4, 0, HY_FLOATS},
    {HY_CAP_FLASH_ATTENTION, HY_OP_sdpa, 0, HY_FLOATS},
    {HY_CAP_PAGED_ATTENTION, HY_OP_paged_attention, 0, HY_FLOATS},
    {HY_CAP_FUSED_MOE, HY_OP_fused_moe, 0, HY_FLOATS},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };
_Static_assert(N_ROWS <= HY__CAPABILITY_ROWS, "the record is too small");
#define COLLECTIVES (HY_CAP_NCCL | HY_CAP_HCCL)

static const char* capability_name(uint32_t bit) {
  switch (bit) {
#define HY_AS_CASE(name, bit, key) \
  case HY_CAP_##name: return key;
    HY_CAPABILITY_MAP(HY_AS_CASE)
#undef HY_AS_CASE
  }
  return NULL;
}

void hy__capability_declared(hy__capability_record* record, const hy_device* device, hy_op op,
                             uint32_t declared) {
  for (int i = 0; i < N_ROWS; i++) {
    if (rows[i].op != op) continue;
    // The reference is the cpu's own kernel, and runs everything.
    record->declared[i] = strcmp(hy_device_backend(device), "cpu") == 0 ||
                          (rows[i].argument == 0 ? declared & rows[i].dtypes : declared) != 0;
  }
}

void hy__capability_ran(hy__capability_record* record, const hy_call* call, bool passed) {
  for (int i = 0; passed && i < call->n_in; i++) record->dtypes |= HY_DTYPE_BIT(call->in[i].dtype);
  for (int i = 0; passed && i < call->n_out; i++)
    record->dtypes |= HY_DTYPE_BIT(call->out[i].dtype);
  for (int i = 0; i < N_ROWS; i++) {
    if (rows[i].op != call->op || rows[i].argument >= call->n_in ||
        !(rows[i].dtypes & HY_DTYPE_BIT(call->in[rows[i].argument].dtype)))
      continue;
    (passed ? record->passed : record->failed)[i]++;
  }
}

// What is wrong with the claim, or NULL.
static const char* doubt(const hy__capability_record* record, int i) {
  if (!record->declared[i]) return "no provider declares it";
  if (record->failed[i]) return "calls of it failed";
  return record->passed[i] ? NULL : "no call of it ran on the device";
}

static void accuse(hy__op_verdict* v, uint32_t bit, const char* what, const char* why) {
  if (v->failed++ > 0) return;
  snprintf(v->failure, sizeof v->failure, "the device claims %s, which stands for %s: %s",
           capability_name(bit), what, why);
}

static void judge(const hy__capability_record* record, uint32_t bit, hy__op_verdict* v) {
  char what[96];
  int before = v->failed;
  v->cases++;
  if (!capability_name(bit)) {
    if (v->failed++ == 0)
      snprintf(v->failure, sizeof v->failure, "the device claims 0x%x, which is no capability",
               bit);
    return;
  }
  if (bit & COLLECTIVES && !record->communicators)
    accuse(v, bit, "communicators", "it has none, or they failed");
  for (int i = 0; i < N_ROWS && v->failed == before; i++) {
    if (rows[i].capability != bit) continue;
    const char* why = doubt(record, i);
    if (!why) continue;
    snprintf(what, sizeof what, "%s with %s as input %d", hy_op_name(rows[i].op),
             hy_dtype_name((hy_dtype)__builtin_ctz(rows[i].dtypes)), rows[i].argument);
    accuse(v, bit, what, why);
  }
  if (v->failed == before) v->passed++;
}

hy_status hy__capability_judge(const hy__capability_record* record, hy_device* device,
                               hy__op_verdict* verdict) {
  hy_device_info info;
  HY_TRY(hy_device_describe(device, &info));
  for (int bit = 0; bit < 32; bit++)
    if (info.capabilities >> bit & 1) judge(record, 1u << bit, verdict);
  for (int d = 0; d < 32; d++) {
    if (!(info.dtypes >> d & 1)) continue;
    bool known = d > HY_NONE && d < HY_DTYPE_COUNT, ran = known && record->dtypes >> d & 1;
    verdict->cases++;
    verdict->passed += ran;
    if (ran || verdict->failed++ > 0) continue;
    snprintf(verdict->failure, sizeof verdict->failure,
             "device_info claims the type %s in its dtypes, and no call with it ran on the device "
             "and passed",
             known ? hy_dtype_name((hy_dtype)d) : "of a bit that is none");
  }
  return HY_OK;
}
