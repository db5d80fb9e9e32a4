// A valid call with a few of its fields changed: the neighbourhood of what works, where mistakes
// are easily missed. Memory stays real, which is what a caller owes; whatever else the call says,
// it runs or is refused.
#include <string.h>

#include "fuzz/fuzz.h"
#include "ops/internal.h"
#include "verify/case.h"

static void change_tensor(fuzz_input* in, hy_tensor* t) {
  int d = fuzz_byte(in) % HY_MAX_DIMS;
  int64_t small = (int64_t)(fuzz_byte(in) % 9) - 1;
  switch (fuzz_byte(in) % 7) {
    case 0: t->shape[d] = small; break;
    case 1: t->stride[d] = small; break;
    case 2: t->ndim = (int32_t)small; break;
    case 3: t->dtype = (hy_dtype)(fuzz_byte(in) % 16); break;
    case 4: t->layout = (hy_layout)(fuzz_byte(in) % 5); break;
    case 5: t->shape[d] = (int64_t)fuzz_bits(in, 8); break;
    case 6: t->dtype = HY_NONE; break;
  }
}

static bool is_inside(const hy__case* c, const hy_tensor* t) {
  if (t->dtype == HY_NONE || hy_tensor_check(t) != HY_OK)
    return true;  // refused, or nothing to touch
  int64_t first, last;
  hy_tensor_extent(t, &first, &last);
  intptr_t data = (intptr_t)t->data, low = (intptr_t)c->image;
  return first == last ||
         (t->data && data - low >= -first && last <= low + (intptr_t)c->used - data);
}

static void change_attributes(fuzz_input* in, hy__case* c) {
  const hy_op_info* info = c->info;
  if (info->n_attrs == 0) return;
  const hy_attr_field* field = &info->attrs[fuzz_byte(in) % info->n_attrs];
  unsigned char* at = (unsigned char*)&c->call.attrs + field->offset;
  if (strcmp(field->type, "bool") == 0)
    *(bool*)at = fuzz_byte(in) & 1;
  else if (strcmp(field->type, "hy_equation") == 0)
    at[fuzz_byte(in) % HY_MAX_EQUATION] = fuzz_byte(in);
  else if (strcmp(field->type, "double") == 0)
    *(double*)at = (double)(int8_t)fuzz_byte(in) / 4;
  else if (strcmp(field->type, "hy_scalar") == 0)
    *(hy_scalar*)at = fuzz_byte(in) & 1 ? hy_float(0.5) : hy_int((int8_t)fuzz_byte(in));
  else if (strcmp(field->type, "hy_dims") == 0)
    ((int64_t*)at)[fuzz_byte(in) % 9] = (int64_t)(fuzz_byte(in) % 12) - 3;
  else if (strcmp(field->type, "hy_pair") == 0)
    ((int64_t*)at)[fuzz_byte(in) % 2] = (int64_t)(fuzz_byte(in) % 6) - 1;
  else if (strncmp(field->type, "hy_", 3) == 0)
    *(int32_t*)at = (int32_t)(fuzz_byte(in) % 18) - 1;
  else
    *(int64_t*)at =
        fuzz_byte(in) % 8 ? (int64_t)(fuzz_byte(in) % 12) - 3 : (int64_t)fuzz_bits(in, 8);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static hy__case* c;
  if (!c && hy__case_create(&c) != HY_OK) return 0;
  fuzz_input in = {data, size};
  hy_op op = hy_op_at((int)(fuzz_bits(&in, 2) % (uint64_t)hy_op_count()))->op;
  int count = hy__case_count(op);
  hy__case_key key = {.op = op,
                      .seed = fuzz_bits(&in, 2),
                      .index = (int)(fuzz_bits(&in, 2) % (uint64_t)(count > 0 ? count : 1)),
                      .quick = true};
  if (hy__case_make(c, &key) != HY_OK) return 0;
  for (int n = fuzz_byte(&in) % 4; n > 0; n--) {
    int slots = c->call.n_in + c->call.n_out, slot = slots ? fuzz_byte(&in) % (slots + 1) : 0;
    if (slot == slots)
      change_attributes(&in, c);
    else
      change_tensor(&in, slot < c->call.n_in ? &c->in[slot] : &c->out[slot - c->call.n_in]);
  }
  for (int i = 0; i < c->call.n_in; i++) {
    if (!is_inside(c, &c->in[i])) return 0;
  }
  for (int i = 0; i < c->call.n_out; i++) {
    if (!is_inside(c, &c->out[i])) return 0;
  }
  char words[600];
  hy_call_describe(&c->call, words, sizeof words);
  hy__reference(&c->call);
  return 0;
}
