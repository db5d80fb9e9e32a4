// Choosing the next token.
#ifndef HALYARD_MODEL_SAMPLER_H_
#define HALYARD_MODEL_SAMPLER_H_

#include "halyard/model.h"

typedef struct hy__sampler hy__sampler;
// Whether the options make sense, whatever the model; the sampler's creation checks it too.
hy_status hy__sampler_check(const hy_generate_options* options);
hy_status hy__sampler_create(int64_t vocab_size, const hy_generate_options* options, uint64_t seed,
                             hy__sampler** sampler);
void hy__sampler_destroy(hy__sampler* sampler);  // NULL is fine
// Counts a token as seen, for the repetition penalty.
void hy__sampler_see(hy__sampler* sampler, int32_t id);
// Penalty, then temperature, top-k, top-p, min-p in this order, as transformers does. Changes
// `logits`. The n-th draw of a seed is the same everywhere. HY_DEVICE_FAILED where no logit is a
// number.
hy_status hy__sampler_choose(hy__sampler* sampler, float* logits, int32_t* id);

#endif  // HALYARD_MODEL_SAMPLER_H_
