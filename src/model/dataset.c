// Training data: JSONL texts packed into rows of tokens.
#include "model/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "model/chat.h"

// Tokens one behind the other, and for each whether the model is to learn to say it.
typedef struct flow {
  int32_t* tokens;
  bool* counts;
  int64_t length, capacity;
} flow;

struct hy__dataset {
  const hy__tokenizer* tokenizer;
  hy__dataset_options options;
  flow parts[2];
  int64_t texts;           // added so far
  int64_t *rows, *order;   // of training: those of which something counts, and as `epoch` has them
  int64_t n_rows, listed;  // of them, for so many tokens
  int64_t epoch;
  flow packed;               // the training part as `epoch` has it, where the texts are repacked
  int64_t *starts, n_texts;  // of its texts in the order they were added, and the end of the last
};

hy_status hy__dataset_create(const hy__tokenizer* tokenizer, const hy__dataset_options* options,
                             hy__dataset** out) {
  *out = NULL;
  if (options->length < 2)
    return hy_fail(HY_INVALID_ARGUMENT, "rows of %lld tokens are too short to learn from",
                   (long long)options->length);
  if (!(options->evaluation_share >= 0 && options->evaluation_share < 1))
    return hy_fail(HY_INVALID_ARGUMENT, "the share for evaluation must be in 0 .. 1, not %g",
                   options->evaluation_share);
  if (options->repack && options->end < 0)
    return hy_fail(HY_INVALID_ARGUMENT, "texts without an end between them cannot be repacked");
  hy__dataset* d = hy__calloc(1, sizeof *d);
  if (!d) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a dataset");
  d->tokenizer = tokenizer;
  d->options = *options;
  d->epoch = -1;
  *out = d;
  return HY_OK;
}

void hy__dataset_free(hy__dataset* d) {
  if (!d) return;
  for (int i = 0; i < 2; i++) {
    hy__mfree(d->parts[i].tokens);
    hy__mfree(d->parts[i].counts);
  }
  hy__mfree(d->packed.tokens);
  hy__mfree(d->packed.counts);
  hy__mfree(d->starts);
  hy__mfree(d->rows);
  hy__mfree(d);
}

// ---- filling ----

// A well-mixed number for each (seed, index).
static uint64_t draw(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static hy_status reserve(flow* f, int64_t more) {
  if (more <= f->capacity - f->length) return HY_OK;
  int64_t capacity = f->length + more + f->capacity / 2 + 1024;
  int32_t* tokens = hy__realloc(f->tokens, (size_t)capacity * sizeof *tokens);
  if (tokens) f->tokens = tokens;
  bool* counts = hy__realloc(f->counts, (size_t)capacity * sizeof *counts);
  if (counts) f->counts = counts;
  if (!tokens || !counts)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens of data", (long long)capacity);
  f->capacity = capacity;
  return HY_OK;
}

// Where the next text goes.
static flow* next_part(hy__dataset* d) {
  double at = (double)(draw(~d->options.seed, (uint64_t)d->texts++) >> 11) * 0x1p-53;
  return &d->parts[at < d->options.evaluation_share ? HY__DATA_EVALUATION : HY__DATA_TRAINING];
}

// Appends a text's tokens. Those that begin at byte `from` or later count, when `learn` says so.
static hy_status put_text(hy__dataset* d, flow* f, const char* text, size_t length, size_t from,
                          bool learn, unsigned flags) {
  int64_t count;
  // A byte is at most one token, but a text may be given tokens around it.
  HY_TRY(reserve(f, (int64_t)length + 16));
  HY_TRY(hy__tokenizer_encode(d->tokenizer, text, length, flags, f->tokens + f->length,
                              f->capacity - f->length, &count));
  if (count > f->capacity - f->length) {  // normalising can make a text longer
    HY_TRY(reserve(f, count));
    HY_TRY(hy__tokenizer_encode(d->tokenizer, text, length, flags, f->tokens + f->length,
                                f->capacity - f->length, &count));
  }
  size_t at = 0;
  for (int64_t i = 0; i < count; i++) {
    size_t size = 0;
    bool special;
    hy__tokenizer_bytes(d->tokenizer, f->tokens[f->length + i], &size, &special);
    f->counts[f->length + i] = learn && at >= from;
    at += size;
  }
  f->length += count;
  return HY_OK;
}

static hy_status put_token(flow* f, int32_t id, bool learn) {
  HY_TRY(reserve(f, 1));
  f->tokens[f->length] = id;
  f->counts[f->length++] = learn;
  return HY_OK;
}

static hy_status put_end(hy__dataset* d, flow* f, bool learn) {
  return d->options.end < 0 ? HY_OK : put_token(f, d->options.end, learn);
}

hy_status hy__dataset_add_text(hy__dataset* d, const char* text, size_t length) {
  flow* f = next_part(d);
  HY_TRY(put_text(d, f, text, length, 0, true, HY__ENCODE_AFFIXES));
  return put_end(d, f, true);
}

static hy_status add_message(hy__dataset* d, flow* f, const hy__chat_markers* markers,
                             const hy__json* message) {
  const hy__json *role = hy__json_get(message, "role"), *content = hy__json_get(message, "content");
  if (!role || role->kind != HY__JSON_STRING || !content || content->kind != HY__JSON_STRING)
    return hy_fail(HY_FORMAT, "a message needs a \"role\" and a \"content\", both texts");
  if (!hy__chat_is_role(role->text))
    return hy_fail(HY_FORMAT, "the role \"%.40s\" is none of system, user, assistant and tool",
                   role->text);
  bool learn = strcmp(role->text, "assistant") == 0;
  size_t head = strlen(role->text) + 1;
  char* text;
  HY_TRY(hy__chat_text(role->text, content->text, content->length, &text));
  hy_status status = put_token(f, markers->start, false);
  if (status == HY_OK)
    status = put_text(d, f, text, head + content->length, head, learn, HY__ENCODE_PLAIN);
  if (status == HY_OK) status = put_token(f, markers->end, learn);
  // The line break between messages is nobody's word.
  if (status == HY_OK) status = put_text(d, f, "\n", 1, 0, false, HY__ENCODE_PLAIN);
  hy__mfree(text);
  return status;
}

static hy_status add_messages(hy__dataset* d, const hy__json* messages) {
  if (messages->kind != HY__JSON_ARRAY || !messages->first)
    return hy_fail(HY_FORMAT, "\"messages\" must be a list of at least one message");
  hy__chat_markers markers;
  if (hy__chat_find_markers(d->tokenizer, &markers) != HY_OK)
    return hy_fail(HY_FORMAT, "\"messages\" need a model whose tokenizer has " HY__CHAT_START
                              " and " HY__CHAT_END);
  flow* f = next_part(d);
  for (const hy__json* message = messages->first; message; message = message->next)
    HY_TRY(add_message(d, f, &markers, message));
  return put_end(d, f, false);
}

static hy_status add_entry(hy__dataset* d, const hy__json* entry) {
  const hy__json *text = hy__json_get(entry, "text"), *messages = hy__json_get(entry, "messages");
  if (entry->kind != HY__JSON_OBJECT || !text == !messages)
    return hy_fail(HY_FORMAT, "a line is an object with either a \"text\" or \"messages\"");
  if (messages) return add_messages(d, messages);
  if (text->kind != HY__JSON_STRING) return hy_fail(HY_FORMAT, "\"text\" must be a text");
  return hy__dataset_add_text(d, text->text, text->length);
}

static bool is_blank(const char* text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
  }
  return true;
}

static hy_status add_line(hy__dataset* d, const char* name, int64_t line, const char* text,
                          size_t length) {
  hy__json_document* document = NULL;
  if (length > HY__DATA_LINE_LIMIT)
    return hy_fail(HY_FORMAT, "%s: line %lld: %zu bytes are more than the %d that a line may have",
                   name, (long long)line, length, HY__DATA_LINE_LIMIT);
  hy_status status = hy__json_parse("", text, length, &document);
  if (status != HY_OK) {
    // The parser counts lines of its own, of which there is one: ": line 1, column 7: ...".
    const char* column = strstr(hy_last_error(), "column");
    return hy_fail(status, "%s: line %lld, %s", name, (long long)line,
                   column ? column : hy_last_error());
  }
  status = add_entry(d, hy__json_root(document));
  if (status != HY_OK) hy_fail(status, "%s: line %lld: %s", name, (long long)line, hy_last_error());
  hy__json_free(document);
  return status;
}

hy_status hy__dataset_add_jsonl(hy__dataset* d, const char* name, const char* text, size_t length) {
  const char* end = text + length;
  int64_t line = 1;
  // Some editors begin a file of UTF-8 with a byte order mark.
  if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3;
  for (const char* at = text; at < end; line++) {
    const char* stop = memchr(at, '\n', (size_t)(end - at));
    size_t n = (size_t)((stop ? stop : end) - at);
    if (!is_blank(at, n)) HY_TRY(add_line(d, name, line, at, n));
    at += n + 1;
  }
  return HY_OK;
}

hy_status hy__dataset_add_file(hy__dataset* d, const char* path) {
  hy__mapped file;
  HY_TRY(hy__map_file(path, &file));
  hy_status status = hy__dataset_add_jsonl(d, path, (const char*)file.data, file.size);
  hy__unmap_file(&file);
  if (status == HY_OK && d->texts == 0)
    status = hy_fail(HY_FORMAT, "%s: there is no text in it", path);
  return status;
}

// ---- rows ----

int64_t hy__dataset_tokens(const hy__dataset* d, hy__dataset_part part) {
  return d->parts[part].length;
}

// The last token has nothing after it to learn, and begins no row.
int64_t hy__dataset_rows(const hy__dataset* d, hy__dataset_part part) {
  int64_t learnable = d->parts[part].length - 1;
  return learnable < 1 ? 0 : (learnable + d->options.length - 1) / d->options.length;
}

static void fill_row(const hy__dataset* d, const flow* f, int64_t row, int32_t* tokens,
                     int32_t* targets) {
  int32_t padding = d->options.end >= 0 ? d->options.end : 0;
  for (int64_t i = 0, at = row * d->options.length; i < d->options.length; i++, at++) {
    tokens[i] = at < f->length ? f->tokens[at] : padding;
    targets[i] = at + 1 < f->length && f->counts[at + 1] ? f->tokens[at + 1] : HY__IGNORE;
  }
}

static bool row_counts(const hy__dataset* d, const flow* f, int64_t row) {
  for (int64_t i = 1; i <= d->options.length; i++) {
    int64_t at = row * d->options.length + i;
    if (at < f->length && f->counts[at]) return true;
  }
  return false;
}

// Notes where texts begin, and makes room to pack them anew.
static hy_status list_texts(hy__dataset* d, const flow* f) {
  d->packed.length = 0;
  HY_TRY(reserve(&d->packed, f->length));
  d->packed.length = f->length;
  int64_t* starts = hy__realloc(d->starts, (size_t)(f->length + 1) * sizeof *starts);
  if (!starts)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens of data", (long long)f->length);
  d->starts = starts;
  d->n_texts = 0;
  starts[0] = 0;
  for (int64_t i = 0; i < f->length; i++) {
    if (f->tokens[i] == d->options.end) starts[++d->n_texts] = i + 1;
  }
  return HY_OK;
}

static hy_status list_rows(hy__dataset* d) {
  const flow* f = &d->parts[HY__DATA_TRAINING];
  if (d->rows && d->listed == f->length) return HY_OK;
  int64_t n = hy__dataset_rows(d, HY__DATA_TRAINING);
  int64_t* rows = hy__realloc(d->rows, (size_t)(2 * n + 1) * sizeof *rows);
  if (!rows) return hy_fail(HY_OUT_OF_MEMORY, "no memory for an order of %lld rows", (long long)n);
  d->rows = rows;
  d->order = rows + n;
  d->listed = f->length;
  d->n_rows = 0;
  d->epoch = -1;
  for (int64_t row = 0; row < n; row++) {
    if (d->options.repack || row_counts(d, f, row)) rows[d->n_rows++] = row;
  }
  return d->options.repack ? list_texts(d, f) : HY_OK;
}

// Fisher and Yates.
static void shuffle(uint64_t seed, int64_t* list, int64_t n) {
  for (int64_t i = n - 1; i > 0; i--) {
    int64_t j = (int64_t)(draw(seed, (uint64_t)i) % (uint64_t)(i + 1)), swap = list[i];
    list[i] = list[j];
    list[j] = swap;
  }
}

static hy_status pack_again(hy__dataset* d, uint64_t seed) {
  const flow* f = &d->parts[HY__DATA_TRAINING];
  int64_t* texts = hy__malloc((size_t)(d->n_texts + 1) * sizeof *texts);
  if (!texts)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for an order of %lld texts", (long long)d->n_texts);
  for (int64_t i = 0; i < d->n_texts; i++) texts[i] = i;
  shuffle(seed, texts, d->n_texts);
  int64_t at = 0;
  for (int64_t i = 0; i < d->n_texts; i++) {
    int64_t start = d->starts[texts[i]], length = d->starts[texts[i] + 1] - start;
    memcpy(d->packed.tokens + at, f->tokens + start, (size_t)length * sizeof *f->tokens);
    memcpy(d->packed.counts + at, f->counts + start, (size_t)length * sizeof *f->counts);
    at += length;
  }
  hy__mfree(texts);
  return HY_OK;
}

static hy_status make_order(hy__dataset* d, int64_t epoch) {
  if (d->epoch == epoch) return HY_OK;
  uint64_t seed = draw(d->options.seed, (uint64_t)epoch);
  if (d->options.repack) HY_TRY(pack_again(d, ~seed));
  memcpy(d->order, d->rows, (size_t)d->n_rows * sizeof *d->order);
  shuffle(seed, d->order, d->n_rows);
  d->epoch = epoch;
  return HY_OK;
}

hy_status hy__dataset_batch(hy__dataset* d, int64_t step, int64_t rows, int32_t* tokens,
                            int32_t* targets) {
  HY_TRY(list_rows(d));
  if (d->n_rows < 1)
    return hy_fail(HY_FORMAT,
                   "none of the data's %lld tokens is to be learnt; of messages the assistant's "
                   "words are",
                   (long long)hy__dataset_tokens(d, HY__DATA_TRAINING));
  const flow* f = d->options.repack ? &d->packed : &d->parts[HY__DATA_TRAINING];
  for (int64_t i = 0; i < rows; i++) {
    int64_t at = step * rows + i;
    HY_TRY(make_order(d, at / d->n_rows));
    fill_row(d, f, d->order[at % d->n_rows], tokens + i * d->options.length,
             targets + i * d->options.length);
  }
  return HY_OK;
}

void hy__dataset_evaluation(const hy__dataset* d, int64_t first, int64_t rows, int32_t* tokens,
                            int32_t* targets) {
  for (int64_t i = 0; i < rows; i++)
    fill_row(d, &d->parts[HY__DATA_EVALUATION], first + i, tokens + i * d->options.length,
             targets + i * d->options.length);
}
