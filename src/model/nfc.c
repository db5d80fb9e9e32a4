// Unicode NFC: decomposition, ordering and composition of UTF-8.
#include "model/nfc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

typedef struct decomposition {
  uint32_t from, to[4];
} decomposition;
typedef struct combining_class {
  uint32_t first, last;
  uint8_t value;
} combining_class;
typedef struct composition {
  uint32_t a, b, to;
} composition;

#include "model/nfc_table.inc"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

enum {
  S_BASE = 0xac00,
  L_BASE = 0x1100,
  V_BASE = 0x1161,
  T_BASE = 0x11a7,
  L_COUNT = 19,
  V_COUNT = 21,
  T_COUNT = 28
};
enum { S_COUNT = L_COUNT * V_COUNT * T_COUNT };

// ---- the tables ----

static int compare_decomposition(const void* key, const void* entry) {
  uint32_t c = *(const uint32_t*)key, from = ((const decomposition*)entry)->from;
  return c < from ? -1 : c > from;
}

static int compare_class(const void* key, const void* entry) {
  uint32_t c = *(const uint32_t*)key;
  const combining_class* e = entry;
  return c < e->first ? -1 : c > e->last;
}

static int compare_composition(const void* key, const void* entry) {
  const composition *k = key, *e = entry;
  if (k->a != e->a) return k->a < e->a ? -1 : 1;
  return k->b < e->b ? -1 : k->b > e->b;
}

static int class_of(uint32_t c) {
  if (c < 0x300) return 0;
  const combining_class* e = bsearch(&c, classes, COUNT(classes), sizeof classes[0], compare_class);
  return e ? e->value : 0;
}

static uint32_t compose(uint32_t a, uint32_t b) {
  if (a >= L_BASE && a < L_BASE + L_COUNT && b >= V_BASE && b < V_BASE + V_COUNT)
    return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
  if (a >= S_BASE && a < S_BASE + S_COUNT && (a - S_BASE) % T_COUNT == 0 && b > T_BASE &&
      b < T_BASE + T_COUNT)
    return a + (b - T_BASE);
  composition key = {a, b, 0};
  const composition* e =
      bsearch(&key, compositions, COUNT(compositions), sizeof compositions[0], compare_composition);
  return e ? e->to : 0;
}

static size_t decompose(uint32_t c, uint32_t* out) {
  if (c >= S_BASE && c < S_BASE + S_COUNT) {
    uint32_t s = c - S_BASE;
    out[0] = L_BASE + s / (V_COUNT * T_COUNT);
    out[1] = V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT;
    out[2] = T_BASE + s % T_COUNT;
    return out[2] == T_BASE ? 2 : 3;
  }
  const decomposition* e = c < 0xc0 ? NULL
                                    : bsearch(&c, decompositions, COUNT(decompositions),
                                              sizeof decompositions[0], compare_decomposition);
  if (!e) {
    out[0] = c;
    return 1;
  }
  size_t n = 0;
  while (n < 4 && e->to[n]) {
    out[n] = e->to[n];
    n++;
  }
  return n;
}

// ---- UTF-8 ----

// Length of the character at `s`, or minus the number of bytes that one U+FFFD replaces.
static int scan(const unsigned char* s, size_t left) {
  if (s[0] < 0x80) return 1;
  int need = s[0] >= 0xc2 && s[0] < 0xe0   ? 2
             : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
             : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                           : 0;
  if (need == 0) return -1;
  for (int i = 1; i < need; i++) {
    unsigned char low = 0x80, high = 0xbf;
    if (i == 1) {
      if (s[0] == 0xe0) low = 0xa0;
      if (s[0] == 0xed) high = 0x9f;
      if (s[0] == 0xf0) low = 0x90;
      if (s[0] == 0xf4) high = 0x8f;
    }
    if ((size_t)i >= left || s[i] < low || s[i] > high) return -i;
  }
  return need;
}

static uint32_t decode(const unsigned char* s, int n) {
  if (n == 1) return s[0];
  uint32_t c = s[0] & (0xffu >> (n + 1));
  for (int i = 1; i < n; i++) c = c << 6 | (s[i] & 0x3fu);
  return c;
}

static char* encode(char* out, uint32_t c) {
  int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  if (n == 1) {
    *out = (char)c;
    return out + 1;
  }
  for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
  out[0] = (char)((0xf00 >> n) | c);
  return out + n;
}

hy_status hy__utf8_repair(const char* text, size_t length, char** out, size_t* out_length) {
  // A replacement takes three bytes for at least one.
  char* buffer = length < SIZE_MAX / 4 ? hy__malloc(3 * length + 1) : NULL;
  if (!buffer) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a text of %zu bytes", length);
  char* to = buffer;
  for (size_t i = 0; i < length;) {
    int n = scan((const unsigned char*)text + i, length - i);
    if (n > 0) {
      memcpy(to, text + i, (size_t)n);
      to += n;
      i += (size_t)n;
    } else {
      to = encode(to, 0xfffd);
      i += (size_t)-n;
    }
  }
  *to = 0;
  *out = buffer;
  *out_length = (size_t)(to - buffer);
  return HY_OK;
}

// ---- normalization ----

// Puts combining characters in the order of their classes; few follow one another, so insertion
// sort it is.
static void reorder(uint32_t* c, size_t n) {
  for (size_t i = 1; i < n; i++) {
    uint32_t value = c[i];
    int own = class_of(value);
    if (own == 0) continue;
    size_t at = i;
    for (; at > 0 && class_of(c[at - 1]) > own; at--) c[at] = c[at - 1];
    c[at] = value;
  }
}

static size_t recompose(uint32_t* c, size_t n) {
  size_t kept = 0, starter = SIZE_MAX;
  int last_class = 0;
  for (size_t i = 0; i < n; i++) {
    int own = class_of(c[i]);
    bool blocked = starter == SIZE_MAX || (kept - 1 != starter && last_class >= own);
    uint32_t whole = blocked ? 0 : compose(c[starter], c[i]);
    if (whole) {
      c[starter] = whole;
      continue;
    }
    if (own == 0) starter = kept;
    last_class = own;
    c[kept++] = c[i];
  }
  return kept;
}

hy_status hy__nfc(const char* text, size_t length, char** out, size_t* out_length) {
  // No character becomes more than four.
  bool fits = length < SIZE_MAX / 32;
  uint32_t* c = fits ? hy__malloc((4 * length + 1) * sizeof *c) : NULL;
  if (!c) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a text of %zu bytes", length);
  size_t n = 0;
  bool plain = true;
  for (size_t i = 0; i < length;) {
    int size = scan((const unsigned char*)text + i, length - i);
    if (size <= 0) size = 1;
    uint32_t code = decode((const unsigned char*)text + i, size);
    plain = plain && code < 0x300;
    n += decompose(code, c + n);
    i += (size_t)size;
  }
  hy_status status = HY_OK;
  char* buffer = hy__malloc(plain ? length + 1 : 4 * n + 1);
  if (!buffer) {
    status = hy_fail(HY_OUT_OF_MEMORY, "no memory for a text of %zu bytes", length);
  } else if (plain) {
    memcpy(buffer, text, length);
    *out_length = length;
  } else {
    reorder(c, n);
    n = recompose(c, n);
    char* to = buffer;
    for (size_t i = 0; i < n; i++) to = encode(to, c[i]);
    *out_length = (size_t)(to - buffer);
  }
  if (buffer) buffer[*out_length] = 0;
  *out = buffer;
  hy__mfree(c);
  return status;
}
