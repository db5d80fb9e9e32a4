// Training byte-pair encoding: the most frequent pair merges, again and again.
#include "model/bpe_train.h"

#include <string.h>

#include "base/memory.h"
#include "model/regex.h"

enum { BORDER = -1 };  // between two pieces of the text

typedef struct training {
  int32_t* tokens;  // the text as far as merged, with borders
  size_t length;
  int n;             // tokens of the vocabulary
  int capacity;      // of it
  uint32_t* counts;  // of each pair, [left * capacity + right]
} training;

static void count(training* t, int32_t left, int32_t right, int change) {
  if (left == BORDER || right == BORDER) return;
  t->counts[(size_t)left * (size_t)t->capacity + (size_t)right] += (uint32_t)change;
}

static bool commonest(const training* t, hy__bpe_merge* best) {
  uint32_t most = 1;
  for (int32_t left = 0; left < t->n; left++) {
    const uint32_t* row = t->counts + (size_t)left * (size_t)t->capacity;
    for (int32_t right = 0; right < t->n; right++) {
      if (row[right] <= most) continue;
      most = row[right];
      *best = (hy__bpe_merge){left, right};
    }
  }
  return most > 1;
}

// Replaces the pair everywhere, from the front, and keeps the counts true. The token before a
// match may itself be new: its pair with the left half was counted when it was made.
static void apply(training* t, hy__bpe_merge merge, int32_t merged) {
  size_t out = 0;
  for (size_t i = 0; i < t->length; out++) {
    if (t->tokens[i] != merge.left || i + 1 == t->length || t->tokens[i + 1] != merge.right) {
      t->tokens[out] = t->tokens[i++];
      continue;
    }
    int32_t before = out > 0 ? t->tokens[out - 1] : BORDER;
    int32_t after = i + 2 < t->length ? t->tokens[i + 2] : BORDER;
    count(t, before, merge.left, -1);
    count(t, merge.left, merge.right, -1);
    count(t, merge.right, after, -1);
    count(t, before, merged, 1);
    count(t, merged, after, 1);
    t->tokens[out] = merged;
    i += 2;
  }
  t->length = out;
}

static void put_piece(training* t, const char* text, size_t length) {
  if (length == 0) return;
  for (size_t i = 0; i < length; i++) t->tokens[t->length++] = (unsigned char)text[i];
  t->tokens[t->length++] = BORDER;
}

static hy_status split(training* t, const char* text, size_t length, const char* pattern) {
  hy__regex* regex;
  hy__search search;
  size_t at = 0;
  HY_TRY(hy__regex_compile(pattern, strlen(pattern), &regex));
  hy_status status = hy__search_begin(regex, text, length, &search);
  if (status == HY_OK) {
    size_t first, last;
    bool found = true;
    while ((status = hy__search_next(&search, &first, &last, &found)) == HY_OK && found) {
      put_piece(t, text + at, first - at);
      put_piece(t, text + first, last - first);
      at = last;
    }
    hy__search_end(&search);
  }
  if (status == HY_OK) put_piece(t, text + at, length - at);
  hy__regex_free(regex);
  return status;
}

hy_status hy__bpe_train(const char* text, size_t length, const char* pattern, int wanted,
                        hy__bpe_merge* merges, int* n_merges) {
  *n_merges = 0;
  if (wanted < 0 || wanted > HY__MAX_MERGES)
    return hy_fail(HY_INVALID_ARGUMENT, "%d merges are not in 0 .. %d", wanted, HY__MAX_MERGES);
  training t = {.n = 256, .capacity = 256 + wanted};
  t.tokens = hy__malloc((2 * length + 1) * sizeof *t.tokens);
  t.counts = hy__calloc((size_t)t.capacity * (size_t)t.capacity, sizeof *t.counts);
  hy_status status = HY_OK;
  if (!t.tokens || !t.counts)
    status = hy_fail(HY_OUT_OF_MEMORY, "no memory to learn merges from %zu bytes", length);
  if (status == HY_OK) status = split(&t, text, length, pattern);
  for (size_t i = 0; status == HY_OK && i + 1 < t.length; i++)
    count(&t, t.tokens[i], t.tokens[i + 1], 1);
  while (status == HY_OK && *n_merges < wanted && commonest(&t, &merges[*n_merges]))
    apply(&t, merges[(*n_merges)++], t.n++);
  hy__mfree(t.tokens);
  hy__mfree(t.counts);
  return status;
}
