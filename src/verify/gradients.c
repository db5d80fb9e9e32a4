// Gradients checked against finite differences.
#include "verify/gradients.h"

#include <stdlib.h>
#include <string.h>

#include "halyard/array.h"
#include "ops/autograd/internal.h"
#include "ops/internal.h"
#include "ops/reference/element.h"
#include "ops/reference/walk.h"

bool hy__input_has_gradient(const hy__case* c, int input) {
  int declared = input < c->info->n_inputs ? input : c->info->n_inputs - 1;
  return (HY_DTYPE_BIT(c->in[input].dtype) & HY_FLOATS) &&
         !(hy__op_row(c->call.op)->grad->needs[declared] & HY__NO_GRADIENT);
}

bool hy__case_has_gradients(const hy__case* c) {
  if (c->expected != HY_OK || !c->info->differentiable || c->flavour == HY__FLAVOUR_SPECIAL ||
      !(HY_DTYPE_BIT(c->result[0]) & HY_FLOATS))
    return false;
  for (int i = 0; i < c->call.n_in; i++) {
    if (hy__input_has_gradient(c, i)) return true;
  }
  return false;
}

void hy__gradients_free(hy__gradients* gradients) {
  for (int i = 0; i < gradients->n; i++) free(gradients->of[i]);
  memset(gradients, 0, sizeof *gradients);
}

typedef struct block {
  hy_device* device;
  void* address;
} block;

static void free_block(void* context) {
  block* b = context;
  hy_free(b->device, b->address);
  free(b);
}

// The same in a layout that hy_array_from_host does not know.
static hy_status to_packed_array(hy_stream* stream, const hy_tensor* t, hy_array** array) {
  block* b = calloc(1, sizeof *b);
  if (!b) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a case's input");
  b->device = hy_stream_device(stream);
  hy_tensor packed = *t;
  size_t bytes = hy_tensor_bytes(t);
  hy_status status = hy_alloc(stream, bytes, &b->address);
  if (status == HY_OK)
    status = hy_memcpy(stream, b->address, t->data, bytes, HY_COPY_HOST_TO_DEVICE);
  if (status == HY_OK) status = hy_stream_sync(stream);
  packed.data = b->address;
  if (status == HY_OK) status = hy_array_wrap(stream, array, &packed, free_block, b);
  if (status != HY_OK) free_block(b);
  return status;
}

// An array with the elements of a view on the host.
static hy_status to_array(hy_stream* stream, const hy_tensor* t, hy_array** array) {
  size_t size = hy_dtype_size(t->dtype);
  if (t->layout == HY_LAYOUT_SPARSE_2_4 || t->layout == HY_LAYOUT_FRACTAL_NZ)
    return to_packed_array(stream, t, array);
  if (t->layout != HY_LAYOUT_STRIDED || hy_tensor_is_contiguous(t))
    return hy_array_from_host(stream, array, t->dtype, t->ndim, t->shape, t->data);
  int64_t numel = hy_tensor_numel(t);
  char* packed = malloc((size_t)numel * size + 1);
  if (!packed) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a case's input");
  for (int64_t i = 0; i < numel; i++) memcpy(packed + (size_t)i * size, hy__element(t, i), size);
  hy_status status = hy_array_from_host(stream, array, t->dtype, t->ndim, t->shape, packed);
  free(packed);
  return status;
}

static hy_status make_seed(hy_stream* stream, const hy_tensor* like, hy_array** seed) {
  int64_t numel = hy_tensor_numel(like);
  size_t size = hy_dtype_size(like->dtype);
  char* data = malloc((size_t)numel * size + 1);
  if (!data) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a gradient");
  for (int64_t k = 0; k < numel; k++)
    hy__store_f(like->dtype, data + (size_t)k * size, (double)((37 * k + 11) % 17 - 8) / 8);
  hy_status status = hy_array_from_host(stream, seed, like->dtype, like->ndim, like->shape, data);
  free(data);
  return status;
}

// The arrays of one run.
typedef struct run {
  hy_tape* tape;
  hy_array *in[HY_MAX_INPUTS], *out[HY_MAX_OUTPUTS], *seed;
} run;

static hy_status run_backward(const hy__case* c, hy_stream* stream, run* r) {
  HY_TRY(hy_tape_create(stream, &r->tape));
  for (int i = 0; i < c->call.n_in; i++) {
    if (!hy__present(&c->in[i])) continue;
    HY_TRY(to_array(stream, &c->in[i], &r->in[i]));
    if (hy__input_has_gradient(c, i)) HY_TRY(hy_array_set_requires_grad(r->in[i], true));
  }
  hy_array** outputs[HY_MAX_OUTPUTS];
  for (int i = 0; i < c->info->n_outputs; i++) outputs[i] = &r->out[i];
  HY_TRY(hy_array_apply(r->tape, c->call.op, r->in, c->call.n_in, &c->call.attrs, outputs,
                        c->info->n_outputs));
  if (!hy_array_requires_grad(r->out[0])) return HY_OK;
  HY_TRY(make_seed(stream, hy_array_tensor(r->out[0]), &r->seed));
  return hy_backward(r->tape, r->out[0], r->seed);
}

hy_status hy__case_gradients(const hy__case* c, hy_stream* stream, hy__gradients* gradients) {
  run r;
  memset(&r, 0, sizeof r);
  memset(gradients, 0, sizeof *gradients);
  gradients->n = c->call.n_in;
  hy_status status = run_backward(c, stream, &r);
  for (int i = 0; i < c->call.n_in && status == HY_OK; i++) {
    hy_array* grad = r.in[i] ? hy_array_grad(r.in[i]) : NULL;
    if (!grad) continue;
    size_t bytes = hy_tensor_bytes(&c->in[i]);
    gradients->of[i] = malloc(bytes + 1);
    if (!gradients->of[i])
      status = hy_fail(HY_OUT_OF_MEMORY, "no host memory for a gradient");
    else
      status = hy_array_to_host(stream, grad, gradients->of[i], bytes);
  }
  hy_array_release(r.seed);
  for (int i = 0; i < c->info->n_outputs; i++) hy_array_release(r.out[i]);
  for (int i = 0; i < c->call.n_in; i++) hy_array_release(r.in[i]);
  hy_tape_destroy(r.tape);
  return status;
}
