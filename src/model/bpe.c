// Byte-pair encoding: a heap of neighbouring pairs, merged by rank.
#include "model/bpe.h"

#include <string.h>

#include "base/memory.h"

typedef struct token {
  const char* bytes;
  uint32_t length;
} token;

typedef struct merge {
  int32_t left, right, result, rank;  // left -1: free
} merge;

struct hy__bpe {
  token* by_id;
  int64_t n_ids;
  int32_t highest;
  int32_t* by_bytes;  // open addressing, -1: free
  uint64_t bytes_mask;
  merge* merges;
  uint64_t merges_mask;
  int64_t n_merges, max_merges;
  int32_t of_byte[256];
};

enum { MAX_ID = 1 << 24 };

static uint64_t table_size(int64_t n) {
  uint64_t size = 16;
  while (size < 2 * (uint64_t)n) size *= 2;
  return size;
}

static uint64_t hash_bytes(const char* bytes, size_t length) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)bytes[i]) * 0x100000001b3ull;
  return h ^ h >> 29;
}

static uint64_t hash_pair(int32_t left, int32_t right) {
  uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 31;
}

hy_status hy__bpe_create(int64_t tokens, int64_t merges, hy__bpe** out) {
  *out = NULL;
  hy__bpe* b = hy__calloc(1, sizeof *b);
  if (!b) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a vocabulary");
  b->bytes_mask = table_size(tokens) - 1;
  b->merges_mask = table_size(merges) - 1;
  b->max_merges = merges;
  b->highest = -1;
  b->by_bytes = hy__malloc((b->bytes_mask + 1) * sizeof *b->by_bytes);
  b->merges = hy__malloc((b->merges_mask + 1) * sizeof *b->merges);
  if (!b->by_bytes || !b->merges) {
    hy__bpe_free(b);
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for a vocabulary of %lld tokens",
                   (long long)tokens);
  }
  memset(b->by_bytes, 0xff, (b->bytes_mask + 1) * sizeof *b->by_bytes);
  memset(b->merges, 0xff, (b->merges_mask + 1) * sizeof *b->merges);
  memset(b->of_byte, 0xff, sizeof b->of_byte);
  *out = b;
  return HY_OK;
}

void hy__bpe_free(hy__bpe* b) {
  if (!b) return;
  hy__mfree(b->by_id);
  hy__mfree(b->by_bytes);
  hy__mfree(b->merges);
  hy__mfree(b);
}

static bool token_is(const token* t, const char* bytes, size_t length) {
  return t->length == length && memcmp(t->bytes, bytes, length) == 0;
}

// The slot of a string: its id's, or the free one where it would go.
static int32_t* find_slot(const hy__bpe* b, const char* bytes, size_t length) {
  uint64_t i = hash_bytes(bytes, length) & b->bytes_mask;
  while (b->by_bytes[i] >= 0 && !token_is(&b->by_id[b->by_bytes[i]], bytes, length))
    i = (i + 1) & b->bytes_mask;
  return &b->by_bytes[i];
}

hy_status hy__bpe_add_token(hy__bpe* b, const char* bytes, size_t length, int32_t id) {
  if (id < 0 || id >= MAX_ID)
    return hy_fail(HY_FORMAT, "the token id %d is not in 0 .. %d", (int)id, MAX_ID - 1);
  if (length > UINT32_MAX / 2) return hy_fail(HY_FORMAT, "a token of %zu bytes", length);
  if (id >= b->n_ids) {
    int64_t n = id + 1 > 2 * b->n_ids ? id + 1 : 2 * b->n_ids;
    token* grown = hy__realloc(b->by_id, (size_t)n * sizeof *grown);
    if (!grown)
      return hy_fail(HY_OUT_OF_MEMORY, "no memory for a vocabulary of %lld tokens", (long long)n);
    memset(grown + b->n_ids, 0, (size_t)(n - b->n_ids) * sizeof *grown);
    b->by_id = grown;
    b->n_ids = n;
  }
  int32_t* slot = find_slot(b, bytes, length);
  if (*slot >= 0 || b->by_id[id].bytes)
    return hy_fail(HY_FORMAT, "the token with id %d stands there twice", (int)id);
  b->by_id[id] = (token){bytes, (uint32_t)length};
  *slot = id;
  if (id > b->highest) b->highest = id;
  if (length == 1) b->of_byte[(unsigned char)bytes[0]] = id;
  return HY_OK;
}

int32_t hy__bpe_find(const hy__bpe* b, const char* bytes, size_t length) {
  return *find_slot(b, bytes, length);
}

const char* hy__bpe_bytes(const hy__bpe* b, int32_t id, size_t* length) {
  if (id < 0 || id >= b->n_ids || !b->by_id[id].bytes) return NULL;
  *length = b->by_id[id].length;
  return b->by_id[id].bytes;
}

int32_t hy__bpe_highest(const hy__bpe* b) {
  return b->highest;
}

static merge* find_merge(const hy__bpe* b, int32_t left, int32_t right) {
  uint64_t i = hash_pair(left, right) & b->merges_mask;
  while (b->merges[i].left >= 0 && (b->merges[i].left != left || b->merges[i].right != right))
    i = (i + 1) & b->merges_mask;
  return &b->merges[i];
}

hy_status hy__bpe_add_merge(hy__bpe* b, const char* left, size_t left_length, const char* right,
                            size_t right_length) {
  if (b->n_merges >= b->max_merges) return hy_fail(HY_INTERNAL, "more merges than were announced");
  char whole[512];
  if (left_length + right_length > sizeof whole)
    return hy_fail(HY_FORMAT, "a merge of more than %zu bytes", sizeof whole);
  memcpy(whole, left, left_length);
  memcpy(whole + left_length, right, right_length);
  int32_t l = hy__bpe_find(b, left, left_length), r = hy__bpe_find(b, right, right_length);
  int32_t result = hy__bpe_find(b, whole, left_length + right_length);
  if (l < 0 || r < 0 || result < 0)
    return hy_fail(HY_FORMAT, "merge %lld names a string that is no token", (long long)b->n_merges);
  merge* m = find_merge(b, l, r);
  if (m->left < 0) *m = (merge){l, r, result, (int32_t)b->n_merges};
  b->n_merges++;
  return HY_OK;
}

// ---- encoding ----

// Pieces of the text in a doubly linked list, and a heap of neighbours that may merge: the lowest
// rank first, the leftmost of equals. An entry whose pieces have changed since is recognised by
// their ids and dropped.
typedef struct piece {
  int32_t id, before, after;
} piece;
typedef struct pair {
  int32_t rank, at, left, right, result;
} pair;
typedef struct work {
  const hy__bpe* bpe;
  piece* pieces;
  pair* heap;
  int32_t n_heap;
} work;

static bool comes_first(const pair* a, const pair* b) {
  return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(work* w, int32_t at) {
  const piece* p = &w->pieces[at];
  if (p->after < 0) return;
  int32_t right = w->pieces[p->after].id;
  const merge* m = find_merge(w->bpe, p->id, right);
  if (m->left < 0) return;
  pair entry = {m->rank, at, p->id, right, m->result};
  int32_t i = w->n_heap++;
  while (i > 0 && comes_first(&entry, &w->heap[(i - 1) / 2])) {
    w->heap[i] = w->heap[(i - 1) / 2];
    i = (i - 1) / 2;
  }
  w->heap[i] = entry;
}

static pair pop(work* w) {
  pair top = w->heap[0], last = w->heap[--w->n_heap];
  int32_t i = 0;
  for (;;) {
    int32_t child = 2 * i + 1;
    if (child >= w->n_heap) break;
    if (child + 1 < w->n_heap && comes_first(&w->heap[child + 1], &w->heap[child])) child++;
    if (!comes_first(&w->heap[child], &last)) break;
    w->heap[i] = w->heap[child];
    i = child;
  }
  w->heap[i] = last;
  return top;
}

static void merge_all(work* w) {
  while (w->n_heap > 0) {
    pair top = pop(w);
    piece* left = &w->pieces[top.at];
    if (left->id != top.left || left->after < 0 || w->pieces[left->after].id != top.right) continue;
    piece* right = &w->pieces[left->after];
    left->id = top.result;
    right->id = -1;
    left->after = right->after;
    if (left->after >= 0) w->pieces[left->after].before = top.at;
    if (left->before >= 0) push(w, left->before);
    push(w, top.at);
  }
}

hy_status hy__bpe_encode(const hy__bpe* b, const char* bytes, size_t length, hy__emit emit,
                         void* context) {
  enum { SHORT = 64 };
  if (length == 0) return HY_OK;
  if (length > INT32_MAX / 4)
    return hy_fail(HY_INVALID_ARGUMENT, "a piece of text of %zu bytes is too long", length);
  piece few_pieces[SHORT];
  pair few_pairs[3 * SHORT];
  // Each of the n - 1 merges adds at most two pairs to the first n - 1.
  work w = {.bpe = b, .pieces = few_pieces, .heap = few_pairs};
  void* memory = NULL;
  if (length > SHORT) {
    memory = hy__malloc(length * (sizeof(piece) + 3 * sizeof(pair)));
    if (!memory)
      return hy_fail(HY_OUT_OF_MEMORY, "no memory for a piece of text of %zu bytes", length);
    w.heap = memory;
    w.pieces = (piece*)(w.heap + 3 * length);
  }
  int32_t n = 0;
  for (size_t i = 0; i < length; i++) {
    int32_t id = b->of_byte[(unsigned char)bytes[i]];
    if (id < 0) continue;
    w.pieces[n] = (piece){id, n - 1, n + 1};
    n++;
  }
  if (n > 0) w.pieces[n - 1].after = -1;
  for (int32_t i = 0; i < n; i++) push(&w, i);
  merge_all(&w);
  hy_status status = HY_OK;
  for (int32_t i = n > 0 ? 0 : -1; i >= 0 && status == HY_OK; i = w.pieces[i].after)
    status = emit(context, w.pieces[i].id);
  hy__mfree(memory);
  return status;
}
