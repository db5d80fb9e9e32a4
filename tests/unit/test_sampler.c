// The sampler, on the host's memory and on a device that copies late: what is drawn, what is seen.
#include <math.h>

#include "halyard/device.h"
#include "model/sampler.h"
#include "support/arrays.h"

enum { V = 6 };

static const char* const devices[] = {"cpu", "guarded"};

static int set_up(void** state) {
  (void)state;
  return hy_load_plugin(HALYARD_GUARDED_PLUGIN) == HY_OK ? 0 : 1;
}

static int tear_down(void** state) {
  (void)state;
  hy_shutdown();
  return 0;
}

static hy__sampler* sampler_of(bench* b, const hy_generate_options* o, int batch) {
  static const int32_t prompt[] = {2};
  const int32_t* prompts[] = {prompt, prompt, prompt};
  const int64_t lengths[] = {1, 1, 1};
  hy__sampler* sampler;
  CHECK_OK(hy__sampler_create(b->stream, V, o, prompts, lengths, batch, &sampler));
  return sampler;
}

static void choose(bench* b, hy__sampler* sampler, const float* logits, const int* rows, int n,
                   int64_t* ids) {
  hy_scope s;
  hy_scope_begin(&s, b->tape);
  hy_array* x = hy_s_from_host(&s, HY_F32, HY_SIZES(n, V), logits);
  hy_array* out = hy__sampler_choose(&s, sampler, x, rows, n);
  HY_SCOPE_TRY(&s, hy_array_to_host(b->stream, out, ids, (size_t)n * sizeof *ids));
  CHECK_OK(hy_scope_end(&s));
}

static int64_t choose_one(bench* b, hy__sampler* sampler, const float* logits) {
  int64_t id;
  choose(b, sampler, logits, (int[]){0}, 1, &id);
  return id;
}

static void test_greedy(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    bench b = bench_open_on(devices[d]);
    hy_generate_options o;
    hy_generate_defaults(&o);
    hy__sampler* s = sampler_of(&b, &o, 1);
    assert_int_equal(choose_one(&b, s, (float[V]){1, 3, 2, 3, -1, 0}), 1);
    assert_int_equal(choose_one(&b, s, (float[V]){NAN, -5, NAN, -4, -INFINITY, -6}), 3);
    assert_int_equal(choose_one(&b, s, (float[V]){NAN, NAN, -INFINITY, NAN, NAN, NAN}), -1);
    assert_int_equal(choose_one(&b, s, (float[V]){0, INFINITY, 0, INFINITY, 0, 0}), 1);
    hy__sampler_destroy(s);
    bench_close(&b);
  }
}

// The prompt's token and those that were chosen lose; a token's second time costs no more.
static void test_penalty_remembers(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    bench b = bench_open_on(devices[d]);
    hy_generate_options o;
    hy_generate_defaults(&o);
    o.repetition_penalty = 2;
    hy__sampler* s = sampler_of(&b, &o, 1);
    const float logits[V] = {3, 3.5, 6, 2, -1, 1};
    assert_int_equal(choose_one(&b, s, logits), 1);  // 2 was in the prompt: 6 / 2 = 3
    assert_int_equal(choose_one(&b, s, logits), 0);  // 3 of 0 and of 2, the smaller id
    assert_int_equal(choose_one(&b, s, logits), 2);
    assert_int_equal(choose_one(&b, s, logits), 2);
    // Negative logits grow.
    assert_int_equal(choose_one(&b, s, (float[V]){-1, -1, -1, -1.5F, -1.9F, -3}), 3);
    hy__sampler_destroy(s);
    bench_close(&b);
  }
}

// splitmix64, written out again.
static double next_draw(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (double)((z ^ (z >> 31)) >> 40) / 16777216.0;
}

// Where the draw falls among probabilities of 1/2, 1/4, 1/8 ... : the first has [0, 1/2).
static int64_t by_draw(double draw, int kept) {
  double sum = 0, p = 1, at = 0;
  for (int i = 0; i < kept; i++) sum += ldexp(1, -i);
  for (int i = 0; i < kept; i++, p /= 2) {
    at += p;
    if (draw * sum < at) return i;
  }
  return kept - 1;
}

static void test_draws_follow_the_seed(void** state) {
  (void)state;
  // Weights of 1, 1/2, 1/4 ... in any order of ids: token i has rank order[i].
  static const int order[V] = {3, 0, 5, 1, 4, 2};
  const struct {
    int64_t top_k;
    double top_p, min_p, temperature;
    int kept;
  } cases[] = {{0, 1, 0, 1, V},   {3, 1, 0, 1, 3},     {0, 0.7, 0, 1, 2},
               {0, 1, 0.2, 1, 3}, {4, 0.9, 0.1, 1, 3}, {0, 1, 0, 2, V},
               {1, 1, 0, 1, 1},   {0, 0.01, 0, 1, 1},  {0, 1, 1, 1, 1}};
  for (int d = 0; d < 2; d++) {
    bench b = bench_open_on(devices[d]);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
      hy_generate_options o;
      hy_generate_defaults(&o);
      o.temperature = cases[k].temperature;
      o.top_k = cases[k].top_k;
      o.top_p = cases[k].top_p;
      o.min_p = cases[k].min_p;
      o.seed = 40 + k;
      hy__sampler* s = sampler_of(&b, &o, 1);
      uint64_t own = o.seed;
      float logits[V];
      int64_t id_of[V];
      for (int i = 0; i < V; i++) {
        logits[i] = (float)(-order[i] * log(2) * o.temperature + 5);
        id_of[order[i]] = i;
      }
      for (int n = 0; n < 40; n++)
        assert_int_equal(choose_one(&b, s, logits), id_of[by_draw(next_draw(&own), cases[k].kept)]);
      hy__sampler_destroy(s);
    }
    bench_close(&b);
  }
}

// Of a batch each sequence has its own draws and its own memory, whoever else takes part.
static void test_sequences_are_independent(void** state) {
  (void)state;
  float logits[3 * V];
  for (int i = 0; i < 3 * V; i++) logits[i] = (float)(i * 7 % 5) * 0.3F;
  for (int d = 0; d < 2; d++) {
    bench b = bench_open_on(devices[d]);
    hy_generate_options o;
    hy_generate_defaults(&o);
    o.temperature = 1;
    o.repetition_penalty = 1.5;
    o.seed = 11;
    int64_t alone[3][8], together[3][8];
    for (int i = 0; i < 3; i++) {
      hy_generate_options own = o;
      own.seed = o.seed + (uint64_t)i;
      hy__sampler* s = sampler_of(&b, &own, 1);
      for (int n = 0; n < 8; n++) alone[i][n] = choose_one(&b, s, logits + i * V);
      hy__sampler_destroy(s);
    }
    hy__sampler* s = sampler_of(&b, &o, 3);
    for (int n = 0; n < 8; n++) {
      int64_t ids[3];
      if (n < 4) {
        choose(&b, s, logits, (int[]){0, 1, 2}, 3, ids);
      } else {  // the second has ended
        float rest[2 * V];
        memcpy(rest, logits, V * sizeof *rest);
        memcpy(rest + V, logits + 2 * V, V * sizeof *rest);
        choose(&b, s, rest, (int[]){0, 2}, 2, ids);
        ids[2] = ids[1];
      }
      for (int i = 0; i < 3; i++) together[i][n] = ids[i];
    }
    for (int n = 0; n < 8; n++) {
      assert_int_equal(together[0][n], alone[0][n]);
      assert_int_equal(together[2][n], alone[2][n]);
      if (n < 4) assert_int_equal(together[1][n], alone[1][n]);
    }
    hy__sampler_destroy(s);
    bench_close(&b);
  }
}

static void test_impossible_options(void** state) {
  (void)state;
  hy_generate_options good, o;
  hy_generate_defaults(&good);
  CHECK_OK(hy__sampler_check(&good));
#define WRONG(word, field, value) \
  o = good;                       \
  o.field = value;                \
  CHECK_FAILS(HY_INVALID_ARGUMENT, word, hy__sampler_check(&o))
  WRONG("temperature", temperature, -1);
  WRONG("temperature", temperature, NAN);
  WRONG("top-p", top_p, 0);
  WRONG("top-p", top_p, 1.5);
  WRONG("min-p", min_p, -0.1);
  WRONG("top-k", top_k, -1);
  WRONG("penalty", repetition_penalty, 0);
#undef WRONG
  const char* empty = "";
  o = good;
  o.stops = &empty;
  o.n_stops = 1;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "empty", hy__sampler_check(&o));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_greedy),
      cmocka_unit_test(test_penalty_remembers),
      cmocka_unit_test(test_draws_follow_the_seed),
      cmocka_unit_test(test_sequences_are_independent),
      cmocka_unit_test(test_impossible_options),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
