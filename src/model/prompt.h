// Prompts on a device apart that runs them in fused rows (decode_block.h). A pass of up to some
// thousand tokens is padded to one of a few shapes, and captured when its shape has come often. A
// model keeps a bounded number of these graphs.
#ifndef HALYARD_MODEL_PROMPT_H_
#define HALYARD_MODEL_PROMPT_H_

#include "model/model.h"

typedef struct hy__prompt_graphs hy__prompt_graphs;

// Whether the step is a prompt that this model runs here: not on the host, not for a model in
// parts, with adapters, or of a block that is not Llama's.
bool hy__prompt_serves(const hy_model* model, const hy__step* step);
// hy__model_forward of it, whose ids have been checked and whose positions are reserved.
hy_array* hy__prompt_forward(hy_scope* s, hy_model* model, const hy__step* step);

// Of a model, made with its first prompt; shapes that have come `after` times by calls are
// captured. A capture costs about what HY__PROMPTS_BEFORE launches save.
enum { HY__PROMPTS_BEFORE = 12 };
hy_status hy__prompt_graphs_create(int after, hy__prompt_graphs** graphs);
// How many are kept, and the bytes of device memory that they hold; `graphs` may be NULL.
int hy__prompt_graphs_count(const hy__prompt_graphs* graphs, uint64_t* bytes);
void hy__prompt_graphs_destroy(hy__prompt_graphs* graphs);  // NULL is fine

#endif  // HALYARD_MODEL_PROMPT_H_
