// Decoding steps as captured graphs. Tokens, lengths and block tables live on the device and a
// graph moves them on, so that few captures serve every step and the host only reads tokens, one
// step behind the device.
#ifndef HALYARD_MODEL_DECODE_H_
#define HALYARD_MODEL_DECODE_H_

#include "model/model.h"

typedef struct hy__decoder hy__decoder;

// Finds out whether the device runs steps by graphs, where that is not known yet.
hy_status hy__model_find_captures(hy_model* model);

// For `batch` sequences of at most `positions` tokens each in the cache, the sampler's `rows`. *out
// is NULL, with HY_OK, where calls serve as well or the device cannot capture this step. Tokens are
// those of the same steps by calls.
hy_status hy__decoder_create(hy_model* model, hy__kv_cache* cache, hy__sampler* sampler,
                             const int* rows, int batch, int64_t positions, hy__decoder** out);
void hy__decoder_destroy(hy__decoder* decoder);  // waits for its steps; NULL is fine
// Whether it still serves these, with a sampler that has no state of its own on the device.
bool hy__decoder_serves(const hy__decoder* decoder, const hy__kv_cache* cache,
                        const hy__sampler* sampler, int batch, int64_t positions);

// Sets what the next step runs: a token for each sequence, which has blocks for all that follow.
// Steps that were not read are dropped.
hy_status hy__decoder_begin(hy__decoder* decoder, hy__sampler* sampler, const int* rows,
                            hy__sequence* const* sequences, const int32_t* const* tokens);
// Enqueues a step; at most hy__decoder_ahead may wait to be read: one on the host, whose steps are
// done when they have been launched.
enum { HY__DECODER_AHEAD = 2 };
int hy__decoder_ahead(const hy__decoder* decoder);
hy_status hy__decoder_launch(hy__decoder* decoder);
// The tokens that the oldest unread step chose. Waits for it alone.
hy_status hy__decoder_read(hy__decoder* decoder, int64_t* next);
int hy__decoder_unread(const hy__decoder* decoder);

#endif  // HALYARD_MODEL_DECODE_H_
