// halyard bench elementwise, softmax, norm: ops that read and write each element about once. Their
// floor is the time of copying as many bytes, or of reading them where there is little to write,
// measured alternately with them or in the same run.
#include <stdio.h>

#include "bench/call.h"

enum { ROWS = 4096, COLUMNS = 4096, HEADS = 32, HEAD = COLUMNS / HEADS };
// On a device with memory of its own, whose caches hold the fewer; and a part of the logits of a
// training step there.
enum { ROWS_APART = 4 * ROWS, LOSS_ROWS = 1024, VOCABULARY = 151936 };

// One benchmark: a call whose tensors are made as its inputs and outputs are named.
typedef struct bench {
  bench_session* session;
  int64_t rows;
  bool reads;  // there is little to write
  hy_dtype dtype;
  hy_tensor in[4], out[3];
  int n_in;
  double bytes;
} bench;

static hy_status add_tensor(bench* b, hy_tensor* t, hy_dtype dtype, int ndim,
                            const int64_t* shape) {
  HY_TRY(bench_tensor(b->session, t, dtype, ndim, shape));
  b->bytes += (double)hy_tensor_bytes(t);
  return HY_OK;
}

static hy_status add_input(bench* b, hy_dtype dtype, int ndim, const int64_t* shape) {
  return add_tensor(b, &b->in[b->n_in++], dtype, ndim, shape);
}

// Measures and frees the tensors; `what` follows the number of rows.
static hy_status finish(bench* b, hy_op op, const char* what, hy_attrs attrs) {
  char shape[40];
  snprintf(shape, sizeof shape, "%lldx%s", (long long)b->rows, what);
  hy_call call = {.op = op, .n_in = b->n_in, .in = b->in, .out = b->out, .attrs = attrs};
  call.n_out = hy_op_describe(op)->n_outputs;
  bench_work work = {.name = hy_op_name(op),
                     .shape = shape,
                     .dtype = b->dtype,
                     .unit = "GB/s",
                     .amount = b->bytes};
  bench_copies copies = {.own = 0};
  if (b->reads) {
    work.needs.bytes = b->bytes;
  } else if (bench_wanted(work.name, shape, hy_dtype_name(b->dtype))) {
    const int64_t bytes[1] = {hy_device_is_host(b->session->device) ? 64 << 20 : 256 << 20};
    HY_TRY(bench_tensor(b->session, &copies.from, HY_U8, 1, bytes));
    HY_TRY(bench_tensor(b->session, &copies.to, HY_U8, 1, bytes));
    work.copies = &copies;
  }
  hy_status status = bench_calls(b->session, &work, &call, 1);
  bench_end(b->session);
  return status;
}

#define MATRIX           \
  2, (const int64_t[]) { \
    b.rows, COLUMNS      \
  }
#define LINE             \
  1, (const int64_t[]) { \
    COLUMNS              \
  }

// An op of `n_in` matrices that gives one.
static hy_status matrices(bench b, hy_op op, int n_in, hy_attrs attrs) {
  for (int i = 0; i < n_in; i++) HY_TRY(add_input(&b, b.dtype, MATRIX));
  HY_TRY(add_tensor(&b, &b.out[0], b.dtype, MATRIX));
  return finish(&b, op, "4096", attrs);
}

static hy_status cast(bench b) {
  hy_dtype to = b.dtype == HY_F32 ? HY_BF16 : HY_F32;
  HY_TRY(add_input(&b, b.dtype, MATRIX));
  HY_TRY(add_tensor(&b, &b.out[0], to, MATRIX));
  return finish(&b, HY_OP_cast, "4096", (hy_attrs){.cast = {to}});
}

static hy_status rope(bench b) {
  for (int i = 0; i < 3; i++) {
    int64_t shape[3] = {b.rows, i == 0 ? HEADS : 1, i == 0 ? HEAD : HEAD / 2};
    HY_TRY(add_input(&b, b.dtype, 3, shape));
  }
  HY_TRY(add_tensor(&b, &b.out[0], b.dtype, 3, (const int64_t[]){b.rows, HEADS, HEAD}));
  return finish(&b, HY_OP_rope, "32x128", (hy_attrs){.rope = {false, false}});
}

// In place: parameter and state are read and written.
static hy_status adamw(bench b) {
  for (int i = 0; i < 4; i++) HY_TRY(add_input(&b, b.dtype, MATRIX));
  for (int i = 0; i < 3; i++) b.out[i] = b.in[i];
  b.bytes += 3 * (double)hy_tensor_bytes(&b.in[0]);
  return finish(&b, HY_OP_adamw, "4096",
                (hy_attrs){.adamw = {1e-3, 0.9, 0.999, 1e-8, 0.01, 1, false}});
}

static hy_status elementwise(bench b) {
  hy_attrs alpha = {.alpha = {hy_int(1)}}, none = {.gelu = {false}};
  HY_TRY(matrices(b, HY_OP_add, 2, alpha));
  HY_TRY(matrices(b, HY_OP_mul, 2, none));
  HY_TRY(matrices(b, HY_OP_exp, 1, none));
  HY_TRY(matrices(b, HY_OP_silu, 1, none));
  HY_TRY(matrices(b, HY_OP_gelu, 1, none));
  HY_TRY(cast(b));
  HY_TRY(rope(b));
  return adamw(b);
}

static hy_status cross_entropy(bench b, int64_t classes, bool backward) {
  char what[40];
  snprintf(what, sizeof what, "%lld", (long long)classes);
  const int64_t shape[2] = {b.rows, classes};
  HY_TRY(add_input(&b, b.dtype, 2, shape));
  HY_TRY(add_input(&b, HY_I64, 1, shape));
  HY_TRY(hy_fill(b.session->stream, &b.in[1], hy_int(7)));
  b.in[b.n_in++] = (hy_tensor){0};
  if (backward) HY_TRY(add_input(&b, b.dtype, 0, NULL));
  HY_TRY(add_tensor(&b, &b.out[0], b.dtype, backward ? 2 : 0, shape));
  b.reads = !backward;
  return finish(&b, backward ? HY_OP_cross_entropy_backward : HY_OP_cross_entropy, what,
                (hy_attrs){.cross_entropy = {-100, HY_REDUCTION_MEAN, 0, HY_NONE}});
}

static hy_status softmax(bench b) {
  HY_TRY(matrices(b, HY_OP_softmax, 1, (hy_attrs){.dim = {-1}}));
  HY_TRY(matrices(b, HY_OP_log_softmax, 1, (hy_attrs){.dim = {-1}}));
  HY_TRY(cross_entropy(b, COLUMNS, false));
  if (b.rows == ROWS) return HY_OK;
  b.rows = LOSS_ROWS;
  HY_TRY(cross_entropy(b, VOCABULARY, false));
  return cross_entropy(b, VOCABULARY, true);
}

// Over the last dimension (1), the first (0), or all (-1).
static hy_status reduction(bench b, hy_op op, int dim) {
  HY_TRY(add_input(&b, b.dtype, MATRIX));
  HY_TRY(add_tensor(&b, &b.out[0], b.dtype, dim >= 0, (const int64_t[]){dim ? b.rows : COLUMNS}));
  b.reads = true;
  hy_attrs attrs = {.reduce = {dim < 0 ? hy_all_dims() : hy_one_dim(dim), false}};
  return finish(&b, op, dim < 0 ? "4096 all" : dim ? "4096 rows" : "4096 columns", attrs);
}

static hy_status norms(bench b) {
  for (int layer = 0; layer < 2; layer++) {
    bench c = b;
    HY_TRY(add_input(&c, c.dtype, MATRIX));
    for (int i = 0; i <= layer; i++) HY_TRY(add_input(&c, c.dtype, LINE));
    HY_TRY(add_tensor(&c, &c.out[0], c.dtype, MATRIX));
    HY_TRY(finish(&c, layer ? HY_OP_layer_norm : HY_OP_rms_norm, "4096",
                  (hy_attrs){.norm = {1, 1e-6}}));
  }
  for (int dim = -1; dim < 2; dim++) HY_TRY(reduction(b, HY_OP_sum, dim));
  HY_TRY(reduction(b, HY_OP_mean, 1));
  return reduction(b, HY_OP_max, 1);
}

static hy_status bench_with(hy_device* device, hy_status (*run)(bench b)) {
  bench_session session;
  hy_status status = bench_begin(&session, device);
  bool apart = !hy_device_is_host(device);
  for (int i = 0; i < (apart ? 4 : 2) && status == HY_OK; i++)
    status = run((bench){
        .session = &session, .dtype = i % 2 ? HY_BF16 : HY_F32, .rows = i < 2 ? ROWS : ROWS_APART});
  bench_end(&session);
  return status;
}

hy_status bench_elementwise(hy_device* device) {
  return bench_with(device, elementwise);
}

hy_status bench_softmax(hy_device* device) {
  return bench_with(device, softmax);
}

hy_status bench_norm(hy_device* device) {
  return bench_with(device, norms);
}
