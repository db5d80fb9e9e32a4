// The KV cache: who has which block, what a pass tells the device, and what attention then sees.
#include <math.h>

#include "halyard/device.h"
#include "model/kv_cache.h"
#include "support/arrays.h"
#include "support/tiny_model.h"

static const char* const devices[] = {"cpu", "guarded"};

static int set_up(void** state) {
  (void)state;
  return hy_load_plugin(HALYARD_GUARDED_PLUGIN) == HY_OK ? 0 : 1;
}

static int tear_down(void** state) {
  (void)state;
  for (int i = 0; i < HY_FAULT_COUNT; i++) hy_inject_fault((hy_fault)i, 0);
  hy_shutdown();
  return 0;
}

// Two heads of two numbers that share one head of keys.
static hy__config config_of(void) {
  return tiny_config(&hy__arch_llama, 4, HY_F32);
}

static void check_i64(bench* b, hy_array* array, const int64_t* wanted, int64_t n) {
  int64_t values[64];
  assert_int_equal(hy_tensor_numel(hy_array_tensor(array)), n);
  CHECK_OK(hy_array_to_host(b->stream, array, values, (size_t)n * sizeof *values));
  for (int64_t i = 0; i < n; i++) assert_int_equal(values[i], wanted[i]);
}
#define CHECK_I64(b, array, ...)                      \
  check_i64(b, array, (const int64_t[]){__VA_ARGS__}, \
            (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

static hy_status begin(bench* b, hy_scope* s, hy__kv_cache* cache, hy__sequence* const* sequences,
                       const int64_t* counts, int batch, hy__kv_pass* pass) {
  static const int32_t tokens[100] = {7, 8, 9};
  const int32_t* ids[] = {tokens, tokens, tokens};
  hy_scope_begin(s, b->tape);
  return hy__kv_pass_begin(s, cache, sequences, ids, counts, batch, pass);
}

static void test_what_a_pass_tells(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    bench b = bench_open_on(devices[d]);
    hy__config c = config_of();
    hy__kv_cache* cache;
    CHECK_OK(hy__kv_cache_create(b.stream, &c, HY_F32, 64, &cache));
    hy__sequence x = {0}, y = {0};
    hy__sequence* both[] = {&x, &y};
    hy_scope s;
    hy__kv_pass pass;
    CHECK_OK(begin(&b, &s, cache, both, (int64_t[]){15, 2}, 2, &pass));
    assert_int_equal(pass.tokens, 17);
    CHECK_OK(hy_scope_end(&s));
    // The first fills its block and takes another, the second goes on in its own.
    CHECK_OK(begin(&b, &s, cache, both, (int64_t[]){2, 1}, 2, &pass));
    CHECK_I64(&b, pass.ids, 7, 8, 7);
    CHECK_I64(&b, pass.positions, 15, 16, 2);
    CHECK_I64(&b, pass.slots, 15, 2 * HY__KV_BLOCK, HY__KV_BLOCK + 2);
    CHECK_I64(&b, pass.last, 1, 2);
    CHECK_I64(&b, pass.query_start, 0, 2, 3);
    CHECK_I64(&b, pass.context_length, 17, 3);
    CHECK_I64(&b, pass.block_table, 0, 2, 1, 0);
    assert_int_equal(hy_array_tensor(pass.block_table)->ndim, 2);
    CHECK_OK(hy_scope_end(&s));
    assert_true(x.length == 17 && y.length == 3);
    hy__sequence_free(cache, &x);
    hy__sequence_free(cache, &y);
    hy__kv_cache_destroy(cache);
    bench_close(&b);
  }
}

static void test_full_changes_nothing(void** state) {
  (void)state;
  bench b = bench_open();
  hy__config c = config_of();
  hy__kv_cache* cache;
  CHECK_OK(hy__kv_cache_create(b.stream, &c, HY_F32, 2 * HY__KV_BLOCK, &cache));
  hy__sequence x = {0}, y = {0};
  hy__sequence* both[] = {&x, &y};
  hy_scope s;
  hy__kv_pass pass;
  CHECK_OK(begin(&b, &s, cache, both, (int64_t[]){HY__KV_BLOCK, 1}, 2, &pass));
  CHECK_OK(hy_scope_end(&s));
  CHECK_FAILS(HY_OUT_OF_MEMORY, "the key-value cache is full",
              begin(&b, &s, cache, both, (int64_t[]){1, 1}, 2, &pass));
  hy_scope_end(&s);
  assert_true(x.length == HY__KV_BLOCK && x.n_blocks == 1 && y.length == 1);
  // What is cut off is free for others.
  hy__sequence_cut(cache, &y, 0);
  CHECK_OK(begin(&b, &s, cache, both, (int64_t[]){1}, 1, &pass));
  CHECK_I64(&b, pass.block_table, 0, 1);
  CHECK_OK(hy_scope_end(&s));
  hy__sequence_free(cache, &x);
  hy__sequence_free(cache, &y);
  hy__kv_cache_destroy(cache);
  bench_close(&b);
}

// One token with its key and value; gives what attention makes of the sequence so far.
static void attend(bench* b, hy__kv_cache* cache, hy__sequence* x, const float* key,
                   const float* value, float* out) {
  hy_scope s;
  hy__kv_pass pass;
  CHECK_OK(begin(b, &s, cache, &x, (int64_t[]){1}, 1, &pass));
  const float query[4] = {1, 0, 0, 2};
  hy__tf_attention attention = hy__attend_cached(&pass);
  hy_array* q = hy_s_from_host(&s, HY_F32, HY_SIZES(1, 2, 2), query);
  hy_array* k = hy_s_from_host(&s, HY_F32, HY_SIZES(1, 1, 2), key);
  hy_array* v = hy_s_from_host(&s, HY_F32, HY_SIZES(1, 1, 2), value);
  hy_array* mixed = attention.attend(attention.context, &s, 0, q, k, v);
  HY_SCOPE_TRY(&s, hy_array_to_host(b->stream, mixed, out, 4 * sizeof *out));
  CHECK_OK(hy_scope_end(&s));
}

// Attention over a past that was kept while the cache grew, and cut back, is what it is by hand.
static void test_attention_sees_the_past(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    bench b = bench_open_on(devices[d]);
    hy__config c = config_of();
    hy__kv_cache* cache;
    CHECK_OK(hy__kv_cache_create(b.stream, &c, HY_F32, HY__KV_BLOCK, &cache));
    hy__sequence x = {0};
    float keys[40][2], values[40][2], out[4];
    for (int n = 0; n < 40; n++) {
      int length = n;
      if (n == 30) {  // take the last ten back and say something else
        length = 20;
        hy__sequence_cut(cache, &x, length);
      }
      if (n > 30) length = n - 10;
      keys[length][0] = (float)(n % 3) - 1;
      keys[length][1] = (float)(n % 5) * 0.25F;
      values[length][0] = (float)n;
      values[length][1] = (float)(n * n % 7);
      CHECK_OK(hy__kv_cache_grow(b.stream, cache, length + 1));
      attend(&b, cache, &x, keys[length], values[length], out);
      const double query[2][2] = {{1, 0}, {0, 2}};
      for (int head = 0; head < 2; head++) {
        double sum = 0, mixed[2] = {0, 0};
        for (int t = 0; t <= length; t++) {
          double score = query[head][0] * keys[t][0] + query[head][1] * keys[t][1];
          double weight = exp(score / sqrt(2.0));
          sum += weight;
          mixed[0] += weight * values[t][0];
          mixed[1] += weight * values[t][1];
        }
        for (int e = 0; e < 2; e++) {
          double error = out[2 * head + e] - mixed[e] / sum;
          if (!(fabs(error) < 1e-4)) fail_msg("token %d, head %d: off by %g", n, head, error);
        }
      }
    }
    assert_int_equal(x.length, 30);
    hy__sequence_free(cache, &x);
    hy__kv_cache_destroy(cache);
    bench_close(&b);
  }
}

static void test_out_of_memory(void** state) {
  (void)state;
  bench b = bench_open();
  hy__config c = config_of();
  const hy_fault faults[] = {HY_FAULT_ALLOCATION, HY_FAULT_HOST_ALLOCATION};
  for (int f = 0; f < 2; f++) {
    for (int64_t nth = 1;; nth++) {
      hy__kv_cache* cache = NULL;
      hy__sequence x = {0};
      hy__sequence* one[] = {&x};
      hy__kv_pass pass;
      hy_scope s;
      hy_inject_fault(faults[f], nth);
      hy_status status = hy__kv_cache_create(b.stream, &c, HY_F32, 16, &cache);
      if (status == HY_OK) status = hy__kv_cache_grow(b.stream, cache, 40);
      if (status == HY_OK) {
        status = begin(&b, &s, cache, one, (int64_t[]){20}, 1, &pass);
        hy_scope_end(&s);
        assert_int_equal(x.length, status == HY_OK ? 20 : 0);
      }
      hy_inject_fault(faults[f], 0);
      if (cache) hy__sequence_free(cache, &x);
      hy__kv_cache_destroy(cache);
      assert_int_equal(bench_in_use(&b), 0);
      if (status == HY_OK) {
        assert_true(nth > 4);
        break;
      }
      assert_int_equal(status, HY_OUT_OF_MEMORY);
    }
  }
  bench_close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_a_pass_tells),
      cmocka_unit_test(test_full_changes_nothing),
      cmocka_unit_test(test_attention_sees_the_past),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
