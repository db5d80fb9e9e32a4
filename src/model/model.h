// A loaded model: what hy_model holds.
#ifndef HALYARD_MODEL_MODEL_H_
#define HALYARD_MODEL_MODEL_H_

#include "halyard/graph.h"
#include "halyard/model.h"
#include "model/kv_cache.h"
#include "model/rope.h"
#include "model/sampler.h"
#include "model/tokenizer.h"

enum { HY__MAX_ENDS = 16 };

// The passes that keep every bit: steps by graph choose the tokens of the same steps by calls.
#define HY__EXACT_PASSES ((uint32_t)HY_PASS_ALL & ~(uint32_t)HY_PASS_EPILOGUE)

// Whether the device runs steps by graphs.
typedef enum hy__captures {
  HY__CAPTURES_UNKNOWN,
  HY__CAPTURES_NOT,
  HY__CAPTURES,          // a decoding step is one
  HY__CAPTURES_FORWARD,  // a forward pass is one; tokens are chosen outside
} hy__captures;

struct hy_model {
  hy_stream* stream;  // its own
  hy_tape* tape;      // never records
  hy__transformer transformer;
  hy__rope rope;               // of the longest context so far
  hy__tokenizer* tokenizer;    // NULL where the folder has none
  int32_t ends[HY__MAX_ENDS];  // tokens that end a text
  int n_ends;
  hy__captures captures;
  hy_model* next;  // the layers behind these, on another device (pipeline.h); NULL: there are none
  hy_comm* comm;   // its own: of the ranks that share a stage behind the first; else NULL
  struct hy__forward_graph* forward;  // of the last decoding step; NULL where there is none
  struct hy__prompt_graphs* prompts;  // that were captured; NULL where there are none
  hy__kv_cache* spare;  // over which some of them were, for the next who asks; NULL: there is none
};

// Makes the model ready for contexts of so many tokens, which waits; a step that finds it is not
// ready does it itself.
hy_status hy__model_reserve(hy_model* model, int64_t positions);
// A cache of so many tokens for the layers of all stages. It goes back to the model, which keeps
// one where graphs are captured over it.
hy_status hy__model_cache(hy_model* model, int64_t tokens, hy__kv_cache** cache);
void hy__model_cache_release(hy_model* model, hy__kv_cache* cache);  // NULL is fine

// New tokens of several sequences: how many there are of each, and which.
typedef struct hy__step {
  hy__kv_cache* cache;
  hy__sequence* const* sequences;
  const int32_t* const* ids;
  const int64_t* counts;
  int batch;
  const hy_generate_options* options;  // whose on_progress is asked between layers; NULL: nobody is
} hy__step;
// Runs them and gives the logits after each sequence's last, f32 (batch, V), of the tokens of this
// rank's shard; the scope's.
hy_array* hy__model_forward(hy_scope* s, hy_model* model, const hy__step* step);
// The same of a pass whose tokens are on the device, call by call; nothing of it waits.
hy_array* hy__pass_logits(hy_scope* s, const hy_model* model, hy__kv_pass* pass,
                          const hy_generate_options* options);
// Runs them and gives the tokens that follow. Waits once, for the tokens alone. `rows` are the
// sequences' numbers in the sampler.
hy_status hy__model_step(hy_model* model, const hy__step* step, hy__sampler* sampler,
                         const int* rows, int64_t* next);

// HY_DEVICE_FAILED where one of the tokens chosen is -1, none.
hy_status hy__model_check_chosen(const int64_t* next, int n);
// HY_UNSUPPORTED where the model's folder has none.
hy_status hy__model_need_tokenizer(const hy_model* model);

// The token that stands between texts: <|endoftext|> or its like, else the first that ends a text;
// -1 where there is none.
int32_t hy__model_end_of_text(const hy_model* model);

// f32, bf16, q8, q4, or NULL for the file's own; false for another name.
bool hy__weight_format_named(const char* name, hy_weight_format* format);

// The type activations and the cache have.
hy_dtype hy__model_dtype(const hy_model* model);

#endif  // HALYARD_MODEL_MODEL_H_
