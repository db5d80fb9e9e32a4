// config.json: reading what the architectures share, refusing what the engine lacks, writing.
#include "model/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "model/arch/arch.h"

// The same transformer with another head is another model.
static hy_status check_architecture(const hy__json* root, const char* wanted) {
  const hy__json* list = hy__json_get(root, "architectures");
  const hy__json* first = list && list->kind == HY__JSON_ARRAY ? list->first : NULL;
  if (!first) return HY_OK;
  for (const hy__json* name = first; name; name = name->next) {
    if (name->kind == HY__JSON_STRING && strcmp(name->text, wanted) == 0) return HY_OK;
  }
  return hy_fail(HY_FORMAT, "the architecture \"%s\" is not supported; %s is",
                 first->kind == HY__JSON_STRING ? first->text : "?", wanted);
}

static hy_status read_arch(const hy__json* root, hy__config* config) {
  const char* type;
  HY_TRY(hy__json_get_text(root, "model_type", NULL, &type));
  if (!type) return hy_fail(HY_FORMAT, "\"model_type\" is missing");
  HY_TRY(hy__arch_find(type, &config->arch));
  return check_architecture(root, config->arch->architecture);
}

// A size that must be there and be in 1 .. most.
static hy_status read_size(const hy__json* root, const char* key, int64_t fallback, int64_t most,
                           int64_t* value) {
  HY_TRY(hy__json_get_int(root, key, fallback, value));
  if (*value == 0 && fallback == 0) return hy_fail(HY_FORMAT, "\"%s\" is missing", key);
  if (*value < 1 || *value > most)
    return hy_fail(HY_FORMAT, "\"%s\" is %lld; it must be in 1 .. %lld", key, (long long)*value,
                   (long long)most);
  return HY_OK;
}

static hy_status read_sizes(const hy__json* root, hy__config* c) {
  HY_TRY(read_size(root, "vocab_size", 0, 1 << 24, &c->vocab_size));
  HY_TRY(read_size(root, "hidden_size", 0, 1 << 20, &c->hidden_size));
  HY_TRY(read_size(root, "intermediate_size", 0, 1 << 22, &c->intermediate_size));
  HY_TRY(read_size(root, "num_hidden_layers", 0, 4096, &c->n_layers));
  HY_TRY(read_size(root, "num_attention_heads", 0, 4096, &c->n_heads));
  HY_TRY(read_size(root, "num_key_value_heads", c->n_heads, 4096, &c->n_kv_heads));
  HY_TRY(read_size(root, "max_position_embeddings", 2048, 1 << 28, &c->max_positions));
  if (c->n_heads % c->n_kv_heads != 0)
    return hy_fail(HY_FORMAT, "%lld attention heads cannot share %lld key-value heads",
                   (long long)c->n_heads, (long long)c->n_kv_heads);
  int64_t head = c->hidden_size % c->n_heads == 0 ? c->hidden_size / c->n_heads : 0;
  HY_TRY(read_size(root, "head_dim", head, 1 << 16, &c->head_dim));
  if (c->head_dim % 2 != 0)
    return hy_fail(HY_FORMAT, "\"head_dim\" is %lld; rotary positions need an even one",
                   (long long)c->head_dim);
  return HY_OK;
}

// Rotary positions for a part of each head.
static hy_status refuse_part(const hy__json* object) {
  double part;
  HY_TRY(hy__json_get_real(object, "partial_rotary_factor", 1, &part));
  if (part == 1) return HY_OK;
  return hy_fail(HY_FORMAT, "\"partial_rotary_factor\" is %g; only 1 is supported", part);
}

// transformers 4: rope_theta beside rope_scaling {rope_type or type, ...}; 5: rope_parameters
// {rope_theta, rope_type, ...}. Where both stand, version 5 takes rope_scaling unless it is empty,
// and nothing of the other.
static hy_status find_rope(const hy__json* root, const hy__json** found) {
  static const char* const names[] = {"rope_scaling", "rope_parameters"};
  *found = NULL;
  for (int i = 0; i < 2; i++) {
    const hy__json* p = hy__json_get(root, names[i]);
    if (!p || p->kind == HY__JSON_NULL) continue;
    if (p->kind != HY__JSON_OBJECT) return hy_fail(HY_FORMAT, "\"%s\" is no JSON object", names[i]);
    for (const hy__json* value = p->first; value; value = value->next) {
      if (value->kind == HY__JSON_OBJECT)
        return hy_fail(
            HY_FORMAT,
            "\"%s\" has its own \"%s\"; other positions for some layers are not supported",
            names[i], value->key);
    }
    if (!*found && p->first) *found = p;
  }
  return HY_OK;
}

// A number that a kind of scaling cannot do without.
static hy_status read_rope_number(const hy__json* p, const char* type, const char* key,
                                  double* value) {
  if (!hy__json_get(p, key))
    return hy_fail(HY_FORMAT, "the rope type \"%s\" needs a \"%s\"", type, key);
  return hy__json_get_real(p, key, 1, value);
}

static hy_status read_rope(const hy__json* root, hy__config* c) {
  const hy__json* p;
  HY_TRY(find_rope(root, &p));
  const hy__json* theta_of = p && hy__json_get(p, "rope_theta") ? p : root;
  HY_TRY(hy__json_get_real(theta_of, "rope_theta", 10000, &c->rope_theta));
  if (!(c->rope_theta > 1))
    return hy_fail(HY_FORMAT, "\"rope_theta\" is %g; it is above 1", c->rope_theta);
  c->rope = HY__ROPE_DEFAULT;
  if (!p) return HY_OK;
  HY_TRY(refuse_part(p));
  const char *type, *old_type;
  HY_TRY(hy__json_get_text(p, "type", "default", &old_type));
  HY_TRY(hy__json_get_text(p, "rope_type", old_type, &type));
  if (strcmp(type, "default") == 0) return HY_OK;
  bool linear = strcmp(type, "linear") == 0;
  if (!linear && strcmp(type, "llama3") != 0)
    return hy_fail(HY_FORMAT,
                   "the rope type \"%s\" is not supported; there are default, linear and llama3",
                   type);
  HY_TRY(read_rope_number(p, type, "factor", &c->rope_factor));
  if (!(c->rope_factor >= 1))
    return hy_fail(HY_FORMAT, "the rope \"factor\" is %g; it is at least 1", c->rope_factor);
  c->rope = linear ? HY__ROPE_LINEAR : HY__ROPE_LLAMA3;
  if (linear) return HY_OK;
  HY_TRY(read_rope_number(p, type, "low_freq_factor", &c->rope_low_factor));
  HY_TRY(read_rope_number(p, type, "high_freq_factor", &c->rope_high_factor));
  HY_TRY(hy__json_get_int(p, "original_max_position_embeddings", c->max_positions,
                          &c->rope_original_positions));
  if (!(c->rope_low_factor > 0) || !(c->rope_high_factor > c->rope_low_factor) ||
      c->rope_original_positions < 1)
    return hy_fail(HY_FORMAT, "the llama3 rope factors are not in order");
  return HY_OK;
}

static hy_status read_dtype(const hy__json* root, hy__config* c) {
  const char *old_name, *name;
  HY_TRY(hy__json_get_text(root, "torch_dtype", "float32", &old_name));
  HY_TRY(hy__json_get_text(root, "dtype", old_name, &name));
  c->dtype = strcmp(name, "float32") == 0    ? HY_F32
             : strcmp(name, "bfloat16") == 0 ? HY_BF16
             : strcmp(name, "float16") == 0  ? HY_F16
                                             : HY_NONE;
  if (c->dtype == HY_NONE)
    return hy_fail(HY_FORMAT,
                   "the dtype \"%s\" is not supported; there are float32, bfloat16 and float16",
                   name);
  return HY_OK;
}

// Options that change the mathematics and that the engine does not have.
static hy_status refuse_others(const hy__json* root) {
  const char* activation;
  bool sliding;
  HY_TRY(hy__json_get_text(root, "hidden_act", "silu", &activation));
  if (strcmp(activation, "silu") != 0)
    return hy_fail(HY_FORMAT, "\"hidden_act\" is \"%s\"; only silu is supported", activation);
  HY_TRY(hy__json_get_bool(root, "use_sliding_window", false, &sliding));
  if (sliding)
    return hy_fail(HY_FORMAT, "\"use_sliding_window\" is true; sliding windows are not supported");
  const hy__json* layers = hy__json_get(root, "layer_types");
  for (const hy__json* layer = layers ? layers->first : NULL; layer; layer = layer->next) {
    if (layer->kind == HY__JSON_STRING && strcmp(layer->text, "full_attention") != 0)
      return hy_fail(HY_FORMAT, "\"layer_types\" has \"%s\"; only full_attention is supported",
                     layer->text);
  }
  HY_TRY(refuse_part(root));
  const hy__json* quantization = hy__json_get(root, "quantization_config");
  if (quantization && quantization->kind != HY__JSON_NULL)
    return hy_fail(
        HY_FORMAT,
        "\"quantization_config\": weights that are quantised in the file are not supported");
  return HY_OK;
}

static hy_status read_config(const hy__json* root, hy__config* c) {
  if (root->kind != HY__JSON_OBJECT) return hy_fail(HY_FORMAT, "it is no JSON object");
  HY_TRY(read_arch(root, c));
  HY_TRY(refuse_others(root));
  HY_TRY(read_sizes(root, c));
  HY_TRY(read_rope(root, c));
  HY_TRY(read_dtype(root, c));
  HY_TRY(hy__json_get_real(root, "rms_norm_eps", 1e-6, &c->norm_eps));
  HY_TRY(hy__json_get_bool(root, "tie_word_embeddings", false, &c->tied_embeddings));
  return c->arch->read_config(root, c);
}

hy_status hy__config_parse(const char* name, const char* text, size_t length, hy__config* config) {
  hy__json_document* document;
  memset(config, 0, sizeof *config);
  HY_TRY(hy__json_parse(name, text, length, &document));
  hy_status status = read_config(hy__json_root(document), config);
  if (status != HY_OK) hy_fail(status, "%s: %s", name, hy_last_error());
  hy__json_free(document);
  return status;
}

hy_status hy__config_load(const char* folder, hy__config* config) {
  char path[4096], *text;
  size_t size;
  HY_TRY(hy__join_path(folder, "config.json", path, sizeof path));
  HY_TRY(hy__read_file(path, HY__CONFIG_LIMIT, &text, &size));
  hy_status status = hy__config_parse(path, text, size, config);
  hy__mfree(text);
  return status;
}

// A number as short as it can be written and read back.
static const char* shortest(double value, char text[32]) {
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(text, 32, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  return text;
}

hy_status hy__config_save(const char* folder, const hy__config* c) {
  char path[4096];
  hy__writer writer;
  HY_TRY(hy__join_path(folder, "config.json", path, sizeof path));
  HY_TRY(hy__write_begin(path, &writer));
  FILE* f = writer.file;
  const char* dtype = c->dtype == HY_BF16 ? "bfloat16" : c->dtype == HY_F16 ? "float16" : "float32";
  fprintf(f, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
          c->arch->architecture, c->arch->model_type);
#define FIELD(key, value) fprintf(f, "  \"" key "\": %lld,\n", (long long)(value))
  FIELD("vocab_size", c->vocab_size);
  FIELD("hidden_size", c->hidden_size);
  FIELD("intermediate_size", c->intermediate_size);
  FIELD("num_hidden_layers", c->n_layers);
  FIELD("num_attention_heads", c->n_heads);
  FIELD("num_key_value_heads", c->n_kv_heads);
  FIELD("head_dim", c->head_dim);
  FIELD("max_position_embeddings", c->max_positions);
#undef FIELD
  char a[32], b[32], d[32];
  fprintf(f, "  \"hidden_act\": \"silu\",\n  \"rms_norm_eps\": %s,\n  \"rope_theta\": %s,\n",
          shortest(c->norm_eps, a), shortest(c->rope_theta, b));
  if (c->rope == HY__ROPE_LINEAR)
    fprintf(f, "  \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": %s},\n",
            shortest(c->rope_factor, a));
  if (c->rope == HY__ROPE_LLAMA3)
    fprintf(f,
            "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": %s, "
            "\"low_freq_factor\": %s, "
            "\"high_freq_factor\": %s, \"original_max_position_embeddings\": %lld},\n",
            shortest(c->rope_factor, a), shortest(c->rope_low_factor, b),
            shortest(c->rope_high_factor, d), (long long)c->rope_original_positions);
  if (c->arch->write_config) c->arch->write_config(f, c);
  fprintf(f, "  \"tie_word_embeddings\": %s,\n  \"torch_dtype\": \"%s\"\n}\n",
          c->tied_embeddings ? "true" : "false", dtype);
  if (ferror(f)) {
    hy__write_abandon(&writer);
    return hy_fail(HY_IO, "%s: cannot be written", path);
  }
  return hy__write_commit(&writer);
}
