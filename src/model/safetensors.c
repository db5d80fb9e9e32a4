// safetensors: mapped files, headers checked against them, and writing.
#include "model/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_read.h"
#include "base/memory.h"

enum { HEADER_LIMIT = 100000000, INDEX_LIMIT = 100000000, MAX_SHARDS = 4096 };

typedef struct shard {
  char* path;
  hy__mapped file;
  hy__json_document* header;  // holds the tensors' names
} shard;

struct hy__weights {
  shard* shards;
  int n_shards;
  hy__weight* list;
  int count, capacity;
};

// The format's names of types, and ours.
static const struct {
  const char* name;
  hy_dtype dtype;
} types[] = {{"F32", HY_F32}, {"F16", HY_F16},   {"BF16", HY_BF16},      {"F64", HY_F64},
             {"I64", HY_I64}, {"I32", HY_I32},   {"I16", HY_I16},        {"I8", HY_I8},
             {"U8", HY_U8},   {"BOOL", HY_BOOL}, {"F8_E4M3", HY_F8E4M3}, {"F8_E5M2", HY_F8E5M2}};
#define N_TYPES ((int)(sizeof types / sizeof types[0]))

static hy_dtype type_from_name(const char* name) {
  for (int i = 0; name && i < N_TYPES; i++) {
    if (strcmp(types[i].name, name) == 0) return types[i].dtype;
  }
  return HY_NONE;
}

static const char* type_name(hy_dtype dtype) {
  for (int i = 0; i < N_TYPES; i++) {
    if (types[i].dtype == dtype) return types[i].name;
  }
  return NULL;
}

// ---- reading ----

static hy_status add(hy__weights* w, const hy__weight* weight) {
  if (w->count == w->capacity) {
    int capacity = w->capacity ? 2 * w->capacity : 64;
    hy__weight* list = hy__realloc(w->list, (size_t)capacity * sizeof *list);
    if (!list) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a list of %d weights", capacity);
    w->list = list;
    w->capacity = capacity;
  }
  w->list[w->count++] = *weight;
  return HY_OK;
}

static hy_status read_tensor(const shard* s, const hy__json* entry, const uint8_t* data,
                             uint64_t data_size, hy__weight* weight) {
  const hy__json *dtype = hy__json_get(entry, "dtype"), *shape = hy__json_get(entry, "shape");
  const hy__json* offsets = hy__json_get(entry, "data_offsets");
  weight->name = entry->key;
  if (strlen(entry->key) != entry->key_length)
    return hy_fail(HY_FORMAT, "%s: a name contains a zero byte", s->path);
  if (!dtype || dtype->kind != HY__JSON_STRING || !shape || shape->kind != HY__JSON_ARRAY ||
      !offsets || offsets->kind != HY__JSON_ARRAY || offsets->length != 2)
    return hy_fail(HY_FORMAT, "%s: %s lacks a dtype, a shape or two data_offsets", s->path,
                   weight->name);
  hy_dtype type = type_from_name(dtype->text);
  if (type == HY_NONE)
    return hy_fail(HY_FORMAT, "%s: %s has the type %s, which is not supported", s->path,
                   weight->name, dtype->text);
  if (shape->length > HY_MAX_DIMS)
    return hy_fail(HY_FORMAT, "%s: %s has %zu dimensions; %d are supported", s->path, weight->name,
                   shape->length, HY_MAX_DIMS);
  int64_t sizes[HY_MAX_DIMS];
  int ndim = 0;
  for (const hy__json* size = shape->first; size; size = size->next) {
    if (!size->is_integer || size->integer < 0)
      return hy_fail(HY_FORMAT, "%s: %s: a size of its shape is no whole number", s->path,
                     weight->name);
    sizes[ndim++] = size->integer;
  }
  const hy__json *first = offsets->first, *last = first->next;
  if (!first->is_integer || !last->is_integer || first->integer < 0 ||
      last->integer < first->integer || (uint64_t)last->integer > data_size)
    return hy_fail(
        HY_FORMAT,
        "%s: %s: its data_offsets are outside the %llu bytes of data; is the file cut off?",
        s->path, weight->name, (unsigned long long)data_size);
  // The mapping is read-only; a weight's tensor is only ever read.
  hy_status status =
      hy_tensor_init(&weight->tensor, (void*)(uintptr_t)(data + first->integer), type, ndim, sizes);
  if (status != HY_OK)
    return hy_fail(HY_FORMAT, "%s: %s: %s", s->path, weight->name, hy_last_error());
  if (hy_tensor_bytes(&weight->tensor) != (size_t)(last->integer - first->integer))
    return hy_fail(HY_FORMAT, "%s: %s: %s takes %zu bytes, but its data_offsets hold %lld", s->path,
                   weight->name, hy_tensor_describe(&weight->tensor, (char[160]){0}, 160),
                   hy_tensor_bytes(&weight->tensor), (long long)(last->integer - first->integer));
  return HY_OK;
}

static int by_address(const void* a, const void* b) {
  const char *x = ((const hy__weight*)a)->tensor.data, *y = ((const hy__weight*)b)->tensor.data;
  return x < y ? -1 : x > y;
}

static int by_name(const void* a, const void* b) {
  return strcmp(((const hy__weight*)a)->name, ((const hy__weight*)b)->name);
}

// Weights first .. count - 1 are those of one shard.
static hy_status check_overlap(const shard* s, hy__weight* list, int count) {
  qsort(list, (size_t)count, sizeof *list, by_address);
  for (int i = 1; i < count; i++) {
    const hy__weight *before = &list[i - 1], *after = &list[i];
    if ((const char*)before->tensor.data + hy_tensor_bytes(&before->tensor) >
        (const char*)after->tensor.data)
      return hy_fail(HY_FORMAT, "%s: the data of %s and %s overlap", s->path, before->name,
                     after->name);
  }
  return HY_OK;
}

static hy_status open_shard(hy__weights* w, const char* path) {
  shard* s = &w->shards[w->n_shards++];
  s->path = hy__strdup(path);
  if (!s->path) return hy_fail(HY_OUT_OF_MEMORY, "%s: no memory to open it", path);
  HY_TRY(hy__map_file(path, &s->file));
  if (s->file.size < 8)
    return hy_fail(HY_FORMAT, "%s: %zu bytes are too few for a safetensors file", path,
                   s->file.size);
  uint64_t header = 0;
  for (int i = 7; i >= 0; i--) header = header << 8 | s->file.data[i];
  if (header > HEADER_LIMIT || header > s->file.size - 8)
    return hy_fail(HY_FORMAT,
                   "%s: a header of %llu bytes does not fit the file's %zu; is it a safetensors "
                   "file, and whole?",
                   path, (unsigned long long)header, s->file.size);
  HY_TRY(hy__json_parse(path, (const char*)s->file.data + 8, (size_t)header, &s->header));
  const hy__json* root = hy__json_root(s->header);
  if (root->kind != HY__JSON_OBJECT)
    return hy_fail(HY_FORMAT, "%s: the header is no JSON object", path);
  int first = w->count;
  for (const hy__json* entry = root->first; entry; entry = entry->next) {
    hy__weight weight;
    if (strcmp(entry->key, "__metadata__") == 0) continue;
    HY_TRY(read_tensor(s, entry, s->file.data + 8 + header, s->file.size - 8 - header, &weight));
    HY_TRY(add(w, &weight));
  }
  return w->count > first ? check_overlap(s, w->list + first, w->count - first) : HY_OK;
}

static hy_status finish_open(hy__weights* w) {
  if (w->count > 0) qsort(w->list, (size_t)w->count, sizeof *w->list, by_name);
  for (int i = 1; i < w->count; i++) {
    if (strcmp(w->list[i - 1].name, w->list[i].name) == 0)
      return hy_fail(HY_FORMAT, "%s: the weight %s stands there twice", w->shards[0].path,
                     w->list[i].name);
  }
  return HY_OK;
}

static hy_status allocate(const char* name, int shards, hy__weights** weights) {
  hy__weights* w = hy__calloc(1, sizeof *w);
  if (w) w->shards = hy__calloc((size_t)shards, sizeof *w->shards);
  if (!w || !w->shards) {
    hy__mfree(w);
    return hy_fail(HY_OUT_OF_MEMORY, "%s: no memory to open it", name);
  }
  *weights = w;
  return HY_OK;
}

hy_status hy__weights_open_file(const char* path, hy__weights** weights) {
  *weights = NULL;
  hy__weights* w = NULL;
  HY_TRY(allocate(path, 1, &w));
  hy_status status = open_shard(w, path);
  if (status == HY_OK) status = finish_open(w);
  if (status != HY_OK)
    hy__weights_close(w);
  else
    *weights = w;
  return status;
}

// Opens the distinct files of {"weight_map": {name: file}}. A file name may not lead out of the
// folder.
static hy_status open_shards(const char* folder, const char* index_path, const hy__json* map,
                             hy__weights* w) {
  const char* files[MAX_SHARDS];
  int n = 0;
  for (const hy__json* entry = map->first; entry; entry = entry->next) {
    if (entry->kind != HY__JSON_STRING || strchr(entry->text, '/') || entry->text[0] == '.')
      return hy_fail(HY_FORMAT, "%s: the file of %s is not a plain name", index_path, entry->key);
    bool seen = false;
    for (int i = n - 1; i >= 0 && !seen; i--) seen = strcmp(files[i], entry->text) == 0;
    if (seen) continue;
    if (n == MAX_SHARDS)
      return hy_fail(HY_FORMAT, "%s: more than %d files", index_path, MAX_SHARDS);
    files[n++] = entry->text;
  }
  w->shards = hy__calloc((size_t)(n ? n : 1), sizeof *w->shards);
  if (!w->shards) return hy_fail(HY_OUT_OF_MEMORY, "%s: no memory to open it", index_path);
  for (int i = 0; i < n; i++) {
    char path[4096];
    HY_TRY(hy__join_path(folder, files[i], path, sizeof path));
    HY_TRY(open_shard(w, path));
  }
  HY_TRY(finish_open(w));
  for (const hy__json* entry = map->first; entry; entry = entry->next) {
    if (!hy__weights_find(w, entry->key))
      return hy_fail(HY_FORMAT, "%s: %s should be in %s, but is not", index_path, entry->key,
                     entry->text);
  }
  return HY_OK;
}

static hy_status open_index(const char* folder, const char* index_path, hy__weights** weights) {
  char* text;
  size_t size;
  hy__json_document* index = NULL;
  HY_TRY(hy__read_file(index_path, INDEX_LIMIT, &text, &size));
  hy_status status = hy__json_parse(index_path, text, size, &index);
  hy__mfree(text);
  if (status != HY_OK) return status;
  const hy__json* map = hy__json_get(hy__json_root(index), "weight_map");
  hy__weights* w = hy__calloc(1, sizeof *w);
  if (!w)
    status = hy_fail(HY_OUT_OF_MEMORY, "%s: no memory to open it", index_path);
  else if (!map || map->kind != HY__JSON_OBJECT)
    status = hy_fail(HY_FORMAT, "%s: there is no \"weight_map\"", index_path);
  else
    status = open_shards(folder, index_path, map, w);
  hy__json_free(index);
  if (status != HY_OK)
    hy__weights_close(w);
  else
    *weights = w;
  return status;
}

hy_status hy__weights_open(const char* folder, hy__weights** weights) {
  char path[4096];
  *weights = NULL;
  HY_TRY(hy__join_path(folder, "model.safetensors", path, sizeof path));
  if (hy__file_exists(path)) return hy__weights_open_file(path, weights);
  char index_path[4096];
  HY_TRY(hy__join_path(folder, "model.safetensors.index.json", index_path, sizeof index_path));
  if (hy__file_exists(index_path)) return open_index(folder, index_path, weights);
  return hy_fail(HY_IO, "%s: there is neither model.safetensors nor model.safetensors.index.json",
                 folder);
}

void hy__weights_close(hy__weights* w) {
  if (!w) return;
  for (int i = 0; i < w->n_shards; i++) {
    hy__json_free(w->shards[i].header);
    hy__unmap_file(&w->shards[i].file);
    hy__mfree(w->shards[i].path);
  }
  hy__mfree(w->shards);
  hy__mfree(w->list);
  hy__mfree(w);
}

int hy__weights_count(const hy__weights* w) {
  return w->count;
}

const hy__weight* hy__weights_at(const hy__weights* w, int index) {
  return index >= 0 && index < w->count ? &w->list[index] : NULL;
}

const hy__weight* hy__weights_find(const hy__weights* w, const char* name) {
  hy__weight wanted = {.name = name};
  return w->count ? bsearch(&wanted, w->list, (size_t)w->count, sizeof *w->list, by_name) : NULL;
}

void hy__weights_forget(const hy_tensor* rows) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t data = (uintptr_t)rows->data;
  uintptr_t first = (data + page - 1) / page * page;
  uintptr_t end = (data + hy_tensor_bytes(rows)) / page * page;
  if (end > first) madvise((void*)first, end - first, MADV_DONTNEED);
}

static uint64_t hash(uint64_t state, const void* data, size_t size) {
  const uint8_t* bytes = data;
  for (size_t i = 0; i < size; i++) state = (state ^ bytes[i]) * 0x100000001b3u;
  return state;
}

void hy__weights_identify(const hy__weights* w, int64_t* headers, int64_t* files) {
  uint64_t of_headers = 0xcbf29ce484222325u, of_files = of_headers;
  for (int i = 0; i < w->n_shards; i++) {
    const shard* s = &w->shards[i];
    struct stat info = {0};
    uint64_t size = 0;
    for (int b = 7; b >= 0; b--) size = size << 8 | s->file.data[b];
    of_headers = hash(of_headers, s->file.data, 8 + (size_t)size);
    stat(s->path, &info);
    const int64_t of_file[3] = {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
    of_files = hash(of_files, of_file, sizeof of_file);
  }
  *headers = (int64_t)of_headers;
  *files = (int64_t)of_files;
}

// ---- writing ----

static void put_name(FILE* file, const char* name) {
  for (const unsigned char* c = (const unsigned char*)name; *c; c++) {
    if (*c == '"' || *c == '\\')
      fprintf(file, "\\%c", *c);
    else if (*c < 0x20)
      fprintf(file, "\\u%04x", *c);
    else
      fputc(*c, file);
  }
}

static void put_header(FILE* file, const hy__weight* weights, int count) {
  uint64_t offset = 0;
  fputs("{\"__metadata__\":{\"format\":\"pt\"}", file);
  for (int i = 0; i < count; i++) {
    const hy_tensor* t = &weights[i].tensor;
    fputs(",\"", file);
    put_name(file, weights[i].name);
    fprintf(file, "\":{\"dtype\":\"%s\",\"shape\":[", type_name(t->dtype));
    for (int d = 0; d < t->ndim; d++) fprintf(file, d ? ",%lld" : "%lld", (long long)t->shape[d]);
    fprintf(file, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)offset,
            (unsigned long long)(offset + hy_tensor_bytes(t)));
    offset += hy_tensor_bytes(t);
  }
  fputc('}', file);
}

hy_status hy__weights_save(const char* path, const hy__weight* weights, int count) {
  for (int i = 0; i < count; i++) {
    if (!type_name(weights[i].tensor.dtype) || !hy_tensor_is_contiguous(&weights[i].tensor))
      return hy_fail(HY_INVALID_ARGUMENT, "%s: %s cannot be saved as it is", path, weights[i].name);
  }
  char* header = NULL;
  size_t size = 0;
  FILE* memory = open_memstream(&header, &size);
  if (!memory) return hy_fail(HY_OUT_OF_MEMORY, "%s: no memory for its header", path);
  put_header(memory, weights, count);
  // Spaces keep the data 8-byte aligned in the file.
  for (long at = ftell(memory); at % 8 != 0; at++) fputc(' ', memory);
  bool complete = !ferror(memory);
  complete = fclose(memory) == 0 && complete;
  hy_status status =
      complete ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "%s: no memory for its header", path);
  hy__writer writer = {0};
  if (status == HY_OK) status = hy__write_begin(path, &writer);
  uint8_t length[8];
  for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)size >> 8 * i);
  if (status == HY_OK) status = hy__write(&writer, length, sizeof length);
  if (status == HY_OK) status = hy__write(&writer, header, size);
  for (int i = 0; i < count && status == HY_OK; i++)
    status = hy__write(&writer, weights[i].tensor.data, hy_tensor_bytes(&weights[i].tensor));
  if (status == HY_OK)
    status = hy__write_commit(&writer);
  else
    hy__write_abandon(&writer);
  free(header);
  return status;
}
