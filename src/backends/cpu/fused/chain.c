// Fused chains: an interpreter over blocks that stay in L1. Each step is the row kernel of its op,
// so that values are to the bit those of the calls made one after another.
#include "backends/cpu/fused/chain.h"

#include <string.h>

#include "backends/cpu/ops/elementwise.h"
#include "backends/cpu/rows/nditer.h"
#include "backends/cpu/simd/half.h"

// Bytes of registers stay below those of L1; a row that is summed is at most a span of a sum.
enum { BLOCK = 1024, REGISTERS = 6, LONGEST_ROW = 4096, MOST = HY_CHAIN_TENSORS };

typedef struct plan {
  const hy__cpu_kernels* kernels;
  const hy_chain* chain;
  hy_dtype dtype;  // of all steps
  int64_t size;
  hy__mapping maps[HY_CHAIN_STEPS];
  int reg_of[HY_CHAIN_STEPS];       // the register of each result
  bool direct[HY_CHAIN_STEPS];      // the result goes to its output's memory at once
  int input_reg[HY_CHAIN_TENSORS];  // of inputs that are no rows as they are
  int n_maps;                       // steps but for a reduction
  int cost;
  bool nontemporal;
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

// Registers: a result is kept from its step to its last reader, and may replace an input.
static bool give_registers(plan* p) {
  const hy_chain* chain = p->chain;
  int last[HY_CHAIN_STEPS];
  for (int s = 0; s < chain->n_steps; s++) last[s] = chain->steps[s].out >= 0 ? chain->n_steps : s;
  for (int s = 0; s < chain->n_steps; s++) {
    for (int k = 0; k < chain->steps[s].n_in; k++) {
      int from = chain->steps[s].in[k];
      if (from < 0 && last[-1 - from] < s) last[-1 - from] = s;
    }
  }
  // Inputs may need a row of their own; which do is known when the loop is.
  int next = 0;
  for (int i = 0; i < chain->n_in; i++) {
    const hy_tensor* t = &chain->in[i];
    bool row = t->ndim == chain->ndim && hy_tensor_is_contiguous(t);
    for (int d = 0; row && d < t->ndim; d++) row = t->shape[d] == chain->shape[d];
    p->input_reg[i] = -1;
    if (row) continue;
    if (next == REGISTERS) return false;
    p->input_reg[i] = next++;
  }
  for (int s = 0; s < p->n_maps; s++) {
    bool taken[REGISTERS] = {false};
    for (int k = 0; k < next; k++) taken[k] = true;
    for (int k = 0; k < s; k++) {
      if (last[k] > s) taken[p->reg_of[k]] = true;
    }
    int free = 0;
    while (free < REGISTERS && taken[free]) free++;
    if (free == REGISTERS) return false;
    p->reg_of[s] = free;
  }
  return true;
}

// The result of a step may go to memory at once where no later step reads an input there.
static void choose_direct(plan* p) {
  const hy_chain* chain = p->chain;
  for (int s = 0; s < p->n_maps; s++) {
    int out = chain->steps[s].out;
    p->direct[s] = false;
    if (out < 0) continue;
    bool alone = true;
    for (int i = 0; i < chain->n_in; i++)
      alone = alone && chain->in[i].data != chain->out[out].data;
    p->direct[s] = alone && s == p->n_maps - 1 && p->n_maps == chain->n_steps;
  }
}

static bool make_plan(plan* p, const hy_chain* chain) {
  *p = (plan){.chain = chain, .n_maps = chain->n_steps, .dtype = chain->steps[0].dtype};
  p->size = (int64_t)hy_dtype_size(p->dtype);
  const hy_chain_step* tail = &chain->steps[chain->n_steps - 1];
  if (is_reduction(tail->op)) p->n_maps--;
  choose_direct(p);
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

typedef float registers[REGISTERS][BLOCK];

// n elements of every tensor of the loop; results of the last step go to `row` where it is given.
static void run_block(const plan* p, int64_t n, char* const* at, const int64_t* step, bool is_first,
                      registers regs, char* row) {
  const hy_chain* chain = p->chain;
  int type = p->dtype == HY_BF16 ? HY__ROW_BF16 : HY__ROW_F32;
  for (int i = 0; i < chain->n_in; i++) {
    int reg = p->input_reg[i];
    if (reg < 0) continue;
    const char* from = at[i];
    char* to = (char*)regs[reg];
    if (step[i] == p->size) continue;
    if (step[i] == 0 && !is_first) continue;  // every block of a piece repeats the same number
    int64_t count = step[i] == 0 ? BLOCK : n;
    if (p->size == 4) {
      for (int64_t e = 0; e < count; e++) memcpy(to + 4 * e, from + e * step[i], 4);
    } else {
      for (int64_t e = 0; e < count; e++) memcpy(to + 2 * e, from + e * step[i], 2);
    }
  }
  for (int s = 0; s < p->n_maps; s++) {
    const hy_chain_step* now = &chain->steps[s];
    const hy__mapping* m = &p->maps[s];
    const void* in[3] = {NULL};
    for (int k = 0; k < now->n_in; k++) {
      int from = now->in[k];
      if (from < 0)
        in[k] = regs[p->reg_of[-1 - from]];
      else
        in[k] = p->input_reg[from] < 0 || step[from] == p->size ? (const void*)at[from]
                                                                : regs[p->input_reg[from]];
    }
    void* out = regs[p->reg_of[s]];
    bool nontemporal = false;
    if (row && s == p->n_maps - 1) {
      out = row;
    } else if (p->direct[s]) {
      out = at[chain->n_in + now->out];
      nontemporal = p->nontemporal && (uintptr_t)out % 64 == 0;
    }
    m->map[type](n, in, m->p, m->q, out, nontemporal);
  }
  for (int s = 0; s < p->n_maps; s++) {
    int out = chain->steps[s].out;
    if (out < 0 || p->direct[s]) continue;
    memcpy(at[chain->n_in + out], regs[p->reg_of[s]], (size_t)(n * p->size));
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
  _Alignas(64) registers regs;
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t now = n - i < BLOCK ? n - i : BLOCK;
    run_block(p, now, here, steps, i == 0, regs, NULL);
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
    for (int64_t i = 0; i < length; i += BLOCK) {
      int64_t now = length - i < BLOCK ? length - i : BLOCK;
      run_block(p, now, here, inner, i == 0, regs, row + i * p->size);
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

hy_status hy__cpu_run_chain(const hy__cpu_kernels* kernels, const hy_chain* chain) {
  plan p;
  if (!make_plan(&p, chain))
    return hy__backend_host->fail(HY_UNSUPPORTED, "a chain needs more registers than there are");
  p.kernels = kernels;
  for (int s = 0; s < p.n_maps; s++) {
    const hy_chain_step* step = &chain->steps[s];
    hy_tensor in = {.dtype = p.dtype};
    hy_call call = {.op = step->op, .n_in = 1, .n_out = 1, .in = &in, .attrs = step->attrs};
    hy__map_op(kernels->rows, &call, &p.maps[s]);
    p.cost += p.maps[s].cost;
  }
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
