// The state of a training: one file from which it resumes bit for bit.
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/safetensors.h"
#include "model/trainer.h"

enum { N_SAVED_OPTIONS = 10 };

static void list_options(const hy__train_options* o, double* values) {
  const double all[N_SAVED_OPTIONS] = {
      (double)o->batch,          (double)o->length,
      (double)o->accumulate,     (double)o->steps,
      (double)o->warmup,         o->lr,
      o->weight_decay,           o->clip,
      (double)o->all_parameters, (double)(o->seed & (((uint64_t)1 << 53) - 1))};
  memcpy(values, all, sizeof all);
}

static hy_status check_saved_options(const hy__trainer* t, const hy__weight* saved) {
  static const char* const names[N_SAVED_OPTIONS] = {
      "sequences of a pass", "length",       "passes of a step", "number of steps",      "warmup",
      "learning rate",       "weight decay", "gradient bound",   "choice of parameters", "seed"};
  double here[N_SAVED_OPTIONS], there[N_SAVED_OPTIONS];
  if (!saved || saved->tensor.dtype != HY_F64 || saved->tensor.ndim != 1 ||
      saved->tensor.shape[0] != N_SAVED_OPTIONS)
    return hy_fail(HY_FORMAT, "it is no saved training");
  list_options(&t->options, here);
  memcpy(there, saved->tensor.data, sizeof there);
  for (int i = 0; i < N_SAVED_OPTIONS; i++) {
    if (here[i] != there[i])
      return hy_fail(HY_INVALID_ARGUMENT,
                     "the %s was %.10g and is %.10g here; resume with the options it was started "
                     "with",
                     names[i], there[i], here[i]);
  }
  return HY_OK;
}

typedef struct saving {
  hy__trainer* trainer;
  hy__weight* list;
  char (*names)[192];
  int count, capacity;
} saving;

static hy_status fetch(saving* s, const char* prefix, const char* name, hy_array* array) {
  if (s->count == s->capacity)
    return hy_fail(HY_INTERNAL, "the optimizer has more state than expected");
  const hy_tensor* t = hy_array_tensor(array);
  void* data = hy__malloc(hy_tensor_bytes(t) + 1);
  if (!data) return hy_fail(HY_OUT_OF_MEMORY, "no memory to save the training");
  hy__weight* w = &s->list[s->count];
  snprintf(s->names[s->count], sizeof s->names[0], "%s%s", prefix, name);
  w->name = s->names[s->count++];
  hy_tensor_init(&w->tensor, data, t->dtype, t->ndim, t->shape);
  return hy_array_to_host(s->trainer->stream, array, data, hy_tensor_bytes(t));
}

static hy_status fetch_state(void* context, const char* name, hy_array* array) {
  return fetch(context, "optimizer.", name, array);
}

hy_status hy__trainer_save(hy__trainer* t, const char* path) {
  saving s = {.trainer = t, .capacity = 3 * t->parameters.n + 3};
  s.list = hy__calloc((size_t)s.capacity, sizeof *s.list);
  s.names = hy__calloc((size_t)s.capacity, sizeof *s.names);
  hy_status status = HY_OK;
  if (!s.list || !s.names) status = hy_fail(HY_OUT_OF_MEMORY, "no memory to save the training");
  for (int i = 0; i < t->parameters.n && status == HY_OK; i++)
    status = fetch(&s, "", t->parameters.names[i], t->parameters.arrays[i]);
  if (status == HY_OK) status = hy_optimizer_export(t->optimizer, fetch_state, &s);
  int64_t steps = t->steps;
  double options[N_SAVED_OPTIONS];
  list_options(&t->options, options);
  int fetched = s.count;
  if (status == HY_OK) {
    s.list[s.count].name = "steps";
    hy_tensor_init(&s.list[s.count++].tensor, &steps, HY_I64, 0, NULL);
    s.list[s.count].name = "options";
    hy_tensor_init(&s.list[s.count++].tensor, options, HY_F64, 1, (int64_t[]){N_SAVED_OPTIONS});
    status = hy__weights_save(path, s.list, s.count);
  }
  for (int i = 0; i < fetched; i++) hy__mfree(s.list[i].tensor.data);
  hy__mfree(s.list);
  hy__mfree(s.names);
  return status;
}

static hy_status upload_weight(hy__trainer* t, const hy__weight* w, hy_array** out) {
  return hy_array_from_host(t->stream, out, w->tensor.dtype, w->tensor.ndim, w->tensor.shape,
                            w->tensor.data);
}

// Overwrites a parameter in place.
static hy_status restore_parameter(hy__trainer* t, const hy__weights* saved, int i) {
  const hy__weight* w = hy__weights_find(saved, t->parameters.names[i]);
  if (!w) return hy_fail(HY_FORMAT, "%s is not in the saved training", t->parameters.names[i]);
  const hy_tensor* own = hy_array_tensor(t->parameters.arrays[i]);
  bool fits = w->tensor.dtype == own->dtype && w->tensor.ndim == own->ndim;
  for (int d = 0; fits && d < own->ndim; d++) fits = w->tensor.shape[d] == own->shape[d];
  if (!fits)
    return hy_fail(
        HY_FORMAT,
        "%s is %s in the saved training and %s here; resume with the options it was started with",
        t->parameters.names[i], hy_tensor_describe(&w->tensor, (char[100]){0}, 100),
        hy_tensor_describe(own, (char[100]){0}, 100));
  hy_array* from = NULL;
  HY_TRY(upload_weight(t, w, &from));
  hy_attrs none = {.none = {0}};
  hy_tape_set_recording(t->tape, false);
  hy_status status =
      hy_array_apply_into(t->tape, HY_OP_copy, &from, 1, &none, &t->parameters.arrays[i], 1);
  hy_array_release(from);
  return status;
}

static hy_status restore(hy__trainer* t, const hy__weights* saved) {
  const hy__weight* steps = hy__weights_find(saved, "steps");
  if (!steps || steps->tensor.dtype != HY_I64 || steps->tensor.ndim != 0)
    return hy_fail(HY_FORMAT, "it is no saved training");
  HY_TRY(check_saved_options(t, hy__weights_find(saved, "options")));
  int64_t done;
  memcpy(&done, steps->tensor.data, sizeof done);
  if (done < 0 || done > t->options.steps)
    return hy_fail(HY_FORMAT, "%lld of %lld steps are done, it says", (long long)done,
                   (long long)t->options.steps);
  for (int i = 0; i < t->parameters.n; i++) HY_TRY(restore_parameter(t, saved, i));
  for (int i = 0; i < hy__weights_count(saved); i++) {
    const hy__weight* w = hy__weights_at(saved, i);
    if (strncmp(w->name, "optimizer.", 10) != 0) continue;
    hy_array* array = NULL;
    HY_TRY(upload_weight(t, w, &array));
    hy_status status = hy_optimizer_import(t->optimizer, w->name + 10, array);
    hy_array_release(array);
    HY_TRY(status);
  }
  t->steps = done;
  HY_TRY(hy__train_parameters_refresh(&t->parameters, t->tape));
  return hy_stream_sync(t->stream);
}

hy_status hy__trainer_resume(hy__trainer* t, const char* path) {
  hy__weights* saved;
  HY_TRY(hy__weights_open_file(path, &saved));
  hy_status status = restore(t, saved);
  if (status != HY_OK) hy_fail(status, "%s: %s", path, hy_last_error());
  hy__weights_close(saved);
  return status;
}
