// FlashAttention on tensor cores (mma.sync, MFMA): a block goes through keys in tiles of BKV with an
// online softmax and keeps its rows' output in registers. Rows are packed for grouped query heads:
// row r of a key head is query r / group of its query head r % group, so that one pass over the
// keys serves the whole group, in decoding too. Four things come from a problem P: where rows are,
// how many keys a row sees, what a mask adds, and where results go.
//
// HEAD, BQ, BKV are macros: the padded head size (a power of 2), rows and keys of a tile. A warp
// owns 16 rows.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_FLASH_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_FLASH_CUH_

#include "mma_tile.cuh"

#define FLASH_THREADS (BQ / 16 * MMA_LANES)
#define LOG2_E 1.44269504f
#define LN_2 0.69314718f

typedef mma_tile<BQ, HEAD, true> q_tile;
typedef mma_tile<BKV, HEAD, true> k_tile;
typedef mma_tile<HEAD, BKV, false> v_tile;
#define FLASH_SHARED (q_tile::BYTES + 2 * (k_tile::BYTES + v_tile::BYTES))

// Starts the copy of LINES rows of `width` halves; row_of(line) gives an address, or NULL for
// zeros.
template <int LINES, int THREADS, class RowOf>
DEVICE void copy_rows(char* tile, int width, const RowOf& row_of) {
  const int CHUNKS = HEAD / 8;
#pragma unroll
  for (int i = 0; i < (LINES * CHUNKS + THREADS - 1) / THREADS; i++) {
    int at = (int)threadIdx.x + i * THREADS;
    if (LINES * CHUNKS % THREADS != 0 && at >= LINES * CHUNKS) break;
    int line = at / CHUNKS, chunk = at % CHUNKS, left = width - chunk * 8;
    const u16* row = left > 0 ? row_of(line) : 0;
    left = !row ? 0 : left > 8 ? 8 : left;
    copy_async_16(tile + mma_tile<LINES, HEAD, true>::offset(line, chunk),
                  row ? row + chunk * 8 : (const u16*)tile, left * 2);
  }
}

// Columns 16 k.. of a warp's 16 x N product as the left operand of the next one.
template <class T, int N>
DEVICE void pack_left(unsigned (&a)[MMA_REGISTERS], const f32 (&s)[N][2 * MMA_ROWS], int k) {
#pragma unroll
  for (int h = 0; h < MMA_ROWS; h++) {
    a[h] = pack_pair(T(), s[2 * k][2 * h], s[2 * k][2 * h + 1]);
    a[MMA_ROWS + h] = pack_pair(T(), s[2 * k + 1][2 * h], s[2 * k + 1][2 * h + 1]);
  }
}

// s[16, 8 N] = x[16 rows from `row`] y^T, for tiles whose rows are HEAD long.
template <class T, class X, class Y, int N>
DEVICE void product_of_rows(f32 (&s)[N][2 * MMA_ROWS], const char* x, int row, const char* y) {
#pragma unroll
  for (int j = 0; j < N; j++)
#pragma unroll
    for (int e = 0; e < 2 * MMA_ROWS; e++) s[j][e] = 0;
#pragma unroll
  for (int k = 0; k < HEAD; k += 16) {
    unsigned a[MMA_REGISTERS];
    X::load(a, x, row, k);
#pragma unroll
    for (int j = 0; j < N / 2; j++) {
      unsigned b[MMA_REGISTERS];
      Y::load(b, y, 16 * j, k);
      mma_16x16(T(), s[2 * j], s[2 * j + 1], a, b);
    }
  }
}

// sum[16, 8 M] += s[16, 8 N] y, for columns column0.. of a tile with 8 N rows.
template <class T, class Y, int N, int M>
DEVICE void add_product(f32 (&sum)[M][2 * MMA_ROWS], const f32 (&s)[N][2 * MMA_ROWS],
                        const char* y, int column0) {
#pragma unroll
  for (int k = 0; k < N / 2; k++) {
    unsigned a[MMA_REGISTERS];
    pack_left<T>(a, s, k);
#pragma unroll
    for (int i = 0; i < M / 2; i++) {
      unsigned b[MMA_REGISTERS];
      Y::load(b, y, column0 + 16 * i, 16 * k);
      mma_16x16(T(), sum[2 * i], sum[2 * i + 1], a, b);
    }
  }
}

// Rows row0.. of `rows` against the keys key_begin.. that they see before key_end.
template <class T, bool masked, class P>
DEVICE void flash_forward(const P& p, char* shared, int row0, int rows, int key_begin,
                          int key_end) {
  const int warp = threadIdx.x / MMA_LANES, lane = threadIdx.x % MMA_LANES;
  const int last = (row0 + BQ < rows ? row0 + BQ : rows) - 1;
  int visible = p.visible(last), every = p.visible(row0);  // by the last row, and by all rows
  if (visible < key_end) key_end = visible;
  char* q_at = shared;
  auto k_at = [&](int j) { return shared + q_tile::BYTES + j % 2 * k_tile::BYTES; };
  auto v_at = [&](int j) {
    return shared + q_tile::BYTES + 2 * k_tile::BYTES + j % 2 * v_tile::BYTES;
  };
  auto copy_keys = [&](int j) {
    int first = key_begin + j * BKV;
    copy_rows<BKV, FLASH_THREADS>(k_at(j), p.size(), [&](int line) {
      return first + line < key_end ? p.k_row(first + line) : 0;
    });
  };
  auto copy_values = [&](int j) {
    int first = key_begin + j * BKV;
    copy_rows<BKV, FLASH_THREADS>(v_at(j), p.value_size(), [&](int line) {
      return first + line < key_end ? p.v_row(first + line) : 0;
    });
  };

  const int mine = row0 + warp * 16 + mma_row(lane);  // and 8 rows below
  int limit[MMA_ROWS];
  f32 top[MMA_ROWS], total[MMA_ROWS], out[HEAD / 8][2 * MMA_ROWS];
#pragma unroll
  for (int h = 0; h < MMA_ROWS; h++) {
    top[h] = -INF_F32;
    total[h] = 0;
    limit[h] = mine + 8 * h < rows ? min(p.visible(mine + 8 * h), key_end) : 0;
  }
#pragma unroll
  for (int j = 0; j < HEAD / 8; j++)
#pragma unroll
    for (int e = 0; e < 2 * MMA_ROWS; e++) out[j][e] = 0;

  const int tiles = key_end > key_begin ? (key_end - key_begin + BKV - 1) / BKV : 0;
  const f32 scale = p.scale() * LOG2_E;
  if (tiles > 0) {
    copy_rows<BQ, FLASH_THREADS>(q_at, p.size(), [&](int line) {
      return row0 + line < rows ? p.q_row(row0 + line) : 0;
    });
    copy_keys(0);
    copy_async_commit();
    copy_values(0);
    copy_async_commit();
  }
  for (int j = 0; j < tiles; j++) {
    copy_async_wait<1>();  // q and keys are there, values perhaps not
    __syncthreads();       // and all have left the tile before
    if (j + 1 < tiles) copy_keys(j + 1);
    copy_async_commit();
    f32 s[BKV / 8][2 * MMA_ROWS];
    product_of_rows<T, q_tile, k_tile>(s, q_at, warp * 16, k_at(j));

    const int key0 = key_begin + j * BKV;
    if (masked || key0 + BKV > every || key0 + BKV > key_end) {
#pragma unroll
      for (int i = 0; i < BKV / 8; i++)
#pragma unroll
        for (int e = 0; e < 2 * MMA_ROWS; e++) {
          int key = key0 + mma_column(lane, i) + e % 2, h = e / 2;
          f32 x = s[i][e] * scale;
          bool seen = key < limit[h];
          if (masked && seen) {
            f32 more = p.mask(mine + 8 * h, key);
            x = more == -INF_F32 ? -INF_F32 : x + more * LOG2_E;
          }
          s[i][e] = seen ? x : -INF_F32;
        }
    } else {
#pragma unroll
      for (int i = 0; i < BKV / 8; i++)
#pragma unroll
        for (int e = 0; e < 2 * MMA_ROWS; e++) s[i][e] *= scale;
    }

    // Online softmax: four lanes share their rows.
#pragma unroll
    for (int h = 0; h < MMA_ROWS; h++) {
      f32 high = top[h];
#pragma unroll
      for (int i = 0; i < BKV / 8; i++) high = fmaxf(high, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
      high = fmaxf(high, MMA_ROW_XOR(high, 0));
      high = fmaxf(high, MMA_ROW_XOR(high, 1));
      f32 base = high == -INF_F32 ? 0 : high, keep = exp2_approx(top[h] - base), sum = 0;
      top[h] = high;
#pragma unroll
      for (int i = 0; i < BKV / 8; i++)
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; e++) sum += s[i][e] = exp2_approx(s[i][e] - base);
      total[h] = total[h] * keep + sum;
#pragma unroll
      for (int i = 0; i < HEAD / 8; i++)
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; e++) out[i][e] *= keep;
    }

    copy_async_wait<1>();  // values are there
    __syncthreads();
    if (j + 1 < tiles) copy_values(j + 1);
    copy_async_commit();
    add_product<T, v_tile>(out, s, v_at(j), 0);
  }
  copy_async_wait<0>();

#pragma unroll
  for (int h = 0; h < MMA_ROWS; h++) {
    int row = mine + 8 * h;
    f32 sum = total[h] + MMA_ROW_XOR(total[h], 0);
    sum += MMA_ROW_XOR(sum, 1);
    if (row >= rows) continue;
    f32 share = sum == 0 ? 0 : 1 / sum;
#pragma unroll
    for (int i = 0; i < HEAD / 8; i++) {
      int column = mma_column(lane, i);
      if (column < p.value_size())
        p.put(row, column, out[i][2 * h] * share, out[i][2 * h + 1] * share);
    }
    if (mma_first_of_row(lane)) p.put_lse(row, sum == 0 ? -INF_F32 : (top[h] + log2f(sum)) * LN_2);
  }
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_FLASH_CUH_
