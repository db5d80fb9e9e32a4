// FlashAttention of f32 without tensor cores, forward and backward: tiles in shared memory, and of
// each product a thread computes a block in registers. A block of threads keeps ROWS lines
// (queries, or keys for dk and dv) and goes through the others STEP at a time. Nothing is added by
// atomics. Options: HEAD (64 or 128, the padded head size), THREADS, STEP.
//
// options: -DHEAD=64 -DTHREADS=256 -DSTEP=64
// options: -DHEAD=64 -DTHREADS=256 -DSTEP=32
// options: -DHEAD=128 -DTHREADS=256 -DSTEP=32
// options: -DHEAD=128 -DTHREADS=256 -DSTEP=64
#include "attention_rows.cuh"

#define ROWS 64
#define EACH (ROWS / (THREADS / 16))  // rows of a thread
#define ACROSS (STEP / 16)            // columns of a thread, of a product of lines
#define COLUMNS (HEAD / 16)           // and of a sum of lines
#define LINE (HEAD + 4)               // numbers from a line to the next: no two meet in a bank
#define SHARE_LINE (ROWS + 4)

// Where a thread's numbers are: rows of both, columns of a product, and of a sum.
DEVICE int row_of(int i) {
  return (int)threadIdx.x / 16 * EACH + i;
}
DEVICE int across_of(int j) {
  return (int)threadIdx.x % 16 + 16 * j;
}
DEVICE int column_of(int j) {
  return j / 4 * 64 + (int)threadIdx.x % 16 * 4 + j % 4;
}

// Lines row0.. of a head, zeros beyond them and beyond their width.
template <int LINES>
DEVICE void load_lines(f32* tile, const hy_heads& t, i64 batch, int head, int row0, int rows,
                       int width) {
  for (int i = threadIdx.x; i < LINES * (HEAD / 4); i += THREADS) {
    const int line = i / (HEAD / 4), column = i % (HEAD / 4) * 4;
    vec<f32, 4> v = {{0, 0, 0, 0}};
    if (row0 + line < rows && column < width) {
      const f32* from = head_row<f32>(t, batch, head, row0 + line) + column;
      if (column + 4 <= width)
        v = *(const vec<f32, 4>*)from;
      else
#pragma unroll
        for (int e = 0; e < 3; e++)
          if (column + e < width) v.at[e] = from[e];
    }
    *(vec<f32, 4>*)(tile + line * LINE + column) = v;
  }
}

// s[ROWS, STEP] = a b^T, of lines along the head.
DEVICE void product(f32 (&s)[EACH][ACROSS], const f32* a, const f32* b) {
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < ACROSS; j++) s[i][j] = 0;
#pragma unroll 4
  for (int d = 0; d < HEAD; d += 4) {
    vec<f32, 4> x[EACH], y[ACROSS];
#pragma unroll
    for (int i = 0; i < EACH; i++) x[i] = *(const vec<f32, 4>*)(a + row_of(i) * LINE + d);
#pragma unroll
    for (int j = 0; j < ACROSS; j++) y[j] = *(const vec<f32, 4>*)(b + across_of(j) * LINE + d);
#pragma unroll
    for (int e = 0; e < 4; e++)
#pragma unroll
      for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < ACROSS; j++) s[i][j] += x[i].at[e] * y[j].at[e];
  }
}

// A product as `add_lines` takes it: a line for each of its columns.
DEVICE void put_shares(f32* shares, const f32 (&s)[EACH][ACROSS]) {
#pragma unroll
  for (int j = 0; j < ACROSS; j++)
#pragma unroll
    for (int i = 0; i < EACH; i += 4)
      *(vec<f32, 4>*)(shares + across_of(j) * SHARE_LINE + row_of(i)) =
          vec<f32, 4>{{s[i][j], s[i + 1][j], s[i + 2][j], s[i + 3][j]}};
}

// sum[ROWS, HEAD] += shares[STEP, ROWS]^T b[STEP, HEAD].
DEVICE void add_lines(f32 (&sum)[EACH][COLUMNS], const f32* shares, const f32* b) {
#pragma unroll 8
  for (int k = 0; k < STEP; k++) {
    vec<f32, 4> x[EACH / 4], y[COLUMNS / 4];
#pragma unroll
    for (int i = 0; i < EACH / 4; i++)
      x[i] = *(const vec<f32, 4>*)(shares + k * SHARE_LINE + row_of(4 * i));
#pragma unroll
    for (int j = 0; j < COLUMNS / 4; j++)
      y[j] = *(const vec<f32, 4>*)(b + k * LINE + column_of(4 * j));
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) sum[i][j] += x[i / 4].at[i % 4] * y[j / 4].at[j % 4];
  }
}

DEVICE void clear(f32 (&sum)[EACH][COLUMNS]) {
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) sum[i][j] = 0;
}

// Keys that a query sees, none where it is not there.
DEVICE int limit_of(const hy_attention& a, int query) {
  return query < a.queries ? visible_keys(a, query) : 0;
}

// A score from its product, or -inf where the mask hides the key.
DEVICE f32 score(const hy_attention& a, i64 batch, int head, int query, int key, f32 product) {
  f32 s = product * (f32)a.scale;
  if (!a.mask) return s;
  f32 more = mask_at<f32>(a, batch, head, query, key);
  return more == -INF_F32 ? more : s + more;
}

// ---- forward ----

// Grid: query tiles, heads, batch. Shared: queries; keys, then probabilities; values.
KERNEL void __launch_bounds__(THREADS) attention_f32(hy_attention a) {
  extern __shared__ __align__(16) f32 lines[];
  f32 *q = lines, *k = q + ROWS * LINE, *v = k + STEP * LINE, *shares = k;
  // Tiles that see many keys go first, so that short ones fill the end.
  const int row0 = (int)(gridDim.x - 1 - blockIdx.x) * ROWS, head = blockIdx.y;
  const int kv_head = head / (a.heads / a.kv_heads);
  const i64 batch = blockIdx.z;
  const int visible = visible_keys(a, min(row0 + ROWS, a.queries) - 1);
  f32 top[EACH], total[EACH], out[EACH][COLUMNS];
  clear(out);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    top[i] = -INF_F32;
    total[i] = 0;
  }
  load_lines<ROWS>(q, a.q, batch, head, row0, a.queries, a.size);
  for (int key0 = 0; key0 < visible; key0 += STEP) {
    __syncthreads();
    load_lines<STEP>(k, a.k, batch, kv_head, key0, a.keys, a.size);
    load_lines<STEP>(v, a.v, batch, kv_head, key0, a.keys, a.value_size);
    __syncthreads();
    f32 s[EACH][ACROSS];
    product(s, q, k);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int row = row0 + row_of(i), limit = limit_of(a, row);
      f32 high = top[i];
#pragma unroll
      for (int j = 0; j < ACROSS; j++) {
        const int key = key0 + across_of(j);
        s[i][j] = key < limit ? score(a, batch, head, row, key, s[i][j]) : -INF_F32;
        high = fmaxf(high, s[i][j]);
      }
#pragma unroll
      for (int mask = 8; mask > 0; mask /= 2) high = fmaxf(high, SHFL_XOR(high, mask));
      const f32 base = high == -INF_F32 ? 0 : high, keep = expf(top[i] - base);
      top[i] = high;
      total[i] *= keep;
#pragma unroll
      for (int j = 0; j < ACROSS; j++) total[i] += s[i][j] = expf(s[i][j] - base);
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) out[i][j] *= keep;
    }
    __syncthreads();
    put_shares(shares, s);
    __syncthreads();
    add_lines(out, shares, v);
  }
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int row = row0 + row_of(i);
    f32 sum = total[i];
#pragma unroll
    for (int mask = 8; mask > 0; mask /= 2) sum += SHFL_XOR(sum, mask);
    if (row >= a.queries) continue;
    const f32 share = sum == 0 ? 0 : 1 / sum;
    f32* to_row = head_row<f32>(a.out, batch, head, row);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
      if (column_of(j) < a.value_size) to_row[column_of(j)] = out[i][j] * share;
    if (a.lse && threadIdx.x % 16 == 0)
      ((f32*)a.lse)[query_index(a, batch, head, row)] = sum == 0 ? -INF_F32 : top[i] + logf(sum);
  }
}

// ---- backward ----

DEVICE f32* partial_row(const hy_attention& a, int which, i64 batch, int head, int key) {
  i64 row = (batch * a.heads + head) * a.keys + key;
  return a.partial + (which * (i64)a.batches * a.heads * a.keys + row) * HEAD;
}

DEVICE void put_lines(const hy_heads& t, i64 batch, int head, int row0, int rows, int width,
                      const f32 (&sum)[EACH][COLUMNS]) {
  if (!t.data) return;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int row = row0 + row_of(i);
    if (row >= rows) continue;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
      if (column_of(j) < width) head_row<f32>(t, batch, head, row)[column_of(j)] = sum[i][j];
  }
}

// One step, for keys against queries (by_key) or queries against keys: the probabilities' gradients
// of own lines and the step's, added to what their sums are. Shared memory: own lines of k and v,
// or of q and dout; the step's of the other two; shares.
struct backward_lines {
  f32 *first, *second, *step_first, *step_second, *shares;
};

DEVICE backward_lines backward_memory(f32* lines) {
  f32* step = lines + 2 * ROWS * LINE;
  backward_lines m = {lines, lines + ROWS * LINE, step, step + STEP * LINE, step + 2 * STEP * LINE};
  return m;
}

template <bool by_key>
DEVICE void backward_step(const hy_attention& a, const backward_lines& m, i64 batch, int head,
                          int own0, int step0, f32 (&first)[EACH][COLUMNS],
                          f32 (&second)[EACH][COLUMNS]) {
  f32 s[EACH][ACROSS], ds[EACH][ACROSS];
  product(s, m.first, m.step_first);
  product(ds, m.second, m.step_second);
  // What a query has, for each of a thread's: its columns, or its rows.
  const int N = by_key ? ACROSS : EACH;
  int limit[N];
  f32 lse[N], delta[N];
#pragma unroll
  for (int n = 0; n < N; n++) {
    const int query = by_key ? step0 + across_of(n) : own0 + row_of(n);
    const i64 at = query_index(a, batch, head, min(query, a.queries - 1));
    limit[n] = limit_of(a, query);
    lse[n] = ((const f32*)a.lse)[at];
    delta[n] = ((const f32*)a.delta)[at];
  }
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < ACROSS; j++) {
      const int own = own0 + row_of(i), other = step0 + across_of(j), n = by_key ? j : i;
      const int query = by_key ? other : own, key = by_key ? own : other;
      f32 x = key < limit[n] ? score(a, batch, head, query, key, s[i][j]) : -INF_F32;
      bool hidden = x == -INF_F32;  // also where no key is seen, and lse is that too
      s[i][j] = hidden ? 0 : expf(x - lse[n]);
      ds[i][j] = hidden ? 0 : s[i][j] * (ds[i][j] - delta[n]) * (f32)a.scale;
    }
  if (by_key) {
    put_shares(m.shares, s);
    __syncthreads();
    add_lines(second, m.shares, m.step_second);
    __syncthreads();
  }
  put_shares(m.shares, ds);
  __syncthreads();
  add_lines(first, m.shares, m.step_first);
}

// Grid: key tiles, key heads (query heads where there is `partial`), batch.
KERNEL void __launch_bounds__(THREADS) attention_f32_backward_key(hy_attention a) {
  extern __shared__ __align__(16) f32 lines[];
  const backward_lines m = backward_memory(lines);
  const int group = a.heads / a.kv_heads, y = (int)blockIdx.y, key0 = (int)blockIdx.x * ROWS;
  const int kv_head = a.partial ? y / group : y, head0 = a.partial ? y : y * group;
  const int heads = a.partial ? 1 : group;
  const i64 batch = blockIdx.z;
  f32 dk[EACH][COLUMNS], dv[EACH][COLUMNS];
  clear(dk);
  clear(dv);
  load_lines<ROWS>(m.first, a.k, batch, kv_head, key0, a.keys, a.size);
  load_lines<ROWS>(m.second, a.v, batch, kv_head, key0, a.keys, a.value_size);
  for (int head = head0; head < head0 + heads; head++)
    for (int row0 = first_query(a, key0) / STEP * STEP; row0 < a.queries; row0 += STEP) {
      __syncthreads();
      load_lines<STEP>(m.step_first, a.q, batch, head, row0, a.queries, a.size);
      load_lines<STEP>(m.step_second, a.dout, batch, head, row0, a.queries, a.value_size);
      __syncthreads();
      backward_step<true>(a, m, batch, head, key0, row0, dk, dv);
    }
  if (!a.partial) {
    put_lines(a.dk, batch, kv_head, key0, a.keys, a.size, dk);
    put_lines(a.dv, batch, kv_head, key0, a.keys, a.value_size, dv);
    return;
  }
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
      const int key = key0 + row_of(i);
      if (key >= a.keys) continue;
      partial_row(a, 0, batch, head0, key)[column_of(j)] = dk[i][j];
      partial_row(a, 1, batch, head0, key)[column_of(j)] = dv[i][j];
    }
}

// dk and dv from the parts of their query heads.
KERNEL void attention_f32_backward_sum(hy_attention a) {
  const int group = a.heads / a.kv_heads;
  const i64 each = (i64)a.batches * a.kv_heads * a.keys * HEAD;
  GRID_STRIDE(i, 2 * each) {
    const int which = i >= each, column = (int)(i % HEAD);
    const hy_heads& to = which ? a.dv : a.dk;
    if (!to.data || column >= (which ? a.value_size : a.size)) continue;
    const i64 row = i % each / HEAD, of = row / a.keys, batch = of / a.kv_heads;
    const int key = (int)(row % a.keys), head = (int)(of % a.kv_heads);
    f32 sum = 0;
    for (int h = 0; h < group; h++)
      sum += partial_row(a, which, batch, head * group + h, key)[column];
    head_row<f32>(to, batch, head, key)[column] = sum;
  }
}

// Grid: query tiles, heads, batch.
KERNEL void __launch_bounds__(THREADS) attention_f32_backward_query(hy_attention a) {
  extern __shared__ __align__(16) f32 lines[];
  const backward_lines m = backward_memory(lines);
  const int row0 = (int)(gridDim.x - 1 - blockIdx.x) * ROWS, head = blockIdx.y;
  const int kv_head = head / (a.heads / a.kv_heads);
  const i64 batch = blockIdx.z;
  const int visible = visible_keys(a, min(row0 + ROWS, a.queries) - 1);
  f32 dq[EACH][COLUMNS];
  clear(dq);
  load_lines<ROWS>(m.first, a.q, batch, head, row0, a.queries, a.size);
  load_lines<ROWS>(m.second, a.dout, batch, head, row0, a.queries, a.value_size);
  for (int key0 = 0; key0 < visible; key0 += STEP) {
    __syncthreads();
    load_lines<STEP>(m.step_first, a.k, batch, kv_head, key0, a.keys, a.size);
    load_lines<STEP>(m.step_second, a.v, batch, kv_head, key0, a.keys, a.value_size);
    __syncthreads();
    backward_step<false>(a, m, batch, head, row0, key0, dq, dq);
  }
  put_lines(a.dq, batch, head, row0, a.queries, a.size, dq);
}
