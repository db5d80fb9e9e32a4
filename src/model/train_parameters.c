// Parameters of a training: adapters and gradients as vectors, and copies of adapters in the type
// of activations.
//
// Adapters are kept and stepped in their own type, float32 as a rule. Beside activations of 16 bits
// a pass reads copies in that type, which are written anew after each step: mixed precision with
// master weights, as it is usual.
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/trainer.h"

// ---- listing ----

static hy_status add_parameter(hy__train_parameters* p, const char* name, hy_array* array) {
  if (p->n == p->capacity) {
    int capacity = p->capacity ? 2 * p->capacity : 64;
    hy_array** arrays = hy__realloc(p->arrays, (size_t)capacity * sizeof *arrays);
    if (arrays) p->arrays = arrays;
    char(*names)[160] = hy__realloc(p->names, (size_t)capacity * sizeof *names);
    if (names) p->names = names;
    if (!arrays || !names)
      return hy_fail(HY_OUT_OF_MEMORY, "no memory for a list of %d parameters", capacity);
    p->capacity = capacity;
  }
  snprintf(p->names[p->n], sizeof p->names[0], "%s", name);
  p->arrays[p->n++] = hy_array_retain(array);
  return HY_OK;
}

static hy_status take_any(void* context, const char* name, hy_array** slot, int ndim,
                          const int64_t* shape) {
  (void)ndim;
  (void)shape;
  return add_parameter(context, name, *slot);
}

static hy_status take_factor(hy__train_parameters* p, const char* layer, const char* which,
                             hy_array* factor) {
  char full[160];
  if (!factor) return HY_OK;
  snprintf(full, sizeof full, "%s.lora_%s", layer, which);
  return add_parameter(p, full, factor);
}

// All A come before all B, so that those of layers that read the same x are one matrix.
static hy_status take_a(void* context, const char* name, hy__linear* layer, int64_t out,
                        int64_t in) {
  (void)out;
  (void)in;
  return take_factor(context, name, "A", layer->lora.a);
}

static hy_status take_b(void* context, const char* name, hy__linear* layer, int64_t out,
                        int64_t in) {
  (void)out;
  (void)in;
  return take_factor(context, name, "B", layer->lora.b);
}

// ---- vectors ----

static int64_t count_elements(const hy__train_parameters* p) {
  int64_t n = 0;
  for (int i = 0; i < p->n; i++) n += hy_tensor_numel(hy_array_tensor(p->arrays[i]));
  return n;
}

// Part i of a vector of all parameters, in the parameter's shape; *at goes on behind it.
static hy_status part_of(const hy__train_parameters* p, int i, hy_array* vector, int64_t* at,
                         hy_array** part) {
  const hy_tensor* t = hy_array_tensor(p->arrays[i]);
  int64_t end = *at + hy_tensor_numel(t);
  hy_array* piece;
  HY_TRY(hy_array_slice(NULL, &piece, vector, 0, *at, end, 1));
  hy_status status = hy_array_view(NULL, part, piece, t->ndim, t->shape);
  hy_array_release(piece);
  *at = end;
  return status;
}

// The type of all parameters; f32 where they differ.
static hy_dtype common_type(const hy__train_parameters* p) {
  hy_dtype dtype = hy_array_tensor(p->arrays[0])->dtype;
  for (int i = 1; i < p->n; i++) {
    if (hy_array_tensor(p->arrays[i])->dtype != dtype) return HY_F32;
  }
  return dtype;
}

static hy_status write_into(hy_tape* tape, hy_array* to, hy_array* from) {
  hy_attrs attrs = {.cast = {hy_array_tensor(to)->dtype}};
  return hy_array_apply_into(tape, HY_OP_cast, &from, 1, &attrs, &to, 1);
}

// The arrays move into one vector.
static hy_status make_flat(hy__train_parameters* p, hy_tape* tape) {
  int64_t n = count_elements(p), at = 0;
  HY_TRY(hy_array_empty(hy_tape_stream(tape), &p->flat, common_type(p), 1, &n));
  for (int i = 0; i < p->n; i++) {
    hy_array* part;
    HY_TRY(part_of(p, i, p->flat, &at, &part));
    hy_status status = write_into(tape, part, p->arrays[i]);
    hy_array_release(p->arrays[i]);
    p->arrays[i] = part;
    HY_TRY(status);
  }
  return HY_OK;
}

static hy_status make_leaves(hy__train_parameters* p, hy_tape* tape, hy_dtype activations) {
  int64_t n = count_elements(p), at = 0;
  p->leaves = hy__calloc((size_t)p->n, sizeof(hy_array*));
  if (!p->leaves) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a list of %d parameters", p->n);
  if (p->flat && hy_array_tensor(p->flat)->dtype != activations)
    HY_TRY(hy_array_empty(hy_tape_stream(tape), &p->copy, activations, 1, &n));
  for (int i = 0; i < p->n; i++) {
    if (p->copy)
      HY_TRY(part_of(p, i, p->copy, &at, &p->leaves[i]));
    else
      p->leaves[i] = hy_array_retain(p->arrays[i]);
    HY_TRY(hy_array_set_requires_grad(p->arrays[i], true));
    HY_TRY(hy_array_set_requires_grad(p->leaves[i], true));
  }
  return hy__train_parameters_refresh(p, tape);
}

// ---- the model's side ----

typedef struct placing {
  hy__train_parameters* parameters;
  int at;
} placing;

static void replace(hy_array** slot, hy_array* array) {
  hy_array* old = *slot;
  *slot = hy_array_retain(array);
  hy_array_release(old);
}

// The layer's adapter is in the vector from now on, and stays there.
static hy_status place_adapter(void* context, const char* name, hy__linear* layer, int64_t out,
                               int64_t in) {
  placing* c = context;
  const hy__train_parameters* p = c->parameters;
  (void)name;
  (void)out;
  (void)in;
  if (!layer->lora.a) return HY_OK;
  int a = c->at++, b = p->n / 2 + a;
  replace(&layer->lora.a, p->arrays[a]);
  replace(&layer->lora.b, p->arrays[b]);
  replace(&layer->lora.train_a, p->leaves[a]);
  replace(&layer->lora.train_b, p->leaves[b]);
  return HY_OK;
}

// Whether one product of x serves the adapters of both layers, the second's A being behind the
// first's.
static bool trained_alike(const hy__linear* first, const hy__linear* second) {
  const hy__lora *l = &first->lora, *m = &second->lora;
  if (!l->train_a || !m->train_a || l->dropout > 0 || m->dropout > 0 || l->scaling != m->scaling)
    return false;
  const hy_tensor *a = hy_array_tensor(l->train_a), *b = hy_array_tensor(m->train_a);
  return (const char*)a->data + hy_tensor_bytes(a) == (const char*)b->data &&
         a->shape[1] == b->shape[1];
}

// The elements of all parameters from `at` on as a matrix.
static hy_status matrix_at(hy_array* vector, int64_t at, int64_t rows, int64_t columns,
                           hy_array** out) {
  hy_array* piece;
  HY_TRY(hy_array_slice(NULL, &piece, vector, 0, at, at + rows * columns, 1));
  hy_status status = hy_array_view(NULL, out, piece, 2, (int64_t[]){rows, columns});
  hy_array_release(piece);
  return status;
}

// A of q, k and v as one leaf.
static hy_status make_joint_leaf(hy__train_parameters* p, hy__tf_block* block) {
  hy_array* vector = p->copy ? p->copy : p->flat;
  const hy_tensor* all = hy_array_tensor(vector);
  if (!trained_alike(&block->q, &block->k) || !trained_alike(&block->k, &block->v)) return HY_OK;
  const hy__linear* layers[] = {&block->q, &block->k, &block->v};
  const hy_tensor* first = hy_array_tensor(block->q.lora.train_a);
  int64_t rows = 0, at = ((const char*)first->data - (const char*)all->data) /
                         (int64_t)hy_dtype_size(all->dtype);
  for (int i = 0; i < 3; i++) rows += hy_array_tensor(layers[i]->lora.train_a)->shape[0];
  HY_TRY(matrix_at(vector, at, rows, first->shape[1], &block->train_qkv_a));
  p->joint[p->n_joint++] = (hy__joint_leaf){hy_array_retain(block->train_qkv_a), at};
  return hy_array_set_requires_grad(block->train_qkv_a, true);
}

static hy_status make_joint_leaves(hy__train_parameters* p, hy__transformer* model) {
  int64_t n = model->config.n_layers;
  p->joint = hy__calloc((size_t)n, sizeof *p->joint);
  if (!p->joint)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for a list of %lld layers", (long long)n);
  for (int64_t i = 0; i < n; i++) HY_TRY(make_joint_leaf(p, &model->blocks[i]));
  return HY_OK;
}

static hy_status forget_leaves(void* context, const char* name, hy__linear* layer, int64_t out,
                               int64_t in) {
  (void)context;
  (void)name;
  (void)out;
  (void)in;
  replace(&layer->lora.train_a, NULL);
  replace(&layer->lora.train_b, NULL);
  return HY_OK;
}

static hy_status take_adapters(hy__train_parameters* p, hy_tape* tape, hy__transformer* model) {
  HY_TRY(hy__transformer_visit_linears(model, take_a, p));
  HY_TRY(hy__transformer_visit_linears(model, take_b, p));
  if (p->n == 0) return hy_fail(HY_INVALID_ARGUMENT, "the model has no adapters to train");
  HY_TRY(make_flat(p, tape));
  HY_TRY(make_leaves(p, tape, model->config.dtype));
  HY_TRY(hy__transformer_visit_linears(model, place_adapter, &(placing){p, 0}));
  return make_joint_leaves(p, model);
}

static hy_status take_all(hy__train_parameters* p, hy_tape* tape, hy__transformer* model) {
  HY_TRY(hy__transformer_visit(model, take_any, p));
  for (int i = 1; i < p->n; i++) {
    if (hy_array_tensor(p->arrays[i])->dtype != hy_array_tensor(p->arrays[0])->dtype)
      return hy_fail(HY_UNSUPPORTED, "%s is %s and %s is %s; parameters of one type are trained",
                     p->names[0], hy_dtype_name(hy_array_tensor(p->arrays[0])->dtype), p->names[i],
                     hy_dtype_name(hy_array_tensor(p->arrays[i])->dtype));
  }
  return make_leaves(p, tape, model->config.dtype);
}

hy_status hy__train_parameters_take(hy__train_parameters* p, hy_tape* tape, hy__transformer* model,
                                    const hy__train_options* options) {
  hy_tape_set_recording(tape, false);
  HY_TRY(options->all_parameters ? take_all(p, tape, model) : take_adapters(p, tape, model));
  int64_t n = count_elements(p);
  hy_stream* stream = hy_tape_stream(tape);
  HY_TRY(hy_array_empty(stream, &p->pass, hy_array_tensor(p->leaves[0])->dtype, 1, &n));
  if (options->accumulate > 1 || options->comm || p->copy)
    return hy_array_empty(stream, &p->sum, hy_array_tensor(p->arrays[0])->dtype, 1, &n);
  p->sum = hy_array_retain(p->pass);
  return HY_OK;
}

static void release_list(hy_array** list, int n) {
  for (int i = 0; list && i < n; i++) {
    if (list[i]) hy_array_set_requires_grad(list[i], false);
    hy_array_release(list[i]);
  }
  hy__mfree(list);
}

void hy__train_parameters_release(hy__train_parameters* p, hy__transformer* model) {
  hy__transformer_visit_linears(model, forget_leaves, NULL);
  for (int64_t i = 0; i < model->config.n_layers; i++) replace(&model->blocks[i].train_qkv_a, NULL);
  for (int i = 0; i < p->n_joint; i++) {
    hy_array_set_requires_grad(p->joint[i].array, false);
    hy_array_release(p->joint[i].array);
  }
  hy__mfree(p->joint);
  release_list(p->leaves, p->n);
  release_list(p->arrays, p->n);
  hy__mfree(p->names);
  hy_array* const vectors[] = {p->flat, p->copy, p->pass, p->sum};
  for (int i = 0; i < 4; i++) hy_array_release(vectors[i]);
  memset(p, 0, sizeof *p);
}

// ---- a step ----

static hy_status set_grads(const hy__train_parameters* p, hy_array* const* arrays,
                           hy_array* vector) {
  int64_t at = 0;
  for (int i = 0; i < p->n; i++) {
    hy_array* part;
    HY_TRY(part_of(p, i, vector, &at, &part));
    hy_status status = hy_array_set_grad(arrays[i], part);
    hy_array_release(part);
    HY_TRY(status);
  }
  return HY_OK;
}

// Gradients of joint leaves are gathered where those of their parts are.
static hy_status set_joint_grads(const hy__train_parameters* p) {
  for (int i = 0; i < p->n_joint; i++) {
    const hy__joint_leaf* j = &p->joint[i];
    const hy_tensor* t = hy_array_tensor(j->array);
    hy_array* part;
    HY_TRY(matrix_at(p->pass, j->at, t->shape[0], t->shape[1], &part));
    hy_status status = hy_array_set_grad(j->array, part);
    hy_array_release(part);
    HY_TRY(status);
  }
  return HY_OK;
}

void hy__train_parameters_begin_pass(hy_scope* s, hy__train_parameters* p) {
  hy_s_fill(s, p->pass, hy_int(0));
  HY_SCOPE_TRY(s, set_grads(p, p->leaves, p->pass));
  HY_SCOPE_TRY(s, set_joint_grads(p));
}

void hy__train_parameters_add_pass(hy_scope* s, hy__train_parameters* p, hy_array* pass,
                                   bool first) {
  if (s->status != HY_OK || p->sum == pass) return;
  hy_dtype dtype = hy_array_tensor(p->sum)->dtype;
  if (first) {
    HY_SCOPE_TRY(s, write_into(s->tape, p->sum, pass));
    return;
  }
  if (hy_array_tensor(pass)->dtype != dtype) pass = hy_s_cast(s, pass, dtype);
  hy_s_add_into(s, p->sum, pass);
}

hy_status hy__train_parameters_end_passes(hy__train_parameters* p) {
  return set_grads(p, p->arrays, p->sum);
}

hy_status hy__train_parameters_refresh(hy__train_parameters* p, hy_tape* tape) {
  if (!p->copy) return HY_OK;
  bool recording = hy_tape_set_recording(tape, false);
  hy_status status = write_into(tape, p->copy, p->flat);
  hy_tape_set_recording(tape, recording);
  return status;
}
