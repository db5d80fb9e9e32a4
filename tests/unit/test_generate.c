// Generating: greedy answers against logits computed from nothing, seeds, batches, contexts, stops,
// and that a decoding step waits once for the device.
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "halyard/device.h"
#include "model/byte_tokenizer.h"
#include "model/create.h"
#include "model/load.h"
#include "model/model.h"
#include "model/pack.h"
#include "support/arrays.h"
#include "support/tiny_model.h"

enum { MOST = 24 };

static const char* devices[] = {"cpu", "guarded"};  // or $HALYARD_TEST_DEVICE for the second
static long long (*waits)(void);

static int set_up(void** state) {
  (void)state;
  const char* other = getenv("HALYARD_TEST_DEVICE");
  if (other) devices[1] = other;
  if (hy_load_plugin(HALYARD_GUARDED_PLUGIN) != HY_OK) return 1;
  void* plugin = dlopen(HALYARD_GUARDED_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
  if (plugin) *(void**)&waits = dlsym(plugin, "guarded_waits");
  return waits ? 0 : 1;
}

static int tear_down(void** state) {
  (void)state;
  for (int i = 0; i < HY_FAULT_COUNT; i++) hy_inject_fault((hy_fault)i, 0);
  hy_shutdown();
  return 0;
}

static hy_device* device_of(const char* name) {
  hy_device* device;
  CHECK_OK(hy_device_get(name, &device));
  return device;
}

static hy_model* model_on(const char* name, const hy__arch* arch, bool text, uint64_t seed) {
  hy__config c = tiny_config(arch, 32, HY_F32);
  c.vocab_size = text ? HY__BYTE_TOKENS : 50;
  c.n_layers = 2;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 8;
  hy__tokenizer* tokenizer = NULL;
  if (text) {
    char* json;
    CHECK_OK(hy__byte_tokenizer_json(NULL, 0, &json));
    CHECK_OK(hy__tokenizer_parse("bytes", json, strlen(json), &tokenizer));
    hy__mfree(json);
  }
  hy_model* model;
  CHECK_OK(hy__model_create(device_of(name), &c, tokenizer, text ? HY__BYTE_TOKEN_END : -1, seed,
                            &model));
  return model;
}

static const int32_t prompt[] = {3, 1, 4, 1, 5};
enum { PROMPT = 5 };

static hy_generate_options options_of(int64_t tokens) {
  hy_generate_options o;
  hy_generate_defaults(&o);
  o.max_tokens = tokens;
  return o;
}

// Each token is the largest logit after all before it, read from an empty cache.
static void test_greedy_is_the_largest_logit(void** state) {
  (void)state;
  const hy__arch* const archs[] = {&hy__arch_qwen2, &hy__arch_qwen3, &hy__arch_llama};
  for (int d = 0; d < 2; d++) {
    for (int a = 0; a < 3; a++) {
      hy_model* model = model_on(devices[d], archs[a], false, 7 + (uint64_t)a);
      int32_t ids[PROMPT + MOST];
      hy_generate_options o = options_of(MOST);
      hy_generate_result result;
      memcpy(ids, prompt, sizeof prompt);
      CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, ids + PROMPT, &result));
      assert_true(result.tokens == MOST && result.prompt_tokens == PROMPT);
      assert_int_equal(result.stop, HY_STOP_LENGTH);
      int different = 0;
      for (int n = PROMPT; n < PROMPT + MOST; n++) {
        float logits[50];
        int best = 0;
        CHECK_OK(hy_model_logits(model, ids, n, logits));
        for (int i = 1; i < 50; i++) best = logits[i] > logits[best] ? i : best;
        // Read in one pass or token by token, sums round differently: a tie may fall either way.
        if (best != ids[n]) assert_true(logits[best] - logits[ids[n]] < 1e-4F);
        different += n > PROMPT && ids[n] != ids[n - 1];
      }
      assert_true(different > 0);
      hy_model_free(model);
    }
  }
}

// The same seed gives the same answer on both devices, another seed another.
static void test_seeds(void** state) {
  (void)state;
  int32_t ids[2][3][MOST];
  for (int d = 0; d < 2; d++) {
    hy_model* model = model_on(devices[d], &hy__arch_qwen2, false, 3);
    const uint64_t seeds[3] = {5, 5, 6};
    for (int i = 0; i < 3; i++) {
      hy_generate_options o = options_of(MOST);
      o.temperature = 1.5;
      o.top_k = 30;
      o.top_p = 0.95;
      o.repetition_penalty = 1.1;
      o.seed = seeds[i];
      CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, ids[d][i], NULL));
    }
    assert_memory_equal(ids[d][0], ids[d][1], sizeof ids[d][0]);
    assert_memory_not_equal(ids[d][0], ids[d][2], sizeof ids[d][0]);
    hy_model_free(model);
  }
  assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
}

static void test_batches(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    hy_model* model = model_on(devices[d], &hy__arch_qwen3, false, 4);
    const int32_t* prompts[3] = {prompt, prompt + 1, prompt + 4};
    const int64_t lengths[3] = {5, 3, 1};
    int32_t together[3][MOST], alone[MOST], *lists[3] = {together[0], together[1], together[2]};
    int64_t counts[3];
    hy_generate_options o = options_of(MOST);
    o.temperature = 0.8;
    o.repetition_penalty = 1.3;
    o.seed = 9;
    hy_generate_result result;
    CHECK_OK(hy_model_generate_batch(model, prompts, lengths, 3, &o, lists, counts, &result));
    assert_true(result.tokens == 3 * MOST && result.prompt_tokens == 9);
    for (int i = 0; i < 3; i++) {
      hy_generate_options own = o;
      own.seed += (uint64_t)i;
      CHECK_OK(hy_model_generate(model, prompts[i], lengths[i], &own, NULL, NULL, alone, NULL));
      assert_int_equal(counts[i], MOST);
      assert_memory_equal(together[i], alone, sizeof alone);
    }
    hy_model_free(model);
  }
}

// Batches of more rows than a device fuses everything for, of halves and of quantised weights: each
// token has nearly the largest logit after all before it. Prompts round activations that steps do
// not; a wrong product is off by much more.
static void test_large_batches(void** state) {
  (void)state;
  enum { BATCH = 6, TOKENS = 4 };
  const hy_weight_format formats[] = {HY_WEIGHTS_BF16, HY_WEIGHTS_Q8, HY_WEIGHTS_Q4};
  for (int k = 0; k < 6; k++) {
    hy__config c = tiny_config(&hy__arch_qwen2, 128, HY_BF16);
    c.vocab_size = 50;
    c.intermediate_size = 256;
    c.n_layers = 2;
    c.n_heads = 4;
    c.n_kv_heads = 2;
    c.head_dim = 32;
    hy_model* model;
    CHECK_OK(hy__model_create(device_of(devices[k / 3]), &c, NULL, -1, 11, &model));
    CHECK_OK(hy__transformer_quantise(model->tape, &model->transformer, formats[k % 3]));
    int32_t ids[BATCH][TOKENS], *lists[BATCH], text[PROMPT + TOKENS];
    const int32_t* prompts[BATCH];
    int64_t lengths[BATCH], counts[BATCH];
    for (int i = 0; i < BATCH; i++) {
      prompts[i] = prompt + i % 3;
      lengths[i] = PROMPT - i % 3;
      lists[i] = ids[i];
    }
    hy_generate_options o = options_of(TOKENS);
    CHECK_OK(hy_model_generate_batch(model, prompts, lengths, BATCH, &o, lists, counts, NULL));
    for (int i = 0; i < BATCH; i++) {
      assert_int_equal(counts[i], TOKENS);
      memcpy(text, prompts[i], (size_t)lengths[i] * sizeof *text);
      memcpy(text + lengths[i], ids[i], sizeof ids[i]);
      for (int64_t n = lengths[i]; n < lengths[i] + TOKENS; n++) {
        float logits[50], best;
        CHECK_OK(hy_model_logits(model, text, n, logits));
        best = logits[0];
        for (int v = 1; v < 50; v++) best = logits[v] > best ? logits[v] : best;
        assert_true(best - logits[text[n]] < 0.1F);
      }
    }
    hy_model_free(model);
  }
}

// Prompts and steps by graph, as the cpu runs them, against the same by calls: every bit of the
// logits, every token, sampled ones and those of a batch whose sequences end one by one too.
static void test_graphs_choose_the_tokens_of_calls(void** state) {
  (void)state;
  enum { LONG = 260 };
  const hy__arch* const archs[] = {&hy__arch_qwen2, &hy__arch_qwen3, &hy__arch_llama};
  const hy_dtype dtypes[] = {HY_F32, HY_BF16};
  int32_t text[LONG];
  for (int i = 0; i < LONG; i++) text[i] = (i * 7 + 3) % 50;
  const int32_t* prompts[3] = {text, text + 1, text + 2};
  const int64_t lengths[3] = {LONG, 3, 1};
  for (int k = 0; k < 6; k++) {
    hy__config c = tiny_config(archs[k % 3], 32, dtypes[k / 3]);
    c.vocab_size = 50;
    c.n_layers = 2;
    c.max_positions = 512;
    hy_model* model;
    CHECK_OK(hy__model_create(device_of("cpu"), &c, NULL, 7, (uint64_t)k, &model));
    int32_t ids[2][2][3][MOST] = {0};
    int64_t counts[2][2][3];
    float logits[2][50];
    for (int by = 0; by < 2; by++) {
      model->captures = by == 0 ? HY__CAPTURES_UNKNOWN : HY__CAPTURES_NOT;
      CHECK_OK(hy_model_logits(model, text, LONG, logits[by]));
      for (int sampled = 0; sampled < 2; sampled++) {
        hy_generate_options o = options_of(MOST);
        o.temperature = sampled;
        o.repetition_penalty = sampled ? 1.2 : 1;
        o.seed = 3;
        int32_t(*out)[MOST] = ids[by][sampled];
        CHECK_OK(hy_model_generate_batch(model, prompts, lengths, 3, &o,
                                         (int32_t*[]){out[0], out[1], out[2]}, counts[by][sampled],
                                         NULL));
      }
      assert_int_equal(model->captures, by == 0 ? HY__CAPTURES : HY__CAPTURES_NOT);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    assert_memory_equal(counts[0], counts[1], sizeof counts[0]);
    hy_model_free(model);
  }
}

// What a context has read need not be read again, and the answer is the same.
static void test_contexts(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    hy_model* model = model_on(devices[d], &hy__arch_llama, false, 5);
    hy_context* context;
    CHECK_OK(hy_context_create(model, &context));
    hy_generate_options o = options_of(6);
    int32_t text[PROMPT + 6 + 3 + 6], fresh[6];
    hy_generate_result result;
    memcpy(text, prompt, sizeof prompt);
    CHECK_OK(hy_context_generate(context, text, PROMPT, &o, NULL, NULL, text + PROMPT, &result));
    assert_int_equal(result.kept_tokens, 0);
    memcpy(text + PROMPT + 6, prompt, 3 * sizeof *prompt);
    int64_t n = PROMPT + 6 + 3;
    CHECK_OK(hy_context_generate(context, text, n, &o, NULL, NULL, text + n, &result));
    assert_int_equal(result.kept_tokens, PROMPT + 5);  // the last answer's end was never read
    CHECK_OK(hy_model_generate(model, text, n, &o, NULL, NULL, fresh, NULL));
    assert_memory_equal(fresh, text + n, sizeof fresh);
    hy_context_destroy(context);
    hy_model_free(model);
  }
}

// ---- waiting ----

typedef struct watch {
  long long last;
  int tokens, worst;
} watch;

static bool count_waits(void* context, int32_t id, const char* text, size_t length) {
  watch* w = context;
  (void)id, (void)text, (void)length;
  long long now = waits();
  if (w->tokens++ > 1) {
    int waited = (int)(now - w->last);
    if (waited > w->worst) w->worst = waited;
    assert_true(waited >= 1);
  }
  w->last = now;
  return true;
}

// Between two tokens the host waits for the device once: for the token. Between the first two a
// step may be captured.
static void test_a_step_waits_once(void** state) {
  (void)state;
  hy_model* model = model_on("guarded", &hy__arch_qwen2, false, 3);
  for (int how = 0; how < 3; how++) {
    hy_generate_options o = options_of(40);  // across blocks of the cache
    if (how > 0) o.temperature = 1;
    if (how > 1) {
      o.top_k = 10;
      o.top_p = 0.9;
      o.repetition_penalty = 1.2;
    }
    watch w = {0};
    CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, count_waits, &w, NULL, NULL));
    assert_int_equal(w.tokens, 40);
    assert_int_equal(w.worst, 1);
  }
  hy_model_free(model);
}

// ---- text ----

typedef struct heard {
  char text[400];
  size_t length;
  int tokens, enough;  // stop after so many; 0: never
} heard;

static bool hear(void* context, int32_t id, const char* text, size_t length) {
  heard* h = context;
  (void)id;
  memcpy(h->text + h->length, text, length);
  h->length += length;
  return ++h->tokens != h->enough;
}

static void test_stops(void** state) {
  (void)state;
  hy_model* model = model_on("cpu", &hy__arch_qwen2, true, 21);
  int32_t ids[MOST];
  hy_generate_options o = options_of(MOST);
  o.temperature = 1.2;  // a greedy random model repeats itself
  o.seed = 2;
  heard whole = {0}, part = {0};
  hy_generate_result result;
  o.ignore_end = true;
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, hear, &whole, ids, &result));
  assert_int_equal(result.stop, HY_STOP_LENGTH);
  char bytes[MOST];
  size_t length = 0;  // tokens are bytes; special ones are no text
  for (int i = 0; i < MOST; i++) {
    if (ids[i] < HY__BYTE_TOKEN_END) bytes[length++] = (char)ids[i];
  }
  assert_int_equal(whole.length, length);
  assert_memory_equal(whole.text, bytes, length);
  // Two bytes in its middle end it where they first stand; they are not part of it.
  char stop[3] = {0};
  size_t at = 0;
  for (size_t i = 8; i + 2 < length && !stop[0]; i++) {
    char* first = memmem(bytes, length, bytes + i, 2);
    if (!bytes[i] || !bytes[i + 1] || first != bytes + i) continue;
    memcpy(stop, bytes + i, 2);
    at = i;
  }
  assert_true(at > 0);
  const char* stops[] = {"never said by it at all", stop};
  o.stops = stops;
  o.n_stops = 2;
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, hear, &part, NULL, &result));
  assert_int_equal(result.stop, HY_STOP_TEXT);
  assert_int_equal(part.length, at);
  assert_memory_equal(part.text, bytes, at);
  // The caller's word.
  heard some = {.enough = 3};
  o.n_stops = 0;
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, hear, &some, NULL, &result));
  assert_true(result.stop == HY_STOP_CALLER && result.tokens == 3);
  hy_model_free(model);
}

// A token that ends texts ends the answer and is none of it.
static void test_end_of_text(void** state) {
  (void)state;
  hy_model* model = model_on("cpu", &hy__arch_qwen2, false, 3);
  int32_t ids[MOST], again[MOST];
  hy_generate_options o = options_of(MOST);
  o.temperature = 1;
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, ids, NULL));
  int end = 6;
  for (int i = 0; i < end; i++) {
    if (ids[i] == ids[end]) end = i;
  }
  assert_true(end > 0);
  model->ends[model->n_ends++] = ids[end];
  hy_generate_result result;
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, again, &result));
  assert_true(result.stop == HY_STOP_END && result.tokens == end);
  assert_memory_equal(ids, again, (size_t)end * sizeof *ids);
  o.ignore_end = true;
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, again, &result));
  assert_memory_equal(ids, again, sizeof ids);
  hy_model_free(model);
}

static void test_errors(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    hy_model* model = model_on(devices[d], &hy__arch_qwen2, false, 3);
    hy_generate_options o = options_of(4);
    int32_t ids[4];
#define GENERATE(p, n) hy_model_generate(model, p, n, &o, NULL, NULL, ids, NULL)
    CHECK_FAILS(HY_INVALID_ARGUMENT, "empty", GENERATE(prompt, 0));
    CHECK_FAILS(HY_INDEX, "50 is no token", GENERATE(((int32_t[]){1, 50}), 2));
    CHECK_FAILS(HY_INDEX, "-1 is no token", GENERATE(((int32_t[]){-1}), 1));
    o.max_tokens = 64;
    CHECK_FAILS(HY_INVALID_ARGUMENT, "64 positions", GENERATE(prompt, 1));
    o.max_tokens = 0;
    CHECK_FAILS(HY_INVALID_ARGUMENT, "at least one token", GENERATE(prompt, 1));
    o.max_tokens = 4;
    // Weights that are no numbers give no token.
    CHECK_OK(hy_array_fill(model->tape, &model->transformer.norm, hy_float(NAN)));
    CHECK_FAILS(HY_DEVICE_FAILED, "no usable logits", GENERATE(prompt, 1));
#undef GENERATE
    hy_model_free(model);
  }
}

// Whatever allocation fails, the next call works and nothing is left behind.
static void test_out_of_memory(void** state) {
  (void)state;
  hy_model* model = model_on("cpu", &hy__arch_qwen2, false, 3);
  hy_device* device = device_of("cpu");
  hy_generate_options o = options_of(2);
  o.repetition_penalty = 1.2;
  o.temperature = 1;
  int32_t wanted[2], ids[2];
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, wanted, NULL));
  hy_memory_stats before, after;
  CHECK_OK(hy_memory_get_stats(device, &before));
  const hy_fault faults[] = {HY_FAULT_ALLOCATION, HY_FAULT_HOST_ALLOCATION};
  for (int f = 0; f < 2; f++) {
    int64_t nth = 1;
    for (;; nth += 1 + nth / 8) {
      hy_inject_fault(faults[f], nth);
      hy_status status = hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, ids, NULL);
      hy_inject_fault(faults[f], 0);
      CHECK_OK(hy_memory_get_stats(device, &after));
      assert_int_equal(after.allocated, before.allocated);
      if (status == HY_OK) break;
      assert_int_equal(status, HY_OUT_OF_MEMORY);
    }
    assert_true(nth > 20);
    assert_memory_equal(ids, wanted, sizeof ids);
  }
  hy_model_free(model);
}

static void test_chat_format(void** state) {
  (void)state;
  enum { START = HY__BYTE_TOKEN_END + 1, END };
  hy_model* model = model_on("cpu", &hy__arch_qwen2, true, 1);
  const hy_message messages[] = {{"system", "S"}, {"user", "<|im_end|>"}};
  int32_t ids[64], short_ids[2] = {-1, -1};
  int64_t n, again;
  CHECK_OK(hy_model_encode_chat(model, messages, 2, true, ids, 64, &n));
  const char first[] = "system\nS", second[] = "user\n<|im_end|>", third[] = "assistant\n";
  int64_t at = 0;
  assert_int_equal(ids[at++], START);
  for (size_t i = 0; i < sizeof first - 1; i++) assert_int_equal(ids[at++], first[i]);
  assert_int_equal(ids[at++], END);
  assert_int_equal(ids[at++], '\n');
  assert_int_equal(ids[at++], START);
  for (size_t i = 0; i < sizeof second - 1; i++) assert_int_equal(ids[at++], second[i]);
  assert_int_equal(ids[at++], END);
  assert_int_equal(ids[at++], '\n');
  assert_int_equal(ids[at++], START);
  for (size_t i = 0; i < sizeof third - 1; i++) assert_int_equal(ids[at++], third[i]);
  assert_int_equal(n, at);
  CHECK_OK(hy_model_encode_chat(model, messages, 2, true, short_ids, 1, &again));
  assert_true(again == n && short_ids[0] == START && short_ids[1] == -1);
  CHECK_OK(hy_model_encode_chat(model, NULL, 0, false, NULL, 0, &n));
  assert_int_equal(n, 0);
  const hy_message odd = {"user\n", "x"}, none = {"user", NULL};
  CHECK_FAILS(HY_INVALID_ARGUMENT, "role", hy_model_encode_chat(model, &odd, 1, 0, ids, 64, &n));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "role", hy_model_encode_chat(model, &none, 1, 0, ids, 64, &n));

  // The same text as a prompt, with its markers and without.
  const char text[] = "<|im_start|>a";
  CHECK_OK(hy_model_encode(model, text, 13, HY_ENCODE_DEFAULT, ids, 64, &n));
  assert_true(n == 2 && ids[0] == START);
  CHECK_OK(hy_model_encode(model, text, 13, HY_ENCODE_PLAIN | HY_ENCODE_BARE, ids, 64, &n));
  assert_true(n == 13 && ids[0] == '<');
  CHECK_FAILS(HY_INVALID_ARGUMENT, "flags", hy_model_encode(model, text, 13, 8, ids, 64, &n));
  hy_model_free(model);
}

static void test_nothing_where_something_is_needed(void** state) {
  (void)state;
  hy_model* model = model_on("cpu", &hy__arch_qwen2, true, 1);
  int32_t ids[8] = {1, 2, 3};
  int64_t n;
  size_t length;
  char text[8];
  float* logits = hy__malloc((size_t)hy_model_vocab_size(model) * sizeof *logits);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_model_encode(NULL, "a", 1, 0, ids, 8, &n));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_model_encode(model, NULL, 1, 0, ids, 8, &n));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_model_encode(model, "a", 1, 0, NULL, 8, &n));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_model_encode(model, "a", 1, 0, ids, 8, NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_model_decode(NULL, ids, 1, text, 8, &length));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_model_decode(model, NULL, 1, text, 8, &length));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_model_decode(model, ids, 1, NULL, 8, &length));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_model_decode(model, ids, 1, text, 8, NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_model_encode_chat(NULL, NULL, 0, 0, ids, 8, &n));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "positions",
              hy_model_logits(model, ids, (int64_t)1 << 60, logits));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "positions",
              hy_model_logits(model, ids, hy_model_max_positions(model) + 1, logits));
  hy_generate_options o = options_of(2);
  o.n_stops = 2;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "no list",
              hy_model_generate(model, ids, 3, &o, NULL, NULL, NULL, NULL));
  const int32_t* none[] = {NULL};
  int32_t* answers[] = {ids};
  o.n_stops = 0;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "prompt 0",
              hy_model_generate_batch(model, none, (int64_t[]){3}, 1, &o, answers, &n, NULL));
  assert_int_equal(hy_model_vocab_size(NULL), 0);
  assert_int_equal(hy_model_max_positions(NULL), 0);
  hy_generate_defaults(NULL);
  hy__mfree(logits);
  hy_model_free(model);
}

typedef struct patience {
  int calls, most;  // how often it says yes
  double last;
} patience;

static bool be_patient(void* context, double share) {
  patience* p = context;
  assert_true(share >= p->last && share <= 1);
  p->last = share;
  return p->calls++ < p->most;
}

static void test_cancelling_a_generation(void** state) {
  (void)state;
  hy_model* model = model_on("cpu", &hy__arch_qwen2, false, 2);
  int32_t all[MOST], ids[MOST];
  hy_generate_options o = options_of(MOST);
  hy_generate_result result;
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, all, &result));
  o.on_progress = be_patient;
  // Its two layers are asked for first, then each token but the first.
  for (int most = 0; most < 8; most++) {
    patience p = {.most = most};
    o.progress_context = &p;
    memset(ids, 0, sizeof ids);
    if (most < 2) {
      CHECK_FAILS(HY_CANCELLED, "cancelled",
                  hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, ids, &result));
      continue;
    }
    CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, ids, &result));
    assert_int_equal(result.stop, HY_STOP_CALLER);
    assert_int_equal(result.tokens, most - 1);
    assert_memory_equal(ids, all, (size_t)(most - 1) * sizeof *ids);
  }
  // The model is as good as before, and patience changes nothing.
  patience p = {.most = 1000};
  o.progress_context = &p;
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, ids, &result));
  assert_memory_equal(ids, all, sizeof all);
  hy_model_free(model);
}

static void test_cancelling_a_load(void** state) {
  (void)state;
  char folder[] = "/tmp/halyard-cancel-XXXXXX", command[64];
  assert_non_null(mkdtemp(folder));
  hy_model* model = model_on("cpu", &hy__arch_llama, false, 2);
  CHECK_OK(hy__transformer_save(model->stream, &model->transformer, folder));
  hy_model_free(model);
  hy_device* device = device_of("cpu");
  hy_memory_stats before, after;
  CHECK_OK(hy_memory_get_stats(device, &before));
  for (int most = 0; most < 4; most++) {
    patience p = {.most = most};
    const hy_load_options o = {.on_progress = be_patient, .context = &p};
    CHECK_FAILS(HY_CANCELLED, "cancelled", hy_model_load_with(device, folder, &o, &model));
    assert_null(model);
    CHECK_OK(hy_memory_get_stats(device, &after));
    assert_int_equal(after.allocated, before.allocated);
  }
  patience p = {.most = 1000};
  hy_load_options o = {.format = HY_WEIGHTS_Q8, .on_progress = be_patient, .context = &p};
  CHECK_OK(hy_model_load_with(device, folder, &o, &model));
  assert_true(p.last > 0.99);
  hy_model_free(model);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "options", hy_model_load_with(device, folder, NULL, &model));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "device", hy_model_load(NULL, folder, NULL, 0, &model));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "format",
              hy_model_load(device, folder, NULL, (hy_weight_format)9, &model));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "cached",
              hy_model_load_cached(device, folder, NULL, HY_WEIGHTS_F32, &model));

  // What does not fit is refused before anything is allocated.
  CHECK_OK(hy_memory_set_limit(device, before.allocated + 1000));
  CHECK_FAILS(HY_OUT_OF_MEMORY, "its weights take",
              hy_model_load(device, folder, NULL, HY_WEIGHTS_AS_FILE, &model));
  CHECK_OK(hy_memory_set_limit(device, 0));
  snprintf(command, sizeof command, "rm -rf %s", folder);
  assert_int_equal(system(command), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_greedy_is_the_largest_logit),
      cmocka_unit_test(test_seeds),
      cmocka_unit_test(test_batches),
      cmocka_unit_test(test_large_batches),
      cmocka_unit_test(test_graphs_choose_the_tokens_of_calls),
      cmocka_unit_test(test_contexts),
      cmocka_unit_test(test_a_step_waits_once),
      cmocka_unit_test(test_stops),
      cmocka_unit_test(test_end_of_text),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_chat_format),
      cmocka_unit_test(test_nothing_where_something_is_needed),
      cmocka_unit_test(test_cancelling_a_generation),
      cmocka_unit_test(test_cancelling_a_load),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
