// Sorting lanes with their positions: stable, NaN above every number.
//
// Keys are unsigned numbers in the order of the values (inverted to sort downwards), so that one merge
// sort serves every type: tiles are sorted in shared memory, then runs of doubling length are merged
// along merge paths, every thread finding by bisection which part of the two runs its output comes
// from. Equal keys keep the order of their positions because the left run comes first.

enum { TILE = 1024, TILE_THREADS = 256, MERGE_EACH = 8 };

// ---- Keys ----

DEVICE u64 key_of(int dtype, const char* x, i64 at) {
  switch (dtype) {
    case DT_F64: {
      f64 value = ((const f64*)x)[at];
      if (value != value) return ~0ull;
      u64 bits = (u64)__double_as_longlong(value == 0 ? 0.0 : value);
      return bits >> 63 ? ~bits : bits | 1ull << 63;
    }
    case DT_F32:
    case DT_F16:
    case DT_BF16: {
      f32 value = load_any<f32>(dtype, x, at);
      if (value != value) return ~0ull;
      u32 bits = __float_as_uint(value == 0 ? 0.0f : value);
      return bits >> 31 ? (u32)~bits : bits | 1u << 31;
    }
    default: return (u64)load_any<i64>(dtype, x, at) ^ 1ull << 63;
  }
}

// Lane l of contiguous [outer, length, inner] starts at l / inner * length * inner + l % inner.
KERNEL void sort_keys(const char* x, int dtype, u64* keys, u32* places, i64 first_lane, i64 lanes,
                      i64 length, i64 inner, int descending) {
  GRID_STRIDE(i, lanes * length) {
    i64 lane = first_lane + i / length, at = i % length;
    u64 key = key_of(dtype, x, lane / inner * length * inner + lane % inner + at * inner);
    keys[i] = descending ? ~key : key;
    places[i] = (u32)at;
  }
}

// ---- Tiles ----

// A bitonic network over key and place together, which no two elements share: stable.
KERNEL void __launch_bounds__(TILE_THREADS) sort_tiles(u64* keys, u32* places, i64 lanes, i64 length) {
  __shared__ u64 key[TILE];
  __shared__ u32 place[TILE];
  i64 tiles = (length + TILE - 1) / TILE;
  for (i64 t = blockIdx.x; t < lanes * tiles; t += gridDim.x) {
    i64 lane = t / tiles, first = t % tiles * TILE;
    int n = (int)(length - first < TILE ? length - first : TILE);
    u64* from = keys + lane * length + first;
    u32* from_place = places + lane * length + first;
    int size = 2;
    while (size < n) size *= 2;
    for (int i = threadIdx.x; i < size; i += TILE_THREADS) {
      key[i] = i < n ? from[i] : ~0ull;
      place[i] = i < n ? from_place[i] : ~0u;
    }
    for (int span = 2; span <= size; span *= 2) {
      for (int step = span / 2; step > 0; step /= 2) {
        __syncthreads();
        for (int pair = threadIdx.x; pair < size / 2; pair += TILE_THREADS) {
          int low = pair / step * step * 2 + pair % step, high = low + step;
          bool upwards = (low & span) == 0;
          bool wrong = key[low] > key[high] || (key[low] == key[high] && place[low] > place[high]);
          if (wrong == upwards) {
            u64 k = key[low];
            u32 p = place[low];
            key[low] = key[high];
            place[low] = place[high];
            key[high] = k;
            place[high] = p;
          }
        }
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += TILE_THREADS) {
      from[i] = key[i];
      from_place[i] = place[i];
    }
    __syncthreads();
  }
}

// ---- Merges ----

// How many of the first `diagonal` elements of the merge come from a.
DEVICE i64 merge_path(const u64* a, i64 n_a, const u64* b, i64 n_b, i64 diagonal) {
  i64 low = diagonal > n_b ? diagonal - n_b : 0, high = diagonal < n_a ? diagonal : n_a;
  while (low < high) {
    i64 middle = (low + high) / 2;
    if (a[middle] <= b[diagonal - 1 - middle])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Runs of `run` elements two by two; a thread writes MERGE_EACH elements.
KERNEL void sort_merge(const u64* keys, const u32* places, u64* keys_to, u32* places_to, i64 lanes,
                       i64 length, i64 run) {
  i64 groups = (length + MERGE_EACH - 1) / MERGE_EACH;
  GRID_STRIDE(g, lanes * groups) {
    i64 lane = g / groups, first = g % groups * MERGE_EACH, base = lane * length;
    i64 start = first / (2 * run) * (2 * run);
    i64 middle = start + run < length ? start + run : length;
    i64 end = middle + run < length ? middle + run : length;
    const u64 *a = keys + base + start, *b = keys + base + middle;
    i64 n_a = middle - start, n_b = end - middle, at = first - start;
    i64 i = merge_path(a, n_a, b, n_b, at), j = at - i;
    for (int k = 0; k < MERGE_EACH && first + k < length; k++) {
      bool from_a = j >= n_b || (i < n_a && a[i] <= b[j]);
      i64 source = base + (from_a ? start + i++ : middle + j++);
      keys_to[base + first + k] = keys[source];
      places_to[base + first + k] = places[source];
    }
  }
}

// ---- Results ----

// The first `kept` of each lane: values of x, and their positions.
KERNEL void sort_write(const char* x, int dtype, const u32* places, char* out, i64* index,
                       i64 first_lane, i64 lanes, i64 length, i64 inner, i64 kept) {
  GRID_STRIDE(i, lanes * kept) {
    i64 lane = first_lane + i / kept, at = i % kept, place = places[i / kept * length + at];
    i64 from = lane / inner * length * inner + lane % inner + place * inner;
    i64 to_at = lane / inner * kept * inner + lane % inner + at * inner;
    switch (dtype) {
#define AS_CASE(value, type) \
  case value: ((type*)out)[to_at] = ((const type*)x)[from]; break;
      EACH_DTYPE(AS_CASE)
#undef AS_CASE
    }
    index[to_at] = place;
  }
}
