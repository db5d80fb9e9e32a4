// tokenizer.json as published: byte-level BPE with its pre-tokenizer, normalizer, added and special
// tokens.
//
// A loaded tokenizer is read-only and may be used by several threads at once.
#ifndef HALYARD_MODEL_TOKENIZER_H_
#define HALYARD_MODEL_TOKENIZER_H_

#include <stddef.h>
#include <stdint.h>

#include "halyard/tensor.h"

typedef struct hy__tokenizer hy__tokenizer;

enum { HY__TOKENIZER_LIMIT = 256 << 20 };  // bytes of a tokenizer.json

// HY_FORMAT names a part that is not supported.
hy_status hy__tokenizer_load(const char* path, hy__tokenizer** tokenizer);
hy_status hy__tokenizer_parse(const char* name, const char* text, size_t length,
                              hy__tokenizer** tokenizer);
void hy__tokenizer_free(hy__tokenizer* tokenizer);  // NULL is fine

enum {
  HY__ENCODE_AFFIXES =
      1,                 // apply the post-processor: a begin-of-text token, where the model has one
  HY__ENCODE_PLAIN = 2,  // control tokens in the text, such as <|im_end|>, are letters like others
};
// Ids of a text, in which the tokenizer's added tokens are recognised. Writes up to `capacity` and
// gives the number there are.
hy_status hy__tokenizer_encode(const hy__tokenizer* tokenizer, const char* text, size_t length,
                               unsigned flags, int32_t* ids, int64_t capacity, int64_t* count);
// The bytes a token stands for, not terminated; NULL for an id there is none of. A special token
// gives its own text.
const char* hy__tokenizer_bytes(const hy__tokenizer* tokenizer, int32_t id, size_t* length,
                                bool* special);
// The id of a token of its own by its text, or -1.
int32_t hy__tokenizer_added_id(const hy__tokenizer* tokenizer, const char* text);
int64_t hy__tokenizer_size(const hy__tokenizer* tokenizer);  // one past the highest id

#endif  // HALYARD_MODEL_TOKENIZER_H_
