// Flat forms: a broadcast is one copy and then copies of what is there already, twice as much each
// time, so that a vector of n elements is spread by log2(n) copies.
#include "ops/flat.h"

#include "core/internal.h"

enum { MOST_COPIES = 256 };  // beyond which the cpu is done sooner

static bool has_alpha(hy_op op) {
  return op == HY_OP_add || op == HY_OP_sub;
}

static bool has_factor(const hy_call* call) {
  return has_alpha(call->op) && hy_scalar_f(call->attrs.alpha.alpha) != 1;
}

static bool same_shape(const hy_tensor* a, const hy_tensor* b) {
  bool same = a->ndim == b->ndim;
  for (int d = 0; same && d < a->ndim; d++) same = a->shape[d] == b->shape[d];
  return same;
}

bool hy__is_flat(const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  for (int i = 0; i < call->n_in; i++) {
    if (call->in[i].dtype != out->dtype || !same_shape(&call->in[i], out) ||
        !hy_tensor_is_contiguous(&call->in[i]))
      return false;
  }
  return hy_tensor_is_contiguous(out) && !has_factor(call);
}

// ---- spreading ----

typedef struct spread {
  hy_stream* stream;  // NULL: the copies are only counted
  char* dst;
  const char* src;
  const hy_tensor *out, *in;
  int64_t out_inner[HY_MAX_DIMS + 1], in_inner[HY_MAX_DIMS + 1];  // bytes of a slice, by dimension
  int copies;
} spread;

static hy_status copy(spread* s, int64_t to, const char* from, int64_t bytes) {
  if (++s->copies > MOST_COPIES) return HY_UNSUPPORTED;
  if (!s->stream) return HY_OK;
  return hy_memcpy(s->stream, s->dst + to, from, (size_t)bytes, HY_COPY_DEVICE_TO_DEVICE);
}

static int64_t own_size(const spread* s, int d) {
  int own = d - (s->out->ndim - s->in->ndim);
  return own < 0 ? 1 : s->in->shape[own];
}

// Dimensions d and later of the output, at byte `to`, from those of the input, at byte `from`.
static hy_status fill(spread* s, int d, int64_t to, int64_t from) {
  if (s->in_inner[d] == s->out_inner[d]) return copy(s, to, s->src + from, s->out_inner[d]);
  int64_t n = s->out->shape[d], slice = s->out_inner[d + 1];
  if (own_size(s, d) == n) {
    for (int64_t i = 0; i < n; i++)
      HY_TRY(fill(s, d + 1, to + i * slice, from + i * s->in_inner[d + 1]));
    return HY_OK;
  }
  HY_TRY(fill(s, d + 1, to, from));
  for (int64_t done = 1; done < n; done *= 2) {
    int64_t more = n - done < done ? n - done : done;
    HY_TRY(copy(s, to + done * slice, s->dst + to, more * slice));
  }
  return HY_OK;
}

// A contiguous input in the output's shape, at `dst`; or, without a stream, whether that is worth
// it.
static hy_status spread_input(hy_stream* stream, const hy_tensor* in, const hy_tensor* out,
                              void* dst) {
  spread s = {.stream = stream, .dst = dst, .src = in->data, .out = out, .in = in};
  s.out_inner[out->ndim] = s.in_inner[out->ndim] = (int64_t)hy_dtype_size(out->dtype);
  for (int d = out->ndim - 1; d >= 0; d--) {
    s.out_inner[d] = s.out_inner[d + 1] * out->shape[d];
    s.in_inner[d] = s.in_inner[d + 1] * own_size(&s, d);
  }
  return fill(&s, 0, 0, 0);
}

// ---- the parts of a call ----

typedef struct parts {
  hy_call flat, scale;  // `scale` multiplies the second input by alpha
  hy_tensor in[2], product[2], scaled, out;
  bool scales, by_scalar;
} parts;

static bool runs(const hy_device* device, const hy_call* call) {
  hy_support reason;
  return hy__choose_provider(device, call, &reason) != NULL;
}

// All tensors at `memory`, which may be any of the device's: it is only asked about.
static void make_parts(const hy_call* call, void* memory, parts* p) {
  p->out = call->out[0];
  p->in[0] = p->in[1] = p->product[0] = p->product[1] = p->scaled = p->out;
  p->in[0].data = p->in[1].data = p->product[0].data = p->product[1].data = memory;
  p->scaled.data = memory;
  p->flat = *call;
  p->flat.in = p->in;
  p->flat.out = &p->out;
  p->scales = has_factor(call);
  if (has_alpha(call->op)) p->flat.attrs.alpha.alpha = hy_int(1);
  p->scale = (hy_call){.n_out = 1, .in = p->product, .out = &p->scaled};
}

static void scale_by(parts* p, const hy_call* call, bool by_scalar) {
  p->by_scalar = by_scalar;
  p->scale.op = by_scalar ? HY_OP_mul_scalar : HY_OP_mul;
  p->scale.n_in = by_scalar ? 1 : 2;
  if (by_scalar) p->scale.attrs.value.value = call->attrs.alpha.alpha;
}

static bool is_declared_flat(const hy_device* device, hy_op op) {
  for (int i = 0; device->providers[i]; i++) {
    const hy_provider* p = device->providers[i];
    for (int k = 0; k < p->n_declares; k++)
      if (p->declares[k].op == op && p->declares[k].dtypes & HY_FLAT_ONLY) return true;
  }
  return false;
}

static bool plan(hy_device* device, const hy_call* call, parts* p) {
  if (call->n_in != 2 || call->n_out != 1 || !is_declared_flat(device, call->op)) return false;
  const hy_tensor* out = &call->out[0];
  if (!hy_tensor_is_contiguous(out) || out->layout != HY_LAYOUT_STRIDED) return false;
  for (int i = 0; i < 2; i++) {
    const hy_tensor* in = &call->in[i];
    if (in->dtype != out->dtype || !hy_tensor_is_contiguous(in) ||
        spread_input(NULL, in, out, NULL) != HY_OK)
      return false;
  }
  make_parts(call, out->data, p);
  if (!runs(device, &p->flat)) return false;
  for (int k = 0; p->scales && k < 2; k++) {
    scale_by(p, call, k == 0);
    if (runs(device, &p->scale)) return true;
  }
  return !p->scales;
}

bool hy__flat_composes(hy_device* device, const hy_call* call) {
  parts p;
  return plan(device, call, &p);
}

// alpha in the output's type, everywhere at `dst`.
static hy_status spread_alpha(hy_stream* stream, const hy_call* call, void* dst) {
  const int64_t one[] = {1};
  hy_tensor host, first, out = call->out[0];
  int64_t value = 0;  // room for any type
  hy_tensor_init(&host, &value, out.dtype, 1, one);
  hy_call fill_one = {.op = HY_OP_fill, .n_out = 1, .out = &host};
  fill_one.attrs.value.value = call->attrs.alpha.alpha;
  HY_TRY(hy__reference(&fill_one));
  HY_TRY(hy_upload(stream, dst, &value, hy_dtype_size(out.dtype)));
  hy_tensor_init(&first, dst, out.dtype, 1, one);
  // In place: the copy of the first element onto itself is left out.
  spread s = {.stream = stream, .dst = dst, .src = dst, .out = &out, .in = &first};
  int64_t size = (int64_t)hy_dtype_size(out.dtype), n = hy_tensor_numel(&out);
  for (int64_t done = 1; done < n; done *= 2)
    HY_TRY(copy(&s, done * size, dst, (n - done < done ? n - done : done) * size));
  return HY_OK;
}

hy_status hy__flat_run(hy_stream* stream, const hy_call* call) {
  hy_device* device = hy_stream_device(stream);
  const hy_tensor* out = &call->out[0];
  size_t bytes = hy_tensor_bytes(out);
  void* memory[3] = {NULL, NULL, NULL};  // the inputs spread, alpha spread
  parts p;
  if (!plan(device, call, &p)) return hy__call_fail(call, HY_INTERNAL, "it is not flat any more");
  hy_status status = HY_OK;
  for (int i = 0; i < 2 && status == HY_OK; i++) {
    bool as_it_is = same_shape(&call->in[i], out) && !(i == 1 && p.scales);
    p.in[i].data = call->in[i].data;
    if (as_it_is) continue;
    status = hy_alloc(stream, bytes, &memory[i]);
    if (status == HY_OK) status = spread_input(stream, &call->in[i], out, memory[i]);
    p.in[i].data = memory[i];
  }
  if (status == HY_OK && p.scales) {
    p.product[0].data = p.scaled.data = memory[1];
    if (!p.by_scalar) {
      status = hy_alloc(stream, bytes, &memory[2]);
      if (status == HY_OK) status = spread_alpha(stream, call, memory[2]);
      p.product[1].data = memory[2];
    }
    if (status == HY_OK) status = hy_run(stream, &p.scale);
  }
  if (status == HY_OK) status = hy_run(stream, &p.flat);
  for (int i = 0; i < 3; i++) hy_free(device, memory[i]);
  return status;
}
