// Arrays in a file: saved as safetensors, loaded onto a device.
#include <string.h>

#include "base/memory.h"
#include "halyard/array.h"
#include "model/safetensors.h"

static hy_status check(const char* path, const char* const* names, hy_array* const* arrays, int n) {
  if (!path || n < 0 || (n > 0 && (!names || !arrays)))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_arrays_save: an argument is NULL");
  for (int i = 0; i < n; i++) {
    if (!names[i] || !names[i][0] || !arrays[i])
      return hy_fail(HY_INVALID_ARGUMENT, "hy_arrays_save: array %d or its name is NULL", i);
    if (strcmp(names[i], "__metadata__") == 0)
      return hy_fail(HY_INVALID_ARGUMENT, "hy_arrays_save: \"%s\" is the format's own name",
                     names[i]);
    for (int k = 0; k < i; k++) {
      if (strcmp(names[i], names[k]) == 0)
        return hy_fail(HY_INVALID_ARGUMENT, "hy_arrays_save: two arrays are called \"%s\"",
                       names[i]);
    }
  }
  return HY_OK;
}

// The elements on the host; `data` is freed by the caller.
static hy_status fetch(hy_stream* stream, const hy_array* array, hy__weight* weight) {
  const hy_tensor* t = hy_array_tensor(array);
  if (t->layout != HY_LAYOUT_STRIDED)
    return hy_fail(HY_LAYOUT, "hy_arrays_save: \"%s\" is %s, which the format has no name for",
                   weight->name, hy_layout_name(t->layout));
  void* data = hy__malloc(hy_tensor_bytes(t) + 1);
  if (!data) return hy_fail(HY_OUT_OF_MEMORY, "hy_arrays_save: no memory for \"%s\"", weight->name);
  hy_status status = hy_tensor_init(&weight->tensor, data, t->dtype, t->ndim, t->shape);
  weight->tensor.data = data;
  return status == HY_OK ? hy_array_to_host(stream, array, data, hy_tensor_bytes(t)) : status;
}

hy_status hy_arrays_save(hy_stream* stream, const char* path, const char* const* names,
                         hy_array* const* arrays, int n) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_arrays_save: stream is NULL");
  HY_TRY(check(path, names, arrays, n));
  hy__weight* list = hy__calloc((size_t)n + 1, sizeof *list);
  if (!list) return hy_fail(HY_OUT_OF_MEMORY, "hy_arrays_save: no memory for %d arrays", n);
  hy_status status = HY_OK;
  for (int i = 0; i < n && status == HY_OK; i++) {
    list[i].name = names[i];
    status = fetch(stream, arrays[i], &list[i]);
  }
  if (status == HY_OK) status = hy__weights_save(path, list, n);
  for (int i = 0; i < n; i++) hy__mfree(list[i].tensor.data);
  hy__mfree(list);
  return status;
}

hy_status hy_arrays_load(hy_stream* stream, const char* path, hy_array_visitor visit,
                         void* context) {
  if (!stream || !path || !visit)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_arrays_load: an argument is NULL");
  hy__weights* weights;
  HY_TRY(hy__weights_open_file(path, &weights));
  hy_status status = HY_OK;
  for (int i = 0; i < hy__weights_count(weights) && status == HY_OK; i++) {
    const hy__weight* w = hy__weights_at(weights, i);
    const hy_tensor* t = &w->tensor;
    hy_array* array = NULL;
    status = hy_array_from_host(stream, &array, t->dtype, t->ndim, t->shape, t->data);
    if (status == HY_OK) status = visit(context, w->name, array);
    hy_array_release(array);
  }
  hy__weights_close(weights);
  return status;
}
