// Byte-pair encoding: a vocabulary of byte strings and the order in which neighbours merge.
#ifndef HALYARD_MODEL_BPE_H_
#define HALYARD_MODEL_BPE_H_

#include <stddef.h>
#include <stdint.h>

#include "halyard/tensor.h"

typedef struct hy__bpe hy__bpe;

hy_status hy__bpe_create(int64_t tokens, int64_t merges,
                         hy__bpe** bpe);  // how many will be added, at most
void hy__bpe_free(hy__bpe* bpe);
// `bytes` must outlive the bpe. HY_FORMAT where an id or a string stands there twice.
hy_status hy__bpe_add_token(hy__bpe* bpe, const char* bytes, size_t length, int32_t id);
// Merges rank in the order they are added. HY_FORMAT where one of the three strings is no token.
hy_status hy__bpe_add_merge(hy__bpe* bpe, const char* left, size_t left_length, const char* right,
                            size_t right_length);

int32_t hy__bpe_find(const hy__bpe* bpe, const char* bytes,
                     size_t length);  // -1 where there is none
const char* hy__bpe_bytes(const hy__bpe* bpe, int32_t id,
                          size_t* length);  // NULL where there is none
int32_t hy__bpe_highest(const hy__bpe* bpe);

// Appends ids through `emit`. O(n log n) in the length. Bytes that are no token are left out, as
// the field's tokenizers do.
typedef hy_status (*hy__emit)(void* context, int32_t id);
hy_status hy__bpe_encode(const hy__bpe* bpe, const char* bytes, size_t length, hy__emit emit,
                         void* context);

#endif  // HALYARD_MODEL_BPE_H_
