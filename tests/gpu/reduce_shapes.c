// Reductions and gradients of norms of a GPU backend at shapes of models: lines of a block, parts
// that the last block joins, and tails, which the conformance cases, whose tensors are small, do
// not reach. Every call runs on the cpu too and is compared with it.
//
//   reduce_shapes [--backend cuda:0] [--only TEXT] [--time]
//
// --time prints how long a call takes on the device instead, on random data.
#include "twins.h"

// Sums in another order, in units of the largest.
static double loose(hy_dtype dtype) {
  return dtype == HY_F64 ? 1024 : dtype == HY_F32 ? 64 : 2;
}

static double bytes_of(const twin* t) {
  return (double)hy_tensor_bytes(&t->host);
}

// Over the second of three dimensions.
static void reduce(hy_op op, hy_dtype dtype, int64_t outer, int64_t length, int64_t inner) {
  char name[96];
  snprintf(name, sizeof name, "%s %s %lldx[%lld]x%lld", hy_op_describe(op)->name,
           hy_dtype_name(dtype), (long long)outer, (long long)length, (long long)inner);
  if (!wanted(name)) return;
  hy_attrs attrs = {0};
  attrs.reduce.dims = hy_one_dim(1);
  twin x = random_tensor(dtype, 3, (int64_t[]){outer, length, inner}, -1, 3);
  bool whole = !hy_dtype_is_float(dtype), extreme = op == HY_OP_max || op == HY_OP_min;
  check(name, op, &attrs, 1, &x, whole || extreme ? 0 : loose(dtype), 0, bytes_of(&x));
}

static void variance(hy_dtype dtype, int64_t length, int64_t inner) {
  char name[96];
  snprintf(name, sizeof name, "var %s [%lld]x%lld", hy_dtype_name(dtype), (long long)length,
           (long long)inner);
  if (!wanted(name)) return;
  hy_attrs attrs = {0};
  attrs.var.dims = hy_one_dim(0);
  attrs.var.correction = 1;
  twin x = random_tensor(dtype, 2, (int64_t[]){length, inner}, -1, 3);
  check(name, HY_OP_var, &attrs, 1, &x, loose(dtype), 0, 2 * bytes_of(&x));
}

// x has a mean of 0 and a variance of 1, nearly.
static void gradient(hy_dtype dtype, hy_dtype parameters, int64_t rows, int64_t columns,
                     bool centred, bool weighted) {
  hy_op op = centred ? HY_OP_layer_norm_backward : HY_OP_rms_norm_backward;
  char name[96];
  snprintf(name, sizeof name, "%s %s %lldx%lld %s", hy_op_describe(op)->name, hy_dtype_name(dtype),
           (long long)rows, (long long)columns, weighted ? hy_dtype_name(parameters) : "plain");
  if (!wanted(name)) return;
  hy_attrs attrs = {0};
  attrs.norm.norm_dims = 1;
  hy_dtype math = dtype == HY_F64 ? HY_F64 : HY_F32;
  int64_t shape[] = {rows, columns}, each[] = {rows, 1};
  twin dy = random_tensor(dtype, 2, shape, -1, 1), x = random_tensor(dtype, 2, shape, -1.7, 1.7);
  twin rstd = random_tensor(math, 2, each, 0.9, 1.1);
  twin weight = weighted ? random_tensor(parameters, 1, &columns, 0.5, 1.5) : absent();
  double bytes = 3 * bytes_of(&x);
  if (centred)
    check(name, op, &attrs, 5,
          (twin[]){dy, x, random_tensor(math, 2, each, -0.1, 0.1), rstd, weight}, loose(dtype), 0,
          bytes);
  else
    check(name, op, &attrs, 4, (twin[]){dy, x, rstd, weight}, loose(dtype), 0, bytes);
}

static void correctness(void) {
  static const hy_dtype types[] = {HY_F32, HY_BF16, HY_F16, HY_F64, HY_I8, HY_I32};
  static const hy_op ops[] = {HY_OP_sum, HY_OP_max, HY_OP_min};
  for (int t = 0; t < 6; t++)
    for (int o = 0; o < 3; o++) {
      reduce(ops[o], types[t], 1, 3001, 32);   // fewer vectors than a line has
      reduce(ops[o], types[t], 1, 1037, 304);  // the last block's line is not full
      reduce(ops[o], types[t], 1, 70, 6400);   // enough columns for whole blocks
      reduce(ops[o], types[t], 3, 517, 160);   // lines across outer dimensions
      reduce(ops[o], types[t], 97, 4099, 1);   // rows with a tail, a line each
      reduce(ops[o], types[t], 97, 8192, 1);
      reduce(ops[o], types[t], 1, 300007, 1);  // one result, parts for blocks
    }
  for (int t = 0; t < 4; t++) {
    reduce(HY_OP_mean, types[t], 2, 1037, 304);
    variance(types[t], 1037, 304);
    for (int centred = 0; centred < 2; centred++) {
      gradient(types[t], types[t], 75, 896, centred, true);
      gradient(types[t], types[t], 1061, 1032, centred, true);
      gradient(types[t], types[t] == HY_F64 ? HY_F64 : HY_F32, 75, 4096, centred, true);
      gradient(types[t], types[t], 19, 6152, centred, false);
      gradient(types[t], types[t], 5, 30000, centred, true);  // too long to be held
    }
  }
}

static void speed(void) {
  static const hy_dtype types[] = {HY_BF16, HY_F32};
  static const int64_t shapes[][2] = {{16384, 4096}, {4096, 896}, {16384, 1024}};
  for (int t = 0; t < 2; t++)
    for (int s = 0; s < 3; s++) {
      int64_t rows = shapes[s][0], columns = shapes[s][1];
      reduce(HY_OP_sum, types[t], rows, columns, 1);
      reduce(HY_OP_max, types[t], rows, columns, 1);
      reduce(HY_OP_sum, types[t], 1, rows, columns);
      reduce(HY_OP_sum, types[t], 1, rows * columns, 1);
      gradient(types[t], types[t], rows, columns, true, true);
      gradient(types[t], types[t], rows, columns, false, true);
    }
}

int main(int argc, char** argv) {
  return run_twins(argc, argv, correctness, speed);
}
