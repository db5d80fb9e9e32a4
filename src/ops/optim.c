// Optimizers over arrays: AdamW and SGD, gradient clipping.
//
// Parameters that are consecutive in the memory of one array, and whose gradients are too, are
// taken together, as one vector.
#include "halyard/optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "halyard/scope.h"
#include "ops/autograd/internal.h"

enum { MAX_STATES = 2 };

typedef struct parameter {
  hy_array* array;
  hy_array* state[MAX_STATES];  // as the op's row orders them, after the parameter
  int64_t steps;
} parameter;

struct hy_optimizer {
  hy_stream* stream;
  hy_op op;        // HY_OP_adamw or HY_OP_sgd
  hy_attrs attrs;  // the options
  double* lr;      // inside attrs
  int n_states;    // arrays a parameter has
  const char* const* state_names;
  int n;
  parameter parameters[];
};

static const char* const adamw_states[] = {"m", "v"};
static const char* const sgd_states[] = {"velocity"};

hy_attrs_adamw hy_adamw_defaults(void) {
  return (hy_attrs_adamw){
      .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
}

hy_attrs_sgd hy_sgd_defaults(void) {
  return (hy_attrs_sgd){.lr = 1e-3};
}

// ---- making ----

static hy_status check_parameters(const char* what, const hy_stream* stream,
                                  hy_array* const* parameters, int n) {
  if (!stream || n < 0 || (n > 0 && !parameters))
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %s", what,
                   stream ? "the list of parameters is NULL" : "the stream is NULL");
  for (int i = 0; i < n; i++) {
    if (!parameters[i] || !parameters[i]->slot || parameters[i]->slot->node)
      return hy_fail(HY_INVALID_ARGUMENT,
                     "%s: parameter %d is no leaf; hy_array_set_requires_grad makes one", what, i);
    if (!hy__same_device(parameters[i]->storage->device, hy_stream_device(stream)))
      return hy_fail(HY_INVALID_ARGUMENT, "%s: parameter %d is on %s, not on the stream's %s", what,
                     i, hy_device_selector(parameters[i]->storage->device),
                     hy_device_selector(hy_stream_device(stream)));
  }
  return HY_OK;
}

// Whether b begins where a ends.
static bool follows(const hy_array* a, const hy_array* b) {
  return a->storage == b->storage && a->view.dtype == b->view.dtype &&
         hy_tensor_is_contiguous(&a->view) && hy_tensor_is_contiguous(&b->view) &&
         (char*)a->view.data + hy_tensor_bytes(&a->view) == (char*)b->view.data;
}

// The elements from `first` on, which is contiguous or alone.
static hy_tensor vector_of(const hy_array* first, int64_t n) {
  hy_tensor t = first->view;
  if (n == hy_tensor_numel(&t)) return t;
  hy_tensor_init(&t, first->view.data, first->view.dtype, 1, &n);
  return t;
}

// States of parameters first .. end - 1, which follow each other, do so too.
static hy_status make_states(const hy_optimizer* o, parameter* first, const parameter* end) {
  // In 16 bits a slow average would stop moving.
  hy_dtype dtype = first->array->view.dtype == HY_F64 ? HY_F64 : HY_F32;
  int64_t n = 0;
  for (const parameter* p = first; p < end; p++) n += hy_tensor_numel(&p->array->view);
  for (int k = 0; k < o->n_states; k++) {
    hy_array* all;
    HY_TRY(hy_array_zeros(o->stream, &all, dtype, 1, &n));
    char* at = all->view.data;
    hy_status status = HY_OK;
    for (parameter* p = first; p < end && status == HY_OK; p++) {
      hy_tensor part;
      status = hy_tensor_init(&part, at, dtype, p->array->view.ndim, p->array->view.shape);
      if (status == HY_OK) status = hy__array_over(&p->state[k], all->storage, &part);
      at += hy_tensor_bytes(&part);
    }
    hy_array_release(all);
    HY_TRY(status);
  }
  return HY_OK;
}

static hy_status add_parameters(hy_optimizer* o, hy_array* const* arrays, int n) {
  o->n = n;
  for (int i = 0; i < n; i++) o->parameters[i].array = hy_array_retain(arrays[i]);
  for (int i = 0, end; i < n; i = end) {
    for (end = i + 1; end < n && follows(arrays[end - 1], arrays[end]);) end++;
    HY_TRY(make_states(o, &o->parameters[i], &o->parameters[end]));
  }
  return HY_OK;
}

static hy_status create(const char* what, hy_stream* stream, hy_array* const* parameters, int n,
                        const hy_optimizer* kind, hy_optimizer** out) {
  HY_TRY(check_parameters(what, stream, parameters, n));
  hy_optimizer* o = hy__calloc(1, sizeof *o + (size_t)n * sizeof o->parameters[0]);
  if (!o) return hy_fail(HY_OUT_OF_MEMORY, "%s: no host memory", what);
  o->stream = stream;
  o->op = kind->op;
  o->attrs = kind->attrs;
  o->lr = o->op == HY_OP_adamw ? &o->attrs.adamw.lr : &o->attrs.sgd.lr;
  o->n_states = kind->n_states;
  o->state_names = kind->state_names;
  hy_status status = add_parameters(o, parameters, n);
  if (status == HY_OK) {
    *out = o;
  } else {
    hy_optimizer_destroy(o);
  }
  return status;
}

hy_status hy_adamw_create(hy_stream* stream, hy_array* const* parameters, int n,
                          const hy_attrs_adamw* options, hy_optimizer** out) {
  if (!options || !out) return hy_fail(HY_INVALID_ARGUMENT, "hy_adamw_create: an argument is NULL");
  *out = NULL;
  hy_optimizer kind = {.op = HY_OP_adamw, .n_states = 2, .state_names = adamw_states};
  kind.attrs.adamw = *options;
  return create("hy_adamw_create", stream, parameters, n, &kind, out);
}

hy_status hy_sgd_create(hy_stream* stream, hy_array* const* parameters, int n,
                        const hy_attrs_sgd* options, hy_optimizer** out) {
  if (!options || !out) return hy_fail(HY_INVALID_ARGUMENT, "hy_sgd_create: an argument is NULL");
  *out = NULL;
  hy_optimizer kind = {.op = HY_OP_sgd, .state_names = sgd_states};
  kind.n_states = options->momentum != 0;
  kind.attrs.sgd = *options;
  return create("hy_sgd_create", stream, parameters, n, &kind, out);
}

void hy_optimizer_destroy(hy_optimizer* o) {
  if (!o) return;
  for (int i = 0; i < o->n; i++) {
    hy_array_release(o->parameters[i].array);
    for (int k = 0; k < MAX_STATES; k++) hy_array_release(o->parameters[i].state[k]);
  }
  hy__mfree(o);
}

// ---- stepping ----

// One row in place, of the parameters first .. end - 1: parameter and states are inputs and
// outputs, the gradient comes last.
static hy_status step_parameters(const hy_optimizer* o, parameter* first, parameter* end) {
  hy_tensor in[MAX_STATES + 2], out[MAX_STATES + 1];
  int n_out = hy_op_describe(o->op)->n_outputs;
  int64_t n = 0;
  for (const parameter* p = first; p < end; p++) n += hy_tensor_numel(&p->array->view);
  for (int k = 0; k < n_out; k++) {
    const hy_array* array = k == 0 ? first->array : first->state[k - 1];
    out[k] = array ? vector_of(array, n) : hy_tensor_absent();
    in[k] = out[k];
  }
  in[n_out] = vector_of(hy_array_grad(first->array), n);
  hy_call call = {.op = o->op, .n_in = n_out + 1, .n_out = n_out, .in = in, .out = out};
  call.attrs = o->attrs;
  if (o->op == HY_OP_adamw) {
    call.attrs.adamw.step = first->steps + 1;
  } else {
    call.attrs.sgd.first = first->steps == 0;
  }
  hy_status status = hy_run(o->stream, &call);
  hy_array_touch(first->array);
  for (parameter* p = first; p < end && status == HY_OK; p++) p->steps++;
  return status;
}

// Whether b can be stepped together with a, the one before it.
static bool steps_with(const hy_optimizer* o, const parameter* a, const parameter* b) {
  const hy_array *da = hy_array_grad(a->array), *db = hy_array_grad(b->array);
  if (!db || a->steps != b->steps || !follows(a->array, b->array) || !follows(da, db)) return false;
  for (int k = 0; k < o->n_states; k++) {
    if (!follows(a->state[k], b->state[k])) return false;
  }
  return true;
}

hy_status hy_optimizer_step(hy_optimizer* o) {
  if (!o) return hy_fail(HY_INVALID_ARGUMENT, "hy_optimizer_step: the optimizer is NULL");
  parameter *p = o->parameters, *last = p + o->n;
  for (parameter* end; p < last; p = end) {
    end = p + 1;
    if (!hy_array_grad(p->array)) continue;
    while (end < last && steps_with(o, end - 1, end)) end++;
    HY_TRY(step_parameters(o, p, end));
  }
  return HY_OK;
}

void hy_optimizer_zero_grad(hy_optimizer* o) {
  for (int i = 0; o && i < o->n; i++) hy_array_zero_grad(o->parameters[i].array);
}

void hy_optimizer_set_lr(hy_optimizer* o, double lr) {
  if (o) *o->lr = lr;
}

double hy_optimizer_lr(const hy_optimizer* o) {
  return o ? *o->lr : 0;
}

// ---- state ----

static hy_status export_steps(const hy_optimizer* o, hy_state_visitor visit, void* context) {
  int64_t n = o->n;
  int64_t* steps = hy__malloc((size_t)n * sizeof *steps);
  if (!steps) return hy_fail(HY_OUT_OF_MEMORY, "hy_optimizer_export: no host memory");
  for (int i = 0; i < o->n; i++) steps[i] = o->parameters[i].steps;
  hy_array* array = NULL;
  hy_status status = hy_array_from_host(o->stream, &array, HY_I64, 1, &n, steps);
  if (status == HY_OK) status = visit(context, "steps", array);
  hy_array_release(array);
  hy__mfree(steps);
  return status;
}

hy_status hy_optimizer_export(hy_optimizer* o, hy_state_visitor visit, void* context) {
  if (!o || !visit) return hy_fail(HY_INVALID_ARGUMENT, "hy_optimizer_export: an argument is NULL");
  HY_TRY(export_steps(o, visit, context));
  for (int i = 0; i < o->n; i++) {
    for (int k = 0; k < o->n_states; k++) {
      char name[32];
      snprintf(name, sizeof name, "%d.%s", i, o->state_names[k]);
      HY_TRY(visit(context, name, o->parameters[i].state[k]));
    }
  }
  return HY_OK;
}

static hy_status import_steps(hy_optimizer* o, const hy_array* array) {
  const hy_tensor* t = &array->view;
  if (t->dtype != HY_I64 || t->ndim != 1 || t->shape[0] != o->n)
    return hy_fail(HY_SHAPE, "hy_optimizer_import: steps is %s; i64[%d] is needed",
                   hy_tensor_describe(t, (char[160]){0}, 160), o->n);
  size_t bytes = (size_t)o->n * sizeof(int64_t);
  int64_t* steps = hy__malloc(bytes);
  if (!steps) return hy_fail(HY_OUT_OF_MEMORY, "hy_optimizer_import: no host memory");
  hy_status status = hy_array_to_host(o->stream, array, steps, bytes);
  for (int i = 0; i < o->n && status == HY_OK; i++) o->parameters[i].steps = steps[i];
  hy__mfree(steps);
  return status;
}

// The array of that name, or NULL.
static hy_array* find_state(const hy_optimizer* o, const char* name) {
  char* end;
  long i = strtol(name, &end, 10);
  if (end == name || *end != '.' || i < 0 || i >= o->n) return NULL;
  for (int k = 0; k < o->n_states; k++) {
    if (strcmp(end + 1, o->state_names[k]) == 0) return o->parameters[i].state[k];
  }
  return NULL;
}

hy_status hy_optimizer_import(hy_optimizer* o, const char* name, hy_array* array) {
  if (!o || !name || !array)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_optimizer_import: an argument is NULL");
  if (!hy__same_device(array->storage->device, hy_stream_device(o->stream)))
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_optimizer_import: %s is on %s, not on the optimizer's %s", name,
                   hy_device_selector(array->storage->device),
                   hy_device_selector(hy_stream_device(o->stream)));
  if (strcmp(name, "steps") == 0) return import_steps(o, array);
  hy_array* state = find_state(o, name);
  if (!state)
    return hy_fail(HY_NOT_FOUND, "hy_optimizer_import: %s of %d parameters has no state \"%s\"",
                   hy_op_name(o->op), o->n, name);
  if (array->view.dtype != state->view.dtype)
    return hy_fail(HY_DTYPE, "hy_optimizer_import: %s is %s, not %s", name,
                   hy_dtype_name(state->view.dtype), hy_dtype_name(array->view.dtype));
  return hy_copy(o->stream, &state->view, &array->view);
}

// ---- clipping ----

// Squares are computed in parts of this many elements, to bound what is held.
static const int64_t square_part = (int64_t)1 << 22;

// The gradient of parameter *i, and those that follow it, as one array of the scope; NULL where it
// has none. *i goes on behind them.
static hy_array* next_gradients(hy_scope* s, hy_array* const* parameters, int n, int* i) {
  const hy_array *first = hy_array_grad(parameters[(*i)++]), *last = first;
  if (!first || s->status != HY_OK) return NULL;
  int64_t count = hy_tensor_numel(&first->view);
  for (const hy_array* next; *i < n; last = next, ++*i) {
    next = hy_array_grad(parameters[*i]);
    if (!next || !follows(last, next)) break;
    count += hy_tensor_numel(&next->view);
  }
  hy_tensor all = vector_of(first, count);
  hy_array* array = NULL;
  hy_status status = hy__array_over(&array, first->storage, &all);
  return hy_scope_keep(s, status, array);
}

// total += sum of squares, in the type of the total.
static void add_squares(hy_scope* s, hy_array* total, hy_array* grad) {
  int64_t n = hy_tensor_numel(&grad->view);
  hy_dtype dtype = total->view.dtype;
  hy_array* flat = hy_s_reshape(s, grad, 1, &n);
  for (int64_t at = 0; at < n; at += square_part) {
    int mark = hy_scope_mark(s);
    hy_array* part = hy_s_slice(s, flat, 0, at, n - at > square_part ? at + square_part : n, 1);
    if (grad->view.dtype != dtype) part = hy_s_cast(s, part, dtype);
    hy_s_add_into(s, total, hy_s_sum(s, hy_s_mul(s, part, part), hy_all_dims(), false));
    hy_scope_pop(s, mark, NULL);
  }
}

hy_status hy_clip_grad_norm(hy_stream* stream, hy_array* const* parameters, int n, double max_norm,
                            double* norm) {
  HY_TRY(check_parameters("hy_clip_grad_norm", stream, parameters, n));
  if (!norm || !(max_norm >= 0))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_clip_grad_norm: %s",
                   norm ? "the norm to clip to is at least 0" : "norm is NULL");
  hy_dtype dtype = HY_F32;
  for (int i = 0; i < n; i++) {
    if (parameters[i]->view.dtype == HY_F64) dtype = HY_F64;
  }
  hy_tape tape = {.stream = stream};
  hy_scope s;
  hy_scope_begin(&s, &tape);
  hy_array* total = hy_s_zeros(&s, dtype, 0, NULL);
  for (int i = 0; i < n && s.status == HY_OK;) {
    hy_array* grad = next_gradients(&s, parameters, n, &i);
    if (grad) add_squares(&s, total, grad);
  }
  HY_SCOPE_TRY(&s, hy_array_item(stream, total, norm));
  HY_TRY(hy_scope_end(&s));
  *norm = sqrt(*norm);
  // A little more than the norm, so that gradients of norm 0 stay 0: PyTorch's rule.
  double scale = max_norm / (*norm + 1e-6);
  if (!isfinite(*norm) || scale >= 1) return HY_OK;
  hy_scope_begin(&s, &tape);
  for (int i = 0; i < n && s.status == HY_OK;) {
    hy_array* grad = next_gradients(&s, parameters, n, &i);
    if (!grad) continue;
    HY_SCOPE_TRY(&s, hy_mul_scalar(stream, &grad->view, &grad->view, hy_float(scale)));
    hy_array_touch(grad);
  }
  return hy_scope_end(&s);
}

double hy_schedule_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor) {
  if (step < warmup) return peak * (double)step / (double)warmup;
  if (step >= total) return floor;
  double progress = (double)(step - warmup) / (double)(total - warmup);
  return floor + (peak - floor) * 0.5 * (1 + cos(M_PI * progress));
}
