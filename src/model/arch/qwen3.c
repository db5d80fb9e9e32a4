// Qwen3: Llama's block, with a norm on each head of q and k before they rotate.
#include "model/arch/arch.h"

static hy_status read_config(const hy__json* root, hy__config* c) {
  c->head_norm = true;
  HY_TRY(hy__json_get_bool(root, "attention_bias", false, &c->qkv_bias));
  c->o_bias = c->qkv_bias;
  return HY_OK;
}

static void write_config(FILE* file, const hy__config* c) {
  fprintf(file, "  \"attention_bias\": %s,\n", c->qkv_bias ? "true" : "false");
}

const hy__arch hy__arch_qwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .read_config = read_config,
    .write_config = write_config,
    .list_parameters = hy__list_decoder_parameters,
    .block = hy__tf_decoder_block,
};
