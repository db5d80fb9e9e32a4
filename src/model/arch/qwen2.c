// Qwen2 and Qwen2.5: Llama's block, with biases on q, k and v.
#include "model/arch/arch.h"

static hy_status read_config(const hy__json* root, hy__config* c) {
  (void)root;
  c->qkv_bias = true;
  return HY_OK;
}

const hy__arch hy__arch_qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .read_config = read_config,
    .list_parameters = hy__list_decoder_parameters,
    .block = hy__tf_decoder_block,
};
