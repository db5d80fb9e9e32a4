// RoPE, rotary position embedding, along the last dimension. Neighbouring heads share their angles,
// which are prepared once for all of them.
#include <stdatomic.h>

#include "backends/cpu/family.h"
#include "backends/cpu/rows/nditer.h"
#include "backends/cpu/runtime/scratch.h"

enum { OUT, X, COSINE, SINE, TENSORS };
enum { COST = 4 };  // of a number, in additions

typedef struct job {
  const hy__cpu_kernels* kernels;
  float direction;  // -1: the inverse
  bool interleaved;
  hy_dtype dtype[TENSORS];
  int64_t n, step[TENSORS];    // elements of a row of x, and from one to the next of each tensor
  bool in_place, nontemporal;  // rows are taken in place; outputs pass the caches by
  atomic_bool no_memory;
} job;

static void prepare(const job* j, const char* from, int k, float* buffer, float* angles) {
  j->kernels->gemm.widen(j->n / 2, from, j->step[k], j->dtype[k], buffer);
  j->kernels->rows->order_angles(j->n / 2, buffer, j->in_place ? j->dtype[X] : HY_F32,
                                 j->interleaved, k == SINE ? j->direction : 1, angles);
}

static void turn_rows(const void* context, int64_t rows, char* const* at, const int64_t* step) {
  job* j = (job*)(uintptr_t)context;
  int64_t n = j->n, room = n / 2 + HY__ROW_SPARE;
  float* memory = hy__scratch_get(HY__SCRATCH_ROWS, (size_t)(2 * room + 3 * n) * sizeof *memory);
  if (!memory) {
    atomic_store(&j->no_memory, true);
    return;
  }
  float *cosine = memory, *sine = cosine + room, *x = sine + room, *out = x + n, *buffer = out + n;
  const hy__rows* kernels = j->kernels->rows;
  for (int64_t i = 0; i < rows; i++) {
    if (i == 0 || step[COSINE] != 0)
      prepare(j, at[COSINE] + i * step[COSINE], COSINE, buffer, cosine);
    if (i == 0 || step[SINE] != 0) prepare(j, at[SINE] + i * step[SINE], SINE, buffer, sine);
    char *from = at[X] + i * step[X], *to = at[OUT] + i * step[OUT];
    hy_dtype dtype = j->dtype[X];
    if (!j->in_place) j->kernels->gemm.widen(n, from, j->step[X], dtype, x);
    (j->interleaved ? kernels->rotate_interleaved : kernels->rotate_half)(
        n / 2, j->in_place ? (void*)from : x, j->in_place ? dtype : HY_F32, cosine, sine,
        j->in_place ? (void*)to : out, j->nontemporal);
    if (!j->in_place) j->kernels->gemm.epilogue(n, out, 1, 0, NULL, 0, to, j->step[OUT], dtype);
  }
  if (j->nontemporal) kernels->nontemporal_fence();
}

// Whether every vector of every row is at a multiple of 64 bytes.
static bool is_aligned(const hy_tensor* t, const job* j) {
  int64_t size = (int64_t)hy_dtype_size(t->dtype), unit = 64 / size;
  bool aligned = (uintptr_t)t->data % 64 == 0 && j->n / 2 % unit == 0;
  for (int d = 0; d < t->ndim - 1; d++) aligned = aligned && t->stride[d] % unit == 0;
  return aligned;
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  int last = x->ndim - 1;
  job j = {.kernels = kernels, .interleaved = call->attrs.rope.interleaved, .n = x->shape[last]};
  j.direction = call->attrs.rope.inverse ? -1 : 1;
  hy_tensor rows[TENSORS] = {[OUT] = call->out[0], [X] = *x};
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0; d < last; d++) shape[d] = x->shape[d];
  shape[last] = j.n / 2;
  for (int k = COSINE; k <= SINE; k++)
    HY_TRY(hy_expand(&rows[k], &call->in[1 + k - COSINE], x->ndim, shape));
  const hy_tensor* tensors[TENSORS];
  for (int k = 0; k < TENSORS; k++) {
    tensors[k] = &rows[k];
    j.dtype[k] = rows[k].dtype;
    j.step[k] = rows[k].stride[last];
    rows[k].ndim = last;  // the loop is over rows
  }
  j.in_place = j.step[X] == 1 && j.step[OUT] == 1 && j.dtype[X] != HY_F16;
  j.nontemporal = j.in_place && hy__use_nontemporal(call) && is_aligned(&call->out[0], &j);
  hy__nditer loop;
  hy__nditer_init(&loop, TENSORS, tensors);
  hy__nditer_run(&loop, turn_rows, &j, (int)(j.n < INT32_MAX / COST ? COST * j.n : INT32_MAX));
  return atomic_load(&j.no_memory) ? hy__cpu_no_memory(call) : HY_OK;
}

// The angles have the type of x, or f32.
static hy_support supports(const hy_call* call) {
  return call->out[0].dtype == call->in[0].dtype ? HY_SUPPORT_YES : HY_SUPPORT_NO_DTYPE;
}

const hy__cpu_family hy__cpu_rope = {supports, run};
