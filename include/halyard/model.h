// Language models: loading a checkpoint as published on model hubs, tokens, generating text.
//
// A model is used by one thread at a time.
#ifndef HALYARD_MODEL_H_
#define HALYARD_MODEL_H_

#include "halyard/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hy_model hy_model;

// How the weights of linear layers are stored. With Q8 and Q4 the embedding matrix is int8, other
// tensors keep the type of the file, and except in training activations are quantised to int8, one
// scale for 32 or what the device's properties say (activation_group), before they are multiplied
// by such weights.
typedef enum hy_weight_format {
  HY_WEIGHTS_AS_FILE,
  HY_WEIGHTS_F32,
  HY_WEIGHTS_BF16,
  HY_WEIGHTS_Q8,  // int8, one scale for 128 in a row
  HY_WEIGHTS_Q4,  // int4, one scale for 32 in a row
} hy_weight_format;

// Loads config.json, *.safetensors and tokenizer.json (optional; without it only token ids can be
// used) from a folder onto the device. `adapter` is a folder in PEFT's format, or NULL.
HY_API hy_status hy_model_load(hy_device* device, const char* folder, const char* adapter,
                               hy_weight_format format, hy_model** model);
// The same for Q8 and Q4, with the packed weights cached in halyard-q8.safetensors (or q4) in the
// folder: read if the file was made from the folder's current weights, written otherwise.
HY_API hy_status hy_model_load_cached(hy_device* device, const char* folder, const char* adapter,
                                      hy_weight_format format, hy_model** model);

// Called now and then while something long goes on, from the thread that asked for it; `share` is
// how much of it is done, from 0 to 1. Returning false cancels it.
typedef bool (*hy_on_progress)(void* context, double share);

typedef struct hy_load_options {
  const char* adapter;  // NULL: none
  hy_weight_format format;
  bool cached;                 // as hy_model_load_cached
  hy_on_progress on_progress;  // NULL, or called with each weight; HY_CANCELLED where it says so
  void* context;
  // NULL, or the ranks that share the model, on the same device as it (tensor parallelism): each
  // loads its part alone, and all of them make the same calls with the same arguments and get the
  // same tokens. The communicator stays the caller's and outlives the model.
  struct hy_comm* comm;
  // NULL, or the devices that take the layers in turn (pipeline), the first of which is the one
  // that the model is loaded onto. `layers` says how many each of them takes; NULL: as memory
  // allows. With `comm` too, the ranks share the layers of each device: every rank names as many
  // devices, `comm` is on the first, the model makes communicators on the others, and rank 0's
  // memory decides.
  hy_device* const* devices;
  int n_devices;
  const int64_t* layers;
  // Keeps 16-bit weights of linear layers in the layout that the device multiplies fastest from,
  // where its properties name one ("linear_weights=fractal_nz"). Such a model generates; it is not
  // trained, merged or saved.
  bool device_layout;
} hy_load_options;
// hy_model_load with more to say; zeroed options load the weights as they are.
HY_API hy_status hy_model_load_with(hy_device* device, const char* folder,
                                    const hy_load_options* options, hy_model** model);
HY_API void hy_model_free(hy_model* model);  // NULL is fine

HY_API int64_t hy_model_vocab_size(const hy_model* model);
HY_API int64_t hy_model_max_positions(const hy_model* model);

typedef enum hy_encode_flags {
  HY_ENCODE_DEFAULT = 0,
  // Control tokens that the text spells out, such as <|im_end|>, are letters like others. For every
  // text that comes from elsewhere: words must not be able to end a message or begin another.
  HY_ENCODE_PLAIN = 1,
  HY_ENCODE_BARE = 2,  // without the tokens that the model puts around a text
} hy_encode_flags;
// Writes up to `capacity` ids; `count` receives how many there are. Tokens that the text spells out
// are recognised, unless `flags`, hy_encode_flags or-ed together, say otherwise.
HY_API hy_status hy_model_encode(const hy_model* model, const char* text, size_t length,
                                 unsigned flags, int32_t* ids, int64_t capacity, int64_t* count);

typedef struct hy_message {
  const char* role;  // "system", "user", "assistant" or "tool"
  const char* content;
} hy_message;
// A conversation in Qwen's chat format, for models that have its markers: they are put in by their
// ids, and the messages are plain text. `answer`: followed by the beginning of the assistant's next
// message. Writes and counts as hy_model_encode.
HY_API hy_status hy_model_encode_chat(const hy_model* model, const hy_message* messages, int n,
                                      bool answer, int32_t* ids, int64_t capacity, int64_t* count);
// Writes up to `capacity` bytes including the terminator; `length` receives how many there are
// without it. Bytes that do not form a UTF-8 character are copied as they are.
HY_API hy_status hy_model_decode(const hy_model* model, const int32_t* ids, int64_t n, char* text,
                                 size_t capacity, size_t* length);

// The `vocab_size` logits after the last of `n` ids, in f32, starting from an empty context.
HY_API hy_status hy_model_logits(hy_model* model, const int32_t* ids, int64_t n, float* logits);

typedef struct hy_generate_options {
  int64_t max_tokens;         // the most new tokens
  double temperature;         // 0: greedy
  int64_t top_k;              // 0: all
  double top_p, min_p;        // 1 and 0: all
  double repetition_penalty;  // 1: none
  uint64_t seed;
  const char* const* stops;  // strings that end the answer; not part of it
  int n_stops;
  bool ignore_end;  // continue past the model's end-of-text token
  // NULL, or asked between the layers of a prompt and before each token (the share is of
  // max_tokens): false ends the generation, before the first token with HY_CANCELLED, later as
  // HY_STOP_CALLER.
  hy_on_progress on_progress;
  void* progress_context;
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
  int64_t kept_tokens;                     // of the prompt, already in the context
  double prefill_seconds, decode_seconds;  // decode: all tokens except the first
  hy_stop_reason stop;
} hy_generate_result;

// Called for each new token with the text it completes (whole UTF-8 characters; may be empty).
// Returning false stops the generation.
typedef bool (*hy_on_token)(void* context, int32_t id, const char* text, size_t length);

// Continues `prompt`. New ids are written to `ids` (room for max_tokens) unless it is NULL.
HY_API hy_status hy_model_generate(hy_model* model, const int32_t* prompt, int64_t n,
                                   const hy_generate_options* options, hy_on_token on_token,
                                   void* context, int32_t* ids, hy_generate_result* result);
// A context keeps the KV cache between prompts: of a prompt that shares a prefix with the previous
// text, such as the next turn of a conversation, only the rest is processed. The answer is the same
// as without a context, up to rounding. The model must outlive it.
typedef struct hy_context hy_context;
HY_API hy_status hy_context_create(hy_model* model, hy_context** context);
HY_API void hy_context_destroy(hy_context* context);  // NULL is fine
HY_API hy_status hy_context_generate(hy_context* context, const int32_t* prompt, int64_t n,
                                     const hy_generate_options* options, hy_on_token on_token,
                                     void* token_context, int32_t* ids, hy_generate_result* result);

// A batch of prompts of any lengths, greedy, or sampled with seed + i for prompt i. ids[i] has room
// for max_tokens; counts[i] receives how many there are.
HY_API hy_status hy_model_generate_batch(hy_model* model, const int32_t* const* prompts,
                                         const int64_t* lengths, int batch,
                                         const hy_generate_options* options, int32_t* const* ids,
                                         int64_t* counts, hy_generate_result* result);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_MODEL_H_
