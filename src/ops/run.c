// From a call to the kernel that runs it.
#include "ops/internal.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "core/debug.h"
#include "ops/compose.h"
#include "ops/fallback.h"
#include "ops/flat.h"

static atomic_int deterministic = -1;  // -1: not set yet, the environment decides

void hy_set_deterministic(bool value) {
  atomic_store_explicit(&deterministic, value, memory_order_relaxed);
}

bool hy_deterministic(void) {
  int value = atomic_load_explicit(&deterministic, memory_order_relaxed);
  if (value < 0) {
    const char* text = hy__env("HALYARD_DETERMINISTIC");
    value = text && strcmp(text, "0") != 0;
    atomic_store_explicit(&deterministic, value, memory_order_relaxed);
  }
  return value;
}

hy_status hy__reference_checked(const hy_call* call) {
  return hy__op_row(call->op)->kernel(call);
}

hy_status hy__reference(const hy_call* call) {
  HY_TRY(hy__check_call(call));
  if (call->n_in > HY_MAX_INPUTS)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "the reference takes at most %d inputs",
                         HY_MAX_INPUTS);
  return hy__reference_checked(call);
}

static bool may_run(const hy_provider* provider) {
  return !(provider->flags & HY_PROVIDER_VARIES) || !hy_deterministic();
}

const hy_provider* hy__choose_provider(const hy_device* device, const hy_call* call,
                                       hy_support* reason) {
  *reason = HY_SUPPORT_NO_OP;
  const hy_provider* const* providers = device->providers;
  for (int i = 0; providers[i]; i++) {
    if (!may_run(providers[i])) continue;
    hy_support answer = providers[i]->supports(device->handle, call);
    if (answer == HY_SUPPORT_YES) {
      *reason = HY_SUPPORT_YES;
      return providers[i];
    }
    // A provider that has the op and lacks the type says more than one that lacks the op.
    if (*reason == HY_SUPPORT_NO_OP) *reason = answer;
  }
  return NULL;
}

static bool is_empty(const hy_call* call) {
  for (int i = 0; i < call->n_out; i++) {
    if (hy__present(&call->out[i]) && hy_tensor_numel(&call->out[i]) > 0) return false;
  }
  return true;
}

// `provider` is NULL where the call fell back.
static void trace(int64_t begin, const hy_device* device, const hy_call* call, const char* provider,
                  hy_support reason) {
  char words[400];
  uint64_t bytes = 0;
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    const hy_tensor* t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    if (hy__present(t)) bytes += hy_tensor_bytes(t);
  }
  hy__trace_end(begin, &(hy__trace_event){.kind = provider ? HY__TRACE_OP : HY__TRACE_FALLBACK,
                                          .name = hy_op_name(call->op),
                                          .detail = hy_call_describe(call, words, sizeof words),
                                          .device = device,
                                          .provider = provider ? provider : "reference",
                                          .reason = provider ? NULL : hy_support_text(reason),
                                          .bytes = bytes});
}

hy_status hy_run(hy_stream* stream, const hy_call* call) {
  if (!stream || !call)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_run: the %s is NULL", stream ? "call" : "stream");
  hy_tensor expected[HY_MAX_OUTPUTS];
  HY_TRY(hy_infer(call, expected));
  if (__builtin_expect(call->n_in > HY_MAX_INPUTS, 0)) {
    HY_TRY(hy__check_inferred(call, expected));
    return hy__join_many(stream, call);
  }
  return hy__run_inferred(stream, call, expected);
}

// HALYARD_DEBUG: nothing may have been written behind the memory of an output.
static hy_status check_bounds(hy_stream* stream, const hy_call* call) {
  hy_status status = HY_OK;
  for (int i = 0; i < call->n_out && status == HY_OK && !stream->capture; i++)
    if (hy__present(&call->out[i]))
      status = hy__debug_check(stream->device, call->out[i].data, hy_op_name(call->op), false);
  return status;
}

// A failure without words gets some: a message of before is no reason of now.
static hy_status run_provider(const hy_device* device, hy_stream* stream, const hy_call* call,
                              const hy_provider* provider, int32_t variant, const void* packed) {
  unsigned before = hy__failures();
  if (hy__debug()) hy__debug_delay(stream);
  const hy_graph_node node = {.size = sizeof node, .kind = HY_NODE_CALL, .call = call};
  hy_status status = variant ? provider->run_variant(device->handle, stream->handle, &node, variant)
                     : packed ? provider->run_packed(device->handle, stream->handle, call, packed)
                              : provider->run(device->handle, stream->handle, call);
  if (status == HY_OK && hy__debug()) return check_bounds(stream, call);
  if (status == HY_OK || hy__failures() != before) return status;
  return hy__call_fail(call, status, "%s answers %s on %s and gives no reason (hy_host.fail)",
                       provider->name, hy_status_name(status), device->selector);
}

hy_status hy__run_by(hy_stream* stream, const hy_call* call, const hy_provider* provider,
                     int32_t variant, const void* packed) {
  if (hy__fault(HY_FAULT_KERNEL)) return hy__call_fail(call, HY_DEVICE_FAILED, "injected fault");
  const hy_device* device = stream->device;
  int64_t begin = hy__trace_begin();
  hy_status status = provider ? run_provider(device, stream, call, provider, variant, packed)
                              : hy__reference_checked(call);
  if (begin) trace(begin, device, call, provider ? provider->name : "reference", HY_SUPPORT_YES);
  return status;
}

// What hy__run_inferred would do, recorded instead.
static hy_status capture_call(hy_stream* stream, const hy_call* call) {
  hy_device* device = stream->device;
  hy_support reason;
  const hy_provider* provider = hy__choose_provider(device, call, &reason);
  if (provider) return stream->capture->call(stream, call, provider);
  bool composed = false;
  hy_status status = hy__compose(stream, call, &composed);
  if (!composed && device->is_host) return stream->capture->call(stream, call, NULL);
  if (composed && status == HY_OK) return HY_OK;
  char words[400], why[200];
  snprintf(why, sizeof why,
           composed ? "one of the products it is made of failed"
                    : "it falls back to the cpu (%s), which a graph of the device cannot contain",
           hy_support_text(reason));
  return hy__capture_refuse(stream, hy_call_describe(call, words, sizeof words), why);
}

hy_status hy__run_inferred(hy_stream* stream, const hy_call* call, const hy_tensor* expected) {
  HY_TRY(hy__check_inferred(call, expected));
  HY_TRY(hy__stream_check(stream));
  if (is_empty(call)) return HY_OK;
  if (__builtin_expect(stream->capture != NULL, 0)) return capture_call(stream, call);
  if (hy__fault(HY_FAULT_KERNEL)) return hy__call_fail(call, HY_DEVICE_FAILED, "injected fault");
  hy_device* device = stream->device;
  hy_support reason;
  const hy_provider* provider = hy__choose_provider(device, call, &reason);
  const char* name = provider ? provider->name : NULL;
  int64_t begin = hy__trace_begin();
  hy_status status;
  bool composed = false;
  if (provider) {
    stream->executed.by_provider++;
    stream->executed.provider = name;
    status = run_provider(device, stream, call, provider, 0, NULL);
  } else {
    status = hy__compose(stream, call, &composed);
    if (composed) {
      name = hy__composite_name(call->op);
      stream->executed.composed++;
    } else if (device->is_host) {
      name = "reference";
      stream->executed.by_reference++;
      status = hy__reference_checked(call);
    } else {
      stream->executed.fallen_back++;
      status = hy__fall_back(stream, call, reason);
    }
  }
  if (begin) trace(begin, device, call, name, reason);
  return status;
}

hy_status hy_place(hy_device* device, const hy_call* call, hy_placement* placement) {
  if (!device || !call || !placement)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_place: an argument is NULL");
  HY_TRY(hy__check_call(call));
  // More inputs than a call holds are several calls; where the first runs, the others do.
  hy_tensor part;
  hy_call first = *call;
  if (call->n_in > HY_MAX_INPUTS) {
    first.n_in = HY_MAX_INPUTS;
    first.out = &part;
    HY_TRY(hy_infer(&first, &part));
    part.data = call->out[0].data;
    call = &first;
  }
  const hy_provider* provider = hy__choose_provider(device, call, &placement->reason);
  placement->provider = provider                     ? provider->name
                        : hy__composes(device, call) ? hy__composite_name(call->op)
                        : device->is_host            ? "reference"
                                                     : NULL;
  return HY_OK;
}

hy_status hy_place_op(hy_device* device, hy_op op, hy_dtype dtype, hy_placement* placement) {
  if (!device || !placement)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_place_op: an argument is NULL");
  if (!hy__op_row(op)) return hy_fail(HY_NOT_FOUND, "%d is no op", (int)op);
  if (dtype <= HY_NONE || dtype >= HY_DTYPE_COUNT)
    return hy_fail(HY_DTYPE, "hy_place_op: %d is no data type", (int)dtype);
  placement->provider = device->is_host ? "reference" : NULL;
  placement->reason = HY_SUPPORT_NO_OP;
  const hy_provider* const* providers = device->providers;
  for (int i = 0; providers[i]; i++) {
    const hy_provider* provider = providers[i];
    if (!may_run(provider)) continue;
    for (int k = 0; k < provider->n_declares; k++) {
      if (provider->declares[k].op != op) continue;
      placement->reason = HY_SUPPORT_NO_DTYPE;
      if (!(provider->declares[k].dtypes & HY_DTYPE_BIT(dtype))) continue;
      placement->provider = provider->name;
      placement->reason = HY_SUPPORT_YES;
      return HY_OK;
    }
  }
  if (hy__composes_op(device, op, dtype)) placement->provider = HY__COMPOSITE;
  return HY_OK;
}

bool hy_prefers_unpacked(const hy_device* device) {
  for (int i = 0; device && device->providers[i]; i++) {
    const hy_provider* provider = device->providers[i];
    for (int k = 0; may_run(provider) && k < provider->n_declares; k++) {
      const hy_declaration* d = &provider->declares[k];
      if (d->op == HY_OP_linear_int8) return d->dtypes & HY_UNPACK_FIRST;
    }
  }
  return false;
}

static bool has_optional_output(const hy_call* call) {
  const hy_op_info* info = hy_op_describe(call->op);
  for (int i = 0; i < call->n_out; i++)
    if (info->outputs[i].kind == HY_ARGUMENT_OPTIONAL && hy__present(&call->out[i])) return true;
  return false;
}

bool hy__is_promised(const hy_device* device, const hy_call* call) {
  const hy_tensor* first = call->n_in > 0 && hy__present(&call->in[0]) ? &call->in[0] : call->out;
  for (int i = 0; device->providers[i]; i++) {
    const hy_provider* provider = device->providers[i];
    for (int k = 0; may_run(provider) && k < provider->n_declares; k++) {
      const hy_declaration* d = &provider->declares[k];
      if (d->op != call->op || !(d->dtypes & HY_DTYPE_BIT(first->dtype))) continue;
      if (d->dtypes & HY_WITHOUT_OPTIONAL_OUTPUTS && has_optional_output(call)) continue;
      if (d->dtypes & HY_FLAT_ONLY && !hy__is_flat(call)) continue;
      return true;
    }
  }
  return false;
}

const char* hy_support_text(hy_support reason) {
  switch (reason) {
#define HY_AS_CASE(name, value, text) \
  case HY_SUPPORT_##name: return text;
    HY_SUPPORT_MAP(HY_AS_CASE)
#undef HY_AS_CASE
  }
  return "unknown reason";
}

static void shutdown_ops(void) {
  hy__fallback_shutdown();
  atomic_store(&deterministic, -1);
}

const hy__op_services hy__ops = {
    .reference = hy__reference,
    .op_name = hy_op_name,
    .shutdown = shutdown_ops,
};
