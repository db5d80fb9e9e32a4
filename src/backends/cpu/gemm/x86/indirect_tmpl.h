// The indirect GEMM microkernel in AVX-512, for a file that defines MR and VECTORS (NR in vectors),
// `multiply_add` of a vector of words of A and one of B, and whose target region is open.
//
// Broadcasts of A and loads of B from wherever they are: a load that crosses a cache line counts
// twice, and there is room for it beside 24 to 28 multiply-adds a step.

// Three pointers and two multiples of a_row reach fifteen rows.
HY__INLINE __m512 broadcast(const char* const top[3], int64_t a_row, int i) {
  int word;
  memcpy(&word, top[i / 5] + i % 5 * a_row, sizeof word);
  return _mm512_castsi512_ps(_mm512_set1_epi32(word));
}

HY__INLINE void tile(int m, int vectors, int words, const char* a, int64_t a_row, const float* b,
                     const int64_t* rows, float* c, int64_t ldc, int n, bool accumulate) {
  __m512 sums[MR][VECTORS];
#pragma GCC unroll 14
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[i][v] = _mm512_setzero_ps();
  }
  const char* top[3] = {a, a + 5 * a_row, a + 10 * a_row};
  for (int k = 0; k < words; k++) {
    __asm__("" : "+r"(top[0]), "+r"(top[1]), "+r"(top[2]));  // or GCC keeps a pointer to each row
    const float* row = b + rows[k];
    __m512 columns[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) columns[v] = _mm512_loadu_ps(row + 16 * v);
#pragma GCC unroll 14
    for (int i = 0; i < m; i++) {
      __m512 x = broadcast(top, a_row, i);
#pragma GCC unroll 4
      for (int v = 0; v < vectors; v++) sums[i][v] = multiply_add(sums[i][v], x, columns[v]);
    }
    top[0] += 4;
    top[1] += 4;
    top[2] += 4;
  }
  __mmask16 last = hy__first16(n - 16 * (vectors - 1));
#pragma GCC unroll 14
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      float* to = c + i * ldc + 16 * v;
      __mmask16 mask = v == vectors - 1 ? last : 0xffff;
      if (accumulate) sums[i][v] = _mm512_add_ps(sums[i][v], _mm512_maskz_loadu_ps(mask, to));
      _mm512_mask_storeu_ps(to, mask, sums[i][v]);
    }
  }
}

#define TILE_CASE(rows_, vectors_)                                          \
  case (rows_)*VECTORS + (vectors_):                                        \
    tile(rows_, vectors_, words, a, a_row, b, rows, c, ldc, n, accumulate); \
    return;
