// 2:4 sparsity: values and codes to a dense matrix, for libraries that compress it their own way. A
// thread has one group of four; the even group of a byte has its low nibble. Option: T.
//
// types: f16 bf16

KERNEL void unpack(const T* values, const u8* codes, T* dense, i64 groups) {
  GRID_STRIDE(g, groups) {
    int code = codes[g / 2] >> (g % 2 * 4) & 15;
    f32 first = to<f32>(values[2 * g]), second = to<f32>(values[2 * g + 1]);
#pragma unroll
    for (int i = 0; i < 4; i++)
      dense[4 * g + i] = from<T>(((code & 3) == i ? first : 0) + (code >> 2 == i ? second : 0));
  }
}
