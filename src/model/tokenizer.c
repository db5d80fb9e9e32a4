// tokenizer.json: parsing, pre-tokenizing, encoding and the bytes of tokens.
#include "model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "model/bpe.h"
#include "model/nfc.h"
#include "model/regex.h"

enum { MAX_SPLITS = 4, MAX_AFFIX = 8 };

// A token that stands for itself wherever it is found, before anything else happens to the text.
typedef struct added {
  const char* text;
  size_t length;
  int32_t id;
  bool special, lstrip, rstrip, single_word;
  bool control;  // special, or written as <|...|>: what a chat is made of, and its words are not
} added;

struct hy__tokenizer {
  hy__json_document* document;  // holds the strings
  char* bytes;                  // the vocabulary as bytes
  hy__bpe* bpe;
  added* added;  // longest first
  int n_added;
  hy__regex* splits[MAX_SPLITS];
  int n_splits;
  bool nfc, ignore_merges, prefix_space;
  int32_t before[MAX_AFFIX], after[MAX_AFFIX];  // what the post-processor adds
  int n_before, n_after;
};

// The pattern of GPT-2, which the ByteLevel pre-tokenizer applies unless told not to.
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

// ---- the byte alphabet ----

// Byte-level vocabularies write each byte as a printable character: itself where it is one, else
// one from U+0100 up.
static bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

typedef struct alphabet {
  int16_t byte_of[512];  // by character; -1 for one that stands for none
} alphabet;

static void alphabet_init(alphabet* a) {
  memset(a, 0xff, sizeof *a);
  int next = 256;
  for (int byte = 0; byte < 256; byte++)
    a->byte_of[is_printable(byte) ? byte : next++] = (int16_t)byte;
}

// Writes the bytes that a vocabulary's string stands for; false where it has a character of no
// byte.
static bool to_bytes(const alphabet* a, const char* text, size_t length, char* out,
                     size_t* out_length) {
  size_t n = 0;
  for (size_t i = 0; i < length;) {
    unsigned char c = (unsigned char)text[i];
    int code = c;
    if (c >= 0xc0 && c < 0xe0 && i + 1 < length) {
      code = (c & 0x1f) << 6 | (text[i + 1] & 0x3f);
      i += 2;
    } else if (c < 0x80) {
      i++;
    } else {
      return false;
    }
    if (code >= 512 || a->byte_of[code] < 0) return false;
    out[n++] = (char)a->byte_of[code];
  }
  *out_length = n;
  return true;
}

// ---- reading tokenizer.json ----

static const char* type_of(const hy__json* part) {
  const hy__json* type = hy__json_get(part, "type");
  return type && type->kind == HY__JSON_STRING ? type->text : "?";
}

static bool is_null(const hy__json* value) {
  return !value || value->kind == HY__JSON_NULL;
}

static hy_status read_vocabulary(hy__tokenizer* t, const hy__json* model) {
  const hy__json *vocab = hy__json_get(model, "vocab"), *merges = hy__json_get(model, "merges");
  if (!vocab || vocab->kind != HY__JSON_OBJECT || !merges || merges->kind != HY__JSON_ARRAY)
    return hy_fail(HY_FORMAT, "the model needs a \"vocab\" object and a list of \"merges\"");
  HY_TRY(hy__bpe_create((int64_t)vocab->length, (int64_t)merges->length, &t->bpe));
  size_t total = 1;
  for (const hy__json* entry = vocab->first; entry; entry = entry->next) total += entry->key_length;
  t->bytes = hy__malloc(total);
  if (!t->bytes) return hy_fail(HY_OUT_OF_MEMORY, "no memory for the vocabulary");
  alphabet letters;
  alphabet_init(&letters);
  char* at = t->bytes;
  for (const hy__json* entry = vocab->first; entry; entry = entry->next) {
    size_t length;
    if (!entry->is_integer || entry->integer < 0 || entry->integer > INT32_MAX)
      return hy_fail(HY_FORMAT, "the id of '%s' is no token id", entry->key);
    // Tokens of its own may stand in the vocabulary under their plain text.
    if (!to_bytes(&letters, entry->key, entry->key_length, at, &length)) {
      length = entry->key_length;
      memcpy(at, entry->key, length);
    }
    HY_TRY(hy__bpe_add_token(t->bpe, at, length, (int32_t)entry->integer));
    at += length;
  }
  for (const hy__json* entry = merges->first; entry; entry = entry->next) {
    const char *left, *right;
    size_t left_length, right_length;
    if (entry->kind == HY__JSON_ARRAY && entry->length == 2 &&
        entry->first->kind == HY__JSON_STRING && entry->first->next->kind == HY__JSON_STRING) {
      left = entry->first->text;
      left_length = entry->first->length;
      right = entry->first->next->text;
      right_length = entry->first->next->length;
    } else if (entry->kind == HY__JSON_STRING && strchr(entry->text, ' ')) {
      left = entry->text;
      left_length = (size_t)(strchr(left, ' ') - left);
      right = left + left_length + 1;
      right_length = entry->length - left_length - 1;
    } else {
      return hy_fail(HY_FORMAT, "a merge is neither \"a b\" nor [\"a\", \"b\"]");
    }
    char bytes[1024];
    size_t n_left, n_right;
    if (left_length + right_length > sizeof bytes ||
        !to_bytes(&letters, left, left_length, bytes, &n_left) ||
        !to_bytes(&letters, right, right_length, bytes + n_left, &n_right))
      return hy_fail(HY_FORMAT, "the merge of '%.40s' is not in the byte alphabet", left);
    HY_TRY(hy__bpe_add_merge(t->bpe, bytes, n_left, bytes + n_left, n_right));
  }
  return HY_OK;
}

static hy_status read_model(hy__tokenizer* t, const hy__json* model) {
  if (strcmp(type_of(model), "BPE") != 0)
    return hy_fail(HY_FORMAT, "the model type \"%s\" is not supported; byte-level BPE is",
                   type_of(model));
  bool fallback;
  HY_TRY(hy__json_get_bool(model, "byte_fallback", false, &fallback));
  if (fallback) return hy_fail(HY_FORMAT, "\"byte_fallback\" is not supported; byte-level BPE is");
  const char* names[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  for (int i = 0; i < 2; i++) {
    const char* affix;
    HY_TRY(hy__json_get_text(model, names[i], "", &affix));
    if (affix[0]) return hy_fail(HY_FORMAT, "\"%s\" is not supported", names[i]);
  }
  HY_TRY(hy__json_get_bool(model, "ignore_merges", false, &t->ignore_merges));
  return read_vocabulary(t, model);
}

static int by_length(const void* a, const void* b) {
  const added *x = a, *y = b;
  return x->length != y->length ? (x->length > y->length ? -1 : 1) : strcmp(x->text, y->text);
}

static bool is_marker(const char* text, size_t length) {
  return length > 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + length - 2, "|>", 2) == 0;
}

static hy_status read_added(hy__tokenizer* t, const hy__json* list) {
  if (is_null(list)) return HY_OK;
  if (list->kind != HY__JSON_ARRAY) return hy_fail(HY_FORMAT, "\"added_tokens\" is no list");
  t->added = hy__calloc(list->length + 1, sizeof *t->added);
  if (!t->added) return hy_fail(HY_OUT_OF_MEMORY, "no memory for %zu added tokens", list->length);
  for (const hy__json* entry = list->first; entry; entry = entry->next) {
    added* a = &t->added[t->n_added];
    int64_t id;
    const hy__json* content = hy__json_get(entry, "content");
    HY_TRY(hy__json_get_int(entry, "id", -1, &id));
    if (!content || content->kind != HY__JSON_STRING || content->length == 0 || id < 0 ||
        id >= 1 << 24)
      return hy_fail(HY_FORMAT, "an added token needs a \"content\" and an \"id\"");
    a->text = content->text;
    a->length = content->length;
    a->id = (int32_t)id;
    HY_TRY(hy__json_get_bool(entry, "special", false, &a->special));
    a->control = a->special || is_marker(a->text, a->length);
    HY_TRY(hy__json_get_bool(entry, "lstrip", false, &a->lstrip));
    HY_TRY(hy__json_get_bool(entry, "rstrip", false, &a->rstrip));
    HY_TRY(hy__json_get_bool(entry, "single_word", false, &a->single_word));
    t->n_added++;
  }
  qsort(t->added, (size_t)t->n_added, sizeof *t->added, by_length);
  return HY_OK;
}

static hy_status read_normalizer(hy__tokenizer* t, const hy__json* part) {
  if (is_null(part)) return HY_OK;
  if (strcmp(type_of(part), "Sequence") == 0) {
    const hy__json* list = hy__json_get(part, "normalizers");
    for (const hy__json* member = list ? list->first : NULL; member; member = member->next)
      HY_TRY(read_normalizer(t, member));
    return HY_OK;
  }
  if (strcmp(type_of(part), "NFC") != 0)
    return hy_fail(HY_FORMAT, "the normalizer \"%s\" is not supported; NFC is", type_of(part));
  t->nfc = true;
  return HY_OK;
}

static hy_status add_split(hy__tokenizer* t, const char* pattern, size_t length) {
  if (t->n_splits == MAX_SPLITS)
    return hy_fail(HY_FORMAT, "more than %d patterns in the pre-tokenizer", MAX_SPLITS);
  HY_TRY(hy__regex_compile(pattern, length, &t->splits[t->n_splits]));
  t->n_splits++;
  return HY_OK;
}

static hy_status read_split(hy__tokenizer* t, const hy__json* part) {
  const hy__json* pattern = hy__json_get(hy__json_get(part, "pattern"), "Regex");
  const char* behavior;
  bool invert;
  HY_TRY(hy__json_get_text(part, "behavior", "", &behavior));
  HY_TRY(hy__json_get_bool(part, "invert", false, &invert));
  if (!pattern || pattern->kind != HY__JSON_STRING || strcmp(behavior, "Isolated") != 0 || invert)
    return hy_fail(HY_FORMAT,
                   "a Split is supported with a Regex pattern and the behavior Isolated");
  return add_split(t, pattern->text, pattern->length);
}

static hy_status read_pre_tokenizer(hy__tokenizer* t, const hy__json* part) {
  if (is_null(part)) return HY_OK;
  const char* type = type_of(part);
  if (strcmp(type, "Sequence") == 0) {
    const hy__json* list = hy__json_get(part, "pretokenizers");
    for (const hy__json* member = list ? list->first : NULL; member; member = member->next)
      HY_TRY(read_pre_tokenizer(t, member));
    return HY_OK;
  }
  if (strcmp(type, "Split") == 0) return read_split(t, part);
  if (strcmp(type, "ByteLevel") != 0)
    return hy_fail(HY_FORMAT, "the pre-tokenizer \"%s\" is not supported; Split and ByteLevel are",
                   type);
  bool use_regex;
  HY_TRY(hy__json_get_bool(part, "add_prefix_space", true, &t->prefix_space));
  HY_TRY(hy__json_get_bool(part, "use_regex", true, &use_regex));
  return use_regex ? add_split(t, gpt2_pattern, sizeof gpt2_pattern - 1) : HY_OK;
}

// The tokens a TemplateProcessing puts before and after a single text.
static hy_status read_template(hy__tokenizer* t, const hy__json* part) {
  const hy__json* single = hy__json_get(part, "single");
  bool behind = false;
  for (const hy__json* piece = single ? single->first : NULL; piece; piece = piece->next) {
    if (hy__json_get(piece, "Sequence")) {
      behind = true;
      continue;
    }
    const hy__json* name = hy__json_get(hy__json_get(piece, "SpecialToken"), "id");
    int32_t id = name && name->kind == HY__JSON_STRING ? hy__tokenizer_added_id(t, name->text) : -1;
    int* count = behind ? &t->n_after : &t->n_before;
    if (id < 0 || *count == MAX_AFFIX)
      return hy_fail(HY_FORMAT, "the post-processor names a token that is not there");
    (behind ? t->after : t->before)[(*count)++] = id;
  }
  return HY_OK;
}

static hy_status read_post_processor(hy__tokenizer* t, const hy__json* part) {
  if (is_null(part)) return HY_OK;
  const char* type = type_of(part);
  if (strcmp(type, "ByteLevel") == 0) return HY_OK;  // changes offsets only
  if (strcmp(type, "TemplateProcessing") == 0) return read_template(t, part);
  if (strcmp(type, "Sequence") != 0)
    return hy_fail(HY_FORMAT, "the post-processor \"%s\" is not supported", type);
  const hy__json* list = hy__json_get(part, "processors");
  for (const hy__json* member = list ? list->first : NULL; member; member = member->next)
    HY_TRY(read_post_processor(t, member));
  return HY_OK;
}

static hy_status read_all(hy__tokenizer* t, const hy__json* root) {
  if (root->kind != HY__JSON_OBJECT) return hy_fail(HY_FORMAT, "it is no JSON object");
  HY_TRY(read_model(t, hy__json_get(root, "model")));
  HY_TRY(read_added(t, hy__json_get(root, "added_tokens")));
  HY_TRY(read_normalizer(t, hy__json_get(root, "normalizer")));
  HY_TRY(read_pre_tokenizer(t, hy__json_get(root, "pre_tokenizer")));
  return read_post_processor(t, hy__json_get(root, "post_processor"));
}

hy_status hy__tokenizer_parse(const char* name, const char* text, size_t length,
                              hy__tokenizer** out) {
  *out = NULL;
  hy__tokenizer* t = hy__calloc(1, sizeof *t);
  if (!t) return hy_fail(HY_OUT_OF_MEMORY, "%s: no memory to read it", name);
  hy_status status = hy__json_parse(name, text, length, &t->document);
  if (status == HY_OK) {
    status = read_all(t, hy__json_root(t->document));
    if (status != HY_OK) hy_fail(status, "%s: %s", name, hy_last_error());
  }
  if (status != HY_OK)
    hy__tokenizer_free(t);
  else
    *out = t;
  return status;
}

hy_status hy__tokenizer_load(const char* path, hy__tokenizer** out) {
  char* text;
  size_t size;
  *out = NULL;
  HY_TRY(hy__read_file(path, HY__TOKENIZER_LIMIT, &text, &size));
  hy_status status = hy__tokenizer_parse(path, text, size, out);
  hy__mfree(text);
  return status;
}

void hy__tokenizer_free(hy__tokenizer* t) {
  if (!t) return;
  for (int i = 0; i < t->n_splits; i++) hy__regex_free(t->splits[i]);
  hy__bpe_free(t->bpe);
  hy__mfree(t->bytes);
  hy__mfree(t->added);
  hy__json_free(t->document);
  hy__mfree(t);
}

// ---- looking up ----

int32_t hy__tokenizer_added_id(const hy__tokenizer* t, const char* text) {
  for (int i = 0; i < t->n_added; i++) {
    if (strcmp(t->added[i].text, text) == 0) return t->added[i].id;
  }
  return -1;
}

const char* hy__tokenizer_bytes(const hy__tokenizer* t, int32_t id, size_t* length, bool* special) {
  for (int i = 0; i < t->n_added; i++) {
    if (t->added[i].id != id) continue;
    *length = t->added[i].length;
    *special = t->added[i].special;
    return t->added[i].text;
  }
  *special = false;
  return hy__bpe_bytes(t->bpe, id, length);
}

int64_t hy__tokenizer_size(const hy__tokenizer* t) {
  int32_t highest = hy__bpe_highest(t->bpe);
  for (int i = 0; i < t->n_added; i++) {
    if (t->added[i].id > highest) highest = t->added[i].id;
  }
  return (int64_t)highest + 1;
}

// ---- encoding ----

typedef struct output {
  const hy__tokenizer* tokenizer;
  bool plain;  // control tokens are not recognised
  int32_t* ids;
  int64_t capacity, count;
} output;

static hy_status put(void* context, int32_t id) {
  output* o = context;
  if (o->count < o->capacity) o->ids[o->count] = id;
  o->count++;
  return HY_OK;
}

static hy_status encode_piece(output* o, const char* text, size_t length) {
  if (o->tokenizer->ignore_merges) {
    int32_t id = hy__bpe_find(o->tokenizer->bpe, text, length);
    if (id >= 0) return put(o, id);
  }
  return hy__bpe_encode(o->tokenizer->bpe, text, length, put, o);
}

// Cuts the text by the patterns from number `split` on; matches and what is between them are
// pieces.
static hy_status cut(output* o, int split, const char* text, size_t length) {
  if (length == 0) return HY_OK;
  if (split >= MAX_SPLITS || split == o->tokenizer->n_splits) return encode_piece(o, text, length);
  hy__search search;
  HY_TRY(hy__search_begin(o->tokenizer->splits[split], text, length, &search));
  size_t at = 0;
  hy_status status = HY_OK;
  while (status == HY_OK) {
    size_t first, last;
    bool found;
    status = hy__search_next(&search, &first, &last, &found);
    if (status != HY_OK || !found) break;
    status = cut(o, split + 1, text + at, first - at);
    if (status == HY_OK) status = cut(o, split + 1, text + first, last - first);
    at = last;
  }
  hy__search_end(&search);
  return status == HY_OK ? cut(o, split + 1, text + at, length - at) : status;
}

// A stretch without added tokens.
static hy_status encode_plain(output* o, const char* text, size_t length) {
  if (length == 0) return HY_OK;
  const hy__tokenizer* t = o->tokenizer;
  char *normal = NULL, *spaced = NULL;
  hy_status status = HY_OK;
  if (t->nfc) {
    status = hy__nfc(text, length, &normal, &length);
    text = normal;
  }
  if (status == HY_OK && t->prefix_space && length > 0 && text[0] != ' ') {
    spaced = hy__malloc(length + 1);
    if (spaced) {
      spaced[0] = ' ';
      memcpy(spaced + 1, text, length++);
      text = spaced;
    } else {
      status = hy_fail(HY_OUT_OF_MEMORY, "no memory for a text of %zu bytes", length);
    }
  }
  if (status == HY_OK) status = cut(o, 0, text, length);
  hy__mfree(normal);
  hy__mfree(spaced);
  return status;
}

static bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         (unsigned char)c >= 0x80;
}

// The longest added token that begins at `at`.
static const added* added_at(const output* o, const char* text, size_t length, size_t at) {
  const hy__tokenizer* t = o->tokenizer;
  for (int i = 0; i < t->n_added; i++) {
    const added* a = &t->added[i];
    if (o->plain && a->control) continue;
    if (a->length > length - at || memcmp(text + at, a->text, a->length) != 0) continue;
    size_t end = at + a->length;
    if (a->single_word &&
        ((at > 0 && is_word(text[at - 1])) || (end < length && is_word(text[end]))))
      continue;
    return a;
  }
  return NULL;
}

static hy_status encode_all(output* o, const char* text, size_t length) {
  const hy__tokenizer* t = o->tokenizer;
  bool starts[256] = {false};
  for (int i = 0; i < t->n_added; i++) starts[(unsigned char)t->added[i].text[0]] = true;
  size_t from = 0;
  for (size_t at = 0; at < length;) {
    const added* a = starts[(unsigned char)text[at]] ? added_at(o, text, length, at) : NULL;
    if (!a) {
      at++;
      continue;
    }
    size_t end = at;
    while (a->lstrip && end > from && is_space(text[end - 1])) end--;
    HY_TRY(encode_plain(o, text + from, end - from));
    HY_TRY(put(o, a->id));
    at += a->length;
    while (a->rstrip && at < length && is_space(text[at])) at++;
    from = at;
  }
  return encode_plain(o, text + from, length - from);
}

hy_status hy__tokenizer_encode(const hy__tokenizer* t, const char* text, size_t length,
                               unsigned flags, int32_t* ids, int64_t capacity, int64_t* count) {
  output o = {.tokenizer = t, .plain = flags & HY__ENCODE_PLAIN, .ids = ids, .capacity = capacity};
  bool affixes = flags & HY__ENCODE_AFFIXES;
  char* clean;
  size_t clean_length;
  HY_TRY(hy__utf8_repair(text, length, &clean, &clean_length));
  for (int i = 0; affixes && i < t->n_before; i++) put(&o, t->before[i]);
  hy_status status = encode_all(&o, clean, clean_length);
  for (int i = 0; affixes && i < t->n_after; i++) put(&o, t->after[i]);
  hy__mfree(clean);
  *count = o.count;
  return status;
}
