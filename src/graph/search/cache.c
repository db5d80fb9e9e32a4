// The search's cache on disk: a small JSON file for each graph, device and version, written beside
// and renamed. A file that is corrupt, or says what no rule is called, counts as none.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/env.h"
#include "base/file.h"
#include "graph/file.h"
#include "graph/search/search.h"
#include "halyard/version.h"
#include "ops/internal.h"

enum { DECISION_VERSION = 2, LARGEST = 1 << 14 };  // bytes of a file

// ---- the key ----

static uint64_t hash_bytes(uint64_t hash, const void* data, size_t size) {
  const unsigned char* bytes = data;
  for (size_t i = 0; i < size; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

static uint64_t hash_text(uint64_t hash, const char* text) {
  return hash_bytes(hash, text, strlen(text) + 1);
}

static uint64_t hash_attrs(uint64_t hash, const hy_call* call) {
  char* text = NULL;
  size_t size = 0;
  FILE* file = open_memstream(&text, &size);
  if (!file) return hash;
  json_writer j = json_to(file);
  hy__attrs_write(&j, NULL, call);
  fclose(file);
  hash = hash_bytes(hash, text, size);
  free(text);
  return hash;
}

static uint64_t hash_tensor(uint64_t hash, const hy_tensor* t) {
  hash = hash_bytes(hash, &t->dtype, sizeof t->dtype);
  if (t->dtype == HY_NONE) return hash;
  hash = hash_bytes(hash, &t->ndim, sizeof t->ndim);
  hash = hash_bytes(hash, t->shape, (size_t)t->ndim * sizeof *t->shape);
  return hash_bytes(hash, t->stride, (size_t)t->ndim * sizeof *t->stride);
}

// Whose memory an operand is in: a value by its number; somebody's by where it was met first, since
// addresses differ from run to run.
static uint64_t hash_operand(uint64_t hash, const hy_graph* graph, const hy__operand* o) {
  if (o->value >= 0) {
    int64_t offset = o->captured - graph->values[o->value].captured;
    hash = hash_bytes(hash, &o->value, sizeof o->value);
    return hash_bytes(hash, &offset, sizeof offset);
  }
  int32_t constant = hy__graph_is_constant(graph, o->captured + o->first) ? -2 : -1, met = 0;
  hash = hash_bytes(hash, &constant, sizeof constant);
  for (int i = 0; i < graph->count; i++) {
    for (int k = 0; k < graph->nodes[i]->n_operands; k++, met++) {
      const hy__operand* other = &graph->nodes[i]->operands[k];
      if (other->value < 0 && other->captured == o->captured)
        return hash_bytes(hash, &met, sizeof met);
    }
  }
  return hash;
}

uint64_t hy__graph_key(const hy_graph* graph) {
  uint64_t hash = 0xcbf29ce484222325u;
  hy_device_info info = {.size = sizeof info};
  hash = hash_text(hash, HY_VERSION_STRING);
  hash = hash_text(hash, graph->device->selector);
  if (hy_device_describe(graph->device, &info) == HY_OK) {
    hash = hash_text(hash, info.name);
    hash = hash_text(hash, info.driver_version);
  }
  int threads = 0;
  if (graph->device->is_host) hy_device_threads(graph->device, &threads);
  hash = hash_bytes(hash, &threads, sizeof threads);
  for (int i = 0; i < graph->count; i++) {
    const hy__graph_node* node = graph->nodes[i];
    hash = hash_bytes(hash, &node->as.kind, sizeof node->as.kind);
    hash = hash_text(hash, node->provider ? node->provider->name : "");
    if (node->as.kind == HY_NODE_CALL) {
      hash = hash_text(hash, hy_op_name(node->call.op));
      hash = hash_attrs(hash, &node->call);
      for (int k = 0; k < node->call.n_in; k++) hash = hash_tensor(hash, &node->call.in[k]);
      for (int k = 0; k < node->call.n_out; k++) hash = hash_tensor(hash, &node->call.out[k]);
    } else {
      hash = hash_bytes(hash, &node->as.bytes, sizeof node->as.bytes);
      for (int k = 0; node->as.kind == HY_NODE_CHAIN && k < node->chain.n_steps; k++)
        hash = hash_text(hash, hy_op_name(node->chain.steps[k].op));
    }
    for (int k = 0; k < node->n_operands; k++) hash = hash_operand(hash, graph, &node->operands[k]);
  }
  return hash;
}

// ---- files ----

static const char* variable(const char* name) {
  const char* value = hy__env(name);
  return value && value[0] == '/' ? value : NULL;
}

// $HALYARD_CACHE_DIR, or the user's cache; false where there is none.
static bool cache_folder(char* folder, size_t size) {
  const char *own = variable("HALYARD_CACHE_DIR"), *cache = variable("XDG_CACHE_HOME"),
             *home = variable("HOME");
  int length = own     ? snprintf(folder, size, "%s", own)
               : cache ? snprintf(folder, size, "%s/halyard", cache)
               : home  ? snprintf(folder, size, "%s/.cache/halyard", home)
                       : -1;
  return length > 0 && (size_t)length < size;
}

static bool cache_path(uint64_t key, bool make, char* path, size_t size) {
  char folder[2048], name[40];
  if (!cache_folder(folder, sizeof folder)) return false;
  for (char* at = folder + 1; make && *at; at++) {
    if (*at != '/') continue;
    *at = 0;
    mkdir(folder, 0777);
    *at = '/';
  }
  if (make) mkdir(folder, 0777);
  snprintf(name, sizeof name, "graph-%016" PRIx64 ".json", key);
  return hy__join_path(folder, name, path, size) == HY_OK;
}

static hy_status read_rules(const hy__json* list, uint32_t* rules) {
  if (!list || list->kind != HY__JSON_ARRAY)
    return hy_fail(HY_FORMAT, "a search's result has no list of rules");
  *rules = 0;
  for (const hy__json* m = list->first; m; m = m->next) {
    int rule = 0;
    while (rule < HY__REWRITES &&
           !(m->kind == HY__JSON_STRING && strcmp(m->text, hy__rewrites[rule].name) == 0))
      rule++;
    if (rule == HY__REWRITES) return hy_fail(HY_FORMAT, "a search's result names an unknown rule");
    *rules |= 1u << rule;
  }
  return HY_OK;
}

static hy_status read_tiles(const hy__json* list, hy__decision* d) {
  if (!list || list->kind != HY__JSON_ARRAY)
    return hy_fail(HY_FORMAT, "a search's result has no list of tiles");
  for (const hy__json* m = list->first; m; m = m->next) {
    int64_t node, variant;
    if (m->kind != HY__JSON_OBJECT || d->n_tiles == HY__MAX_TILES)
      return hy_fail(HY_FORMAT, "a search's result has no tiles, or more than %d", HY__MAX_TILES);
    HY_TRY(hy__json_get_int(m, "node", -1, &node));
    HY_TRY(hy__json_get_int(m, "variant", 0, &variant));
    if (node < 0 || node > INT32_MAX || variant < 1 || variant > INT32_MAX)
      return hy_fail(HY_FORMAT, "a search's result has a tile that there is not");
    d->tiles[d->n_tiles++] = (hy__tile){(int32_t)node, (int32_t)variant};
  }
  return HY_OK;
}

static hy_status read_decision(const hy__json* root, uint64_t key, hy__decision* d) {
  int64_t version, passes;
  const char* text;
  char wanted[24];
  snprintf(wanted, sizeof wanted, "%016" PRIx64, key);
  HY_TRY(hy__json_get_int(root, "halyard_graph_search", 0, &version));
  HY_TRY(hy__json_get_text(root, "key", "", &text));
  HY_TRY(hy__json_get_int(root, "passes", -1, &passes));
  HY_TRY(hy__json_get_real(root, "before", 0, &d->before));
  HY_TRY(hy__json_get_real(root, "after", 0, &d->after));
  if (version != DECISION_VERSION || strcmp(text, wanted) != 0)
    return hy_fail(HY_FORMAT, "a search's result is of another version or graph");
  if (passes < 0 || passes > HY_PASS_ALL)
    return hy_fail(HY_FORMAT, "a search's result has passes that there are not");
  d->passes = (uint32_t)passes;
  HY_TRY(read_rules(hy__json_get(root, "rules"), &d->rules));
  return read_tiles(hy__json_get(root, "tiles"), d);
}

hy_status hy__decision_parse(const char* text, size_t size, uint64_t key, hy__decision* decision) {
  hy__json_document* document;
  hy__decision read = {0};
  HY_TRY(hy__json_parse("a search's result", text, size, &document));
  hy_status status = read_decision(hy__json_root(document), key, &read);
  hy__json_free(document);
  if (status == HY_OK) *decision = read;
  return status;
}

bool hy__decision_load(uint64_t key, hy__decision* decision) {
  char path[4096], *text;
  size_t size;
  if (!cache_path(key, false, path, sizeof path) || !hy__file_exists(path)) return false;
  hy_status status = hy__read_file(path, LARGEST, &text, &size);
  if (status == HY_OK) {
    status = hy__decision_parse(text, size, key, decision);
    hy__mfree(text);
  }
  if (status != HY_OK) hy__log(1, "%s is ignored: %s", path, hy_last_error());
  return status == HY_OK;
}

static void write_decision(FILE* file, uint64_t key, const hy__decision* d) {
  json_writer j = json_to(file);
  char text[24];
  snprintf(text, sizeof text, "%016" PRIx64, key);
  json_begin_object(&j, NULL);
  json_int(&j, "halyard_graph_search", DECISION_VERSION);
  json_text(&j, "key", text);
  json_begin_array(&j, "rules");
  for (int i = 0; i < HY__REWRITES; i++) {
    if (d->rules >> i & 1) json_text(&j, NULL, hy__rewrites[i].name);
  }
  json_end_array(&j);
  json_int(&j, "passes", d->passes);
  json_begin_array(&j, "tiles");
  for (int i = 0; i < d->n_tiles; i++) {
    json_begin_object(&j, NULL);
    json_int(&j, "node", d->tiles[i].node);
    json_int(&j, "variant", d->tiles[i].variant);
    json_end_object(&j);
  }
  json_end_array(&j);
  json_real(&j, "before", d->before);
  json_real(&j, "after", d->after);
  json_end_object(&j);
  json_newline(&j);
}

void hy__decision_store(uint64_t key, const hy__decision* decision) {
  char path[4096];
  hy__writer writer;
  if (!cache_path(key, true, path, sizeof path)) return;
  hy_status status = hy__write_begin(path, &writer);
  if (status == HY_OK) {
    write_decision(writer.file, key, decision);
    status = hy__write_commit(&writer);
  }
  if (status != HY_OK) hy__log(1, "the result of a search is not kept: %s", hy_last_error());
}
