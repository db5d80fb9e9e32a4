// libopapi.so for tests: the two phases of every aclnn op. Phase 1 looks at the handles, copies
// what they hold, checks it and names a workspace; phase 2 takes the executor, once, with that
// workspace, on a stream of the current device. The worker fills the workspace with rubbish before
// it computes, so that memory given away twice is seen.
#include "aclnn.h"

#include <stdlib.h>
#include <string.h>

#include "mutation.h"
#include "ops/internal.h"

#define FLOATS (HY_DTYPE_BIT(HY_F32) | HALVES)
#define HALVES (HY_DTYPE_BIT(HY_F16) | HY_DTYPE_BIT(HY_BF16))
#define DOUBLES HY_DTYPE_BIT(HY_F64)
#define INTS HY_INTS
#define BOOLS HY_BOOLS
#define QUANTISED (HY_DTYPE_BIT(HY_I8) | HY_DTYPE_BIT(HY_I4))

struct aclOpExecutor {
  job* job;
  uint64_t workspace;
};

// ---- arguments ----

static int at(const job* j, int i) {
  return i < 0 ? j->n + i : i;
}

hy_tensor job_tensor(const job* j, int i) {
  i = at(j, i);
  hy_tensor t = hy_tensor_absent();
  if (j->args[i].count) memcpy(&t, j->pool + j->args[i].at, sizeof t);
  return t;
}

const hy_tensor* job_list(const job* j, int i, int* n) {
  i = at(j, i);
  *n = (int)j->args[i].count;
  return (const hy_tensor*)(j->pool + j->args[i].at);
}

const int64_t* job_ints(const job* j, int i, int* n) {
  i = at(j, i);
  *n = (int)j->args[i].integer;
  return j->args[i].count ? (const int64_t*)(j->pool + j->args[i].at) : NULL;
}

hy_scalar job_scalar(const job* j, int i) {
  i = at(j, i);
  hy_scalar s = hy_no_scalar();
  if (j->args[i].count) memcpy(&s, j->pool + j->args[i].at, sizeof s);
  return s;
}

const char* job_text(const job* j, int i) {
  i = at(j, i);
  return j->args[i].count ? j->pool + j->args[i].at : "";
}

int64_t job_integer(const job* j, int i) {
  return j->args[at(j, i)].integer;
}

double job_real(const job* j, int i) {
  return j->args[at(j, i)].real;
}

// ---- the reference ----

int job_reference_of(const job* j, bool check, hy_op op, int n_in, const hy_tensor* in, int n_out,
                     hy_tensor* out, hy_attrs attrs) {
  hy_call call = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
  hy_status status = check ? hy__check_call(&call) : hy__reference(&call);
  if (status == HY_OK) return ACL_SUCCESS;
  vendor_misuse("aclnn%s: %s", j->row->name, hy_last_error());
  return check ? ACLNN_ERR_PARAM_INVALID : ACL_ERROR_RT_AICORE_EXCEPTION;
}

int job_reference(const job* j, bool check, int n_in, const hy_tensor* in, int n_out,
                  hy_tensor* out, hy_attrs attrs) {
  return job_reference_of(j, check, j->row->op, n_in, in, n_out, out, attrs);
}

// ---- phase 1 ----

static const struct {
  char kind;
  bool may_be_absent;
  const char* handle;
} kinds[] = {
    {'T', false, "tensor"},   {'O', true, "tensor"},      {'L', false, "tensor list"},
    {'S', false, "scalar"},   {'Z', true, "scalar"},      {'A', false, "int array"},
    {'P', true, "int array"}, {'M', false, "bool array"}, {'X', false, "text"},
};

static void put(job* j, int i, const void* bytes, size_t size, uint32_t count) {
  j->args[i].at = (uint32_t)(j->bytes - sizeof *j);
  j->args[i].count = count;
  if (size) memcpy((char*)j + j->bytes, bytes, size);
  j->bytes += (size + 15) / 16 * 16;
}

static size_t room_of(const argument* a) {
  if (!a->pointer) return 0;
  switch (a->kind) {
    case 'T':
    case 'O': return sizeof(hy_tensor);
    case 'L': return ((const aclTensorList*)a->pointer)->n * sizeof(hy_tensor);
    case 'S':
    case 'Z': return sizeof(hy_scalar);
    case 'A':
    case 'P': return ((const aclIntArray*)a->pointer)->n * sizeof(int64_t) + 8;
    case 'M': return ((const aclBoolArray*)a->pointer)->n * sizeof(int64_t);
    case 'X': return strlen(a->pointer) + 1;
    default: return 0;
  }
}

static void put_argument(job* j, int i, const argument* a) {
  j->args[i].kind = a->kind;
  j->args[i].integer = a->integer;
  j->args[i].real = a->real;
  if (!a->pointer) return;
  switch (a->kind) {
    case 'T':
    case 'O': put(j, i, &((const aclTensor*)a->pointer)->view, sizeof(hy_tensor), 1); break;
    case 'L': {
      const aclTensorList* list = a->pointer;
      hy_tensor tensors[MAX_LIST];
      for (uint64_t k = 0; k < list->n; k++) tensors[k] = list->tensors[k]->view;
      put(j, i, tensors, list->n * sizeof *tensors, (uint32_t)list->n);
      break;
    }
    case 'S':
    case 'Z': put(j, i, &((const aclScalar*)a->pointer)->value, sizeof(hy_scalar), 1); break;
    case 'A':
    case 'P': {
      const aclIntArray* array = a->pointer;
      put(j, i, array->values, array->n * sizeof(int64_t), 1);
      j->args[i].integer = (int64_t)array->n;
      break;
    }
    case 'M': {
      const aclBoolArray* array = a->pointer;
      int64_t wide[8] = {0};
      for (uint64_t k = 0; k < array->n && k < 8; k++) wide[k] = array->values[k];
      put(j, i, wide, sizeof wide, 1);
      j->args[i].integer = (int64_t)array->n;
      break;
    }
    default: put(j, i, a->pointer, strlen(a->pointer) + 1, 1);
  }
}

static int check_handles(const aclnn_row* row, const argument* args, int n) {
  for (int i = 0; i < n; i++) {
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
      if (kinds[k].kind != args[i].kind) continue;
      if (!args[i].pointer) {
        DEMAND(kinds[k].may_be_absent, ACLNN_ERR_PARAM_NULLPTR,
               "aclnn%s: argument %d, a %s, is NULL", row->name, i, kinds[k].handle);
        continue;
      }
      if (args[i].kind == 'X') continue;
      RULE(vendor_alive(args[i].pointer, kinds[k].handle), "aclnn%s: argument %d is no %s",
           row->name, i, kinds[k].handle);
      if (args[i].kind != 'L') continue;
      const aclTensorList* list = args[i].pointer;
      for (uint64_t t = 0; t < list->n; t++)
        RULE(vendor_alive(list->tensors[t], "tensor"), "aclnn%s: a tensor of a list is no more",
             row->name);
    }
  }
  return ACL_SUCCESS;
}

static int check_types(const job* j) {
  for (int i = 0; i < j->n; i++) {
    if (!strchr("TOL", j->args[i].kind) || !j->args[i].count) continue;
    int n;
    const hy_tensor* t = job_list(j, i, &n);
    for (int k = 0; k < n; k++)
      RULE(t[k].dtype != HY_BF16 || ascend_has_bf16(), "aclnn%s: this chip has no bf16",
           j->row->name);
    if (i == 0 || (i == 1 && j->args[0].kind == 'S'))
      RULE(j->row->types & HY_DTYPE_BIT(t->dtype), "aclnn%s: the first tensor is %s", j->row->name,
           hy_dtype_name(t->dtype));
  }
  return ACL_SUCCESS;
}

// Some ask for none, as on the chip.
static uint64_t workspace_of(const char* name) {
  uint64_t sum = 0;
  for (const char* c = name; *c; c++) sum = sum * 31 + (unsigned char)*c;
  return sum % 3 * 416;
}

static int phase1(const aclnn_row* row, const argument* args, int n, uint64_t* workspaceSize,
                  aclOpExecutor** executor) {
  int device = ascend_device(row->name);
  if (device < 0) return ACL_ERROR_RT_CONTEXT_NULL;
  DEMAND(workspaceSize && executor, ACLNN_ERR_PARAM_NULLPTR,
         "aclnn%s: nowhere to put the executor or the size of its workspace", row->name);
  int code = check_handles(row, args, n);
  if (code) return code;
  size_t room = sizeof(job);
  for (int i = 0; i < n; i++) room += (room_of(&args[i]) + 31) / 16 * 16 + 64;
  job* j = calloc(1, room);
  aclOpExecutor* e = calloc(1, sizeof *e);
  if (!j || !e) abort();
  *j = (job){.row = row, .bytes = sizeof *j, .n = n, .device = device};
  for (int i = 0; i < n; i++) put_argument(j, i, &args[i]);
  code = check_types(j);
  if (!code) code = row->run(j, true);
  if (code) {
    free(j);
    free(e);
    return code;
  }
  *e = (aclOpExecutor){j, workspace_of(row->name)};
  vendor_born(e, "executor");
  *workspaceSize = e->workspace;
  *executor = e;
  return ACL_SUCCESS;
}

// ---- phase 2 ----

// Device addresses become the host's. False: memory that is not there.
static bool localize(job* j) {
  for (int i = 0; i < j->n; i++) {
    if (!strchr("TOL", j->args[i].kind)) continue;
    hy_tensor* t = (hy_tensor*)(j->pool + j->args[i].at);
    for (uint32_t k = 0; k < j->args[i].count; k++) {
      int64_t first, last;
      hy_tensor_extent(&t[k], &first, &last);
      if (first == last) continue;
      char* bytes =
          vendor_memory_reach(j->device, (char*)t[k].data + first, (size_t)(last - first));
      if (!bytes) return false;
      t[k].data = bytes - first;
    }
  }
  return true;
}

static int work(void* context) {
  job* j = context;
  if (j->workspace) memset(j->workspace, 0xa5, j->workspace_bytes);
  return j->row->run(j, false);
}

static int phase2(const aclnn_row* row, void* workspace, uint64_t size, aclOpExecutor* e,
                  void* stream) {
  int device = ascend_device(row->name);
  if (device < 0) return ACL_ERROR_RT_CONTEXT_NULL;
  DEMAND(vendor_alive(e, "executor"), ACLNN_ERR_PARAM_INVALID,
         "aclnn%s: the executor is none, or was used already", row->name);
  job* j = e->job;
  RULE(j->row == row, "aclnn%s: the executor is of aclnn%s", row->name, j->row->name);
  RULE(j->device == device, "aclnn%s: phase 1 ran on device %d, phase 2 on %d", row->name,
       j->device, device);
  RULE(size == e->workspace, "aclnn%s: a workspace of %llu was asked for, %llu was given",
       row->name, (unsigned long long)e->workspace, (unsigned long long)size);
  if (!ascend_stream_fits(row->name, stream)) return ACL_ERROR_RT_STREAM_CONTEXT;
  if (size) {
    j->workspace = vendor_memory_reach(device, workspace, size);
    j->workspace_bytes = size;
    RULE(j->workspace, "aclnn%s: the workspace is not %llu bytes of the device", row->name,
         (unsigned long long)size);
    RULE((uintptr_t)workspace % 64 == 0, "aclnn%s: the workspace is not aligned", row->name);
  }
  RULE(localize(j), "aclnn%s: a tensor reaches beyond its memory", row->name);
  vendor_queue_push(stream, work, j, j->bytes);
  vendor_dies(e, "executor");
  free(j);
  free(e);
  return ACL_SUCCESS;
}

// ---- mutation ----

static bool same_tensor(const hy_tensor* a, const hy_tensor* b) {
  bool same = a->data == b->data && a->dtype == b->dtype && a->ndim == b->ndim;
  for (int i = 0; same && i < a->ndim; i++)
    same = a->shape[i] == b->shape[i] && a->stride[i] == b->stride[i];
  return same;
}

static bool same(const argument* a, const argument* b) {
  if (!a->pointer || !b->pointer)
    return a->pointer == b->pointer && a->integer == b->integer && a->real == b->real;
  switch (a->kind) {
    case 'T':
    case 'O':
      return same_tensor(&((const aclTensor*)a->pointer)->view,
                         &((const aclTensor*)b->pointer)->view);
    case 'S':
    case 'Z': {
      hy_scalar x = ((const aclScalar*)a->pointer)->value,
                y = ((const aclScalar*)b->pointer)->value;
      return hy_scalar_f(x) == hy_scalar_f(y);
    }
    case 'A':
    case 'P': {
      const aclIntArray *x = a->pointer, *y = b->pointer;
      return x->n == y->n && memcmp(x->values, y->values, x->n * sizeof *x->values) == 0;
    }
    default: return a->pointer == b->pointer;
  }
}

// ---- the entry points ----

typedef const aclTensor *T, *O;
typedef const aclTensorList* L;
typedef const aclScalar *S, *Z;
typedef const aclIntArray *A, *P;
typedef const aclBoolArray* M;
typedef int64_t N;
typedef uint64_t U;
typedef int I, K;
typedef int8_t C;
typedef bool Y;
typedef double D;
typedef float F;
typedef const char* X;

#define CAPTURE_T POINTER('T')
#define CAPTURE_O POINTER('O')
#define CAPTURE_L POINTER('L')
#define CAPTURE_S POINTER('S')
#define CAPTURE_Z POINTER('Z')
#define CAPTURE_A POINTER('A')
#define CAPTURE_P POINTER('P')
#define CAPTURE_M POINTER('M')
#define CAPTURE_X POINTER('X')
#define CAPTURE_N INTEGER('N')
#define CAPTURE_U INTEGER('U')
#define CAPTURE_I INTEGER('I')
#define CAPTURE_K INTEGER('K')
#define CAPTURE_C INTEGER('C')
#define CAPTURE_Y INTEGER('Y')
#define CAPTURE_D REAL('D')
#define CAPTURE_F REAL('F')

#define ACLNN(header, name, arguments, types, how, op) int op_##how(const job* j, bool check);
#include "aclnn.def"

#define ACLNN(header, name, arguments, types, how, op)                                         \
  static const aclnn_row row_##name = {#name, types, op_##how, HY_OP_##op};                    \
  VENDOR_API int aclnn##name##GetWorkspaceSize(BARE arguments, uint64_t* workspaceSize,        \
                                               aclOpExecutor** executor) {                     \
    ENTER(aclnn##name##GetWorkspaceSize);                                                      \
    argument args[] = {FOR_EACH(CAPTURE, BARE arguments)};                                     \
    mutation_apply(#name, args, (int)(sizeof args / sizeof args[0]), same);                    \
    return phase1(&row_##name, args, (int)(sizeof args / sizeof args[0]), workspaceSize,       \
                  executor);                                                                   \
  }                                                                                            \
  VENDOR_API int aclnn##name(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, \
                             void* stream) {                                                   \
    ENTER(aclnn##name);                                                                        \
    return phase2(&row_##name, workspace, workspaceSize, executor, stream);                    \
  }
#include "aclnn.def"

// ---- the table, for mutation ----

static const struct {
  const char* name;
  int op;
} functions[] = {
#define ACLNN(header, name, arguments, types, how, op) {#name, HY_OP_##op},
#include "aclnn.def"
};

const char* mutation_function(int i, int* op) {
  if (i >= (int)(sizeof functions / sizeof functions[0])) return NULL;
  *op = functions[i].op;
  return functions[i].name;
}
