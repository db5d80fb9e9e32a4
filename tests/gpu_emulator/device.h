// CUDA C on the host: what kernel sources find instead of the device compiler's builtins when the
// emulated NVRTC compiles them with the host's C++ compiler. Threads of a block are fibers of one
// host thread, which switch only where a kernel synchronises; blocks run one after another.
#ifndef HALYARD_TESTS_GPU_EMULATOR_DEVICE_H_
#define HALYARD_TESTS_GPU_EMULATOR_DEVICE_H_

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HY_EMULATOR 1
#define __global__ __attribute__((used))  // the mark by which entries are found
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __constant__ static const
#define __align__(n) __attribute__((aligned(n)))
#define __CUDA_ARCH__ 800

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline int4 make_int4(int x, int y, int z, int w) {
  return {x, y, z, w};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}

// The machine, in emulator.cc. Every fiber that runs is reachable through `emu_now`.
#define EMU_SLOT 64
struct emu_thread {
  uint3 thread;
  unsigned lane, warp, id;
  unsigned char (*slots)[EMU_SLOT];  // of the warp's lanes: what they show each other
  unsigned char (*wave)[EMU_SLOT];   // of the 64 lanes that a wavefront of AMD's has: two warps'
};
struct emu_grid {
  dim3 grid, block;
  uint3 index;
  unsigned char* shared;
};
extern "C" {
extern emu_thread* emu_now;
extern emu_grid emu_launch;
void emu_barrier_block(void);
void emu_barrier_warp(unsigned mask);
void emu_barrier_wave(void);  // of 64 lanes
}

#define threadIdx (emu_now->thread)
#define blockIdx (emu_launch.index)
#define blockDim (emu_launch.block)
#define gridDim (emu_launch.grid)
#define warpSize 32

// ---- synchronisation ----

inline void __syncthreads() {
  emu_barrier_block();
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emu_barrier_warp(mask);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
inline unsigned __activemask() {
  return 0xffffffffu;
}

template <class T>
T emu_exchange(unsigned mask, T value, unsigned from) {
  static_assert(sizeof(T) <= EMU_SLOT, "");
  memcpy(emu_now->slots[emu_now->lane], &value, sizeof value);
  emu_barrier_warp(mask);
  T got;
  memcpy(&got, emu_now->slots[from & 31], sizeof got);
  emu_barrier_warp(mask);
  return got;
}
template <class T>
T __shfl_sync(unsigned mask, T v, int lane, int width = 32) {
  unsigned base = emu_now->lane / width * width;
  return emu_exchange(mask, v, base + (unsigned)lane % width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32) {
  unsigned to = emu_now->lane ^ bits;
  return emu_exchange(mask, v, to / width == emu_now->lane / width ? to : emu_now->lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
  unsigned in = emu_now->lane % width;
  return emu_exchange(mask, v, in >= delta ? emu_now->lane - delta : emu_now->lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
  unsigned in = emu_now->lane % width;
  return emu_exchange(mask, v,
                      in + delta < (unsigned)width ? emu_now->lane + delta : emu_now->lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned char bit = predicate != 0;
  emu_now->slots[emu_now->lane][0] = bit;
  emu_barrier_warp(mask);
  unsigned all = 0;
  for (int l = 0; l < 32; l++)
    if (mask >> l & 1) all |= (unsigned)(emu_now->slots[l][0] & 1) << l;
  emu_barrier_warp(mask);
  return all;
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask;
}
extern "C" int emu_count(int predicate);  // over the block
inline int __syncthreads_count(int p) {
  return emu_count(p != 0);
}
inline int __syncthreads_or(int p) {
  return emu_count(p != 0) != 0;
}
inline int __syncthreads_and(int p) {
  return emu_count(p == 0) == 0;
}

// ---- HIP, as compiled for AMD's GPUs ----

#ifdef EMU_HIP
#define __HIP__ 1
#undef __CUDA_ARCH__
#define __HIP_DEVICE_COMPILE__ 1

template <class T>
T emu_exchange_wave(T value, unsigned from) {
  unsigned lane = emu_now->id % 64;
  memcpy(emu_now->wave[lane], &value, sizeof value);
  emu_barrier_wave();
  T got;
  memcpy(&got, emu_now->wave[from & 63], sizeof got);
  emu_barrier_wave();
  return got;
}
template <class T>
T __shfl_xor(T v, int bits, int width) {
  if (width == 64) return emu_exchange_wave(v, emu_now->id % 64 ^ (unsigned)bits);
  return __shfl_xor_sync(0xffffffffu, v, bits, width);
}
template <class T>
T __shfl(T v, int lane, int width) {
  return __shfl_sync(0xffffffffu, v, lane, width);
}
template <class T>
T __shfl_up(T v, unsigned delta, int width) {
  return __shfl_up_sync(0xffffffffu, v, delta, width);
}
template <class T>
T __shfl_down(T v, unsigned delta, int width) {
  return __shfl_down_sync(0xffffffffu, v, delta, width);
}
inline void __builtin_amdgcn_fence(int, const char*) {}
inline void __builtin_amdgcn_wave_barrier() {
  emu_barrier_warp(0xffffffffu);
}
inline int __builtin_amdgcn_sdot4(int a, int b, int c, bool) {
  for (int i = 0; i < 32; i += 8) c += (int)(signed char)(a >> i) * (signed char)(b >> i);
  return c;
}

// v_mfma_f32_16x16x16: lane l has a[l % 16][4 (l / 16) + i] and b[4 (l / 16) + i][l % 16], and gets
// c[4 (l / 16) + i][l % 16].
typedef _Float16 emu_four_f16 __attribute__((vector_size(8)));
typedef short emu_four_bf16 __attribute__((vector_size(8)));
typedef float emu_four_f32 __attribute__((vector_size(16)));
inline float emu_wide(_Float16 x) {
  return (float)x;
}
inline float emu_wide(short x) {
  unsigned bits = (unsigned)(unsigned short)x << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}
template <class V>
emu_four_f32 emu_mfma(V a, V b, emu_four_f32 c) {
  struct operands {
    V a, b;
  } mine = {a, b}, all[64];
  unsigned lane = emu_now->id % 64;
  memcpy(emu_now->wave[lane], &mine, sizeof mine);
  emu_barrier_wave();
  for (int l = 0; l < 64; l++) memcpy(&all[l], emu_now->wave[l], sizeof mine);
  emu_barrier_wave();
  for (int i = 0; i < 4; i++) {
    unsigned row = 4 * (lane / 16) + i, column = lane % 16;
    for (int k = 0; k < 16; k++)
      c[i] +=
          emu_wide(all[row + k / 4 * 16].a[k % 4]) * emu_wide(all[column + k / 4 * 16].b[k % 4]);
  }
  return c;
}
inline emu_four_f32 __builtin_amdgcn_mfma_f32_16x16x16f16(emu_four_f16 a, emu_four_f16 b,
                                                          emu_four_f32 c, int, int, int) {
  return emu_mfma(a, b, c);
}
inline emu_four_f32 __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(emu_four_bf16 a, emu_four_bf16 b,
                                                              emu_four_f32 c, int, int, int) {
  return emu_mfma(a, b, c);
}
#endif

// ---- atomics: fibers switch nowhere else, so that plain arithmetic is atomic ----

#define EMU_ATOMIC(name, expression) \
  template <class T, class U>        \
  T name(T* at, U given) {           \
    T old = *at, value = (T)given;   \
    *at = (expression);              \
    return old;                      \
  }
EMU_ATOMIC(atomicAdd, (T)(old + value))
EMU_ATOMIC(atomicSub, (T)(old - value))
EMU_ATOMIC(atomicMax, old > value ? old : value)
EMU_ATOMIC(atomicMin, old < value ? old : value)
EMU_ATOMIC(atomicOr, (T)(old | value))
EMU_ATOMIC(atomicAnd, (T)(old& value))
EMU_ATOMIC(atomicXor, (T)(old ^ value))
EMU_ATOMIC(atomicExch, value)
EMU_ATOMIC(atomicInc, old >= value ? (T)0 : (T)(old + 1))
template <class T, class U, class V>
T atomicCAS(T* at, U compare, V value) {
  T old = *at;
  if (old == (T)compare) *at = (T)value;
  return old;
}

// ---- arithmetic ----

template <class To, class From>
inline To emu_bits(From from) {
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int v) {
  return emu_bits<float>(v);
}
inline float __uint_as_float(unsigned v) {
  return emu_bits<float>(v);
}
inline int __float_as_int(float v) {
  return emu_bits<int>(v);
}
inline unsigned __float_as_uint(float v) {
  return emu_bits<unsigned>(v);
}
inline double __longlong_as_double(long long v) {
  return emu_bits<double>(v);
}
inline long long __double_as_longlong(double v) {
  return emu_bits<long long>(v);
}
inline float __expf(float v) {
  return expf(v);
}
inline float __logf(float v) {
  return logf(v);
}
inline float __log2f(float v) {
  return log2f(v);
}
inline float __cosf(float v) {
  return cosf(v);
}
inline float __sinf(float v) {
  return sinf(v);
}
inline float __powf(float a, float b) {
  return powf(a, b);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fmul_rn(float a, float b) {
  volatile float p = a * b;
  return p;
}
inline float __fadd_rn(float a, float b) {
  volatile float s = a + b;
  return s;
}
inline float __fsub_rn(float a, float b) {
  volatile float s = a - b;
  return s;
}
inline float __fsqrt_rn(float a) {
  return sqrtf(a);
}
inline float __frsqrt_rn(float a) {
  return 1 / sqrtf(a);
}
inline float __frcp_rn(float a) {
  return 1 / a;
}
inline float __fmaf_rn(float a, float b, float c) {
  return fmaf(a, b, c);
}
inline double __dmul_rn(double a, double b) {
  volatile double p = a * b;
  return p;
}
inline double __dadd_rn(double a, double b) {
  volatile double s = a + b;
  return s;
}
inline double __dsub_rn(double a, double b) {
  volatile double s = a - b;
  return s;
}
inline double __ddiv_rn(double a, double b) {
  return a / b;
}
inline double __dsqrt_rn(double a) {
  return sqrt(a);
}
inline double __fma_rn(double a, double b, double c) {
  return fma(a, b, c);
}
inline float rsqrtf(float v) {
  return 1 / sqrtf(v);
}
inline double rsqrt(double v) {
  return 1 / sqrt(v);
}
inline float __saturatef(float v) {
  return v < 0 ? 0 : v > 1 ? 1 : v;
}
inline void sincospif(float v, float* s, float* c) {
  *s = sinf((float)M_PI * v), *c = cosf((float)M_PI * v);
}
inline void __sincosf(float v, float* s, float* c) {
  *s = sinf(v), *c = cosf(v);
}
inline float cospif(float v) {
  return (float)cos(M_PI * v);
}
inline float sinpif(float v) {
  return (float)sin(M_PI * v);
}
inline int __float2int_rn(float v) {
  return (int)rintf(v);
}
inline float __int2float_rn(int v) {
  return (float)v;
}
inline float __double2float_rn(double v) {
  return (float)v;
}
inline int __popc(unsigned v) {
  return __builtin_popcount(v);
}
inline int __popcll(unsigned long long v) {
  return __builtin_popcountll(v);
}
inline int __clz(int v) {
  return v ? __builtin_clz((unsigned)v) : 32;
}
inline int __clzll(long long v) {
  return v ? __builtin_clzll((unsigned long long)v) : 64;
}
inline int __ffs(int v) {
  return __builtin_ffs(v);
}
inline int __ffsll(long long v) {
  return __builtin_ffsll(v);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __brev(unsigned v) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (v >> i & 1) << (31 - i);
  return r;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) {
    unsigned pick = s >> (4 * i) & 15, byte = (unsigned)(both >> (8 * (pick & 7))) & 255;
    if (pick & 8) byte = byte & 128 ? 255 : 0;
    r |= byte << (8 * i);
  }
  return r;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (int)(signed char)(a >> (8 * i)) * (signed char)(b >> (8 * i));
  return c;
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T v) {
  *p = v;
}
template <class T>
void __stcg(T* p, T v) {
  *p = v;
}

#define EMU_PAIR(T)        \
  inline T max(T a, T b) { \
    return a > b ? a : b;  \
  }                        \
  inline T min(T a, T b) { \
    return a < b ? a : b;  \
  }
EMU_PAIR(int)
EMU_PAIR(unsigned)
EMU_PAIR(long long)
EMU_PAIR(unsigned long long)
inline float max(float a, float b) {
  return fmaxf(a, b);
}
inline float min(float a, float b) {
  return fminf(a, b);
}
inline double max(double a, double b) {
  return fmax(a, b);
}
inline double min(double a, double b) {
  return fmin(a, b);
}

// ---- entries ----

template <size_t... I>
struct emu_indices {};
template <size_t N, size_t... I>
struct emu_count_to : emu_count_to<N - 1, N - 1, I...> {};
template <size_t... I>
struct emu_count_to<0, I...> {
  typedef emu_indices<I...> type;
};
template <class T>
struct emu_plain {
  typedef T type;
};
template <class T>
struct emu_plain<const T> {
  typedef T type;
};
template <class... P, size_t... I>
inline void emu_apply(void (*kernel)(P...), void** arguments, emu_indices<I...>) {
  (void)arguments;
  kernel(*(typename emu_plain<P>::type*)arguments[I]...);
}
template <class... P>
inline void emu_enter(void (*kernel)(P...), void** arguments) {
  emu_apply(kernel, arguments, typename emu_count_to<sizeof...(P)>::type());
}

// Copies of a launch's arguments, for a graph that launches it later; never given back.
template <class... P>
inline void** emu_keep(void (*)(P...), void** arguments) {
  const size_t sizes[] = {sizeof(P)..., 0};
  void** kept = new void*[sizeof...(P) + 1];
  for (size_t i = 0; i < sizeof...(P); i++)
    kept[i] = memcpy(new unsigned char[sizes[i]], arguments[i], sizes[i]);
  return kept;
}

#endif  // HALYARD_TESTS_GPU_EMULATOR_DEVICE_H_
