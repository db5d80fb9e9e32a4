// Hopper's own instructions (sm_90a): mbarriers, the tensor memory accelerator, warpgroup MMA.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_HOPPER_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_HOPPER_CUH_

#include "tensor_core.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// ---- mbarriers ----

typedef u64 mbarrier;

DEVICE void mbarrier_init(mbarrier* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals)
               : "memory");
}

// What threads wrote to shared memory can be read by the copy engine.
DEVICE void copy_engine_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Makes fresh barriers known to the copy engine, and to a cluster that meets afterwards.
DEVICE void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  copy_engine_fence();
}

DEVICE void mbarrier_arrive(mbarrier* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

// At the barrier of a block of the cluster, which is at b in this one. Orders no memory of other
// blocks: for barriers that say that a buffer has been read.
DEVICE void mbarrier_arrive_at(mbarrier* b, int rank) {
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(shared_address(b)),
      "r"(rank)
      : "memory");
}

// Arrives, and makes the phase wait for `bytes` of copies.
DEVICE void mbarrier_expect(mbarrier* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
               "r"(bytes)
               : "memory");
}

// Until the phase of this parity is over.
DEVICE void mbarrier_wait(mbarrier* b, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}

// ---- the tensor memory accelerator ----

// What cuTensorMapEncodeTiled fills in; a kernel's parameter.
struct alignas(64) tensor_map {
  u64 opaque[16];
};

DEVICE void tensor_prefetch(const tensor_map* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The box at (x, y, z) of the tensor, innermost first, to shared memory; arrives at b by its bytes.
DEVICE void tensor_load(void* to, const tensor_map* map, int x, int y, int z, mbarrier* b) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(b)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

DEVICE void tensor_load(void* to, const tensor_map* map, int x, int y, int z, int w, mbarrier* b) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(b)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// The same to the same place in every block of the cluster whose rank's bit is in `blocks`; arrives
// at the barrier of each that is at b in this one.
DEVICE void tensor_load_shared(void* to, const tensor_map* map, int x, int y, int z, mbarrier* b,
                               u16 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(b)), "r"(x), "r"(y), "r"(z), "h"(blocks)
      : "memory");
}

// A box in shared memory to (x, y, z) of the tensor; what is beyond its edges is left out. The
// stores of a thread are waited for in groups.
DEVICE void tensor_store(const tensor_map* map, int x, int y, int z, const void* from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::
                   "l"(map),
               "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
               : "memory");
}
DEVICE void tensor_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until at most `pending` of this thread's latest groups have yet to be read from shared memory.
template <int pending>
DEVICE void tensor_store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// `bytes` neighbours to shared memory, both at multiples of 16; arrives at b by its bytes.
DEVICE void bulk_load(void* to, const void* from, int bytes, mbarrier* b) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(b))
      : "memory");
}

// ---- clusters ----

DEVICE int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// Until all threads of the cluster have arrived, and what they wrote before can be seen.
DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Until all threads of the cluster are here; orders no memory but what a fence before it does.
DEVICE void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// 16 bytes of the shared memory of a block of the cluster, at an address of this block's.
DEVICE vec<f32, 4> cluster_load(const void* at, int rank) {
  vec<f32, 4> v;
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
      "}\n"
      : "=f"(v.at[0]), "=f"(v.at[1]), "=f"(v.at[2]), "=f"(v.at[3])
      : "r"(shared_address(at)), "r"(rank)
      : "memory");
  return v;
}

// ---- registers and warpgroups ----

template <int registers>
DEVICE void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
DEVICE void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// Some warps of a block meet; 0 is __syncthreads' own.
template <int id, int threads>
DEVICE void warps_meet() {
  asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory");
}

// Of two parties of a barrier, which is the block's `id`th, one waits for the other, which goes on.
template <int threads>
DEVICE void turn_wait(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(threads) : "memory");
}
template <int threads>
DEVICE void turn_pass(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(threads) : "memory");
}

DEVICE void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// A tile in shared memory with the 128-byte swizzle, lines of 64 halves, 8 lines in 1024 bytes.
// Along k: lines are rows, a step of 16 in k is 32 bytes. Along rows: lines are k, a step of 16 in
// k is 2048 bytes, and each 64 rows have a box of their own, `box` bytes apart.
DEVICE u64 tile_descriptor(const void* tile, int box) {
  u64 at = shared_address(tile);
  return (at & 0x3ffff) >> 4 | (u64)(box >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}

#define WGMMA_8(d, i)                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define WGMMA_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_40(d, i)                                                              \
  WGMMA_8(d, i), WGMMA_8(d, i + 8), WGMMA_8(d, i + 16), WGMMA_8(d, i + 24), WGMMA_8(d, i + 32)
#define WGMMA_SET_8(d, i)                                                                   \
  "=f"(d[i]), "=f"(d[i + 1]), "=f"(d[i + 2]), "=f"(d[i + 3]), "=f"(d[i + 4]), "=f"(d[i + 5]), \
      "=f"(d[i + 6]), "=f"(d[i + 7])
// Lists of registers: in tens, the first with an empty argument, and what is left of one.
#define WGMMA_TEN(t)                                                                          \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t      \
  "8, %" #t "9, "
#define WGMMA_50 WGMMA_TEN() WGMMA_TEN(1) WGMMA_TEN(2) WGMMA_TEN(3) WGMMA_TEN(4)
#define WGMMA_100 WGMMA_50 WGMMA_TEN(5) WGMMA_TEN(6) WGMMA_TEN(7) WGMMA_TEN(8) WGMMA_TEN(9)
#define WGMMA_32 "{" WGMMA_TEN() WGMMA_TEN(1) WGMMA_TEN(2) "%30, %31}"
#define WGMMA_56 "{" WGMMA_50 "%50, %51, %52, %53, %54, %55}"
#define WGMMA_64 "{" WGMMA_50 WGMMA_TEN(5) "%60, %61, %62, %63}"
#define WGMMA_72 "{" WGMMA_50 WGMMA_TEN(5) WGMMA_TEN(6) "%70, %71}"
#define WGMMA_76 "{" WGMMA_50 WGMMA_TEN(5) WGMMA_TEN(6) "%70, %71, %72, %73, %74, %75}"
#define WGMMA_96                                                   \
  "{" WGMMA_50 WGMMA_TEN(5) WGMMA_TEN(6) WGMMA_TEN(7) WGMMA_TEN(8) \
  "%90, %91, %92, %93, %94, %95}"
#define WGMMA_112 "{" WGMMA_100 WGMMA_TEN(10) "%110, %111}"
#define WGMMA_128 \
  "{" WGMMA_100 WGMMA_TEN(10) WGMMA_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127}"

#define WGMMA(type)                                                                           \
  template <int a_rows, int b_rows>                                                           \
  DEVICE void wgmma_n128(type, f32(&d)[64], u64 a, u64 b, int add) {                          \
    asm volatile(                                                                             \
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                          \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." #type "." #type " " WGMMA_64           \
        ", %64, %65, p, 1, 1, %67, %68;\n}\n"                                                 \
        : WGMMA_8(d, 0), WGMMA_8(d, 8), WGMMA_8(d, 16), WGMMA_8(d, 24), WGMMA_8(d, 32),       \
          WGMMA_8(d, 40), WGMMA_8(d, 48), WGMMA_8(d, 56)                                      \
        : "l"(a), "l"(b), "r"(add), "n"(a_rows), "n"(b_rows));                                \
  }                                                                                           \
  template <int b_rows>                                                                       \
  DEVICE void wgmma_left(type, f32(&d)[64], const u32(&a)[4], u64 b) {                        \
    asm volatile(                                                                             \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." #type "." #type " " WGMMA_64           \
        ", {%64, %65, %66, %67}, %68, 1, 1, 1, %69;\n"                                        \
        : WGMMA_8(d, 0), WGMMA_8(d, 8), WGMMA_8(d, 16), WGMMA_8(d, 24), WGMMA_8(d, 32),       \
          WGMMA_8(d, 40), WGMMA_8(d, 48), WGMMA_8(d, 56)                                      \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(b_rows));                   \
  }

// wgmma_n128: d[64, 128] = a[64, 16] b[16, 128] (+ d where add), both from shared memory.
// wgmma_left: d += a b with a in registers, as mma.sync takes it. a_rows, b_rows: the operand runs
// along its rows. Lane l of warp w holds (16 w + l / 4, 8 j + 2 (l % 4)) and its
// neighbour in d[4 j], d[4 j + 1], and the same 8 rows below in d[4 j + 2], d[4 j + 3].
WGMMA(bf16)
WGMMA(f16)
#undef WGMMA

// The same with other numbers of columns, by the size of d.
#define WGMMA_WIDE(type, n, list, a_at, b_at, add_at, a_rows_at, b_rows_at, ...)              \
  template <int a_rows, int b_rows>                                                           \
  DEVICE void wgmma_wide(type, f32(&d)[n / 2], u64 a, u64 b, int add) {                       \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at                                   \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " "  \
                 list ", " a_at ", " b_at ", p, 1, 1, " a_rows_at ", " b_rows_at ";\n}\n"     \
                 : __VA_ARGS__                                                                \
                 : "l"(a), "l"(b), "r"(add), "n"(a_rows), "n"(b_rows));                       \
  }
#define WGMMA_WIDER(type)                                                                    \
  WGMMA_WIDE(type, 112, WGMMA_56, "%56", "%57", "%58", "%59", "%60", WGMMA_40(d, 0),         \
             WGMMA_8(d, 40), WGMMA_8(d, 48))                                                 \
  WGMMA_WIDE(type, 144, WGMMA_72, "%72", "%73", "%74", "%75", "%76", WGMMA_40(d, 0),         \
             WGMMA_8(d, 40), WGMMA_8(d, 48), WGMMA_8(d, 56), WGMMA_8(d, 64))                 \
  WGMMA_WIDE(type, 152, WGMMA_76, "%76", "%77", "%78", "%79", "%80", WGMMA_40(d, 0),         \
             WGMMA_8(d, 40), WGMMA_8(d, 48), WGMMA_8(d, 56), WGMMA_8(d, 64), WGMMA_4(d, 72)) \
  WGMMA_WIDE(type, 192, WGMMA_96, "%96", "%97", "%98", "%99", "%100", WGMMA_40(d, 0),        \
             WGMMA_40(d, 40), WGMMA_8(d, 80), WGMMA_8(d, 88))                                \
  WGMMA_WIDE(type, 224, WGMMA_112, "%112", "%113", "%114", "%115", "%116", WGMMA_40(d, 0),   \
             WGMMA_40(d, 40), WGMMA_8(d, 80), WGMMA_8(d, 88), WGMMA_8(d, 96),                \
             WGMMA_8(d, 104))                                                                \
  WGMMA_WIDE(type, 256, WGMMA_128, "%128", "%129", "%130", "%131", "%132", WGMMA_40(d, 0),   \
             WGMMA_40(d, 40), WGMMA_40(d, 80), WGMMA_8(d, 120))
WGMMA_WIDER(bf16)
WGMMA_WIDER(f16)
#undef WGMMA_WIDER
#undef WGMMA_WIDE
template <int a_rows, int b_rows, class T>
DEVICE void wgmma_wide(T type, f32 (&d)[64], u64 a, u64 b, int add) {
  wgmma_n128<a_rows, b_rows>(type, d, a, b, add);
}

// The same with 64 columns, wgmma_ by shared memory and wgmma_left_ by registers: d is set, so that
// the compiler need not keep what was there, or added to.
#define WGMMA_N64(type, set_or_add, out, scale)                                               \
  template <int a_rows, int b_rows>                                                           \
  DEVICE void wgmma_##set_or_add(type, f32(&d)[32], u64 a, u64 b) {                           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type " " WGMMA_32   \
                 ", %32, %33, " #scale ", 1, 1, %34, %35;\n"                                  \
                 : out(d, 0), out(d, 8), out(d, 16), out(d, 24)                               \
                 : "l"(a), "l"(b), "n"(a_rows), "n"(b_rows));                                 \
  }                                                                                           \
  template <int b_rows>                                                                       \
  DEVICE void wgmma_left_##set_or_add(type, f32(&d)[32], const u32(&a)[4], u64 b) {           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type " " WGMMA_32   \
                 ", {%32, %33, %34, %35}, %36, " #scale ", 1, 1, %37;\n"                      \
                 : out(d, 0), out(d, 8), out(d, 16), out(d, 24)                               \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(b_rows));          \
  }
WGMMA_N64(bf16, set, WGMMA_SET_8, 0)
WGMMA_N64(bf16, add, WGMMA_8, 1)
WGMMA_N64(f16, set, WGMMA_SET_8, 0)
WGMMA_N64(f16, add, WGMMA_8, 1)
#undef WGMMA_N64
template <int b_rows, class T>
DEVICE void wgmma_left(T type, f32 (&d)[32], const u32 (&a)[4], u64 b) {
  wgmma_left_add<b_rows>(type, d, a, b);
}

// Four 8x8 matrices of halves from the registers of a product to shared memory: load_matrices the
// other way.
DEVICE void store_matrices(void* row, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// Two of them; lanes 0 to 15 give the addresses.
DEVICE void store_matrices(void* row, u32 first, u32 second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(
                   shared_address(row)),
               "r"(first), "r"(second)
               : "memory");
}

// v[j] of the quad's lane t, a pair of the eight columns j, becomes the pair j of the columns t: a
// lane then holds 16 bytes of neighbours.
DEVICE void transpose_quad(u32 (&v)[4]) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    u32 mine = t & 1 ? v[i] : v[i + 1], other = SHFL_XOR(mine, 1);
    if (t & 1)
      v[i] = other;
    else
      v[i + 1] = other;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    u32 mine = t & 2 ? v[i] : v[i + 2], other = SHFL_XOR(mine, 2);
    if (t & 2)
      v[i] = other;
    else
      v[i + 2] = other;
  }
}

// This lane's row (h 0) or the one 8 below (h 1) of a product, times `factor`, to `width` columns
// of a tensor's row in steps of 16 bytes; width is a multiple of 8. All lanes take part, and those
// whose row is not `there` store nothing.
template <class T, int N>
DEVICE void store_row(T, u16* row, bool there, int width, const f32 (&d)[N], int h, f32 factor) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int g = 0; g < N / 16; g++) {
    u32 v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      int at = 4 * (4 * g + j) + 2 * h;
      v[j] = pack_pair(T(), d[at] * factor, d[at + 1] * factor);
    }
    transpose_quad(v);
    int column = 8 * (4 * g + lane);
    if (there && column < width)
      *(vec<u32, 4>*)(row + column) = vec<u32, 4>{{v[0], v[1], v[2], v[3]}};
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL
#endif  // HALYARD_BACKENDS_GPU_KERNELS_HOPPER_CUH_
