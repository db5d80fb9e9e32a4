// Loading safetensors onto a device in the model's names, and saving them.
#include "model/load.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "model/pack.h"

typedef struct loading {
  hy_stream* stream;
  hy_tape* tape;
  const char* folder;
  const hy__weights* weights;
  hy_dtype dtype;  // what floating weights become
  bool packed;     // matrices are left to hy__pack_load, all but an embedding of its own
  bool tied;
  hy__load_progress* progress;
  hy__shard* shard;
} loading;

hy_status hy__load_goes_on(hy__load_progress* p, int64_t elements) {
  p->done += elements;
  const hy_load_options* o = p->options;
  if (!o || !o->on_progress ||
      o->on_progress(o->context, p->all > 0 ? (double)p->done / (double)p->all : 0))
    return HY_OK;
  return hy_fail(HY_CANCELLED, "loading was cancelled");
}

static bool same_shape(const hy_tensor* t, int ndim, const int64_t* shape) {
  bool same = t->ndim == ndim;
  for (int d = 0; same && d < ndim; d++) same = t->shape[d] == shape[d];
  return same;
}

hy_status hy__find_parameter(const hy__weights* weights, const char* folder, const char* name,
                             int ndim, const int64_t* own, const hy__shard* shard,
                             const hy__weight** found, hy__slice* slice) {
  const int64_t* shape = slice->shape;
  HY_TRY(hy__shard_slice(shard, name, ndim, own, slice));
  const hy__weight* w = hy__weights_find(weights, name);
  // Checkpoints of the bare model leave the prefix out.
  if (!w && strncmp(name, "model.", 6) == 0) w = hy__weights_find(weights, name + 6);
  if (!w) return hy_fail(HY_FORMAT, "%s: the weight %s is missing", folder, name);
  if (!same_shape(&w->tensor, ndim, shape)) {
    hy_tensor wanted;
    hy_tensor_init(&wanted, NULL, w->tensor.dtype, ndim, shape);
    return hy_fail(HY_FORMAT, "%s: %s is %s, but config.json makes it %s", folder, name,
                   hy_tensor_describe(&w->tensor, (char[100]){0}, 100),
                   hy_tensor_describe(&wanted, (char[100]){0}, 100));
  }
  if (!(HY_DTYPE_BIT(w->tensor.dtype) & HY_FLOATS))
    return hy_fail(HY_FORMAT, "%s: %s has the type %s; weights are f32, bf16 or f16", folder, name,
                   hy_dtype_name(w->tensor.dtype));
  *found = w;
  return HY_OK;
}

// Of a weight on the device: int8 or int4 with its scales, where matrices are packed.
static double bytes_each(const loading* l, int ndim) {
  hy_weight_format format = l->progress->options->format;
  if (!l->packed || ndim != 2) return (double)hy_dtype_size(l->dtype);
  return format == HY_WEIGHTS_Q8 ? 1.03 : 0.62;
}

// Before anything is allocated: sizes of config.json are those of the files.
static hy_status check_one(void* context, const char* name, hy_array** slot, int ndim,
                           const int64_t* shape) {
  const loading* l = context;
  const hy__weight* w;
  hy__slice slice;
  (void)slot;
  HY_TRY(hy__find_parameter(l->weights, l->folder, name, ndim, shape, l->shard, &w, &slice));
  int64_t own = slice.rows.size * slice.columns.size;
  l->progress->all += own;
  l->progress->bytes += (double)own * bytes_each(l, ndim);
  l->shard->loaded_bytes += own * (int64_t)hy_dtype_size(w->tensor.dtype);
  l->shard->file_bytes += (int64_t)hy_tensor_bytes(&w->tensor);
  return HY_OK;
}

bool hy__memory_left(hy_device* device, uint64_t* left) {
  uint64_t free, total;
  hy_memory_stats stats;
  if (hy_memory_info(device, &free, &total) != HY_OK || total == 0) return false;
  if (hy_memory_get_stats(device, &stats) != HY_OK) return false;
  free += stats.reserved - stats.allocated;
  if (stats.limit && stats.limit < stats.allocated + free)
    free = stats.limit > stats.allocated ? stats.limit - stats.allocated : 0;
  *left = free;
  return true;
}

// A device that has too little memory says so here; of a process with too little the system makes
// an end, in the middle of it.
static hy_status check_room(const loading* l) {
  hy_device* device = hy_stream_device(l->stream);
  uint64_t free;
  if (!hy__memory_left(device, &free) || l->progress->bytes <= (double)free) return HY_OK;
  return hy_fail(
      HY_OUT_OF_MEMORY,
      "%s: its weights take %.2f GB, and %s has %.2f GB of memory left; q8 and q4 take less",
      l->folder, 1e-9 * l->progress->bytes, hy_device_selector(device), 1e-9 * (double)free);
}

// Into memory that is there already.
static hy_status load_into(const loading* l, const hy_tensor* from, hy_array* to) {
  const hy_tensor* own = hy_array_tensor(to);
  if (from->dtype == own->dtype)
    return hy_memcpy(l->stream, own->data, from->data, hy_tensor_bytes(from),
                     HY_COPY_HOST_TO_DEVICE);
  hy_array* raw = NULL;
  HY_TRY(hy_array_from_host(l->stream, &raw, from->dtype, from->ndim, from->shape, from->data));
  hy_attrs attrs = {.cast = {own->dtype}};
  hy_status status = hy_array_apply_into(l->tape, HY_OP_cast, &raw, 1, &attrs, &to, 1);
  hy_array_release(raw);
  return status;
}

static hy_status load_one(void* context, const char* name, hy_array** slot, int ndim,
                          const int64_t* shape) {
  const loading* l = context;
  const hy__weight* w;
  hy__slice slice;
  hy_tensor part;
  void* copy;
  bool own_embedding = !l->tied && strcmp(name, "model.embed_tokens.weight") == 0;
  if (l->packed && ndim == 2 && !own_embedding) return HY_OK;
  HY_TRY(hy__find_parameter(l->weights, l->folder, name, ndim, shape, l->shard, &w, &slice));
  if (slice.rows.size == 0) return HY_OK;
  if (!*slot) HY_TRY(hy_array_empty(l->stream, slot, l->dtype, ndim, shape));
  HY_TRY(hy__slice_take(&slice, &w->tensor, &part, &copy));
  hy_status status = load_into(l, &part, *slot);
  // The copy from the mapped file may still be under way.
  if (status == HY_OK) status = hy_stream_sync(l->stream);
  hy__weights_forget(&w->tensor);
  hy__mfree(copy);
  return status == HY_OK ? hy__load_goes_on(l->progress, hy_tensor_numel(&part)) : status;
}

hy_status hy__transformer_load(hy_stream* stream, const char* folder,
                               const hy_load_options* options, const hy__span* layers,
                               hy__transformer* model) {
  hy_weight_format format = options->format;
  hy__load_progress progress = {.options = options};
  hy__config config;
  hy__shard shard;
  hy__weights* weights = NULL;
  hy_tape* tape = NULL;
  memset(model, 0, sizeof *model);
  HY_TRY(hy__config_load(folder, &config));
  if (format == HY_WEIGHTS_F32) config.dtype = HY_F32;
  if (format == HY_WEIGHTS_BF16) config.dtype = HY_BF16;
  HY_TRY(hy__shard_init(options->comm, &config, &shard));
  if (layers) hy__shard_cut(*layers, &config, &shard);
  HY_TRY(hy__weights_open(folder, &weights));
  hy_status status = hy_tape_create(stream, &tape);
  if (status == HY_OK) {
    hy_tape_set_recording(tape, false);
    status = hy__transformer_init(model, &config);
    model->shard = shard;
  }
  loading l = {stream,
               tape,
               folder,
               weights,
               config.dtype,
               hy__format_is_packed(format),
               config.tied_embeddings,
               &progress,
               &model->shard};
  if (status == HY_OK) status = hy__transformer_visit(model, check_one, &l);
  if (status == HY_OK) status = check_room(&l);
  if (status == HY_OK) status = hy__load_goes_on(&progress, 0);
  if (status == HY_OK) status = hy__transformer_fuse(stream, format, model);
  if (status == HY_OK) status = hy__transformer_visit(model, load_one, &l);
  if (status == HY_OK && l.packed)
    status = hy__pack_load(stream, folder, weights, &progress, model);
  if (status == HY_OK && options->device_layout && !l.packed)
    status = hy__transformer_use_device_layout(tape, model);
  // Copies from the mapped files may still be under way.
  if (status == HY_OK) status = hy_stream_sync(stream);
  if (status != HY_OK) hy__transformer_release(model);
  hy_tape_destroy(tape);
  hy__weights_close(weights);
  return status;
}

// ---- saving ----

typedef struct saving {
  hy_stream* stream;
  hy__weight* list;
  int count, capacity;
} saving;

static hy_status fetch_one(void* context, const char* name, hy_array** slot, int ndim,
                           const int64_t* shape) {
  saving* s = context;
  (void)ndim;
  (void)shape;
  if (s->count == s->capacity) {
    int capacity = s->capacity ? 2 * s->capacity : 64;
    hy__weight* list = hy__realloc(s->list, (size_t)capacity * sizeof *list);
    if (!list) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a list of %d weights", capacity);
    s->list = list;
    s->capacity = capacity;
  }
  const hy_tensor* t = hy_array_tensor(*slot);
  if (!(HY_DTYPE_BIT(t->dtype) & HY_FLOATS))
    return hy_fail(HY_INVALID_ARGUMENT, "%s is quantised (%s) and cannot be saved", name,
                   hy_dtype_name(t->dtype));
  if (t->layout != HY_LAYOUT_STRIDED)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "%s is packed (%s) and cannot be saved; load the model without device_layout",
                   name, hy_layout_name(t->layout));
  hy__weight* w = &s->list[s->count];
  w->name = hy__strdup(name);
  HY_TRY(
      hy_tensor_init(&w->tensor, hy__malloc(hy_tensor_bytes(t) + 1), t->dtype, t->ndim, t->shape));
  s->count++;
  if (!w->name || !w->tensor.data) return hy_fail(HY_OUT_OF_MEMORY, "no memory to save %s", name);
  return hy_array_to_host(s->stream, *slot, w->tensor.data, hy_tensor_bytes(t));
}

hy_status hy__transformer_save(hy_stream* stream, hy__transformer* model, const char* folder) {
  if (mkdir(folder, 0777) != 0 && errno != EEXIST)
    return hy_fail(HY_IO, "%s: cannot be made: %s", folder, strerror(errno));
  char path[4096];
  HY_TRY(hy__join_path(folder, "model.safetensors", path, sizeof path));
  saving s = {.stream = stream};
  hy_status status = hy__transformer_visit(model, fetch_one, &s);
  if (status == HY_OK) status = hy__weights_save(path, s.list, s.count);
  if (status == HY_OK) status = hy__config_save(folder, &model->config);
  for (int i = 0; i < s.count; i++) {
    hy__mfree((void*)(uintptr_t)s.list[i].name);
    hy__mfree(s.list[i].tensor.data);
  }
  hy__mfree(s.list);
  return status;
}
