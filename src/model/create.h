// Models that no file has: random weights, to be trained.
#ifndef HALYARD_MODEL_CREATE_H_
#define HALYARD_MODEL_CREATE_H_

#include "model/model.h"

// Matrices are normal with a deviation of 1 / sqrt(width), those that end a block's halves smaller
// by the square root of twice the number of layers; norms are 1, biases 0. `tokenizer` may be NULL;
// the model owns it from now on, on failure too. `end` ends a text; negative: nothing does.
hy_status hy__model_create(hy_device* device, const hy__config* config, hy__tokenizer* tokenizer,
                           int32_t end, uint64_t seed, hy_model** model);
int64_t hy__config_parameters(const hy__config* config);

#endif  // HALYARD_MODEL_CREATE_H_
