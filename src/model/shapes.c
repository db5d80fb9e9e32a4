// Shapes of models that commands make without a file.
#include "model/shapes.h"

#include "model/arch/arch.h"
#include "model/byte_tokenizer.h"

const hy__config shape_qwen2_half_billion = {.arch = &hy__arch_qwen2,
                                             .vocab_size = 151936,
                                             .hidden_size = 896,
                                             .intermediate_size = 4864,
                                             .n_layers = 24,
                                             .n_heads = 14,
                                             .n_kv_heads = 2,
                                             .head_dim = 64,
                                             .max_positions = 32768,
                                             .norm_eps = 1e-6,
                                             .tied_embeddings = true,
                                             .qkv_bias = true,
                                             .dtype = HY_BF16,
                                             .rope_theta = 1000000};

const demo_size demo_sizes[DEMO_SIZES] = {
    {"small", 96, 3, 4, 2, 256, 0},
    {"medium", 128, 4, 4, 2, 352, 80000},
    {"large", 192, 6, 6, 2, 512, 1000000},
    {"huge", 384, 8, 6, 2, 1024, 8000000},
};

hy__config demo_config(const demo_size* size, int n_merges) {
  return (hy__config){.arch = &hy__arch_qwen2,
                      .vocab_size = HY__BYTE_TOKENS + n_merges,
                      .hidden_size = size->hidden,
                      .intermediate_size = size->intermediate,
                      .n_layers = size->layers,
                      .n_heads = size->heads,
                      .n_kv_heads = size->kv_heads,
                      .head_dim = size->hidden / size->heads,
                      .max_positions = 2048,
                      .norm_eps = 1e-6,
                      .tied_embeddings = true,
                      .qkv_bias = true,
                      .dtype = HY_F32,
                      .rope_theta = 10000};
}
