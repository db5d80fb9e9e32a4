// Any call over real memory: whatever its op, shapes, strides, types and attributes are, it runs or
// is refused.
#include <string.h>

#include "fuzz/fuzz.h"
#include "ops/internal.h"

enum { BYTES = 1 << 16, MAX_TENSORS = 10 };
static uint8_t memory[MAX_TENSORS][BYTES];

// A tensor whose memory is real, which is what a caller owes; everything else is as the input says.
static hy_tensor take_tensor(fuzz_input* in, int slot) {
  hy_tensor t;
  memset(&t, 0, sizeof t);
  uint8_t kind = fuzz_byte(in);
  if (kind == 255) return t;
  t.dtype = (hy_dtype)(kind % 16);
  t.layout = (hy_layout)(fuzz_byte(in) % 16 == 0 ? fuzz_byte(in) % 5 : t.dtype == HY_I4);
  t.ndim = fuzz_byte(in) % 6;
  int64_t next = 1;
  for (int d = t.ndim - 1; d >= 0; d--) {
    t.shape[d] = fuzz_byte(in) % 7;
    uint8_t stride = fuzz_byte(in);
    t.stride[d] = stride < 200 ? next : (int64_t)(stride % 9) - 2;
    next *= t.shape[d] > 0 ? t.shape[d] : 1;
  }
  t.data = memory[slot];
  int64_t first, last;
  hy_tensor_extent(&t, &first, &last);
  if (last - first > BYTES) {
    t.ndim = 0;
    return t;
  }
  t.data = memory[slot] + (first < 0 ? -first : 0);
  return t;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz_input in = {data, size};
  const hy_op_info* info = hy_op_at((int)(fuzz_bits(&in, 2) % (uint64_t)hy_op_count()));
  hy_tensor inputs[MAX_TENSORS], outputs[HY_MAX_OUTPUTS];
  hy_call call = {.op = info->op,
                  .n_in = info->n_inputs,
                  .n_out = info->n_outputs,
                  .in = inputs,
                  .out = outputs};
  if (fuzz_byte(&in) % 16 == 0) call.n_in = fuzz_byte(&in) % 6;
  if (call.n_in > 6) call.n_in = 6;
  for (int i = 0; i < call.n_in; i++) {
    inputs[i] = take_tensor(&in, i);
    // Equal shapes and types are rare by chance and needed to come further.
    if (i > 0 && fuzz_byte(&in) % 2) {
      inputs[i] = inputs[0];
      inputs[i].data = (char*)inputs[0].data - (char*)memory[0] + (char*)memory[i];
    }
    for (int b = 0; b < 64; b++) memory[i][b] = fuzz_byte(&in);
  }
  for (size_t i = 0; i < sizeof call.attrs.words / 8; i++)
    call.attrs.words[i] = fuzz_bits(&in, fuzz_byte(&in) % 3);
  for (int a = 0; a < info->n_attrs; a++) {
    // A bool that is neither 0 nor 1 is no value of its type.
    if (strcmp(info->attrs[a].type, "bool") == 0) {
      uint8_t* at = (uint8_t*)&call.attrs + info->attrs[a].offset;
      *at = *at & 1;
    }
  }
  for (int i = 0; i < info->n_outputs; i++) outputs[i] = take_tensor(&in, 6 + i);
  hy_tensor inferred[HY_MAX_OUTPUTS];
  if (hy_infer(&call, inferred) == HY_OK && fuzz_byte(&in) % 8) {
    for (int i = 0; i < info->n_outputs; i++) {
      if (hy_tensor_bytes(&inferred[i]) > BYTES) return 0;
      inferred[i].data = memory[6 + i];
      outputs[i] = inferred[i];
    }
  }
  char words[600];
  hy_call_describe(&call, words, sizeof words);
  hy__reference(&call);
  return 0;
}
