// Native kernels: tensors as views, calls, and what becomes of Halyard's refusals.
#include "native.h"

#include <ATen/native/Resize.h>

#include "profiler.h"
#include "stream_error.h"

namespace halyard_torch {

OpCount* g_op_counts = nullptr;

OpCount::OpCount(std::string op_name) : name(std::move(op_name)), next(g_op_counts) {
  g_op_counts = this;
}

void decline(const char* reason) {
  throw Declined{reason};
}

hy_tensor view_of(const Tensor& t, c10::Device device) {
  if (C10_UNLIKELY(t.device() != device)) {
    if (t.is_privateuseone() || t.dim() > 0)
      TORCH_CHECK(false,
                  "Expected all tensors to be on the same device, but found at least two devices, ",
                  device, " and ", t.device(), "!");
    decline("a number of the host among the tensors");
  }
  if (C10_UNLIKELY(t.dim() > HY_MAX_DIMS)) decline("more than 8 dimensions");
  if (C10_UNLIKELY(t.layout() != at::kStrided)) decline("the tensor is sparse");
  hy_tensor view;
  view.data = const_cast<void*>(t.const_data_ptr());
  view.dtype = dtype_of(t.scalar_type());
  if (C10_UNLIKELY(view.dtype == HY_NONE))
    throw Declined{std::string("no type ") + toString(t.scalar_type())};
  view.layout = HY_LAYOUT_STRIDED;
  view.ndim = static_cast<int32_t>(t.dim());
  view.reserved = 0;
  auto sizes = t.sizes(), strides = t.strides();
  for (int d = 0; d < view.ndim; d++) {
    view.shape[d] = sizes[d];
    view.stride[d] = strides[d];
  }
  return view;
}

hy_scalar scalar_of(const Scalar& value) {
  if (value.isBoolean()) return hy_bool(value.toBool());
  if (value.isIntegral(false)) return hy_int(value.toLong());
  if (value.isFloatingPoint()) return hy_float(value.toDouble());
  decline("a complex number");
}

// Throws, for a call that failed on that stream or, where it is null, before it came to one.
static void settle(hy_status status, const hy_call& call, c10::Device device, StreamSlot* slot) {
  switch (status) {
    case HY_OK: return;
    case HY_INVALID_ARGUMENT:
    case HY_SHAPE:
    case HY_DTYPE:
    case HY_LAYOUT:
    case HY_OVERLAP:
    case HY_UNSUPPORTED: throw Declined{hy_last_error()};
    default: {
      char text[400];
      std::string message = hy_last_error();
      hy_call_describe(&call, text, sizeof text);
      hy_fail(status, "%s\n  in %s on %s", message.c_str(), text, device.str().c_str());
      if (slot) check_on(*slot, status);
      raise(status);
    }
  }
}

Tensor Call::make() {
  hy_tensor inferred[HY_MAX_OUTPUTS];
  settle(hy_infer(&call_, inferred), call_, device_, nullptr);
  const hy_tensor& t = inferred[call_.n_out];
  auto made = make_tensor({t.shape, static_cast<size_t>(t.ndim)}, type_of(t.dtype), device_);
  out(made);
  return made;
}

void Call::run() {
  auto& slot = current_slot(device_.index());
  std::lock_guard<std::mutex> lock(slot.mutex);
  ProfiledWork work(hy_op_name(call_.op), device_.index(), slot);
  hy_status status = hy_run(slot.handle, &call_);
  if (C10_UNLIKELY(status != HY_OK)) settle(status, call_, device_, &slot);
}

hy_dims dims_of(at::OptionalIntArrayRef dims) {
  hy_dims list = hy_all_dims();
  if (!dims.has_value()) return list;
  if (dims->size() > HY_MAX_DIMS) decline("more than 8 dimensions");
  for (int64_t dim : *dims) list.dim[list.n++] = dim;
  return list;
}

Tensor cast(const Tensor& t, ScalarType type) {
  if (t.scalar_type() == type) return t;
  Call call(HY_OP_cast, t.device());
  call.in(t);
  call.attrs().cast.dtype = dtype_of(type);
  if (call.attrs().cast.dtype == HY_NONE) throw Declined{std::string("no type ") + toString(type)};
  Tensor out = call.make();
  call.run();
  return out;
}

Tensor& deliver(Tensor& out, const Tensor& result) {
  TORCH_CHECK(out.device() == result.device(),
              "Expected all tensors to be on the same device, but found at least two ", "devices, ",
              result.device(), " and ", out.device(), "!");
  TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ",
              result.scalar_type(), " can't be cast to the desired output type ",
              out.scalar_type());
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
  return out;
}

}  // namespace halyard_torch
