// libcnnl.so for tests: every function that enqueues, and those that ask for a workspace. A call
// looks at its handles, copies what they hold, checks it, and goes to the queue; the worker fills
// the workspace with rubbish before it computes, so that memory given away twice is seen.
#include "cnnl.h"

#include <stdlib.h>
#include <string.h>

#include "mutation.h"
#include "ops/internal.h"

#define FLOATS (HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_F16) | HY_DTYPE_BIT(HY_BF16))
#define INT32 HY_DTYPE_BIT(HY_I32)
#define BOOLS HY_BOOLS
#define ALL (FLOATS | HY_INTS | BOOLS)

// ---- arguments ----

hy_tensor job_tensor(const job* j, int i) {
  return j->tensors[i < 0 ? j->n_tensors + i : i];
}

int64_t job_integer(const job* j, int i) {
  return j->args[i].integer;
}

const op_desc* job_desc(const job* j, int i) {
  return &j->args[i].desc;
}

static hy_scalar number(hy_dtype dtype, const char* bytes) {
  float f;
  int32_t i;
  memcpy(&f, bytes, sizeof f);
  memcpy(&i, bytes, sizeof i);
  return dtype == HY_BOOL  ? hy_bool(bytes[0] != 0)
         : dtype == HY_I32 ? hy_int(i)
                           : hy_float((double)f);
}

hy_scalar job_factor(const job* j, int i) {
  hy_dtype dtype = j->tensors[j->n_tensors - 1].dtype == HY_I32 ? HY_I32 : HY_F32;
  return j->args[i].present ? number(dtype, j->args[i].bytes) : hy_no_scalar();
}

hy_scalar job_number(const job* j, int i) {
  return j->args[i].present ? number(j->tensors[j->n_tensors - 1].dtype, j->args[i].bytes)
                            : hy_no_scalar();
}

// ---- the reference ----

int job_reference_of(const job* j, bool check, hy_op op, int n_in, const hy_tensor* in, int n_out,
                     hy_tensor* out, hy_attrs attrs) {
  hy_call call = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
  hy_status status = check ? hy__check_call(&call) : hy__reference(&call);
  if (status == HY_OK) return CNNL_STATUS_SUCCESS;
  vendor_misuse("cnnl%s: %s", j->row->name, hy_last_error());
  return check ? CNNL_STATUS_BAD_PARAM : CNNL_STATUS_EXECUTION_FAILED;
}

int job_reference(const job* j, bool check, int n_in, const hy_tensor* in, int n_out,
                  hy_tensor* out, hy_attrs attrs) {
  return job_reference_of(j, check, j->row->op, n_in, in, n_out, out, attrs);
}

// ---- checks ----

size_t workspace_of(const char* name) {
  size_t sum = 0;
  for (const char* c = name; *c; c++) sum = sum * 31 + (unsigned char)*c;
  return sum % 3 * 416;
}

static const char* const kinds[] = {"OpTensor descriptor", "Activation descriptor",
                                    "Reduce descriptor",   "MatMul descriptor",
                                    "MatMul algorithm",    "BatchMatMul algorithm"};

// The kind of an op's descriptor is named in the function; behind it comes the algorithm.
static bool desc_fits(const char* name, int i, const op_desc* desc) {
  for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
    char word[24] = "";
    memcpy(word, kinds[k], strcspn(kinds[k], " "));
    bool algorithm = strstr(kinds[k], "algorithm") != NULL;
    bool batched = strncmp(name, "Batch", 5) == 0;
    if (!strstr(name, word) || algorithm != (strstr(name, "MatMul") && i == 1)) continue;
    if (algorithm && batched != (strncmp(word, "Batch", 5) == 0)) continue;
    if (vendor_alive(desc, kinds[k])) return true;
  }
  return false;
}

static int check_tensor(const char* name, int i, const cnnlTensorStruct* t) {
  RULE(vendor_alive(t, "tensor descriptor"), "cnnl%s: argument %d is no tensor descriptor", name,
       i);
  RULE(t->is_set, "cnnl%s: argument %d, a tensor descriptor, was not set", name, i);
  return CNNL_STATUS_SUCCESS;
}

// Looks at the handles before anything in them is read.
static int check_handles(const char* name, const cnnlContext* handle, const argument* args, int n) {
  RULE(vendor_alive(handle, "handle"), "cnnl%s: there is no handle", name);
  RULE(handle->queue, "cnnl%s: the handle has no queue", name);
  int length = -1;
  for (int i = 0; i < n; i++)
    if (args[i].kind == 'I' && (length < 0 || strcmp(name, "Concat") != 0))
      length = (int)args[i].integer;
  for (int i = 0; i < n; i++) {
    const argument* a = &args[i];
    int code = CNNL_STATUS_SUCCESS;
    RULE(a->pointer || !strchr("LMA", a->kind), "cnnl%s: argument %d is NULL", name, i);
    if (a->kind == 'D' || (a->kind == 'O' && a->pointer)) code = check_tensor(name, i, a->pointer);
    if (a->kind == 'X')
      RULE(a->pointer && desc_fits(name, i, a->pointer) && ((const op_desc*)a->pointer)->is_set,
           "cnnl%s: argument %d is not the op's descriptor, or was not set", name, i);
    if (a->kind == 'L') {
      RULE(length >= 1 && length <= MAX_LIST, "cnnl%s: a list of %d", name, length);
      for (int k = 0; k < length && !code; k++)
        code = check_tensor(name, i, ((cnnlTensorStruct* const*)a->pointer)[k]);
    }
    if (a->kind == 'V' || a->kind == 'C')
      RULE(vendor_memory_owner(a->pointer) < 0, "cnnl%s: argument %d must be the host's", name, i);
    if (code) return code;
  }
  return CNNL_STATUS_SUCCESS;
}

// ---- calls ----

static void put_desc(job* j, int i, const argument* args) {
  hy_tensor* t = &j->tensors[j->n_tensors++];
  *t = hy_tensor_absent();
  if (!args[i].pointer) return;
  *t = ((const cnnlTensorStruct*)args[i].pointer)->view;
  t->data = (void*)args[i + 1].pointer;
}

static void put_second(job* j, const void* data) {
  hy_tensor* t = &j->tensors[j->n_tensors++];
  *t = data ? t[-1] : hy_tensor_absent();
  if (data) t->data = (void*)data;
}

static void put_list(job* j, int i, const argument* args, int n) {
  cnnlTensorStruct* const* descs = args[i].pointer;
  const void* const* data = args[i + 1].pointer;
  for (int k = 0; descs && data && k < n; k++) {
    j->listed[k] = descs[k]->view;
    j->listed[k].data = (void*)data[k];
  }
  j->n_listed = n;
}

static void put(job* j, const argument* args, int n) {
  int count = 0;
  for (int i = 0; i < n; i++)
    if (args[i].kind == 'I' && (count == 0 || strcmp(j->row->name, "Concat") != 0))
      count = (int)args[i].integer;
  for (int i = 0; i < n; i++) {
    j->args[i].kind = args[i].kind;
    j->args[i].integer = args[i].integer;
    j->args[i].real = args[i].real;
    j->args[i].present = args[i].pointer != NULL;
    if (args[i].kind == 'D' || args[i].kind == 'O') put_desc(j, i, args);
    if (args[i].kind == 'S') put_second(j, args[i].pointer);
    if (args[i].kind == 'X' && args[i].pointer) j->args[i].desc = *(const op_desc*)args[i].pointer;
    if (args[i].kind == 'L') put_list(j, i, args, count);
    if (args[i].kind == 'A' && args[i].pointer)
      memcpy(j->args[i].numbers, args[i].pointer, sizeof(int) * (size_t)(count <= 8 ? count : 8));
    if (args[i].kind == 'V' && args[i].pointer) memcpy(j->args[i].bytes, args[i].pointer, 4);
  }
  size_t size = hy_dtype_size(j->tensors[j->n_tensors - 1].dtype);
  for (int i = 0; i < n; i++)
    if (args[i].kind == 'C' && args[i].pointer)
      memcpy(j->args[i].bytes, args[i].pointer, size <= 8 ? size : 8);
}

// Only copies and indices may be anything but contiguous.
static int check_tensors(const job* j) {
  bool strided = strcmp(j->row->name, "Copy_v2") == 0;
  RULE(j->row->types & HY_DTYPE_BIT((j->n_listed ? j->listed : j->tensors)[0].dtype) ||
           j->tensors[0].dtype == HY_NONE,
       "cnnl%s: the first tensor is %s", j->row->name, hy_dtype_name(j->tensors[0].dtype));
  for (int i = 0; i < j->n_tensors; i++)
    RULE(j->tensors[i].dtype == HY_NONE || strided || hy_tensor_is_contiguous(&j->tensors[i]),
         "cnnl%s: tensor %d is not contiguous", j->row->name, i);
  return CNNL_STATUS_SUCCESS;
}

// Device addresses become the host's. False: memory that is not there.
static bool localize(const job* j, hy_tensor* t) {
  if (t->dtype == HY_NONE) return true;
  int64_t first, last;
  hy_tensor_extent(t, &first, &last);
  char* bytes = vendor_memory_reach(j->device, (char*)t->data + first, (size_t)(last - first));
  if (!bytes) return false;
  t->data = bytes - first;
  return true;
}

static int localize_all(job* j, const argument* args) {
  for (int i = 0; i < j->n_tensors; i++)
    RULE(localize(j, &j->tensors[i]), "cnnl%s: tensor %d reaches beyond its memory", j->row->name,
         i);
  for (int i = 0; i < j->n_listed; i++)
    RULE(localize(j, &j->listed[i]), "cnnl%s: tensor %d of a list reaches beyond its memory",
         j->row->name, i);
  for (int i = 0; i < j->n; i++) {
    if (args[i].kind == 'U' && args[i].pointer) {
      j->args[i].memory =
          vendor_memory_reach(j->device, args[i].pointer, (size_t)args[i - 1].integer);
      RULE(j->args[i].memory, "cnnl%s: the indices reach beyond their memory", j->row->name);
    }
    if (args[i].kind != 'W') continue;
    size_t asked = workspace_of(j->row->name), given = (size_t)args[i + 1].integer;
    RULE(given == asked, "cnnl%s: a workspace of %zu was asked for, %zu was given", j->row->name,
         asked, given);
    if (!asked) continue;
    j->workspace = vendor_memory_reach(j->device, args[i].pointer, given);
    j->workspace_bytes = given;
    RULE(j->workspace, "cnnl%s: the workspace is not %zu bytes of the device", j->row->name, given);
  }
  return CNNL_STATUS_SUCCESS;
}

static int work(void* context) {
  job* j = context;
  if (j->workspace) memset(j->workspace, 0xa5, j->workspace_bytes);
  return j->row->run(j, false);
}

// ---- mutation ----

static bool same(const argument* a, const argument* b) {
  if (!a->pointer || !b->pointer)
    return a->pointer == b->pointer && a->integer == b->integer && a->real == b->real;
  if (strchr("DO", a->kind)) {
    const hy_tensor *x = &((const cnnlTensorStruct*)a->pointer)->view,
                    *y = &((const cnnlTensorStruct*)b->pointer)->view;
    bool equal = x->dtype == y->dtype && x->ndim == y->ndim;
    for (int i = 0; equal && i < x->ndim; i++)
      equal = x->shape[i] == y->shape[i] && x->stride[i] == y->stride[i];
    return equal;
  }
  if (a->kind == 'V' && b->kind == 'V') return memcmp(a->pointer, b->pointer, 4) == 0;
  return a->pointer == b->pointer;
}

// ---- calls ----

static int call(const cnnl_row* row, const cnnlContext* handle, argument* args, int n) {
  mutation_apply(row->name, args, n, same);
  int device = cambricon_device(row->name);
  if (device < 0) return CNNL_STATUS_NOT_INITIALIZED;
  int code = check_handles(row->name, handle, args, n);
  if (code) return code;
  if (!cambricon_queue_fits(row->name, handle->queue)) return CNNL_STATUS_BAD_PARAM;
  job* j = calloc(1, sizeof *j);
  if (!j) abort();
  j->row = row;
  j->n = n;
  j->device = device;
  put(j, args, n);
  code = check_tensors(j);
  if (!code) code = row->run(j, true);
  if (!code) code = localize_all(j, args);
  if (!code) vendor_queue_push(handle->queue, work, j, sizeof *j);
  free(j);
  return code;
}

static int plan(const char* name, const char* of, const cnnlContext* handle, const argument* args,
                int n, size_t* size) {
  if (cambricon_device(name) < 0) return CNNL_STATUS_NOT_INITIALIZED;
  int code = check_handles(name, handle, args, n);
  if (code) return code;
  RULE(size, "cnnl%s: nowhere to put the size", name);
  *size = workspace_of(of);
  return CNNL_STATUS_SUCCESS;
}

// ---- the entry points ----

typedef const cnnlTensorStruct *D, *O;
typedef const void *P, *S, *V, *C;
typedef void *Q, *W, *U;
typedef size_t Z, Y;
typedef const op_desc* X;
typedef int E, I;
typedef bool B;
typedef float F;
typedef const int* A;
typedef cnnlTensorStruct* const* L;
typedef const void* const* M;

#define CAPTURE_D POINTER('D')
#define CAPTURE_O POINTER('O')
#define CAPTURE_P POINTER('P')
#define CAPTURE_S POINTER('S')
#define CAPTURE_Q POINTER('Q')
#define CAPTURE_V POINTER('V')
#define CAPTURE_C POINTER('C')
#define CAPTURE_W POINTER('W')
#define CAPTURE_U POINTER('U')
#define CAPTURE_X POINTER('X')
#define CAPTURE_A POINTER('A')
#define CAPTURE_L POINTER('L')
#define CAPTURE_M POINTER('M')
#define CAPTURE_Z INTEGER('Z')
#define CAPTURE_Y INTEGER('Y')
#define CAPTURE_E INTEGER('E')
#define CAPTURE_I INTEGER('I')
#define CAPTURE_B INTEGER('B')
#define CAPTURE_F REAL('F')

#define CNNL_CALL(source, name, arguments, types, how, op) int op_##how(const job* j, bool check);
#include "cnnl.def"

#define HY_OP_none HY_OP_NONE
#define CNNL_PLAN(source, name, arguments, of)                                        \
  VENDOR_API int cnnl##name(const cnnlContext* handle, BARE arguments, size_t* size); \
  int cnnl##name(const cnnlContext* handle, BARE arguments, size_t* size) {           \
    ENTER(cnnl##name);                                                                \
    argument args[] = {FOR_EACH(CAPTURE, BARE arguments)};                            \
    return plan(#name, #of, handle, args, (int)(sizeof args / sizeof args[0]), size); \
  }
#define CNNL_CALL(source, name, arguments, types, how, op)                       \
  static const cnnl_row row_##name = {#name, types, op_##how, HY_OP_##op};       \
  VENDOR_API int cnnl##name(const cnnlContext* handle, BARE arguments);          \
  int cnnl##name(const cnnlContext* handle, BARE arguments) {                    \
    ENTER(cnnl##name);                                                           \
    argument args[] = {FOR_EACH(CAPTURE, BARE arguments)};                       \
    return call(&row_##name, handle, args, (int)(sizeof args / sizeof args[0])); \
  }
#include "cnnl.def"

// ---- the table, for mutation ----

static const struct {
  const char* name;
  int op;
} functions[] = {
#define CNNL_CALL(source, name, arguments, types, how, op) {#name, HY_OP_##op},
#include "cnnl.def"
};

const char* mutation_function(int i, int* op) {
  if (i >= (int)(sizeof functions / sizeof functions[0])) return NULL;
  *op = functions[i].op;
  return functions[i].name;
}
