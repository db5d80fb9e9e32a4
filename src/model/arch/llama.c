// Llama: the block that the others vary, with biases where config.json asks for them.
#include "model/arch/arch.h"

static hy_status read_config(const hy__json* root, hy__config* c) {
  HY_TRY(hy__json_get_bool(root, "attention_bias", false, &c->qkv_bias));
  c->o_bias = c->qkv_bias;
  return hy__json_get_bool(root, "mlp_bias", false, &c->mlp_bias);
}

static void write_config(FILE* file, const hy__config* c) {
  fprintf(file, "  \"attention_bias\": %s,\n  \"mlp_bias\": %s,\n", c->qkv_bias ? "true" : "false",
          c->mlp_bias ? "true" : "false");
}

const hy__arch hy__arch_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .read_config = read_config,
    .write_config = write_config,
    .list_parameters = hy__list_decoder_parameters,
    .block = hy__tf_decoder_block,
};
