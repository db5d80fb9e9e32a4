// Sampler: chooses the next token of each sequence of a generation, on the device.
#ifndef HALYARD_MODEL_SAMPLER_H_
#define HALYARD_MODEL_SAMPLER_H_

#include "halyard/model.h"
#include "halyard/scope.h"

typedef struct hy__sampler hy__sampler;

// Whether the options make sense, whatever the model; the sampler's creation checks it too.
hy_status hy__sampler_check(const hy_generate_options* options);

// Sequence i draws by seed + i. The prompts count as seen, for the repetition penalty.
hy_status hy__sampler_create(hy_stream* stream, int64_t vocab_size,
                             const hy_generate_options* options, const int32_t* const* prompts,
                             const int64_t* lengths, int batch, hy__sampler** sampler);
void hy__sampler_destroy(hy__sampler* sampler);  // NULL is fine

// The op `sample` on logits (n, V), one row for each of the sequences listed; each of them draws
// once, and what is chosen counts as seen. Waits for nothing. ids (n) i64 are the scope's; -1 where
// no logit is a number.
hy_array* hy__sampler_choose(hy_scope* s, hy__sampler* sampler, hy_array* logits,
                             const int* sequences, int n);

// ---- the same in two halves, for a graph that is launched with other draws ----

// Floats that hold settings and draws of n sequences.
int64_t hy__sampler_words(int n);
// Each of the sequences draws once.
void hy__sampler_fill(hy__sampler* sampler, const int* sequences, int n, float* words);
// By the words, on the device; `rows` (n) i64 are the sequences.
hy_array* hy__sampler_apply(hy_scope* s, const hy__sampler* sampler, hy_array* logits,
                            hy_array* words, hy_array* rows, int n);
bool hy__sampler_draws(const hy__sampler* sampler);      // else the words never change
bool hy__sampler_has_state(const hy__sampler* sampler);  // on the device: the tokens seen

#endif  // HALYARD_MODEL_SAMPLER_H_
