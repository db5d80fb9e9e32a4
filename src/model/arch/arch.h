// Architectures: what one family of models has that others have not.
//
// One file and one row of archs.def each; docs/how-to/model.md goes through one.
#ifndef HALYARD_MODEL_ARCH_ARCH_H_
#define HALYARD_MODEL_ARCH_ARCH_H_

#include <stdio.h>

#include "base/json_read.h"
#include "model/transformer.h"

// The parameters of a block, by the names they have in files behind "model.layers.0.".
typedef struct hy__parameter {
  const char* name;    // without ".weight"
  hy_array** vector;   // (out), or
  hy__linear* linear;  // (out, in), and a bias (out)
  int64_t out, in;
  bool bias;
} hy__parameter;
enum { HY__BLOCK_PARAMETERS = 24 };  // at most
typedef struct hy__parameter_list {
  hy__parameter list[HY__BLOCK_PARAMETERS];
  int n;
} hy__parameter_list;
void hy__list_vector(hy__parameter_list* l, const char* name, hy_array** slot, int64_t size);
void hy__list_linear(hy__parameter_list* l, const char* name, hy__linear* layer, int64_t out,
                     int64_t in, bool bias);

typedef struct hy__arch {
  const char* model_type;    // of config.json: "qwen2"
  const char* architecture;  // of config.json: "Qwen2ForCausalLM"
  // Reads the keys that the family has beyond the common ones (config.c), and sets what its name
  // alone says.
  hy_status (*read_config)(const hy__json* root, hy__config* config);
  void (*write_config)(FILE* file, const hy__config* config);  // lines `  "key": value,`; or NULL
  void (*list_parameters)(const hy__config* config, hy__tf_block* block, hy__parameter_list* list);
  hy_array* (*block)(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x);
} hy__arch;

#define HY_ARCH(name) extern const hy__arch hy__arch_##name;
#include "model/arch/archs.def"
#undef HY_ARCH

// By config.json's model_type; HY_FORMAT lists those there are.
hy_status hy__arch_find(const char* model_type, const hy__arch** arch);

// Llama's names, which Qwen shares: norms, q, k, v, o, gate, up and down, and the norms of heads
// where config.head_norm is set.
void hy__list_decoder_parameters(const hy__config* c, hy__tf_block* b, hy__parameter_list* l);

#endif  // HALYARD_MODEL_ARCH_ARCH_H_
