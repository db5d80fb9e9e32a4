// Language models: loading a hub-format folder, tokens, and generating text.
//
// A model is used by one thread at a time.
#ifndef HALYARD_MODEL_H_
#define HALYARD_MODEL_H_

#include "halyard/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hy_model hy_model;

// How the weights of linear layers are kept. In Q8 and Q4 the vocabulary's matrix is int8, the rest
// keeps the type of the file, and activations are rounded to int8, one scale for 32, where they
// meet such weights outside of training.
typedef enum hy_weight_format {
  HY_WEIGHTS_AS_FILE,
  HY_WEIGHTS_F32,
  HY_WEIGHTS_BF16,
  HY_WEIGHTS_Q8,  // int8, one scale for 128 in a row
  HY_WEIGHTS_Q4,  // int4, one scale for 32 in a row
} hy_weight_format;

// Loads config.json, *.safetensors and tokenizer.json (which may be missing: then only ids can be
// used) of a folder onto the device. `adapter` is a folder in PEFT's format, or NULL.
HY_API hy_status hy_model_load(hy_device* device, const char* folder, const char* adapter,
                               hy_weight_format format, hy_model** model);
// The same for Q8 and Q4, with the packed weights in halyard-q8.safetensors (or q4) in the folder:
// taken from there where the file was made of the folder's weights as they are, else written.
HY_API hy_status hy_model_load_cached(hy_device* device, const char* folder, const char* adapter,
                                      hy_weight_format format, hy_model** model);
HY_API void hy_model_free(hy_model* model);  // NULL is fine

HY_API int64_t hy_model_vocab_size(const hy_model* model);
HY_API int64_t hy_model_max_positions(const hy_model* model);

// Writes up to `capacity` ids and gives the number there are. Special tokens in the text are
// recognised.
HY_API hy_status hy_model_encode(const hy_model* model, const char* text, size_t length,
                                 int32_t* ids, int64_t capacity, int64_t* count);
// Writes up to `capacity` bytes, terminated, and gives the number there are without the terminator.
// Bytes that are no whole UTF-8 character are given as they are.
HY_API hy_status hy_model_decode(const hy_model* model, const int32_t* ids, int64_t n, char* text,
                                 size_t capacity, size_t* length);

// Logits of the last of `n` ids, f32, `vocab_size` of them, from an empty context.
HY_API hy_status hy_model_logits(hy_model* model, const int32_t* ids, int64_t n, float* logits);

typedef struct hy_generate_options {
  int64_t max_tokens;         // new ones, at most
  double temperature;         // 0: always the likeliest token
  int64_t top_k;              // 0: all
  double top_p, min_p;        // 1 and 0: all
  double repetition_penalty;  // 1: none
  uint64_t seed;
  const char* const* stops;  // texts that end the answer; they are not part of it
  int n_stops;
  bool ignore_end;  // go on past the model's end-of-text token
} hy_generate_options;
// 256 tokens, greedy, no penalties, seed 0.
HY_API void hy_generate_defaults(hy_generate_options* options);

typedef enum hy_stop_reason {
  HY_STOP_LENGTH,
  HY_STOP_END,
  HY_STOP_TEXT,
  HY_STOP_CALLER
} hy_stop_reason;

typedef struct hy_generate_result {
  int64_t prompt_tokens, tokens;
  int64_t kept_tokens;                     // of the prompt, that a context had read before
  double prefill_seconds, decode_seconds;  // decode: all tokens but the first
  hy_stop_reason stop;
} hy_generate_result;

// Called for each new token with the text it completes (whole UTF-8 characters; may be empty);
// false ends the generation.
typedef bool (*hy_on_token)(void* context, int32_t id, const char* text, size_t length);

// Continues `prompt`. New ids go to `ids` (room for max_tokens), when not NULL.
HY_API hy_status hy_model_generate(hy_model* model, const int32_t* prompt, int64_t n,
                                   const hy_generate_options* options, hy_on_token on_token,
                                   void* context, int32_t* ids, hy_generate_result* result);
// A context keeps what the model has read: a prompt that begins as the text before it did, such as
// the next turn of a conversation, is read only from where they part. The answer is the same as
// without one, up to rounding. The model must outlive it.
typedef struct hy_context hy_context;
HY_API hy_status hy_context_create(hy_model* model, hy_context** context);
HY_API void hy_context_destroy(hy_context* context);  // NULL is fine
HY_API hy_status hy_context_generate(hy_context* context, const int32_t* prompt, int64_t n,
                                     const hy_generate_options* options, hy_on_token on_token,
                                     void* token_context, int32_t* ids, hy_generate_result* result);

// Several prompts of any lengths at once, greedy or sampled each with seed + its number. ids[i] has
// room for max_tokens, counts[i] gets how many there are.
HY_API hy_status hy_model_generate_batch(hy_model* model, const int32_t* const* prompts,
                                         const int64_t* lengths, int batch,
                                         const hy_generate_options* options, int32_t* const* ids,
                                         int64_t* counts, hy_generate_result* result);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_MODEL_H_
