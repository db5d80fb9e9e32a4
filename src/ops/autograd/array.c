// Arrays: shared memory under counted views.
#include <string.h>

#include "ops/autograd/internal.h"

#define DESCRIBE(t) hy_tensor_describe(t, (char[160]){0}, 160)

// ---- memory ----

hy__storage* hy__storage_retain(hy__storage* storage) {
  atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
  return storage;
}

void hy__storage_release(hy__storage* storage) {
  if (!storage || atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1) return;
  if (!storage->wrapped) {
    hy_free(storage->device, storage->address);
  } else if (storage->release) {
    storage->release(storage->context);
  }
  hy__mfree(storage);
}

static hy_status storage_new(hy_stream* stream, hy__storage** out) {
  hy__storage* storage = hy__calloc(1, sizeof *storage);
  if (!storage) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for an array");
  atomic_init(&storage->refs, 1);
  storage->device = hy_stream_device(stream);
  storage->stream = stream;
  *out = storage;
  return HY_OK;
}

hy_status hy__array_over(hy_array** out, hy__storage* storage, const hy_tensor* view) {
  hy_array* array = hy__calloc(1, sizeof *array);
  if (!array) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for an array");
  atomic_init(&array->refs, 1);
  array->storage = hy__storage_retain(storage);
  array->view = *view;
  *out = array;
  return HY_OK;
}

hy_status hy__array_new(hy_stream* stream, hy_array** out, const hy_tensor* like) {
  *out = NULL;
  hy_tensor view;
  HY_TRY(hy_tensor_init(&view, NULL, like->dtype, like->ndim, like->shape));
  view.layout = like->layout;
  hy__storage* storage = NULL;
  HY_TRY(storage_new(stream, &storage));
  hy_status status = hy_alloc(stream, hy_tensor_bytes(&view), &storage->address);
  view.data = storage->address;
  if (status == HY_OK) status = hy__array_over(out, storage, &view);
  hy__storage_release(storage);
  return status;
}

// ---- making ----

// That an array is used on a stream of the device it is on: its address means nothing elsewhere.
static hy_status check_stream(const char* what, const hy_stream* stream, const hy_array* array) {
  hy_device *device = hy_stream_device(stream), *own = array->storage->device;
  if (hy__same_device(own, device)) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT,
                 "%s: %s is on %s, and the stream is of %s; hy_array_to moves it", what,
                 DESCRIBE(&array->view), hy_device_selector(own), hy_device_selector(device));
}

static hy_status check_maker(const char* what, hy_stream* stream, hy_array** out) {
  if (!out || !stream)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %s is NULL", what, out ? "stream" : "out");
  *out = NULL;
  return HY_OK;
}

hy_status hy_array_empty(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                         const int64_t* shape) {
  HY_TRY(check_maker("hy_array_empty", stream, out));
  hy_tensor like;
  HY_TRY(hy_tensor_init(&like, NULL, dtype, ndim, shape));
  return hy__array_new(stream, out, &like);
}

// Gives `array` out when the status is good, else releases it.
static hy_status give_out(hy_status status, hy_array* array, hy_array** out) {
  if (status == HY_OK) {
    *out = array;
  } else {
    hy_array_release(array);
  }
  return status;
}

hy_status hy_array_zeros(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                         const int64_t* shape) {
  HY_TRY(check_maker("hy_array_zeros", stream, out));
  hy_array* array = NULL;
  hy_status status = hy_array_empty(stream, &array, dtype, ndim, shape);
  if (array) status = hy_memset(stream, array->view.data, 0, hy_tensor_bytes(&array->view));
  return give_out(status, array, out);
}

hy_status hy_array_from_host(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                             const int64_t* shape, const void* data) {
  HY_TRY(check_maker("hy_array_from_host", stream, out));
  hy_array* array = NULL;
  hy_status status = hy_array_empty(stream, &array, dtype, ndim, shape);
  if (array && !data && hy_tensor_bytes(&array->view) > 0)
    return give_out(hy_fail(HY_INVALID_ARGUMENT, "hy_array_from_host: data is NULL"), array, out);
  if (array) status = hy_upload(stream, array->view.data, data, hy_tensor_bytes(&array->view));
  return give_out(status, array, out);
}

hy_status hy_array_scalar(hy_stream* stream, hy_array** out, hy_dtype dtype, double value) {
  HY_TRY(check_maker("hy_array_scalar", stream, out));
  hy_array* array = NULL;
  hy_status status = hy_array_empty(stream, &array, dtype, 0, NULL);
  bool whole = !hy_dtype_is_float(dtype);
  hy_scalar scalar = whole ? hy_int(hy_scalar_i(hy_float(value))) : hy_float(value);
  if (array) status = hy_fill(stream, &array->view, scalar);
  return give_out(status, array, out);
}

hy_status hy_array_full(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                        const int64_t* shape, hy_scalar value) {
  HY_TRY(check_maker("hy_array_full", stream, out));
  hy_array* array = NULL;
  hy_status status = hy_array_empty(stream, &array, dtype, ndim, shape);
  if (array) status = hy_fill(stream, &array->view, value);
  return give_out(status, array, out);
}

hy_status hy_array_range(hy_stream* stream, hy_array** out, hy_dtype dtype, int64_t n,
                         hy_scalar start, hy_scalar step) {
  HY_TRY(check_maker("hy_array_range", stream, out));
  hy_array* array = NULL;
  hy_status status = hy_array_empty(stream, &array, dtype, 1, &n);
  if (array) status = hy_arange(stream, &array->view, start, step);
  return give_out(status, array, out);
}

hy_status hy_array_rand(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                        const int64_t* shape, uint64_t seed, double low, double high) {
  HY_TRY(check_maker("hy_array_rand", stream, out));
  hy_array* array = NULL;
  hy_status status = hy_array_empty(stream, &array, dtype, ndim, shape);
  if (array && hy_dtype_is_float(dtype))
    status = hy_uniform(stream, &array->view, seed, 0, low, high);
  else if (array)
    status = hy_randint(stream, &array->view, seed, 0, low, high);
  return give_out(status, array, out);
}

hy_status hy_array_randn(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                         const int64_t* shape, uint64_t seed, double mean, double deviation) {
  HY_TRY(check_maker("hy_array_randn", stream, out));
  hy_array* array = NULL;
  hy_status status = hy_array_empty(stream, &array, dtype, ndim, shape);
  if (array) status = hy_normal(stream, &array->view, seed, 0, mean, deviation);
  return give_out(status, array, out);
}

hy_status hy_array_wrap(hy_stream* stream, hy_array** out, const hy_tensor* tensor,
                        void (*release)(void* context), void* context) {
  HY_TRY(check_maker("hy_array_wrap", stream, out));
  if (!tensor) return hy_fail(HY_INVALID_ARGUMENT, "hy_array_wrap: the tensor is NULL");
  HY_TRY(hy_tensor_check(tensor));
  if (!tensor->data && hy_tensor_numel(tensor) > 0)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_array_wrap: %s has no memory", DESCRIBE(tensor));
  hy_device *device = hy_stream_device(stream), *owner = hy__memory_of_any(tensor->data);
  if (owner && !hy__same_device(owner, device) &&
      !(hy_device_is_host(owner) && hy_device_is_host(device)))
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_array_wrap: the memory is on %s, and the stream is of %s",
                   hy_device_selector(owner), hy_device_selector(device));
  hy__storage* storage = NULL;
  HY_TRY(storage_new(stream, &storage));
  storage->address = tensor->data;
  storage->wrapped = true;
  hy_status status = hy__array_over(out, storage, tensor);
  if (status == HY_OK) {
    storage->release = release;
    storage->context = context;
  }
  hy__storage_release(storage);
  return status;
}

// ---- references ----

hy_array* hy_array_retain(hy_array* array) {
  if (array) atomic_fetch_add_explicit(&array->refs, 1, memory_order_relaxed);
  return array;
}

void hy_array_release(hy_array* array) {
  if (!array || atomic_fetch_sub_explicit(&array->refs, 1, memory_order_acq_rel) != 1) return;
  hy__slot_release(array->slot);
  hy__storage_release(array->storage);
  hy__mfree(array);
}

bool hy__array_is_exclusive(const hy_array* array) {
  return atomic_load_explicit(&array->refs, memory_order_acquire) == 1 &&
         atomic_load_explicit(&array->storage->refs, memory_order_acquire) == 1;
}

hy_status hy__array_check(const char* what, const hy_array* array) {
  return array ? HY_OK : hy_fail(HY_INVALID_ARGUMENT, "%s: the array is NULL", what);
}

hy_status hy__array_check_on(const hy_tape* tape, const char* what, const hy_array* array) {
  hy__storage* storage = array->storage;
  if (storage->stream == tape->stream) return HY_OK;
  hy_device* device = hy_stream_device(tape->stream);
  if (!hy__same_device(storage->device, device))
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %s is on %s, and the tape runs on %s", what,
                   DESCRIBE(&array->view), hy_device_selector(storage->device),
                   hy_device_selector(device));
  return storage->wrapped ? HY_OK : hy_record_stream(tape->stream, storage->address);
}

const hy_tensor* hy_array_tensor(const hy_array* array) {
  return array ? &array->view : NULL;
}

hy_device* hy_array_device(const hy_array* array) {
  return array ? array->storage->device : NULL;
}

void hy_array_touch(hy_array* array) {
  if (array) atomic_fetch_add_explicit(&array->storage->version, 1, memory_order_relaxed);
}

hy_status hy_array_detach(hy_array** out, hy_array* array) {
  if (!out) return hy_fail(HY_INVALID_ARGUMENT, "hy_array_detach: out is NULL");
  *out = NULL;
  HY_TRY(hy__array_check("hy_array_detach", array));
  return hy__array_over(out, array->storage, &array->view);
}

// ---- to the host ----

hy_status hy_array_to_host(hy_stream* stream, const hy_array* array, void* data, size_t bytes) {
  HY_TRY(hy__array_check("hy_array_to_host", array));
  const hy_tensor* view = &array->view;
  if (!stream || (!data && bytes > 0))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_array_to_host: %s is NULL", stream ? "data" : "stream");
  if (bytes != hy_tensor_bytes(view))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_array_to_host: %s has %zu bytes, not %zu",
                   DESCRIBE(view), hy_tensor_bytes(view), bytes);
  HY_TRY(check_stream("hy_array_to_host", stream, array));
  hy_array* dense = NULL;
  if (!hy_tensor_is_contiguous(view)) {
    HY_TRY(hy__array_new(stream, &dense, view));
    hy_status status = hy_copy(stream, &dense->view, view);
    if (status != HY_OK) {
      hy_array_release(dense);
      return status;
    }
    view = &dense->view;
  }
  hy_status status = hy_memcpy(stream, data, view->data, bytes, HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy_stream_sync(stream);
  hy_array_release(dense);
  return status;
}

hy_status hy_array_item(hy_stream* stream, const hy_array* array, double* value) {
  HY_TRY(hy__array_check("hy_array_item", array));
  if (!value || !stream)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_array_item: %s is NULL", stream ? "value" : "stream");
  if (hy_tensor_numel(&array->view) != 1)
    return hy_fail(HY_SHAPE, "hy_array_item: %s has %lld elements; one is needed",
                   DESCRIBE(&array->view), (long long)hy_tensor_numel(&array->view));
  HY_TRY(check_stream("hy_array_item", stream, array));
  size_t bytes = hy_dtype_size(array->view.dtype);
  if (bytes == 0)
    return hy_fail(HY_DTYPE, "hy_array_item: %s has no addressable element",
                   DESCRIBE(&array->view));
  union {
    char bytes[8];
    double f64;
  } element;
  HY_TRY(hy_memcpy(stream, &element, array->view.data, bytes, HY_COPY_DEVICE_TO_HOST));
  HY_TRY(hy_stream_sync(stream));
  hy_tensor from, to;
  HY_TRY(hy_tensor_init(&from, &element, array->view.dtype, 0, NULL));
  HY_TRY(hy_tensor_init(&to, value, HY_F64, 0, NULL));
  hy_call call = {.op = HY_OP_cast, .n_in = 1, .n_out = 1, .in = &from, .out = &to};
  call.attrs.cast.dtype = HY_F64;
  return hy__reference(&call);
}

// ---- to another device ----

// Contiguous elements from a device's default stream to `stream`'s.
static hy_status copy_between(hy_stream* stream, hy_array* to, hy_stream* from_stream,
                              const hy_array* from) {
  hy_array* dense = NULL;
  if (!hy_tensor_is_contiguous(&from->view)) {
    HY_TRY(hy__array_new(from_stream, &dense, &from->view));
    hy_status status = hy_copy(from_stream, &dense->view, &from->view);
    if (status != HY_OK) {
      hy_array_release(dense);
      return status;
    }
    from = dense;
  }
  hy_status status = hy_memcpy_peer(stream, to->view.data, from_stream, from->view.data,
                                    hy_tensor_bytes(&from->view));
  if (status == HY_OK) status = hy_stream_sync(stream);
  hy_array_release(dense);
  return status;
}

hy_status hy_array_to(hy_stream* stream, hy_array** out, hy_array* array) {
  HY_TRY(check_maker("hy_array_to", stream, out));
  HY_TRY(hy__array_check("hy_array_to", array));
  hy_device* device = array->storage->device;
  if (hy__same_device(device, hy_stream_device(stream))) return hy_array_detach(out, array);
  hy_stream* from;
  HY_TRY(hy_stream_default(device, &from));
  HY_TRY(hy_device_sync(device));  // the array's own stream may be gone
  hy_array* moved = NULL;
  HY_TRY(hy__array_new(stream, &moved, &array->view));
  return give_out(copy_between(stream, moved, from, array), moved, out);
}

// ---- gradients ----

static bool has_gradients(hy_dtype dtype) {
  return HY_FLOATS & HY_DTYPE_BIT(dtype);
}

hy_status hy_array_set_requires_grad(hy_array* array, bool requires_grad) {
  HY_TRY(hy__array_check("hy_array_set_requires_grad", array));
  if (requires_grad == hy_array_requires_grad(array)) return HY_OK;
  if (!requires_grad) {
    if (array->slot->node)
      return hy_fail(HY_INVALID_ARGUMENT,
                     "hy_array_set_requires_grad: %s was computed by a tape; hy_array_detach cuts "
                     "it off",
                     DESCRIBE(&array->view));
    hy__slot_release(array->slot);
    array->slot = NULL;
    return HY_OK;
  }
  if (!has_gradients(array->view.dtype))
    return hy_fail(HY_DTYPE, "hy_array_set_requires_grad: %s is no type with gradients",
                   hy_dtype_name(array->view.dtype));
  array->slot = hy__slot_new(NULL, 0);
  return array->slot ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no host memory for a gradient");
}

bool hy_array_requires_grad(const hy_array* array) {
  return array && array->slot;
}

static hy_status check_has_slot(const char* what, const hy_array* array) {
  HY_TRY(hy__array_check(what, array));
  if (!array->slot)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %s does not require a gradient", what,
                   DESCRIBE(&array->view));
  return HY_OK;
}

hy_status hy_array_retain_grad(hy_array* array) {
  HY_TRY(check_has_slot("hy_array_retain_grad", array));
  array->slot->keep = true;
  return HY_OK;
}

hy_array* hy_array_grad(const hy_array* array) {
  return array && array->slot ? array->slot->grad : NULL;
}

hy_status hy_array_set_grad(hy_array* array, hy_array* grad) {
  HY_TRY(check_has_slot("hy_array_set_grad", array));
  if (grad) {
    const hy_tensor *g = &grad->view, *a = &array->view;
    bool same = g->dtype == a->dtype && g->ndim == a->ndim && hy_tensor_is_contiguous(g);
    for (int d = 0; same && d < a->ndim; d++) same = g->shape[d] == a->shape[d];
    if (!same)
      return hy_fail(HY_SHAPE, "hy_array_set_grad: %s cannot be the gradient of %s", DESCRIBE(g),
                     DESCRIBE(a));
    if (!hy__same_device(grad->storage->device, array->storage->device))
      return hy_fail(
          HY_INVALID_ARGUMENT, "hy_array_set_grad: the gradient is on %s, the array on %s",
          hy_device_selector(grad->storage->device), hy_device_selector(array->storage->device));
  }
  hy_array* old = array->slot->grad;
  array->slot->grad = hy_array_retain(grad);
  hy_array_release(old);
  return HY_OK;
}

void hy_array_zero_grad(hy_array* array) {
  if (!hy_array_grad(array)) return;
  hy_array_release(array->slot->grad);
  array->slot->grad = NULL;
}
