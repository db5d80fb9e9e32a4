// Fused chains: an interpreter over blocks that stay in L1, in which runs of light steps stay in
// vector registers. Each step is the row kernel of its op,
// so that values are to the bit those of the calls made one after another.
#include "backends/cpu/fused/chain.h"

#include <string.h>

#include "backends/cpu/ops/elementwise.h"
#include "backends/cpu/rows/nditer.h"
#include "backends/cpu/simd/half.h"

// Bytes of registers stay below those of L1; a row that is summed is at most a span of a sum.
enum { BLOCK = 1024, REGISTERS = 6, LONGEST_ROW = 4096, MOST = HY_CHAIN_TENSORS };

// Elements of a block, by variant.
static const int64_t lengths[HY__CHAIN_VARIANTS] = {BLOCK, BLOCK / 2, BLOCK / 4};

typedef struct plan {
  const hy__cpu_kernels* kernels;
  const hy_chain* chain;
  hy_dtype dtype;  // of all steps
  int64_t size;
  int n_maps;                       // steps but for a reduction
  int last_reader[HY_CHAIN_STEPS];  // of each result: a step, or n_steps for an output
  int reg_of[HY_CHAIN_STEPS];       // the register of each result
  bool direct[HY_CHAIN_STEPS];      // the result goes to its output's memory at once
  int input_reg[HY_CHAIN_TENSORS];  // of inputs that may be no rows as they are; -1: they are
  bool whole;                       // light steps alone, over rows as they are: no blocks needed
  hy__mapping maps[HY_CHAIN_STEPS];
  int light[HY_CHAIN_STEPS];  // hy__light; -1: a map of its own
  int cost;
  bool nontemporal;
  int64_t length;  // of a block
} plan;

// ---- what runs ----

static bool is_reduction(hy_op op) {
  return op == HY_OP_sum || op == HY_OP_mean;
}

static bool maps_alone(const hy_chain_step* step, hy_dtype dtype) {
  hy_tensor in = {.dtype = dtype};
  hy_call call = {.op = step->op, .n_in = step->n_in, .n_out = 1, .in = &in, .attrs = step->attrs};
  hy__mapping m;
  switch (step->op) {
    case HY_OP_div:
      if (step->attrs.rounding.rounding != HY_ROUND_NONE) return false;
      break;
    case HY_OP_div_scalar:
      if (step->attrs.value_rounding.rounding != HY_ROUND_NONE) return false;
      break;
    case HY_OP_clamp: {
      double low = hy_scalar_f(step->attrs.clamp.low), high = hy_scalar_f(step->attrs.clamp.high);
      if (low != low || high != high) return false;
      break;
    }
    default: break;
  }
  hy__map_op(&hy__rows_generic, &call, &m);
  return m.map != NULL;
}

// Inputs that are contiguous over the shape are rows wherever a loop cuts them.
static bool is_row(const hy_chain* chain, const hy_tensor* t) {
  if (t->ndim != chain->ndim || !hy_tensor_is_contiguous(t)) return false;
  for (int d = 0; d < t->ndim; d++) {
    if (t->shape[d] != chain->shape[d]) return false;
  }
  return true;
}

static void find_readers(plan* p) {
  const hy_chain* chain = p->chain;
  for (int s = 0; s < chain->n_steps; s++) p->last_reader[s] = s;
  for (int s = 0; s < chain->n_steps; s++) {
    for (int k = 0; k < chain->steps[s].n_in; k++) {
      int from = chain->steps[s].in[k];
      if (from < 0 && p->last_reader[-1 - from] < s) p->last_reader[-1 - from] = s;
    }
  }
}

// A result goes to its output's memory at once where no later step reads an input there.
static bool is_direct(const plan* p, int s) {
  const hy_chain* chain = p->chain;
  int out = chain->steps[s].out;
  if (out < 0) return false;
  if (s == p->n_maps - 1) return true;
  for (int i = 0; i < chain->n_in; i++) {
    if (chain->in[i].data == chain->out[out].data) return false;
  }
  return true;
}

// Registers: a result is kept from its step to its last reader, and may replace an input.
static bool give_registers(plan* p) {
  const hy_chain* chain = p->chain;
  int inputs = 0;
  for (int i = 0; i < chain->n_in; i++) {
    p->input_reg[i] = is_row(chain, &chain->in[i]) ? -1 : inputs++;
    if (inputs > REGISTERS) return false;
  }
  for (int s = 0; s < p->n_maps; s++) {
    bool taken[REGISTERS + 1] = {false};
    for (int k = 0; k < inputs; k++) taken[k] = true;
    for (int k = 0; k < s; k++) {
      if (p->last_reader[k] > s || (chain->steps[k].out >= 0 && !p->direct[k]))
        taken[p->reg_of[k]] = true;
    }
    int free = 0;
    while (free < REGISTERS && taken[free]) free++;
    if (free == REGISTERS) return false;
    p->reg_of[s] = free;
  }
  return true;
}

static bool make_plan(plan* p, const hy_chain* chain) {
  memset(p, 0, sizeof *p);
  p->chain = chain;
  p->dtype = chain->steps[0].dtype;
  p->size = (int64_t)hy_dtype_size(p->dtype);
  p->n_maps = chain->n_steps - is_reduction(chain->steps[chain->n_steps - 1].op);
  find_readers(p);
  for (int s = 0; s < p->n_maps; s++) p->direct[s] = is_direct(p, s);
  return p->n_maps > 0 && give_registers(p);
}

static bool reduces_rows(const hy_chain* chain, const hy_chain_step* tail) {
  const hy_dims* dims = &tail->attrs.reduce.dims;
  if (chain->ndim < 1 || dims->n != 1 || tail->in[0] != -1 - (chain->n_steps - 2)) return false;
  int64_t dim = dims->dim[0] < 0 ? dims->dim[0] + chain->ndim : dims->dim[0];
  if (dim != chain->ndim - 1 || chain->shape[dim] > LONGEST_ROW || chain->n_out != 1) return false;
  // One row alone is split by the sum itself where it is long; short ones are a span each.
  return chain->shape[dim] > 1 && chain->steps[chain->n_steps - 2].out < 0;
}

hy_support hy__cpu_supports_chain(const hy_chain* chain) {
  plan p;
  hy_dtype dtype = chain->steps[0].dtype;
  if (dtype != HY_F32 && dtype != HY_BF16) return HY_SUPPORT_NO_DTYPE;
  for (int i = 0; i < chain->n_in; i++) {
    if (chain->in[i].dtype != dtype) return HY_SUPPORT_NO_DTYPE;
  }
  for (int i = 0; i < chain->n_out; i++) {
    if (chain->out[i].dtype != dtype || !hy_tensor_is_contiguous(&chain->out[i]))
      return HY_SUPPORT_NO_LAYOUT;
  }
  for (int s = 0; s < chain->n_steps; s++) {
    const hy_chain_step* step = &chain->steps[s];
    if (step->dtype != dtype) return HY_SUPPORT_NO_DTYPE;
    if (is_reduction(step->op)) {
      if (s == 0 || s < chain->n_steps - 1 || !reduces_rows(chain, step))
        return HY_SUPPORT_NO_ATTRIBUTE;
    } else if (!maps_alone(step, dtype)) {
      return HY_SUPPORT_NO_OP;
    }
  }
  return make_plan(&p, chain) ? HY_SUPPORT_YES : HY_SUPPORT_NO_SHAPE;
}

// ---- running ----

static int light_of(const hy__rows* rows, const hy__mapping* m) {
#define AS_TEST(name, inputs) \
  if (m->map == rows->name) return HY__LIGHT_##name;
  HY__LIGHT_MAPS(AS_TEST)
#undef AS_TEST
  return -1;
}

// Whether the step before is all that the step needs to be kept in vectors with it.
static bool follows(const plan* p, int s) {
  if (p->light[s] < 0 || p->light[s - 1] < 0) return false;
  for (int k = 0; k < p->chain->steps[s].n_in; k++) {
    if (p->chain->steps[s].in[k] == -1 - (s - 1)) return true;
  }
  return false;
}

// How the steps are run, once the kernels are known.
static void choose_maps(plan* p, const hy__cpu_kernels* kernels) {
  const hy_chain* chain = p->chain;
  p->kernels = kernels;
  p->whole = p->n_maps == chain->n_steps;
  for (int s = 0; s < p->n_maps; s++) {
    const hy_chain_step* step = &chain->steps[s];
    hy_tensor in = {.dtype = p->dtype};
    hy_call call = {.op = step->op, .n_in = 1, .n_out = 1, .in = &in, .attrs = step->attrs};
    hy__map_op(kernels->rows, &call, &p->maps[s]);
    p->cost += p->maps[s].cost;
    p->light[s] = p->dtype == HY_F32 ? light_of(kernels->rows, &p->maps[s]) : -1;
    p->whole = p->whole && p->light[s] >= 0 && (s == 0 || follows(p, s));
    p->whole = p->whole && (p->last_reader[s] <= s + 1 || p->direct[s]);
    p->whole = p->whole && (step->out < 0 || p->direct[s]);
  }
  for (int i = 0; i < chain->n_in; i++) p->whole = p->whole && p->input_reg[i] < 0;
}

typedef float registers[REGISTERS][BLOCK];

// n elements of every tensor of a chain, and where the steps find their operands.
typedef struct block {
  const plan* p;
  int64_t n;
  char* const* at;  // inputs, then outputs
  const int64_t* step;
  float (*regs)[BLOCK];
  char* row;  // of the last result, where it is reduced; else NULL
} block;

static const void* operand(const block* b, int from) {
  const plan* p = b->p;
  if (from >= 0) {
    bool row = p->input_reg[from] < 0 || b->step[from] == p->size;
    return row ? (const void*)b->at[from] : b->regs[p->input_reg[from]];
  }
  int s = -1 - from;
  return p->direct[s] ? (const void*)b->at[p->chain->n_in + p->chain->steps[s].out]
                      : b->regs[p->reg_of[s]];
}

static void* result(const block* b, int s) {
  const plan* p = b->p;
  if (b->row && s == p->n_maps - 1) return b->row;
  return p->direct[s] ? (void*)b->at[p->chain->n_in + p->chain->steps[s].out]
                      : b->regs[p->reg_of[s]];
}

// Inputs whose elements are apart, or all the same, as rows.
static void gather_inputs(const block* b, bool is_first) {
  const plan* p = b->p;
  for (int i = 0; i < p->chain->n_in; i++) {
    int64_t step = b->step[i];
    if (p->input_reg[i] < 0 || step == p->size) continue;
    if (step == 0 && !is_first) continue;  // every block of a piece repeats the same number
    int64_t count = step == 0 ? BLOCK : b->n;
    const char* from = b->at[i];
    char* to = (char*)b->regs[p->input_reg[i]];
    if (p->size == 4) {
      for (int64_t e = 0; e < count; e++) memcpy(to + 4 * e, from + e * step, 4);
    } else {
      for (int64_t e = 0; e < count; e++) memcpy(to + 2 * e, from + e * step, 2);
    }
  }
}

static bool past_caches(const block* b, int s) {
  return b->p->nontemporal && s == b->p->n_maps - 1 && b->p->direct[s] &&
         (uintptr_t)result(b, s) % 64 == 0;
}

static void run_map(const block* b, int s) {
  const plan* p = b->p;
  const hy__mapping* m = &p->maps[s];
  const void* in[3] = {NULL};
  for (int k = 0; k < p->chain->steps[s].n_in; k++) in[k] = operand(b, p->chain->steps[s].in[k]);
  m->map[p->dtype == HY_BF16 ? HY__ROW_BF16 : HY__ROW_F32](b->n, in, m->p, m->q, result(b, s),
                                                           past_caches(b, s));
}

// Steps first .. last - 1, each following the one before; only what others read is stored.
static void run_light(const block* b, int first, int last) {
  const plan* p = b->p;
  hy__light_step steps[HY_CHAIN_STEPS];
  for (int s = first; s < last; s++) {
    hy__light_step* now = &steps[s - first];
    *now = (hy__light_step){.map = p->light[s], .p = p->maps[s].p, .q = p->maps[s].q};
    for (int k = 0; k < p->chain->steps[s].n_in; k++) {
      int from = p->chain->steps[s].in[k];
      bool before = s > first && from == -1 - (s - 1);
      now->in[k] = before ? NULL : operand(b, from);
    }
    bool kept = s == last - 1 || p->last_reader[s] > s + 1 || p->chain->steps[s].out >= 0;
    if (kept) now->out = result(b, s);
  }
  p->kernels->rows->light_chain(b->n, steps, last - first, past_caches(b, last - 1));
}

static void run_block(const block* b, bool is_first) {
  const plan* p = b->p;
  const hy_chain* chain = p->chain;
  gather_inputs(b, is_first);
  for (int s = 0; s < p->n_maps;) {
    int last = s + 1;
    while (last < p->n_maps && follows(p, last)) last++;
    if (last - s > 1)
      run_light(b, s, last);
    else
      run_map(b, s);
    s = last;
  }
  for (int s = 0; s < p->n_maps; s++) {
    int out = chain->steps[s].out;
    if (out < 0 || p->direct[s]) continue;
    memcpy(b->at[chain->n_in + out], b->regs[p->reg_of[s]], (size_t)(b->n * p->size));
  }
}

// Outputs are contiguous over the shape, so that pieces of a loop are pieces of them.
static void run_piece(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const plan* p = context;
  const hy_chain* chain = p->chain;
  int count = chain->n_in + chain->n_out;
  // The loop has the first output first.
  char* here[MOST];
  int64_t steps[MOST];
  for (int k = 0; k < count; k++) {
    int from = k < chain->n_in ? chain->n_out + k : k - chain->n_in;
    here[k] = at[from];
    steps[k] = step[from];
  }
  if (p->whole) {
    run_light(&(block){p, n, here, steps, NULL, NULL}, 0, p->n_maps);
    return;
  }
  _Alignas(64) registers regs;
  for (int64_t i = 0; i < n; i += p->length) {
    int64_t now = n - i < p->length ? n - i : p->length;
    run_block(&(block){p, now, here, steps, regs, NULL}, i == 0);
    for (int k = 0; k < count; k++) here[k] += now * steps[k];
  }
}

// n rows: the reduced output and the beginning of the row in each input.
static void run_rows(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const plan* p = context;
  const hy_chain* chain = p->chain;
  int64_t length = chain->shape[chain->ndim - 1], inner[MOST];
  const hy_chain_step* tail = &chain->steps[chain->n_steps - 1];
  for (int k = 0; k < chain->n_in; k++) {
    const hy_tensor* t = &chain->in[k];
    bool spans = t->ndim > 0 && t->shape[t->ndim - 1] != 1;
    inner[k] = spans ? t->stride[t->ndim - 1] * p->size : 0;
  }
  _Alignas(64) registers regs;
  _Alignas(64) char row[LONGEST_ROW * 4];
  for (int64_t r = 0; r < n; r++) {
    char* here[MOST];
    for (int k = 0; k < chain->n_in; k++) here[k] = at[1 + k] + r * step[1 + k];
    for (int64_t i = 0; i < length; i += p->length) {
      int64_t now = length - i < p->length ? length - i : p->length;
      run_block(&(block){p, now, here, inner, regs, row + i * p->size}, i == 0);
      for (int k = 0; k < chain->n_in; k++) here[k] += now * inner[k];
    }
    double sum = (double)p->kernels->rows->sum(length, row, p->dtype);
    if (tail->op == HY_OP_mean) sum /= (double)length;
    hy__store1(at[0] + r * step[0], p->dtype, (float)sum);
  }
}

// The tensor without the last dimension: where rows begin.
static hy_tensor row_starts(const hy_tensor* t) {
  hy_tensor starts = *t;
  if (starts.ndim > 0) starts.ndim--;
  return starts;
}

hy_status hy__cpu_run_chain(const hy__cpu_kernels* kernels, const hy_chain* chain, int variant) {
  plan p;
  if (!make_plan(&p, chain))
    return hy__backend_host->fail(HY_UNSUPPORTED, "a chain needs more registers than there are");
  choose_maps(&p, kernels);
  p.length = lengths[variant];
  hy_call outer = {.n_in = chain->n_in, .n_out = chain->n_out, .in = chain->in, .out = chain->out};
  p.nontemporal = hy__use_nontemporal(&outer);
  const hy_tensor* tensors[MOST];
  hy_tensor starts[MOST];
  hy__nditer loop;
  if (p.n_maps < chain->n_steps) {
    // The reduced output, as a tensor of the shape without the last dimension.
    hy_tensor out = {.data = chain->out[0].data, .dtype = p.dtype, .ndim = chain->ndim - 1};
    int64_t stride = 1;
    for (int d = out.ndim - 1; d >= 0; d--) {
      out.shape[d] = chain->shape[d];
      out.stride[d] = stride;
      stride *= chain->shape[d];
    }
    tensors[0] = &out;
    for (int k = 0; k < chain->n_in; k++) {
      starts[k] = row_starts(&chain->in[k]);
      tensors[1 + k] = &starts[k];
    }
    hy__nditer_init(&loop, 1 + chain->n_in, tensors);
    int64_t cost = p.cost * chain->shape[chain->ndim - 1];
    hy__nditer_run(&loop, run_rows, &p, (int)cost);
    return HY_OK;
  }
  for (int k = 0; k < chain->n_out; k++) tensors[k] = &chain->out[k];
  for (int k = 0; k < chain->n_in; k++) tensors[chain->n_out + k] = &chain->in[k];
  hy__nditer_init(&loop, chain->n_out + chain->n_in, tensors);
  hy__nditer_run(&loop, run_piece, &p, p.cost);
  return HY_OK;
}
