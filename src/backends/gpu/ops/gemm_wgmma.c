// GEMM by TMA and wgmma: which products Hopper's kernel takes, its tile, clusters or parts of k,
// and its launch.
#include "backends/gpu/ops/gemm_wgmma.h"

#include <math.h>
#include <stdio.h>

#include "backends/gpu/ops/tensor_map.h"

enum { BK = 64, BOX = 64, THREADS = 384, SHARED = 226 << 10 };

// How the kernel is compiled: rows of a consumer and columns of a tile, whether consumers take
// turns, blocks along m and n that share tiles, parts of k.
typedef struct plan {
  int rows, bn, turns, stages, cm, cn, splits;
  int64_t blocks;  // all of them, where a block has one tile
} plan;

static int bm(const plan* p) {
  return p->turns ? p->rows : 2 * p->rows;
}

static int64_t tiles(int64_t n, int64_t tile) {
  return (n + tile - 1) / tile;
}

// Blocks that are on the device at once, one to a multiprocessor: two neighbours have a cluster of
// two; larger ones lie within groups of multiprocessors whose sizes differ from chip to chip. An
// H200 held 39 of 3, 30 of 4 and 15 of 8, where one more would have had to wait for the others.
static int64_t room(const hy__gpu_device* device, int cluster) {
  int64_t all = device->multiprocessors;
  return (cluster <= 2 ? all : all * 7 / 8) / cluster * cluster;
}

// Clock cycles, roughly. A step of k takes what tensor cores need for it, or the bytes of its tiles
// on their way into a multiprocessor, or those that the second cache gives to all of them, from
// which blocks that share tiles read less. Where consumers take turns, one's epilogue is hidden by
// the other's steps, but for the last. The constants are fitted to 69 plans for 18 shapes on an
// H200, and within 7% of most of what was timed. In a second sweep of 65 plans what they choose was
// within 2% of the fastest at each shape, cold and warm together (docs/backends/cuda.md).
static double cycles(const hy__gpu_device* device, const hy_gemm* g, const plan* p) {
  enum { FMA = 1890, INTO = 52, FROM = 48 };  // of a multiprocessor and cycle: products, bytes
  double held = (double)room(device, p->cm * p->cn * p->splits), blocks = (double)p->blocks;
  double waves = ceil(blocks / held), busy = blocks < held ? blocks : held;
  double step = fmax((double)(bm(p) * p->bn * BK) / FMA, (bm(p) + p->bn) * BK * 2.0 / INTO);
  double read = ((double)bm(p) / p->cn + (double)p->bn / p->cm) * BK * 2 * busy;
  step = fmax(step, read / (FROM * (double)device->multiprocessors));
  double sums = (double)p->rows / 64 * p->bn, start = 3550;
  double finish = 725 + 18.7 * sums;               // the first stage of a tile, and the epilogue
  if (p->cm * p->cn > 1) finish += 560;            // blocks that meet
  if (p->splits > 1) finish += 360 + 39.5 * sums;  // sums that meet
  double steps = step * (double)tiles(tiles(g->k, BK), p->splits);
  double tile = p->turns ? fmax(steps, (steps + finish) / 2) : steps + finish;
  return start + waves * tile + (p->turns ? finish : 0);
}

// The fastest plan; its `bn` is 0 where blocks are too few for this kernel.
static plan choose(const hy__gpu_device* device, const hy_gemm* g, bool a_k, bool b_k) {
  static const plan kinds[] = {
      {64, 256, 0, 4, 1, 1, 1, 0}, {64, 224, 0, 4, 1, 1, 1, 0},  {64, 192, 0, 4, 1, 1, 1, 0},
      {64, 144, 0, 5, 1, 1, 1, 0}, {64, 128, 0, 6, 1, 1, 1, 0},  {64, 112, 0, 6, 1, 1, 1, 0},
      {64, 128, 1, 8, 2, 1, 1, 0}, {128, 144, 1, 5, 1, 1, 1, 0}, {128, 152, 1, 5, 1, 1, 1, 0},
  };
  enum { LEAST_STEPS = 3, MOST_SPLITS = 8 };
  plan best = {0};
  double least = INFINITY;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    plan p = kinds[i];
    if ((!a_k && bm(&p) / p.cn % BOX) || (!b_k && p.bn / p.cm % BOX)) continue;
    int64_t count = tiles(g->m, bm(&p) * p.cm) * tiles(g->n, p.bn * p.cn) * p.cm * p.cn * g->batch;
    int64_t most = p.cm * p.cn > 1 || p.turns ? 1 : tiles(g->k, BK) / LEAST_STEPS;
    for (; p.splits <= MOST_SPLITS && (p.splits == 1 || p.splits <= most); p.splits++) {
      p.blocks = count * p.splits;
      if (p.blocks > INT32_MAX || p.blocks < device->multiprocessors / 3) continue;
      if (p.splits > 1 && p.blocks > room(device, p.splits)) break;
      double time = cycles(device, g, &p);
      if (time >= least) continue;
      least = time;
      best = p;
    }
  }
  return best;
}

// An operand [batch, rows, k] in boxes of 64 along its line; `lines` rows of it where lines run
// along k.
static bool map_operand(hy__gpu_task* task, hy__gpu_tensor_map* map, hy_dtype dtype,
                        const void* data, int rows, int k, int batch, int64_t step,
                        int64_t batch_step, bool k_first, int lines) {
  const int64_t shape[3] = {k_first ? k : rows, k_first ? rows : k, batch};
  const int64_t stride[3] = {1, step, batch_step};
  return hy__gpu_map_tensor(task, map, dtype, data, 3, shape, stride, k_first ? lines : BK);
}

// The output, in boxes of a warp's 16 rows.
static bool map_out(hy__gpu_task* task, hy__gpu_tensor_map* map, hy_dtype dtype, const hy_gemm* g,
                    int columns) {
  const int64_t shape[3] = {g->n, g->m, g->batch}, stride[3] = {1, g->out_row, g->out_batch};
  return g->out_column == 1 &&
         hy__gpu_map_boxes(task, map, dtype, g->out, 3, shape, stride, columns, 16);
}

bool hy__gpu_wgmma(hy__gpu_task* task, const hy_gemm* g, hy_dtype dtype, bool a_k, bool b_k) {
  if (!hy__gpu_is_hopper(task) || g->k < BK) return false;
  plan p = choose(task->device, g, a_k, b_k);
  hy__gpu_tensor_map a, b, out = {0}, tail = {0};
  if (!p.bn ||
      !map_operand(task, &a, dtype, g->a, g->m, g->k, g->batch, g->a_step, g->a_batch, a_k,
                   bm(&p) / p.cn) ||
      !map_operand(task, &b, dtype, g->b, g->n, g->k, g->batch, g->b_step, g->b_batch, b_k,
                   p.bn / p.cm))
    return false;
  int out_mapped = map_out(task, &out, dtype, g, BOX) &&
                   (p.bn % BOX == 0 || map_out(task, &tail, dtype, g, p.bn % BOX));
  char options[160];
  snprintf(options, sizeof options,
           "-DT=%s -DA_K=%d -DB_K=%d -DROWS=%d -DBN=%d -DTURNS=%d -DSTAGES=%d -DCM=%d -DCN=%d "
           "-DSPLITS=%d",
           hy__gpu_type_name(dtype), a_k, b_k, p.rows, p.bn, p.turns, p.stages, p.cm, p.cn,
           p.splits);
  int64_t held = room(task->device, p.cm * p.cn * p.splits);
  hy_gemm gemm = *g;
  hy__gpu_launch_dependent(
      task, hy__gpu_kernel(task, "gemm_wgmma", "gemm_wgmma", options),
      hy__gpu_1d((unsigned)(p.blocks < held || p.splits > 1 ? p.blocks : held)),
      hy__gpu_1d(THREADS), SHARED, HY__GPU_ARGS(&a, &b, &out, &tail, &out_mapped, &gemm));
  return true;
}
