// Optional functions of the guarded device as tests want them: left out, so that the library does
// without, or wrong, so that conformance has something to find.
#include <stdlib.h>
#include <string.h>

#include "guarded.h"

static hy_backend right;  // what the wrong functions go astray from

// ---- left out ----

static bool leave_out(hy_backend* b, const char* word) {
#define IS(name) (strcmp(word, name) == 0)
  if (IS("capture")) {
    b->capture_begin = NULL;
    b->capture_end = NULL;
    b->graph_launch = NULL;
    b->graph_update = NULL;
    b->graph_destroy = NULL;
  } else if (IS("update")) {
    b->graph_update = NULL;
  } else if (IS("peer")) {
    b->peer_access = NULL;
    b->copy_peer = NULL;
  } else if (IS("native")) {
    b->stream_native = NULL;
    b->stream_wrap = NULL;
  } else if (IS("priority")) {
    b->stream_priority_range = NULL;
    b->stream_create_with_priority = NULL;
  } else if (IS("pointer")) {
    b->pointer_device = NULL;
  } else if (IS("sharing")) {
    b->memory_export = NULL;
    b->memory_import = NULL;
    b->memory_close = NULL;
  } else if (IS("compile")) {
    b->compile = NULL;
    b->compile_flags = NULL;
    b->module_kernel = NULL;
    b->kernel_launch = NULL;
    b->module_destroy = NULL;
  } else {
    return false;
  }
  return true;
}

// ---- wrong ----

static hy_status launch_nothing(void* device, void* graph, void* stream) {
  (void)device, (void)graph, (void)stream;
  return HY_OK;
}

static hy_status update_nothing(void* device, void* graph, int32_t node, const hy_graph_node* now) {
  (void)device, (void)graph, (void)node, (void)now;
  return HY_OK;
}

// Work is run, not recorded.
static hy_status capture_nothing(void* device, void* stream) {
  (void)device, (void)stream;
  return HY_OK;
}

static hy_status end_nothing(void* device, void* stream, void** graph) {
  HY_TRY(right.capture_begin(device, stream));
  return right.capture_end(device, stream, graph);
}

static hy_status copy_less(void* device, void* stream, void* dst, void* peer, const void* src,
                           uint64_t bytes) {
  return right.copy_peer(device, stream, dst, peer, src, bytes - 1);
}

static hy_status copy_more(void* device, void* stream, void* dst, void* peer, const void* src,
                           uint64_t bytes) {
  return right.copy_peer(device, stream, dst, peer, src, (bytes + 4095) / 4096 * 4096);
}

// A stream of its own instead of the native one.
static hy_status wrap_another(void* device, void* native, void** stream) {
  (void)native;
  return right.stream_create(device, stream);
}

static hy_status upside_down(void* device, int32_t* least, int32_t* greatest) {
  return right.stream_priority_range(device, greatest, least);
}

static hy_status always_0(const void* address, int32_t* index) {
  (void)address;
  *index = 0;
  return HY_OK;
}

static hy_status same_blob(void* device, void* address, hy_memory_blob* blob) {
  (void)device, (void)address;
  memset(blob, 1, sizeof *blob);
  return HY_OK;
}

static hy_status import_anything(void* device, const hy_memory_blob* blob, void** address) {
  (void)blob;
  return right.memory_alloc(device, 4096, address);
}

static hy_status compile_anything(void* device, const char* source, const char* flags,
                                  void** module) {
  (void)source, (void)flags;
  return right.compile(device, "axpy: x0 s0 * x1 +", "", module);
}

static hy_status launch_half(void* device, void* stream, void* kernel, const hy_launch* launch) {
  hy_launch half = *launch;
  half.grid[0] = (half.grid[0] + 1) / 2;
  return right.kernel_launch(device, stream, kernel, &half);
}

static bool go_wrong(hy_backend* b, const char* word) {
  if (IS("launch")) {
    b->graph_launch = launch_nothing;
  } else if (IS("update")) {
    b->graph_update = update_nothing;
  } else if (IS("capture")) {
    b->capture_begin = capture_nothing;
    b->capture_end = end_nothing;
  } else if (IS("copy_less")) {
    b->copy_peer = copy_less;
  } else if (IS("copy_more")) {
    b->copy_peer = copy_more;
  } else if (IS("wrap")) {
    b->stream_wrap = wrap_another;
  } else if (IS("priority")) {
    b->stream_priority_range = upside_down;
  } else if (IS("pointer")) {
    b->pointer_device = always_0;
  } else if (IS("export")) {
    b->memory_export = same_blob;
  } else if (IS("import")) {
    b->memory_import = import_anything;
  } else if (IS("compile")) {
    b->compile = compile_anything;
  } else if (IS("kernel")) {
    b->kernel_launch = launch_half;
  } else {
    return guarded_go_wrong(b, word);
  }
  return true;
#undef IS
}

static hy_status each_word(const char* variable, hy_backend* b,
                           bool (*change)(hy_backend* b, const char* word)) {
  char copy[200] = "";
  const char* text = getenv(variable);
  if (text) strncpy(copy, text, sizeof copy - 1);
  char* rest = NULL;
  for (char* word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    if (change(b, word)) continue;
    return guarded_host->fail(HY_INVALID_ARGUMENT,
                              "%s: \"%s\" is none of those in optional.c and wrong.c", variable,
                              word);
  }
  return HY_OK;
}

hy_status guarded_optional_init(hy_backend* b) {
  right = *b;
  HY_TRY(each_word("HALYARD_GUARDED_LACKS", b, leave_out));
  return each_word("HALYARD_GUARDED_WRONG", b, go_wrong);
}
