// What a device's properties ask of linear layers: packed weights, which are made once when a model
// is loaded, and groups of activations.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "halyard/device.h"
#include "model/pack.h"

// What follows `key`, which ends in '=', at the beginning of a line; NULL where nothing does.
static const char* find_property(const hy_device_info* info, const char* key) {
  const char* found = strstr(info->properties, key);
  return found && (found == info->properties || found[-1] == '\n') ? found + strlen(key) : NULL;
}

static bool asks_for_fractal_nz(hy_device* device) {
  static const char value[] = "fractal_nz\n";
  hy_device_info info = {.size = sizeof info};
  if (hy_device_describe(device, &info) != HY_OK) return false;
  const char* layout = find_property(&info, "linear_weights=");
  return layout && strncmp(layout, value, strlen(value)) == 0;
}

typedef struct packing {
  hy_tape* tape;
  int n;
} packing;

// Layers whose sizes have no blocks of 16 x 16 stay as they are.
static hy_status pack(void* context, const char* name, hy__linear* layer, int64_t out, int64_t in) {
  packing* p = context;
  hy_array* packed = NULL;
  (void)name;
  if (!layer->weight || out % 16 != 0 || in % 16 != 0) return HY_OK;
  HY_TRY(hy_array_pack_fractal_nz(p->tape, &packed, layer->weight));
  hy_array_release(layer->weight);
  layer->weight = packed;
  p->n++;
  return HY_OK;
}

hy_status hy__transformer_use_device_layout(hy_tape* tape, hy__transformer* model) {
  hy_device* device = hy_stream_device(hy_tape_stream(tape));
  const hy__config* c = &model->config;
  packing p = {tape, 0};
  if ((c->dtype != HY_F16 && c->dtype != HY_BF16) || !asks_for_fractal_nz(device)) return HY_OK;
  // Parts of a packed matrix are no rows of it: each layer is packed by itself.
  for (int64_t i = 0; i < c->n_layers; i++) {
    hy__tf_block* b = &model->blocks[i];
    hy__linear_release(&b->qkv);
    hy__linear_release(&b->gate_up);
    b->qkv = b->gate_up = (hy__linear){.weight = NULL};
  }
  HY_TRY(hy__transformer_visit_linears(model, pack, &p));
  if (!c->tied_embeddings && model->head.weight) {
    const hy_tensor* head = hy_array_tensor(model->head.weight);
    HY_TRY(pack(&p, "lm_head", &model->head, head->shape[0], head->shape[1]));
  }
  hy__log(1, "%s: %d layers in fractal_nz", hy_device_selector(device), p.n);
  return HY_OK;
}

static hy_status set_x_group(void* context, const char* name, hy__linear* layer, int64_t out,
                             int64_t in) {
  (void)name, (void)out, (void)in;
  bool is_int8 = layer->weight && hy_array_tensor(layer->weight)->dtype == HY_I8;
  layer->x_group = is_int8 ? *(const int64_t*)context : 0;
  return HY_OK;
}

hy_status hy__transformer_use_activation_group(hy_device* device, hy__transformer* model) {
  hy_device_info info = {.size = sizeof info};
  HY_TRY(hy_device_describe(device, &info));
  const char* value = find_property(&info, "activation_group=");
  int64_t group = value ? strtoll(value, NULL, 10) : 0;
  HY_TRY(set_x_group(&group, "lm_head", &model->head, 0, 0));
  return hy__transformer_visit_linears(model, set_x_group, &group);
}
