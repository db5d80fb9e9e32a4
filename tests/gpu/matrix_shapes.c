// Matrix families and norms of a GPU backend at shapes of models: tiles, tails, stages and splits
// that the conformance cases, whose tensors are small, do not reach. Every call runs on the cpu too
// and is compared with it.
//
//   matrix_shapes [--backend cuda:0] [--only TEXT] [--time]
//
// --time also prints how long a call takes on the device; use it with --only, on random data.
#include "twins.h"

// ---- families ----

static void linear(hy_dtype dtype, int64_t m, int64_t n, int64_t k, bool bias) {
  char name[96];
  snprintf(name, sizeof name, "linear %s m=%lld n=%lld k=%lld%s", hy_dtype_name(dtype),
           (long long)m, (long long)n, (long long)k, bias ? " bias" : "");
  if (!wanted(name)) return;
  twin in[3] = {random_tensor(dtype, 2, (int64_t[]){m, k}, -1, 1),
                random_tensor(dtype, 2, (int64_t[]){n, k}, -1, 1),
                bias ? random_tensor(dtype, 1, &n, -1, 1) : absent()};
  hy_attrs none = {0};
  double size = (double)hy_dtype_size(dtype);
  check(name, HY_OP_linear, &none, 3, in, dtype == HY_F32 ? 64 : 2, 2.0 * m * n * k,
        size * (double)(m * k + n * k + m * n));
}

static void product(hy_dtype dtype, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  char name[96];
  snprintf(name, sizeof name, "mm %s m=%lld n=%lld k=%lld %s%s", hy_dtype_name(dtype), (long long)m,
           (long long)n, (long long)k, ta ? "T" : "N", tb ? "T" : "N");
  if (!wanted(name)) return;
  twin a = random_tensor(dtype, 2, ta ? (int64_t[]){k, m} : (int64_t[]){m, k}, -1, 1);
  twin b = random_tensor(dtype, 2, tb ? (int64_t[]){n, k} : (int64_t[]){k, n}, -1, 1);
  if (ta) hy_transpose(&a.host, &a.host, 0, 1), hy_transpose(&a.device, &a.device, 0, 1);
  if (tb) hy_transpose(&b.host, &b.host, 0, 1), hy_transpose(&b.device, &b.device, 0, 1);
  hy_attrs none = {0};
  check(name, HY_OP_mm, &none, 2, (twin[]){a, b},
        dtype == HY_F32   ? 64
        : dtype == HY_F64 ? 64
                          : 2,
        2.0 * m * n * k, (double)hy_dtype_size(dtype) * (double)(m * k + n * k + m * n));
}

static void products(hy_dtype dtype, int64_t batch, int64_t m, int64_t n, int64_t k) {
  char name[96];
  snprintf(name, sizeof name, "bmm %s %lld of m=%lld n=%lld k=%lld NT", hy_dtype_name(dtype),
           (long long)batch, (long long)m, (long long)n, (long long)k);
  if (!wanted(name)) return;
  twin a = random_tensor(dtype, 3, (int64_t[]){batch, m, k}, -1, 1);
  twin b = random_tensor(dtype, 3, (int64_t[]){batch, n, k}, -1, 1);
  hy_transpose(&b.host, &b.host, 1, 2), hy_transpose(&b.device, &b.device, 1, 2);
  hy_attrs none = {0};
  check(name, HY_OP_bmm, &none, 2, (twin[]){a, b}, 2, 2.0 * batch * m * n * k,
        (double)hy_dtype_size(dtype) * (double)(batch * (m * k + n * k + m * n)));
}

static void int_product(int64_t m, int64_t n, int64_t k, bool tb) {
  char name[96];
  snprintf(name, sizeof name, "int_mm m=%lld n=%lld k=%lld N%s", (long long)m, (long long)n,
           (long long)k, tb ? "T" : "N");
  if (!wanted(name)) return;
  twin a = random_tensor(HY_I8, 2, (int64_t[]){m, k}, -128, 128);
  twin b = random_tensor(HY_I8, 2, tb ? (int64_t[]){n, k} : (int64_t[]){k, n}, -128, 128);
  if (tb) hy_transpose(&b.host, &b.host, 0, 1), hy_transpose(&b.device, &b.device, 0, 1);
  hy_attrs none = {0};
  check(name, HY_OP_int_mm, &none, 2, (twin[]){a, b}, 0, 2.0 * m * n * k,
        (double)(m * k + n * k + 4 * m * n));
}

static void quantized(hy_dtype x, hy_dtype q, int64_t group, int64_t m, int64_t n, int64_t k) {
  char name[96];
  snprintf(name, sizeof name, "linear_quantized %s x %s/%lld m=%lld n=%lld k=%lld",
           hy_dtype_name(x), hy_dtype_name(q), (long long)group, (long long)m, (long long)n,
           (long long)k);
  if (!wanted(name)) return;
  twin in[4] = {random_tensor(x, 2, (int64_t[]){m, k}, -1, 1),
                random_tensor(q, 2, (int64_t[]){n, k}, -127, 127),
                random_tensor(HY_F32, 2, (int64_t[]){n, k / group}, 0.01, 0.02),
                random_tensor(x, 1, &n, -1, 1)};
  hy_attrs none = {0};
  check(name, HY_OP_linear_quantized, &none, 4, in, x == HY_F32 ? 64 : 2, 2.0 * m * n * k,
        (double)hy_dtype_bits(q) / 8 * (double)(n * k) + 4.0 * n * k / group);
}

static void int8_layer(hy_dtype q, int64_t x_group, int64_t group, int64_t m, int64_t n, int64_t k,
                       hy_dtype to) {
  char name[96];
  snprintf(name, sizeof name, "linear_int8 /%lld x %s/%lld m=%lld n=%lld k=%lld %s",
           (long long)x_group, hy_dtype_name(q), (long long)group, (long long)m, (long long)n,
           (long long)k, hy_dtype_name(to));
  if (!wanted(name)) return;
  twin in[5] = {random_tensor(HY_I8, 2, (int64_t[]){m, k}, -127, 127),
                random_tensor(HY_F32, 2, (int64_t[]){m, k / x_group}, 0.01, 0.02),
                random_tensor(q, 2, (int64_t[]){n, k}, -127, 127),
                random_tensor(HY_F32, 2, (int64_t[]){n, k / group}, 0.01, 0.02),
                random_tensor(to, 1, &n, -1, 1)};
  hy_attrs attrs = {0};
  attrs.cast.dtype = to;
  check(name, HY_OP_linear_int8, &attrs, 5, in, to == HY_F32 ? 64 : 2, 2.0 * m * n * k,
        (double)hy_dtype_bits(q) / 8 * (double)(n * k) + 4.0 * n * k / group);
}

static void attention(hy_dtype dtype, int64_t b, int64_t h, int64_t hkv, int64_t t, int64_t s,
                      int64_t d, hy_causal causal, int mask, bool backward) {
  char name[128];
  snprintf(name, sizeof name, "%s %s b=%lld h=%lld/%lld t=%lld s=%lld d=%lld causal=%d mask=%d",
           backward ? "sdpa_backward" : "sdpa", hy_dtype_name(dtype), (long long)b, (long long)h,
           (long long)hkv, (long long)t, (long long)s, (long long)d, causal, mask);
  if (!wanted(name)) return;
  hy_attrs attrs = {0};
  attrs.attention.causal = causal;
  twin q = random_tensor(dtype, 4, (int64_t[]){b, h, t, d}, -2, 2);
  twin k = random_tensor(dtype, 4, (int64_t[]){b, hkv, s, d}, -2, 2);
  twin v = random_tensor(dtype, 4, (int64_t[]){b, hkv, s, d}, -2, 2);
  twin m = absent();
  if (mask == 1) m = random_tensor(HY_BOOL, 2, (int64_t[]){t, s}, 0, 3);
  if (mask == 2) m = random_tensor(dtype, 4, (int64_t[]){b, 1, t, s}, -2, 2);
  double flops = 4.0 * b * h * t * s * d * (causal ? 0.5 : 1);
  double loose = dtype == HY_F32 ? 64 : 4;
  if (!backward) {
    check(name, HY_OP_sdpa, &attrs, 4, (twin[]){q, k, v, m}, loose, flops, 0);
    return;
  }
  // The forward's own results on the cpu, given to both sides.
  twin dout = random_tensor(dtype, 4, (int64_t[]){b, h, t, d}, -1, 1);
  twin out = place(dtype, 4, (int64_t[]){b, h, t, d}), lse = place(HY_F32, 3, (int64_t[]){b, h, t});
  hy_tensor in[4] = {q.host, k.host, v.host, m.host}, results[2] = {out.host, lse.host};
  hy_call forward = {
      .op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = in, .out = results, .attrs = attrs};
  if (!timing) must(hy_run(cpu_stream, &forward), "forward");
  upload(&out);
  upload(&lse);
  check(name, HY_OP_sdpa_backward, &attrs, 7, (twin[]){dout, q, k, v, out, lse, m}, 4 * loose,
        2.5 * flops, 0);
}

static void norm(hy_dtype dtype, hy_dtype parameters, int64_t rows, int64_t columns, bool centred) {
  char name[96];
  snprintf(name, sizeof name, "%s %s %lldx%lld %s", centred ? "layer_norm" : "rms_norm",
           hy_dtype_name(dtype), (long long)rows, (long long)columns, hy_dtype_name(parameters));
  if (!wanted(name)) return;
  hy_attrs attrs = {0};
  attrs.norm.norm_dims = 1;
  attrs.norm.eps = 1e-6;
  twin x = random_tensor(dtype, 2, (int64_t[]){rows, columns}, -2, 3);
  twin weight = random_tensor(parameters, 1, &columns, 0.5, 1.5);
  twin bias = centred ? random_tensor(parameters, 1, &columns, -1, 1) : absent();
  check(name, centred ? HY_OP_layer_norm : HY_OP_rms_norm, &attrs, centred ? 3 : 2,
        (twin[]){x, weight, bias}, dtype == HY_F32 ? 64 : 2, 0,
        2.0 * (double)(rows * columns) * (double)hy_dtype_size(dtype));
}

static void rope(hy_dtype dtype, int64_t tokens, int64_t heads, int64_t size, bool interleaved) {
  char name[96];
  snprintf(name, sizeof name, "rope %s %lldx%lldx%lld interleaved=%d", hy_dtype_name(dtype),
           (long long)tokens, (long long)heads, (long long)size, interleaved);
  if (!wanted(name)) return;
  hy_attrs attrs = {0};
  attrs.rope.interleaved = interleaved;
  twin x = random_tensor(dtype, 3, (int64_t[]){tokens, heads, size}, -2, 2);
  twin cosine = random_tensor(HY_F32, 3, (int64_t[]){tokens, 1, size / 2}, -1, 1);
  twin sine = random_tensor(HY_F32, 3, (int64_t[]){tokens, 1, size / 2}, -1, 1);
  check(name, HY_OP_rope, &attrs, 3, (twin[]){x, cosine, sine}, dtype == HY_F32 ? 64 : 2, 0,
        2.0 * (double)(tokens * heads * size) * (double)hy_dtype_size(dtype));
}

static void paged(hy_dtype dtype, int64_t sequences, int64_t queries, int64_t context, int64_t h,
                  int64_t hkv, int64_t d, int64_t block) {
  char name[128];
  snprintf(name, sizeof name,
           "paged_attention %s n=%lld t=%lld s=%lld h=%lld/%lld d=%lld block=%lld",
           hy_dtype_name(dtype), (long long)sequences, (long long)queries, (long long)context,
           (long long)h, (long long)hkv, (long long)d, (long long)block);
  if (!wanted(name)) return;
  int64_t most = (context + block - 1) / block + 3, blocks = sequences * most + 5;
  twin q = random_tensor(dtype, 3, (int64_t[]){sequences * queries, h, d}, -2, 2);
  twin k = random_tensor(dtype, 4, (int64_t[]){blocks, block, hkv, d}, -2, 2);
  twin v = random_tensor(dtype, 4, (int64_t[]){blocks, block, hkv, d}, -2, 2);
  twin table = place(HY_I32, 2, (int64_t[]){sequences, most});
  twin start = place(HY_I32, 1, (int64_t[]){sequences + 1}), length = place(HY_I32, 1, &sequences);
  for (int64_t i = 0; i < sequences * most; i++)
    ((int32_t*)table.host.data)[i] = (int32_t)((i * 7 + 3) % blocks);
  for (int64_t i = 0; i <= sequences; i++) ((int32_t*)start.host.data)[i] = (int32_t)(i * queries);
  for (int64_t i = 0; i < sequences; i++)
    ((int32_t*)length.host.data)[i] =
        (int32_t)(context - (i % 3) * 5 < queries ? queries : context - (i % 3) * 5);
  upload(&table);
  upload(&start);
  upload(&length);
  hy_attrs attrs = {0};
  check(name, HY_OP_paged_attention, &attrs, 6, (twin[]){q, k, v, table, start, length},
        dtype == HY_F32 ? 64 : 4, 4.0 * sequences * queries * h * context * d,
        (double)hy_dtype_size(dtype) * 2 * (double)(sequences * context * hkv * d));
}

static void fused(hy_dtype dtype, hy_dtype q, int64_t m, int64_t n, int64_t k, bool norm,
                  bool gated) {
  char name[128];
  snprintf(name, sizeof name, "fused_linear %s %s m=%lld n=%lld k=%lld%s%s", hy_dtype_name(dtype),
           hy_dtype_name(q), (long long)m, (long long)n, (long long)k, norm ? " norm" : "",
           gated ? " gated" : "");
  if (!wanted(name)) return;
  int64_t rows = gated ? 2 * n : n, group = q == HY_I8 && k % 128 == 0 ? 128 : 32;
  twin in[6] = {
      random_tensor(dtype, 2, (int64_t[]){m, k}, -1, 1),
      norm ? random_tensor(dtype, 1, &k, 0.5, 1.5) : absent(),
      random_tensor(q, 2, (int64_t[]){rows, k}, q == dtype ? -0.05 : -127, q == dtype ? 0.05 : 127),
      q == dtype ? absent()
                 : random_tensor(HY_F32, 2, (int64_t[]){rows, k / group}, 0.0002, 0.0004),
      random_tensor(dtype, 1, &rows, -1, 1),
      random_tensor(dtype, 2, (int64_t[]){m, n}, -1, 1)};
  hy_attrs attrs = {.fused_linear = {1e-6, gated, dtype}};
  check(name, HY_OP_fused_linear, &attrs, 6, in, dtype == HY_F32 ? 256 : 4,
        2.0 * (double)(m * rows * k), (double)hy_dtype_bits(q) / 8 * (double)(rows * k));
}

static void decode(hy_dtype dtype, int64_t sequences, int64_t context, int64_t h, int64_t hkv,
                   int64_t d) {
  char name[128];
  snprintf(name, sizeof name, "rope_paged_attention %s n=%lld s=%lld h=%lld/%lld d=%lld",
           hy_dtype_name(dtype), (long long)sequences, (long long)context, (long long)h,
           (long long)hkv, (long long)d);
  if (!wanted(name)) return;
  int64_t block = 16, most = (context + block - 1) / block + 3, blocks = sequences * most + 1;
  twin k = random_tensor(dtype, 4, (int64_t[]){blocks, block, hkv, d}, -2, 2);
  twin v = random_tensor(dtype, 4, (int64_t[]){blocks, block, hkv, d}, -2, 2);
  twin qkv = random_tensor(dtype, 3, (int64_t[]){sequences, h + 2 * hkv, d}, -2, 2);
  twin c = random_tensor(HY_F32, 2, (int64_t[]){context, d / 2}, -1, 1);
  twin s = random_tensor(HY_F32, 2, (int64_t[]){context, d / 2}, -1, 1);
  twin table = place(HY_I64, 2, (int64_t[]){sequences, most});
  twin length = place(HY_I64, 1, &sequences);
  for (int64_t i = 0; i < sequences * most; i++)
    ((int64_t*)table.host.data)[i] = sequences * most - i;
  for (int64_t i = 0; i < sequences; i++)
    ((int64_t*)length.host.data)[i] = context - (i % 3) * 5 < 1 ? 1 : context - (i % 3) * 5;
  upload(&table);
  upload(&length);
  hy_attrs attrs = {0};
  check(name, HY_OP_rope_paged_attention, &attrs, 7, (twin[]){k, v, qkv, c, s, table, length},
        dtype == HY_F32 ? 64 : 4, 4.0 * (double)(sequences * h * context * d),
        (double)hy_dtype_size(dtype) * 2 * (double)(sequences * context * hkv * d));
}

static void conv(hy_dtype dtype, int64_t n, int64_t c, int64_t size, int64_t out, int64_t kernel,
                 int64_t stride, int64_t padding, int64_t groups) {
  char name[128];
  snprintf(name, sizeof name,
           "conv2d %s n=%lld c=%lld %lldx%lld out=%lld kernel=%lld stride=%lld groups=%lld",
           hy_dtype_name(dtype), (long long)n, (long long)c, (long long)size, (long long)size,
           (long long)out, (long long)kernel, (long long)stride, (long long)groups);
  if (!wanted(name)) return;
  hy_attrs attrs = {0};
  attrs.conv.stride = (hy_pair){stride, stride};
  attrs.conv.padding = (hy_pair){padding, padding};
  attrs.conv.dilation = (hy_pair){1, 1};
  attrs.conv.groups = groups;
  int64_t o = (size + 2 * padding - kernel) / stride + 1;
  double flops = 2.0 * n * out * o * o * (c / groups) * kernel * kernel;
  twin x = random_tensor(dtype, 4, (int64_t[]){n, c, size, size}, -1, 1);
  twin w = random_tensor(dtype, 4, (int64_t[]){out, c / groups, kernel, kernel}, -1, 1);
  check(name, HY_OP_conv2d, &attrs, 3, (twin[]){x, w, random_tensor(dtype, 1, &out, -1, 1)},
        dtype == HY_F32 ? 64 : 2, flops, 0);
  x = random_tensor(dtype, 4, (int64_t[]){n, c, size, size}, -1, 1);
  w = random_tensor(dtype, 4, (int64_t[]){out, c / groups, kernel, kernel}, -1, 1);
  twin dy = random_tensor(dtype, 4, (int64_t[]){n, out, o, o}, -1, 1);
  check(name, HY_OP_conv2d_backward, &attrs, 3, (twin[]){dy, x, w}, dtype == HY_F32 ? 256 : 4,
        2 * flops, 0);
}

static void sparse(hy_dtype dtype, int64_t m, int64_t n, int64_t k) {
  static const uint8_t pairs[] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};  // two places of four
  char name[128];
  snprintf(name, sizeof name, "linear_sparse_2_4 %s m=%lld n=%lld k=%lld", hy_dtype_name(dtype),
           (long long)m, (long long)n, (long long)k);
  if (!wanted(name)) return;
  hy_attrs attrs = {0};
  twin x = random_tensor(dtype, 2, (int64_t[]){m, k}, -1, 1);
  twin values = random_tensor(dtype, 2, (int64_t[]){n, k / 2}, -1, 1);
  twin codes = place(HY_U8, 2, (int64_t[]){n, k / 8});
  for (int64_t i = 0; i < n * k / 8; i++)
    ((uint8_t*)codes.host.data)[i] = (uint8_t)(pairs[i % 6] | pairs[i / 7 % 6] << 4);
  upload(&codes);
  codes.host.layout = codes.device.layout = HY_LAYOUT_SPARSE_2_4;
  check(name, HY_OP_linear_sparse_2_4, &attrs, 4,
        (twin[]){x, values, codes, random_tensor(dtype, 1, &n, -1, 1)}, dtype == HY_F32 ? 64 : 2,
        1.0 * (double)(m * n * k), 0);
}

static void moe(hy_dtype dtype, int64_t tokens, int64_t size, int64_t hidden, int64_t experts,
                int64_t chosen) {
  char name[96];
  snprintf(name, sizeof name,
           "fused_moe %s tokens=%lld size=%lld hidden=%lld experts=%lld chosen=%lld",
           hy_dtype_name(dtype), (long long)tokens, (long long)size, (long long)hidden,
           (long long)experts, (long long)chosen);
  if (!wanted(name)) return;
  twin in[5] = {random_tensor(dtype, 2, (int64_t[]){tokens, size}, -1, 1),
                random_tensor(dtype, 3, (int64_t[]){experts, 2 * hidden, size}, -0.2, 0.2),
                random_tensor(dtype, 3, (int64_t[]){experts, size, hidden}, -0.2, 0.2),
                random_tensor(dtype, 2, (int64_t[]){tokens, chosen}, 0, 1),
                random_tensor(HY_I32, 2, (int64_t[]){tokens, chosen}, 0, (double)experts - 0.01)};
  hy_attrs none = {0};
  check(name, HY_OP_fused_moe, &none, 5, in, dtype == HY_F32 ? 128 : 4,
        6.0 * tokens * chosen * size * hidden, 0);
}

// residual + x weight^T, as addmm.
static void residual(hy_dtype dtype, int64_t m, int64_t n, int64_t k) {
  char name[96];
  snprintf(name, sizeof name, "residual %s m=%lld n=%lld k=%lld", hy_dtype_name(dtype),
           (long long)m, (long long)n, (long long)k);
  if (!wanted(name)) return;
  twin in[3] = {random_tensor(dtype, 2, (int64_t[]){m, n}, -1, 1),
                random_tensor(dtype, 2, (int64_t[]){m, k}, -1, 1),
                random_tensor(dtype, 2, (int64_t[]){n, k}, -0.1, 0.1)};
  hy_transpose(&in[2].host, &in[2].host, 0, 1);
  hy_transpose(&in[2].device, &in[2].device, 0, 1);
  hy_attrs attrs = {.addmm = {hy_int(1), hy_int(1)}};
  check(name, HY_OP_addmm, &attrs, 3, in, 2, 2.0 * (double)(m * n * k),
        (double)hy_dtype_size(dtype) * (double)(n * k));
}

// The gate of an MLP over halves of rows, as a captured graph fuses it: the bits of the two calls.
static void gate(hy_dtype dtype, int64_t m, int64_t n) {
  char name[96];
  snprintf(name, sizeof name, "gate %s m=%lld n=%lld", hy_dtype_name(dtype), (long long)m,
           (long long)n);
  if (!wanted(name)) return;
  twin both = random_tensor(dtype, 2, (int64_t[]){m, 2 * n}, -4, 4);
  twin inner = place(dtype, 2, (int64_t[]){m, n});
  twin results[2] = {place(dtype, 2, (int64_t[]){m, n}), place(dtype, 2, (int64_t[]){m, n})};
  hy_tensor first = both.device, second = both.device;
  first.shape[1] = second.shape[1] = n;
  second.data = (char*)both.device.data + n * (int64_t)hy_dtype_size(dtype);
  size_t bytes = hy_tensor_bytes(&results[0].device);
  for (int captured = 0; captured < 2; captured++) {
    hy_graph* graph = NULL;
    if (captured) must(hy_capture_begin(gpu_stream), name);
    must(hy_silu(gpu_stream, &inner.device, &first), name);
    must(hy_mul(gpu_stream, &results[captured].device, &inner.device, &second), name);
    if (captured) {
      must(hy_capture_end(gpu_stream, &graph), name);
      must(hy_graph_run_passes(graph, HY_PASS_FUSE, NULL), name);
      if (hy_graph_node_count(graph) != 1) printf("%s: not one kernel\n", name), failures++;
      must(hy_graph_launch(graph, gpu_stream), name);
    }
    must(hy_memcpy(gpu_stream, results[captured].host.data, results[captured].device.data, bytes,
                   HY_COPY_DEVICE_TO_HOST),
         name);
    must(hy_stream_sync(gpu_stream), name);
    hy_graph_destroy(graph);
  }
  runs++;
  if (memcmp(results[0].host.data, results[1].host.data, bytes) == 0) return;
  failures++;
  printf("%s: one kernel and two differ\n", name);
}

static void correctness(void) {
  int_product(40, 64, 96, false);
  int_product(33, 48, 4096, true);
  int_product(257, 272, 528, false);
  int_product(200, 1008, 1024, true);
  int_product(100, 100, 100, false);  // too odd for cuBLASLt
  static const hy_dtype halves[] = {HY_BF16, HY_F16};
  for (int i = 0; i < 2; i++) {
    hy_dtype h = halves[i];
    static const int64_t rows[] = {1, 3, 8, 9, 16, 31, 64, 65, 130};
    for (int r = 0; r < 9; r++) linear(h, rows[r], 200, 328, r % 2);
    linear(h, 1, 64, 4864, true);
    linear(h, 7, 40, 2056, false);
    for (int t = 0; t < 4; t++) product(h, 200, 264, 328, t & 1, t & 2);
    product(h, 130, 72, 100, false, false);
    product(h, 129, 257, 33, false, true);
    product(h, 384, 512, 256, false, true);
    product(h, 320, 400, 192, false, false);
    product(h, 256, 264, 136, true, false);
    product(h, 96, 100, 4000, true, false);  // split-K
    product(h, 24, 200, 2000, true, true);
    product(h, 16, 136, 4096, true, false);  // a gradient's
    linear(h, 500, 16, 896, false);          // few columns
    product(h, 300, 40, 520, false, true);
    for (int t = 0; t < 4; t++) product(h, 1104, 1208, 200, t & 1, t & 2);  // Hopper's own tiles
    product(h, 1100, 2200, 72, false, true);
    linear(h, 2000, 1152, 96, true);
    for (int t = 0; t < 2; t++) product(h, 2300, 1790, 72, false, t);  // its widest tiles
    for (int t = 0; t < 2; t++) product(h, 250, 1150, 776, false, t);  // its parts of k
    static const int64_t tiles[][3] = {{449, 889, 904},  {449, 1144, 904},  {513, 1160, 904},
                                       {450, 888, 4864}, {1985, 1144, 136}, {1985, 888, 136},
                                       {4033, 888, 136}, {4033, 1160, 392}, {4033, 1144, 904}};
    for (int s = 0; s < 9; s++)  // each of its kinds, with a few rows and columns over
      for (int b = 0; b < 2; b++) linear(h, tiles[s][0], tiles[s][1], tiles[s][2], b);
    product(h, 456, 9656, 392, true, true);
    product(h, 450, 1144, 904, false, false);
    product(h, 456, 1144, 904, true, false);
    products(h, 4, 130, 889, 904);
    products(h, 3, 129, 568, 904);
    products(h, 8, 193, 584, 136);
    static const hy_dtype weights[] = {HY_I8, HY_I4, HY_F8E4M3, HY_F8E5M2};
    for (int w = 0; w < 4; w++) {
      static const int64_t tokens[] = {1, 5, 12, 20, 50, 150};
      for (int r = 0; r < 6; r++) {
        quantized(h, weights[w], 32, tokens[r], 80, 544);
        quantized(h, weights[w], 128, tokens[r], 48, 1152);
        quantized(h, weights[w], 608, tokens[r], 48, 608);
      }
      quantized(h, weights[w], 64, 1, 40, 4864);
    }
    static const int64_t tokens[] = {1, 5, 12, 20, 50, 150};
    for (int r = 0; r < 6; r++) {
      int8_layer(HY_I8, 32, 128, tokens[r], 80, 1152, h);
      int8_layer(HY_I4, 32, 32, tokens[r], 48, 544, h);
      int8_layer(HY_I8, 96, 608, tokens[r], 72, 1824, h);
      int8_layer(HY_I4, 608, 608, tokens[r], 40, 608, h);
    }
    int8_layer(HY_I8, 32, 128, 1, 64, 4864, h);
    // Rows of a warp each, and longer ones.
    static const int64_t columns[] = {896, 1032, 2048, 4096, 4104};
    for (int r = 0; r < 5; r++) {
      norm(h, h, 1061, columns[r], false);
      norm(h, r % 2 ? HY_F32 : h, 1061, columns[r], true);
    }
    // One query, and few: keys in parts.
    attention(h, 1, 14, 2, 1, 4096, 64, HY_CAUSAL_NONE, 0, false);
    attention(h, 3, 4, 4, 1, 1000, 128, HY_CAUSAL_BOTTOM_RIGHT, 0, false);
    attention(h, 1, 6, 2, 5, 700, 40, HY_CAUSAL_BOTTOM_RIGHT, 0, false);
    attention(h, 2, 2, 1, 3, 600, 64, HY_CAUSAL_TOP_LEFT, 0, false);  // parts without keys
    attention(h, 1, 2, 1, 2, 500, 256, HY_CAUSAL_NONE, 2, false);
    // Hopper's own kernel.
    attention(h, 1, 4, 2, 800, 800, 64, HY_CAUSAL_TOP_LEFT, 0, false);
    attention(h, 1, 2, 1, 790, 1000, 64, HY_CAUSAL_BOTTOM_RIGHT, 0, false);
    attention(h, 2, 1, 1, 900, 300, 64, HY_CAUSAL_BOTTOM_RIGHT, 0, false);
    attention(h, 1, 2, 2, 800, 700, 40, HY_CAUSAL_NONE, 0, false);
    attention(h, 1, 3, 1, 800, 800, 128, HY_CAUSAL_TOP_LEFT, 0, false);
    attention(h, 1, 2, 2, 801, 777, 128, HY_CAUSAL_NONE, 0, false);
    attention(h, 1, 2, 1, 800, 1100, 96, HY_CAUSAL_BOTTOM_RIGHT, 0, false);
    attention(h, 20, 14, 2, 400, 400, 64, HY_CAUSAL_TOP_LEFT, 0, false);  // several tiles a block
    attention(h, 40, 8, 8, 400, 100, 64, HY_CAUSAL_BOTTOM_RIGHT, 0, false);
    attention(h, 20, 8, 2, 260, 300, 128, HY_CAUSAL_BOTTOM_RIGHT, 0, false);
    attention(h, 1, 4, 2, 800, 800, 64, HY_CAUSAL_TOP_LEFT, 0, true);  // parts by query head
    attention(h, 1, 2, 2, 390, 500, 64, HY_CAUSAL_BOTTOM_RIGHT, 0, true);
    attention(h, 2, 1, 1, 900, 300, 64, HY_CAUSAL_BOTTOM_RIGHT, 0, true);  // rows without keys
    attention(h, 1, 2, 2, 300, 700, 40, HY_CAUSAL_NONE, 0, true);
    attention(h, 1, 3, 1, 400, 400, 128, HY_CAUSAL_TOP_LEFT, 0, true);
    attention(h, 1, 2, 2, 301, 277, 96, HY_CAUSAL_NONE, 0, true);
    attention(h, 67, 8, 4, 200, 200, 64, HY_CAUSAL_TOP_LEFT, 0, true);  // a block for all heads
    attention(h, 133, 14, 2, 130, 130, 64, HY_CAUSAL_TOP_LEFT, 0, true);
    attention(h, 67, 6, 3, 140, 150, 128, HY_CAUSAL_BOTTOM_RIGHT, 0, true);
    for (int back = 0; back < 2; back++) {
      attention(h, 2, 4, 2, 150, 150, 64, HY_CAUSAL_TOP_LEFT, 0, back);
      attention(h, 1, 6, 2, 70, 200, 64, HY_CAUSAL_BOTTOM_RIGHT, 0, back);
      attention(h, 1, 2, 2, 130, 90, 128, HY_CAUSAL_NONE, 0, back);
      attention(h, 1, 7, 1, 40, 140, 128, HY_CAUSAL_TOP_LEFT, 1, back);
      attention(h, 2, 2, 1, 70, 70, 96, HY_CAUSAL_NONE, 2, back);
      attention(h, 1, 2, 1, 100, 100, 256, HY_CAUSAL_TOP_LEFT, 0, back);
      attention(h, 1, 3, 3, 65, 65, 20, HY_CAUSAL_TOP_LEFT, 0, back);
      attention(h, 1, 2, 2, 200, 100, 64, HY_CAUSAL_BOTTOM_RIGHT, 0, back);  // rows without keys
    }
    // How blocks share out quantised weights for one row comes from the shape: those of models.
    static const hy_dtype bits[] = {HY_I8, HY_I4};
    for (int q = 0; q < 2; q++) {
      fused(h, bits[q], 1, 1152, 896, true, false);
      fused(h, bits[q], 1, 896, 896, false, false);
      fused(h, bits[q], 1, 4864, 896, true, true);
      fused(h, bits[q], 1, 896, 4864, false, false);
      fused(h, bits[q], 1, 8960, 1536, true, true);
      fused(h, bits[q], 1, 1536, 8960, false, false);
    }
    static const int64_t few[] = {1, 2, 3, 4, 5};
    for (int r = 0; r < 5; r++) {
      fused(h, h, few[r], 72, 896, true, false);
      fused(h, h, few[r], 37, 896, r % 2, true);
      fused(h, h, few[r], 40, 4864, false, false);
      fused(h, HY_I8, few[r], 72, 896, true, true);
      fused(h, HY_I8, few[r], 40, 4864, false, false);
      fused(h, HY_I4, few[r], 39, 896, true, true);
      fused(h, HY_I4, few[r], 40, 4864, false, false);
      // Tiles of a warp alone, the last one in part the one before.
      fused(h, HY_I8, few[r], 17003, r % 2 ? 256 : 320, true, false);
      fused(h, HY_I8, few[r], 17003, 64, false, true);
      fused(h, HY_I4, few[r], 9003, r % 2 ? 384 : 256, r % 2, true);
    }
    static const int64_t batch[] = {6, 17, 33, 64};
    for (int r = 0; r < 4; r++) {
      fused(h, h, batch[r], 72, 896, false, false);
      fused(h, h, batch[r], 70, 256, false, true);
      fused(h, HY_I8, batch[r], 72, 896, false, true);
      fused(h, HY_I8, batch[r], 40, 4864, false, false);  // split-K
      fused(h, HY_I4, batch[r], 39, 896, false, true);
      fused(h, HY_I4, batch[r], 130, 128, false, false);
      fused(h, HY_I8, batch[r], 40, 896, true, false);  // strips
    }
    fused(h, HY_I8, 64, 40000, 128, false, false);  // larger tiles
    fused(h, h, 1, 3000, 896, true, true);          // several rounds of a warp
    fused(h, HY_I8, 1, 3000, 896, true, true);
    fused(h, h, 1, 20000, 128, true, false);
    fused(h, HY_I8, 1, 17003, 896, true, false);  // by dp4a
    fused(h, HY_I8, 1, 16901, 1024, false, false);
    fused(h, HY_I8, 1, 40, 14336, false, false);  // more lines than fit under way at once
    decode(h, 1, 1, 14, 2, 64);
    decode(h, 1, 64, 14, 2, 64);
    decode(h, 1, 65, 14, 2, 64);
    decode(h, 3, 700, 14, 2, 64);
    decode(h, 2, 333, 24, 2, 128);
    decode(h, 2, 500, 16, 2, 128);
    decode(h, 1, 9000, 14, 2, 64);  // parts of several passes
    decode(h, 40, 130, 4, 4, 40);
    paged(h, 3, 1, 700, 14, 2, 64, 16);
    paged(h, 2, 5, 333, 8, 8, 128, 16);
    paged(h, 2, 100, 260, 14, 2, 64, 32);
    paged(h, 1, 1, 40, 4, 1, 80, 8);
    residual(h, 6, 896, 896);
    residual(h, 64, 100, 4864);
    residual(h, 40, 72, 200);
    gate(h, 64, 1216);
    gate(h, 300, 1000);
    rope(h, 100, 14, 64, false);  // whole vectors
    rope(h, 30, 3, 72, false);
    rope(h, 30, 2, 64, true);
    conv(h, 2, 16, 14, 24, 3, 1, 1, 1);
    moe(h, 70, 64, 96, 4, 2);
  }
  linear(HY_F32, 130, 200, 328, true);
  linear(HY_F32, 1, 67, 1501, true);
  linear(HY_F32, 5, 130, 2048, true);
  product(HY_F64, 3, 77, 600, false, true);
  product(HY_F32, 200, 130, 77, false, false);
  product(HY_F32, 600, 700, 130, true, false);
  product(HY_F64, 100, 130, 77, false, true);
  product(HY_F32, 16, 200, 4000, true, false);  // split-K, a gradient's
  product(HY_F64, 9, 70, 1100, true, true);
  quantized(HY_F32, HY_I8, 32, 5, 80, 160);
  attention(HY_F32, 1, 4, 2, 70, 100, 40, HY_CAUSAL_BOTTOM_RIGHT, 0, false);
  attention(HY_F32, 1, 4, 2, 70, 100, 40, HY_CAUSAL_BOTTOM_RIGHT, 2, true);
  for (int back = 0; back < 2; back++) {  // in tiles
    attention(HY_F32, 2, 4, 2, 150, 150, 64, HY_CAUSAL_TOP_LEFT, 0, back);
    attention(HY_F32, 1, 2, 2, 90, 200, 63, HY_CAUSAL_BOTTOM_RIGHT, 1, back);
    attention(HY_F32, 1, 6, 2, 200, 70, 128, HY_CAUSAL_BOTTOM_RIGHT, 0, back);  // rows without keys
    attention(HY_F32, 1, 2, 1, 130, 130, 96, HY_CAUSAL_NONE, 2, back);
    attention(HY_F32, 90, 4, 2, 33, 129, 40, HY_CAUSAL_NONE, 0, back);
  }
  paged(HY_F32, 2, 3, 100, 4, 2, 32, 16);
  sparse(HY_F16, 72, 96, 160);
  sparse(HY_BF16, 136, 256, 1024);
  conv(HY_F32, 2, 20, 20, 70, 3, 2, 1, 1);
  conv(HY_F32, 3, 12, 15, 24, 5, 1, 2, 4);
  moe(HY_F32, 100, 48, 80, 5, 3);
}

static void speed(void) {
  static const int64_t sizes[] = {1024, 2048, 4096, 8192};
  for (int i = 0; i < 4; i++) {
    product(HY_BF16, sizes[i], sizes[i], sizes[i], false, true);
    product(HY_BF16, sizes[i], sizes[i], sizes[i], false, false);
    product(HY_BF16, sizes[i], sizes[i], sizes[i], true, false);
  }
  product(HY_F32, 4096, 4096, 4096, false, true);
  linear(HY_F32, 1, 9728, 896, false);
  linear(HY_F32, 1, 151936, 896, false);
  // Qwen2.5-0.5B: qkv, o, gate_up, down, head; a prompt and decoding.
  static const int64_t layers[][2] = {
      {1152, 896}, {896, 896}, {9728, 896}, {896, 4864}, {151936, 896}};
  static const int64_t rows[] = {1, 8, 16, 64, 512, 4096};
  for (int l = 0; l < 5; l++)
    for (int r = 0; r < 6; r++) {
      if (l == 4 && rows[r] > 64) continue;
      linear(HY_BF16, rows[r], layers[l][0], layers[l][1], false);
      if (rows[r] > 512) continue;
      quantized(HY_BF16, HY_I8, 32, rows[r], layers[l][0], layers[l][1]);
      quantized(HY_BF16, HY_I4, 32, rows[r], layers[l][0], layers[l][1]);
      int8_layer(HY_I8, 32, 128, rows[r], layers[l][0], layers[l][1], HY_BF16);
      int8_layer(HY_I4, 32, 32, rows[r], layers[l][0], layers[l][1], HY_BF16);
      quantized(HY_BF16, HY_F8E4M3, layers[l][1], rows[r], layers[l][0], layers[l][1]);
    }
  for (int l = 0; l < 5; l++) {
    bool gated = l == 2;
    int64_t n = gated ? layers[l][0] / 2 : layers[l][0];
    static const hy_dtype weights[] = {HY_BF16, HY_I8, HY_I4};
    for (int w = 0; w < 3; w++) {
      fused(HY_BF16, weights[w], 1, n, layers[l][1], l % 2 == 0, gated);
      fused(HY_BF16, weights[w], 64, n, layers[l][1], false, gated);
    }
  }
  residual(HY_BF16, 64, 896, 896);
  residual(HY_BF16, 64, 896, 4864);
  // LoRA of rank 16 at 8 x 512 tokens: down, up, and the gradients of both.
  linear(HY_BF16, 4096, 16, 896, false);
  linear(HY_BF16, 4096, 896, 16, false);
  product(HY_BF16, 16, 896, 4096, true, false);
  product(HY_BF16, 896, 16, 4096, true, false);
  product(HY_BF16, 4096, 16, 896, false, false);
  product(HY_BF16, 4096, 896, 9728, false, false);
  product(HY_BF16, 4096, 4864, 896, false, false);
  for (int centred = 0; centred < 2; centred++) {
    norm(HY_BF16, HY_BF16, 4096, 896, centred);
    norm(HY_BF16, HY_BF16, 4096, 2048, centred);
    norm(HY_BF16, HY_BF16, 4096, 4096, centred);
    norm(HY_BF16, HY_BF16, 16384, 4096, centred);
  }
  attention(HY_BF16, 1, 14, 14, 1, 4096, 64, HY_CAUSAL_NONE, 0, false);
  attention(HY_BF16, 32, 14, 14, 1, 4096, 64, HY_CAUSAL_NONE, 0, false);
  static const int64_t heads[] = {64, 128};
  for (int d = 0; d < 2; d++)
    for (int64_t t = 1024; t <= 16384; t *= 4) {
      int64_t b = 16384 / t, h = 2048 / heads[d];
      attention(HY_BF16, b, h, h, t, t, heads[d], HY_CAUSAL_TOP_LEFT, 0, false);
      attention(HY_BF16, b, h, h, t, t, heads[d], HY_CAUSAL_NONE, 0, false);
      attention(HY_BF16, b, h, h, t, t, heads[d], HY_CAUSAL_TOP_LEFT, 0, true);
    }
  attention(HY_BF16, 8, 14, 2, 512, 512, 64, HY_CAUSAL_TOP_LEFT, 0, false);
  attention(HY_BF16, 8, 14, 2, 512, 512, 64, HY_CAUSAL_TOP_LEFT, 0, true);
  paged(HY_BF16, 1, 1, 128, 14, 2, 64, 16);
  paged(HY_BF16, 1, 1, 1024, 14, 2, 64, 16);
  paged(HY_BF16, 64, 1, 1024, 14, 2, 64, 16);
  paged(HY_BF16, 8, 512, 512, 14, 2, 64, 16);
  for (int64_t m = 64; m <= 4096; m *= 8) sparse(HY_BF16, m, 4096, 4096);
  sparse(HY_BF16, 4096, 14336, 4096);
  static const hy_dtype image_types[] = {HY_BF16, HY_F16, HY_F32};
  for (int i = 0; i < 3; i++) {  // layers of a ResNet-50
    conv(image_types[i], 32, 3, 224, 64, 7, 2, 3, 1);
    conv(image_types[i], 32, 64, 56, 64, 3, 1, 1, 1);
    conv(image_types[i], 32, 256, 56, 64, 1, 1, 0, 1);
    conv(image_types[i], 32, 256, 14, 256, 3, 1, 1, 1);
  }
  moe(HY_BF16, 1024, 1024, 512, 32, 4);
}

int main(int argc, char** argv) {
  return run_twins(argc, argv, correctness, speed);
}
