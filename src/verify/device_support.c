// Conformance of devices: verdicts, patterns and native calls, for the checks by topic.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/internal.h"
#include "verify/device_checks.h"

bool hy__judge(hy__op_verdict* v, bool passed, const char* format, ...) {
  v->cases++;
  v->passed += passed;
  if (passed || v->failed++ > 0) return passed;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(v->failure, sizeof v->failure, format, arguments);
  va_end(arguments);
  return passed;
}

bool hy__judge_status(hy__op_verdict* v, hy_status status, const char* what) {
  return hy__judge(v, status == HY_OK, "%s: %s", what, status == HY_OK ? "" : hy_last_error());
}

// Eight bytes of the pattern, the `i`th: splitmix64 of both.
static uint64_t pattern_word(size_t i, unsigned salt) {
  uint64_t x = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15u + salt * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  return x ^ x >> 31;
}

void hy__fill_pattern(unsigned char* bytes, size_t n, unsigned salt) {
  for (size_t i = 0; i < n / 8; i++) {
    uint64_t word = pattern_word(i, salt);
    memcpy(bytes + 8 * i, &word, 8);
  }
  uint64_t word = pattern_word(n / 8, salt);
  memcpy(bytes + n / 8 * 8, &word, n % 8);
}

size_t hy__pattern_ends(const unsigned char* got, size_t n, unsigned salt) {
  size_t i = 0;
  for (; i < n / 8; i++) {
    uint64_t word = pattern_word(i, salt), found;
    memcpy(&found, got + 8 * i, 8);
    if (found != word) break;
  }
  uint64_t word = pattern_word(i, salt);
  size_t end = 8 * i;
  while (end < n && got[end] == ((unsigned char*)&word)[end - 8 * i]) end++;
  return end;
}

bool hy__native_find(hy_device* device, void* out, void* a, void* b, hy__native_call* n) {
  static const struct {
    hy_op op;
    int n_in;
  } tried[] = {{HY_OP_mm, 2},  {HY_OP_linear, 3}, {HY_OP_add, 2},  {HY_OP_mul, 2},  {HY_OP_sub, 2},
               {HY_OP_neg, 1}, {HY_OP_copy, 1},   {HY_OP_relu, 1}, {HY_OP_silu, 1}, {HY_OP_exp, 1}};
  const int64_t shape[] = {HY__NATIVE_ROWS, HY__NATIVE_ROWS};
  memset(n, 0, sizeof *n);
  hy_tensor_init(&n->in[0], a, HY_F32, 2, shape);
  hy_tensor_init(&n->in[1], b, HY_F32, 2, shape);
  hy_tensor_init(&n->out, out, HY_F32, 2, shape);
  n->in[2] = hy_tensor_absent();
  for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
    n->call = (hy_call){
        .op = tried[i].op, .n_in = tried[i].n_in, .n_out = 1, .in = n->in, .out = &n->out};
    if (tried[i].op == HY_OP_add || tried[i].op == HY_OP_sub) n->call.attrs.alpha.alpha = hy_int(1);
    for (int p = 0; device->providers[p]; p++) {
      if (device->providers[p]->supports(device->handle, &n->call) == HY_SUPPORT_YES) return true;
    }
  }
  return false;
}
