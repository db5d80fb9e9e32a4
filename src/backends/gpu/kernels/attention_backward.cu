// FlashAttention backward of f16 and bf16. Two kernels, each of which owns what it writes, so that
// nothing is added by atomics and the result is the same every time: one goes through the queries
// for a tile of keys (dk, dv), one through the keys for a tile of queries (dq). Scores are computed
// anew in both. Where query heads share keys and blocks are few, each query head has its own blocks
// and attention_backward_sum adds their parts in order. With p = exp(score - lse) and delta = dout
// . out (attention_simt.cu's attention_delta): dv = p^T dout, ds = p (dout v^T - delta), dk = scale
// ds^T q, dq = scale ds k. Options: T, HEAD, MASKED, and BQ, BKV: rows and keys of a tile of
// attention_backward_query.
//
// needs: mma
// options: -DT=bf16 -DHEAD=32 -DBQ=64 -DBKV=64 -DMASKED=0
// options: -DT=bf16 -DHEAD=64 -DBQ=64 -DBKV=64 -DMASKED=1
// options: -DT=f16 -DHEAD=128 -DBQ=64 -DBKV=64 -DMASKED=0
// options: -DT=bf16 -DHEAD=256 -DBQ=64 -DBKV=32 -DMASKED=0
#include "attention_rows.cuh"
#include "flash.cuh"

#define THREADS (4 * MMA_LANES)
#define KEYS 64                      // of attention_backward_key: 16 a warp
#define ROWS (HEAD <= 64 ? 64 : 32)  // of its steps
#define COLUMNS (HEAD <= 128 ? HEAD : 128)

struct packed_rows {
  const hy_attention& a;
  i64 batch;
  int kv_head, first_head, group;
  __device__ __forceinline__ int query(int row) const { return row / group; }
  __device__ __forceinline__ int head(int row) const { return first_head + row % group; }
  __device__ __forceinline__ u16* at(const hy_heads& t, int row) const {
    return head_row<u16>(t, batch, head(row), query(row));
  }
  __device__ __forceinline__ i64 index(int row) const {
    return query_index(a, batch, head(row), query(row));
  }
  __device__ __forceinline__ int visible(int row) const { return visible_keys(a, query(row)); }
  // p of one score; the key is one that the row sees but for a mask.
  __device__ __forceinline__ f32 probability(int row, int key, f32 product, f32 lse) const {
    f32 score = product * (f32)a.scale;
    if (MASKED) {
      f32 more = mask_at<f32>(a, batch, head(row), query(row), key);
      if (more == -INF_F32) return 0;
      score += more;
    }
    return exp2_approx((score - lse) * LOG2_E);
  }
};

// A row of delta for each 8 columns' threads. Grid: rows of all heads.
KERNEL void attention_delta(hy_attention a) {
  const int lanes = HEAD / 8, column = (int)threadIdx.x % lanes * 8;
  const i64 index = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / lanes;
  const bool there = index < (i64)a.batches * a.heads * a.queries;
  f32 sum = 0;
  if (there && column < a.value_size) {
    const i64 of = index / a.queries, batch = of / a.heads;
    const int head = (int)(of % a.heads), query = (int)(index % a.queries);
    const T* dout = (const T*)head_row<u16>(a.dout, batch, head, query) + column;
    const T* out = (const T*)head_row<u16>(a.out, batch, head, query) + column;
    if (column + 8 <= a.value_size) {
      vec<T, 8> x = *(const vec<T, 8>*)dout, y = *(const vec<T, 8>*)out;
#pragma unroll
      for (int k = 0; k < 8; k++) sum += to<f32>(x.at[k]) * to<f32>(y.at[k]);
    } else {
      for (int k = 0; k < a.value_size - column; k++) sum += to<f32>(dout[k]) * to<f32>(out[k]);
    }
  }
#pragma unroll
  for (int mask = lanes / 2; mask > 0; mask /= 2) sum += SHFL_XOR(sum, mask);
  if (there && column == 0) ((f32*)a.delta)[index] = sum;
}

DEVICE void put_pair(u16* row, int column, int width, f32 first, f32 second) {
  if (column + 1 < width)
    *(u32*)(row + column) = pack_pair(T(), first, second);
  else if (column < width)
    *(T*)(row + column) = from<T>(first);
}

DEVICE f32* partial_row(const hy_attention& a, int which, i64 batch, int head, int key) {
  i64 row = (batch * a.heads + head) * a.keys + key;
  return a.partial + (which * (i64)a.batches * a.heads * a.keys + row) * HEAD;
}

// ---- dk and dv: a tile of keys, its scores transposed so that a warp owns 16 keys ----

typedef mma_tile<KEYS, HEAD, true> keys_tile;
typedef mma_tile<ROWS, HEAD, true> rows_tile;     // q or dout, as it is multiplied by keys
typedef mma_tile<HEAD, ROWS, false> rows_across;  // the same memory, summed over rows

// Grid: key tiles x column parts, key heads (query heads where there is `partial`), batch. Shared:
// keys, values, two stages of q and dout, lse, delta and limits of their rows.
KERNEL void __launch_bounds__(THREADS) attention_backward_key(hy_attention a) {
  extern __shared__ __align__(128) char shared[];
  const int parts = HEAD / COLUMNS, key0 = blockIdx.x / parts * KEYS;
  const int column0 = blockIdx.x % parts * COLUMNS;
  const int warp = threadIdx.x / MMA_LANES, lane = threadIdx.x % MMA_LANES;
  const int shared_by = a.heads / a.kv_heads, y = (int)blockIdx.y;
  packed_rows p = {a, (i64)blockIdx.z, y, y * shared_by, shared_by};
  if (a.partial) p.kv_head = y / shared_by, p.first_head = y, p.group = 1;
  const int rows = a.queries * p.group, first = first_query(a, key0) * p.group;
  char *k_at = shared, *v_at = shared + keys_tile::BYTES;
  char* stages = shared + 2 * keys_tile::BYTES;
  f32* stats = (f32*)(stages + 4 * rows_tile::BYTES);  // [2 stages][lse, delta][ROWS]
  int* limits = (int*)(stats + 4 * ROWS);              // [2 stages][ROWS]: keys that a row sees
  auto q_at = [&](int j) { return stages + j % 2 * 2 * rows_tile::BYTES; };
  auto copy = [&](int j) {
    int row0 = first + j * ROWS;
    copy_rows<ROWS, THREADS>(
        q_at(j), a.size, [&](int line) { return row0 + line < rows ? p.at(a.q, row0 + line) : 0; });
    copy_rows<ROWS, THREADS>(q_at(j) + rows_tile::BYTES, a.value_size, [&](int line) {
      return row0 + line < rows ? p.at(a.dout, row0 + line) : 0;
    });
    f32* own = stats + j % 2 * 2 * ROWS;
    for (int i = threadIdx.x; i < ROWS; i += THREADS) {
      bool there = row0 + i < rows;
      own[i] = there ? ((const f32*)a.lse)[p.index(row0 + i)] : 0;
      own[ROWS + i] = there ? ((const f32*)a.delta)[p.index(row0 + i)] : 0;
      limits[j % 2 * ROWS + i] = there ? p.visible(row0 + i) : 0;
    }
  };
  copy_rows<KEYS, THREADS>(k_at, a.size, [&](int line) {
    return key0 + line < a.keys ? head_row<u16>(a.k, p.batch, p.kv_head, key0 + line) : 0;
  });
  copy_rows<KEYS, THREADS>(v_at, a.value_size, [&](int line) {
    return key0 + line < a.keys ? head_row<u16>(a.v, p.batch, p.kv_head, key0 + line) : 0;
  });
  const int steps = rows > first ? (rows - first + ROWS - 1) / ROWS : 0;
  if (steps > 0) copy(0);
  copy_async_commit();

  f32 dk[COLUMNS / 8][2 * MMA_ROWS], dv[COLUMNS / 8][2 * MMA_ROWS];
#pragma unroll
  for (int i = 0; i < COLUMNS / 8; i++)
#pragma unroll
    for (int e = 0; e < 2 * MMA_ROWS; e++) dk[i][e] = dv[i][e] = 0;

  for (int j = 0; j < steps; j++) {
    copy_async_wait<0>();
    __syncthreads();
    if (j + 1 < steps) copy(j + 1);
    copy_async_commit();
    const char *q = q_at(j), *dout = q + rows_tile::BYTES;
    const f32* own = stats + j % 2 * 2 * ROWS;
    f32 s[ROWS / 8][2 * MMA_ROWS], ds[ROWS / 8][2 * MMA_ROWS];
    product_of_rows<T, keys_tile, rows_tile>(s, k_at, warp * 16, q);
    product_of_rows<T, keys_tile, rows_tile>(ds, v_at, warp * 16, dout);
#pragma unroll
    for (int i = 0; i < ROWS / 8; i++)
#pragma unroll
      for (int e = 0; e < 2 * MMA_ROWS; e++) {
        int key = key0 + warp * 16 + mma_row(lane) + e / 2 * 8;
        int line = mma_column(lane, i) + e % 2;
        bool seen = key < limits[j % 2 * ROWS + line];
        f32 share = seen ? p.probability(first + j * ROWS + line, key, s[i][e], own[line]) : 0;
        s[i][e] = share;
        ds[i][e] = share * (ds[i][e] - own[ROWS + line]);
      }
    add_product<T, rows_across>(dv, s, dout, column0);
    add_product<T, rows_across>(dk, ds, q, column0);
  }
  copy_async_wait<0>();
#pragma unroll
  for (int h = 0; h < MMA_ROWS; h++) {
    int key = key0 + warp * 16 + mma_row(lane) + 8 * h;
    if (key >= a.keys) continue;
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i++) {
      int column = column0 + mma_column(lane, i);
      if (a.partial) {
        f32* at = partial_row(a, 0, p.batch, p.first_head, key) + column;
        *(float2*)at = make_float2(dk[i][2 * h], dk[i][2 * h + 1]);
        at = partial_row(a, 1, p.batch, p.first_head, key) + column;
        *(float2*)at = make_float2(dv[i][2 * h], dv[i][2 * h + 1]);
        continue;
      }
      if (a.dk.data)
        put_pair(head_row<u16>(a.dk, p.batch, p.kv_head, key), column, a.size,
                 dk[i][2 * h] * (f32)a.scale, dk[i][2 * h + 1] * (f32)a.scale);
      if (a.dv.data)
        put_pair(head_row<u16>(a.dv, p.batch, p.kv_head, key), column, a.value_size, dv[i][2 * h],
                 dv[i][2 * h + 1]);
    }
  }
}

// dk and dv from the parts of their query heads, two neighbours at a time.
KERNEL void attention_backward_sum(hy_attention a) {
  const int group = a.heads / a.kv_heads;
  const i64 pairs = (i64)a.batches * a.kv_heads * a.keys * (HEAD / 2);
  GRID_STRIDE(i, 2 * pairs) {
    const int which = i >= pairs, column = (int)(i % (HEAD / 2)) * 2;
    const hy_heads& to = which ? a.dv : a.dk;
    if (!to.data) continue;
    i64 row = i % pairs / (HEAD / 2), of = row / a.keys;
    int key = (int)(row % a.keys), head = (int)(of % a.kv_heads);
    i64 batch = of / a.kv_heads;
    f32 first = 0, second = 0;
    for (int h = 0; h < group; h++) {
      float2 part = *(const float2*)(partial_row(a, which, batch, head * group + h, key) + column);
      first += part.x;
      second += part.y;
    }
    f32 scale = which ? 1.0f : (f32)a.scale;
    put_pair(head_row<u16>(to, batch, head, key), column, which ? a.value_size : a.size,
             first * scale, second * scale);
  }
}

// ---- dq: a tile of rows against all keys that they see ----

typedef mma_tile<HEAD, BKV, false> k_across;

// Shared: q, dout, two stages of keys and values.
KERNEL void __launch_bounds__(FLASH_THREADS) attention_backward_query(hy_attention a) {
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / MMA_LANES, lane = threadIdx.x % MMA_LANES;
  const int row0 = (int)(gridDim.x - 1 - blockIdx.x) * BQ;
  const int shared_by = a.heads / a.kv_heads, y = (int)blockIdx.y;
  packed_rows p = {a, (i64)blockIdx.z, y, y * shared_by, shared_by};
  const int rows = a.queries * p.group, last = min(row0 + BQ, rows) - 1;
  const int key_end = visible_keys(a, p.query(last));
  char *q = shared, *dout = shared + q_tile::BYTES;
  auto k_at = [&](int j) { return shared + 2 * q_tile::BYTES + j % 2 * 2 * k_tile::BYTES; };
  auto copy = [&](int j) {
    copy_rows<BKV, FLASH_THREADS>(k_at(j), a.size, [&](int line) {
      int key = j * BKV + line;
      return key < key_end ? head_row<u16>(a.k, p.batch, p.kv_head, key) : 0;
    });
    copy_rows<BKV, FLASH_THREADS>(k_at(j) + k_tile::BYTES, a.value_size, [&](int line) {
      int key = j * BKV + line;
      return key < key_end ? head_row<u16>(a.v, p.batch, p.kv_head, key) : 0;
    });
  };
  copy_rows<BQ, FLASH_THREADS>(
      q, a.size, [&](int line) { return row0 + line < rows ? p.at(a.q, row0 + line) : 0; });
  copy_rows<BQ, FLASH_THREADS>(dout, a.value_size, [&](int line) {
    return row0 + line < rows ? p.at(a.dout, row0 + line) : 0;
  });
  const int steps = (key_end + BKV - 1) / BKV;
  if (steps > 0) copy(0);
  copy_async_commit();

  const int mine = row0 + warp * 16 + mma_row(lane);  // and 8 rows below
  int limit[MMA_ROWS];
  f32 lse[MMA_ROWS], delta[MMA_ROWS], dq[HEAD / 8][2 * MMA_ROWS];
#pragma unroll
  for (int h = 0; h < MMA_ROWS; h++) {
    bool there = mine + 8 * h < rows;
    lse[h] = there ? ((const f32*)a.lse)[p.index(mine + 8 * h)] : 0;
    delta[h] = there ? ((const f32*)a.delta)[p.index(mine + 8 * h)] : 0;
    limit[h] = there ? p.visible(mine + 8 * h) : 0;
  }
#pragma unroll
  for (int i = 0; i < HEAD / 8; i++)
#pragma unroll
    for (int e = 0; e < 2 * MMA_ROWS; e++) dq[i][e] = 0;

  for (int j = 0; j < steps; j++) {
    copy_async_wait<0>();
    __syncthreads();
    if (j + 1 < steps) copy(j + 1);
    copy_async_commit();
    f32 s[BKV / 8][2 * MMA_ROWS], ds[BKV / 8][2 * MMA_ROWS];
    product_of_rows<T, q_tile, k_tile>(s, q, warp * 16, k_at(j));
    product_of_rows<T, q_tile, k_tile>(ds, dout, warp * 16, k_at(j) + k_tile::BYTES);
#pragma unroll
    for (int i = 0; i < BKV / 8; i++)
#pragma unroll
      for (int e = 0; e < 2 * MMA_ROWS; e++) {
        int row = mine + e / 2 * 8, key = j * BKV + mma_column(lane, i) + e % 2;
        f32 share = key < limit[e / 2] ? p.probability(row, key, s[i][e], lse[e / 2]) : 0;
        ds[i][e] = share * (ds[i][e] - delta[e / 2]);
      }
    add_product<T, k_across>(dq, ds, k_at(j), 0);
  }
  copy_async_wait<0>();
#pragma unroll
  for (int h = 0; h < MMA_ROWS; h++) {
    if (mine + 8 * h >= rows) continue;
#pragma unroll
    for (int i = 0; i < HEAD / 8; i++)
      put_pair(p.at(a.dq, mine + 8 * h), mma_column(lane, i), a.size,
               dq[i][2 * h] * (f32)a.scale, dq[i][2 * h + 1] * (f32)a.scale);
  }
}
