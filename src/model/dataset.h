// Training data: texts as rows of tokens of one length, in an order that a seed decides.
//
// Texts are packed: one behind the other, each with the end-of-text token after it, cut into rows.
// A token's target is the token after it, also across the end of a row. The last row is filled up
// with tokens whose targets do not count. Few texts that are seen often are better repacked, or the
// model learns what comes before a text instead of the text.
//
// Read-only once filled; hy__dataset_batch keeps the order of the last epoch, so that one thread
// at a time may call it.
#ifndef HALYARD_MODEL_DATASET_H_
#define HALYARD_MODEL_DATASET_H_

#include "model/tokenizer.h"

enum {
  HY__IGNORE = -100,               // a target that does not count
  HY__DATA_LINE_LIMIT = 64 << 20,  // bytes of one line
};

typedef struct hy__dataset_options {
  int64_t length;           // tokens of a row
  uint64_t seed;            // of the order, and of what is kept for evaluation
  double evaluation_share;  // of the texts, kept from training; 0: none
  int32_t end;              // put after each text; negative: nothing
  bool repack;              // each epoch packs the texts in an order of its own; needs `end`
} hy__dataset_options;

typedef struct hy__dataset hy__dataset;

// The tokenizer stays the caller's and outlives the dataset.
hy_status hy__dataset_create(const hy__tokenizer* tokenizer, const hy__dataset_options* options,
                             hy__dataset** dataset);
void hy__dataset_free(hy__dataset* dataset);  // NULL is fine

// One text, all of whose tokens count.
hy_status hy__dataset_add_text(hy__dataset* dataset, const char* text, size_t length);
// Lines {"text": "..."}, or {"messages": [{"role", "content"}, ...]} in Qwen's chat format, of
// which only the assistant's words and the token that ends them count. Empty lines are passed
// over. HY_FORMAT names the line; `name` is for messages.
hy_status hy__dataset_add_jsonl(hy__dataset* dataset, const char* name, const char* text,
                                size_t length);
hy_status hy__dataset_add_file(hy__dataset* dataset, const char* path);

typedef enum hy__dataset_part { HY__DATA_TRAINING, HY__DATA_EVALUATION } hy__dataset_part;
int64_t hy__dataset_rows(const hy__dataset* dataset, hy__dataset_part part);
int64_t hy__dataset_tokens(const hy__dataset* dataset, hy__dataset_part part);

// `rows` rows of training for a step from 0 on: tokens and targets, rows * length of each. Every
// row of which something counts comes once an epoch, each epoch in an order of its own; what a step
// sees is a function of the seed, `step` and `rows` alone. HY_INVALID_ARGUMENT where there is none.
hy_status hy__dataset_batch(hy__dataset* dataset, int64_t step, int64_t rows, int32_t* tokens,
                            int32_t* targets);
// Rows of evaluation from `first` on, in the order of the file. Past the last, rows of which
// nothing counts.
void hy__dataset_evaluation(const hy__dataset* dataset, int64_t first, int64_t rows,
                            int32_t* tokens, int32_t* targets);

#endif  // HALYARD_MODEL_DATASET_H_
