// config.json of the architectures that the engine knows, as transformers 4 and 5 write it.
#ifndef HALYARD_MODEL_CONFIG_H_
#define HALYARD_MODEL_CONFIG_H_

#include "halyard/tensor.h"

typedef enum hy__rope_kind {
  HY__ROPE_DEFAULT,
  HY__ROPE_LINEAR,  // positions divided by `factor`
  HY__ROPE_LLAMA3,  // low frequencies divided by `factor`, a smooth passage in between
} hy__rope_kind;

typedef struct hy__config {
  const struct hy__arch* arch;
  int64_t vocab_size, hidden_size, intermediate_size, n_layers, n_heads, n_kv_heads, head_dim,
      max_positions;
  double norm_eps;
  bool tied_embeddings;  // the output projection is the embedding
  bool qkv_bias, o_bias, mlp_bias;
  bool head_norm;  // q and k are normed by head
  hy_dtype dtype;  // of the weights, as the file says
  hy__rope_kind rope;
  double rope_theta, rope_factor, rope_low_factor, rope_high_factor;
  int64_t rope_original_positions;
} hy__config;

enum { HY__CONFIG_LIMIT = 1 << 20 };  // bytes of a config.json

// HY_FORMAT names what is missing, impossible or not supported.
hy_status hy__config_parse(const char* name, const char* text, size_t length, hy__config* config);
hy_status hy__config_load(const char* folder, hy__config* config);
// Writes the file so that transformers and hy__config_load both read it.
hy_status hy__config_save(const char* folder, const hy__config* config);

#endif  // HALYARD_MODEL_CONFIG_H_
