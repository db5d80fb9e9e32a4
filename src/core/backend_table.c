// Checks a backend's table and brings it into the form the rest of the library relies on: full
// size, nothing required missing.
#include <string.h>

#include "core/registry.h"

#define MAX_TABLE 65536  // a size beyond this is a corrupt table, not a newer one

bool hy__valid_name(const char* name) {
  if (!name || name[0] < 'a' || name[0] > 'z') return false;
  size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
  return length < HY__MAX_NAME && !name[length];
}

// clang-format off
#define REQUIRED(X) \
  X(probe) X(device_info) X(device_open) X(device_close) X(memory_alloc) X(memory_free) \
  X(memory_info) X(copy) X(set)
// All or none; stream_error is optional in either case.
#define STREAM_FUNCTIONS(X) \
  X(stream_create) X(stream_destroy) X(stream_sync) X(stream_query) X(event_create) \
  X(event_destroy) X(event_record) X(event_query) X(event_sync) X(event_elapsed) \
  X(stream_wait_event) X(device_sync)
// Optional functions that go together.
#define CAPTURE_FUNCTIONS(X) X(capture_begin) X(capture_end) X(graph_launch) X(graph_destroy)
#define COMM_FUNCTIONS(X) \
  X(comm_init_rank) X(comm_unique_id) X(comm_destroy) X(comm_abort) X(comm_async_error) \
  X(all_reduce) X(all_gather) X(reduce_scatter) X(broadcast) X(send) X(recv) X(barrier)
#define GROUP_FUNCTIONS(X) X(group_begin) X(group_end)
#define PEER_FUNCTIONS(X) X(copy_peer) X(peer_access)
#define PRIORITY_FUNCTIONS(X) X(stream_create_with_priority) X(stream_priority_range)
#define SHARING_FUNCTIONS(X) X(memory_export) X(memory_import) X(memory_close)
#define COMPILE_FUNCTIONS(X) \
  X(compile) X(compile_flags) X(module_kernel) X(kernel_launch) X(module_destroy)
#define THREAD_FUNCTIONS(X) X(set_threads) X(threads)
#define FAMILIES(X) \
  X(CAPTURE_FUNCTIONS) X(COMM_FUNCTIONS) X(GROUP_FUNCTIONS) X(PEER_FUNCTIONS) \
  X(PRIORITY_FUNCTIONS) X(SHARING_FUNCTIONS) X(COMPILE_FUNCTIONS) X(THREAD_FUNCTIONS)
// clang-format on

// All of a family, or none.
static hy_status check_families(const hy_backend* b) {
#define NOTE(field) *(b->field ? &present : &absent) = #field;
#define CHECK(FAMILY)                                                                         \
  {                                                                                           \
    const char *present = NULL, *absent = NULL;                                               \
    FAMILY(NOTE)                                                                              \
    if (present && absent)                                                                    \
      return hy_fail(HY_FORMAT, "backend %s: %s and %s go together, and %s is NULL", b->name, \
                     present, absent, absent);                                                \
  }
  FAMILIES(CHECK)
#undef CHECK
#undef NOTE
  if (b->graph_update && !b->capture_begin)
    return hy_fail(HY_FORMAT, "backend %s: graph_update without capture_begin", b->name);
  if (b->group_begin && !b->comm_init_rank)
    return hy_fail(HY_FORMAT, "backend %s: group_begin without comm_init_rank", b->name);
  return HY_OK;
}

static hy_status check_functions(const hy_backend* b) {
#define CHECK(field) \
  if (!b->field)     \
    return hy_fail(HY_FORMAT, "backend %s: the required function " #field " is NULL", b->name);
  REQUIRED(CHECK)
  if (!b->host_alloc != !b->host_free)
    return hy_fail(HY_FORMAT, "backend %s: host_alloc and host_free go together, one is NULL",
                   b->name);
  if (!b->stream_create && !b->event_create) {
    if (b->stream_error)
      return hy_fail(HY_FORMAT, "backend %s: stream_error without stream_create", b->name);
    return HY_OK;
  }
  STREAM_FUNCTIONS(CHECK)
#undef CHECK
  return HY_OK;
}

static hy_status import_provider(const hy_backend* b, int index, const hy_provider* from,
                                 hy_provider* to) {
  if (!from) return hy_fail(HY_FORMAT, "backend %s: providers[%d] is NULL", b->name, index);
  if (from->size < offsetof(hy_provider, name) + sizeof from->name || from->size > MAX_TABLE)
    return hy_fail(
        HY_ABI_MISMATCH,
        "backend %s: providers[%d].size is %zu; it must be sizeof(hy_provider), %zu here", b->name,
        index, from->size, sizeof *to);
  memset(to, 0, sizeof *to);
  memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
  to->size = sizeof *to;
  if (!hy__valid_name(to->name))
    return hy_fail(HY_FORMAT,
                   "backend %s: providers[%d] has no valid name: lower-case letters, digits and _, "
                   "fewer than %d of them",
                   b->name, index, HY__MAX_NAME);
  if (!to->supports || !to->run)
    return hy_fail(HY_FORMAT, "backend %s, provider %s: the required function %s is NULL", b->name,
                   to->name, to->supports ? "run" : "supports");
  if (!to->supports_chain != !to->run_chain)
    return hy_fail(HY_FORMAT,
                   "backend %s, provider %s: supports_chain and run_chain go together, one is NULL",
                   b->name, to->name);
  if (!to->variants != !to->run_variant)
    return hy_fail(HY_FORMAT,
                   "backend %s, provider %s: variants and run_variant go together, one is NULL",
                   b->name, to->name);
  if (!to->packed_bytes != !to->pack || !to->pack != !to->run_packed)
    return hy_fail(HY_FORMAT,
                   "backend %s, provider %s: packed_bytes, pack and run_packed go together, one is "
                   "NULL",
                   b->name, to->name);
  if (to->n_declares < 0 || (to->n_declares > 0 && !to->declares))
    return hy_fail(HY_FORMAT, "backend %s, provider %s: declares does not hold n_declares = %d",
                   b->name, to->name, to->n_declares);
  for (int i = 0; i < to->n_declares; i++) {
    hy_op op = to->declares[i].op;
    if (op <= HY_OP_NONE || op >= HY_OP_END)
      return hy_fail(HY_FORMAT, "backend %s, provider %s: declares[%d] names op %d, which is none",
                     b->name, to->name, i, (int)op);
  }
  return HY_OK;
}

static hy_status import_providers(const hy_backend* b, hy__provider_entry** providers) {
  *providers = NULL;
  if (b->n_providers < 0 || b->n_providers > HY__MAX_PROVIDERS)
    return hy_fail(HY_FORMAT, "backend %s: n_providers is %d; it must be 0 to %d", b->name,
                   b->n_providers, HY__MAX_PROVIDERS);
  if (b->n_providers == 0) return HY_OK;
  if (!b->providers)
    return hy_fail(HY_FORMAT, "backend %s: providers is NULL, n_providers is %d", b->name,
                   b->n_providers);
  hy__provider_entry* list = hy__calloc((size_t)b->n_providers, sizeof *list);
  if (!list) return hy_fail(HY_OUT_OF_MEMORY, "backend %s: no memory for its providers", b->name);
  hy_status status = HY_OK;
  for (int i = 0; i < b->n_providers && status == HY_OK; i++) {
    status = import_provider(b, i, b->providers[i], &list[i].table);
    for (int j = 0; j < i && status == HY_OK; j++)
      if (!strcmp(list[i].table.name, list[j].table.name))
        status = hy_fail(HY_FORMAT, "backend %s: two providers are called %s", b->name,
                         list[i].table.name);
  }
  if (status != HY_OK) {
    hy__mfree(list);
    return status;
  }
  *providers = list;
  return HY_OK;
}

hy_status hy__backend_import(const hy_backend* from, hy_backend* to,
                             hy__provider_entry** providers) {
  *providers = NULL;
  if (!from) return hy_fail(HY_FORMAT, "the backend's table is NULL");
  if (from->size < offsetof(hy_backend, probe) || from->size > MAX_TABLE)
    return hy_fail(
        HY_ABI_MISMATCH,
        "the backend's table says its size is %zu; it must be sizeof(hy_backend), %zu here",
        from->size, sizeof *to);
  if (from->abi < 1 || from->abi > HY_ABI_VERSION)
    return hy_fail(HY_ABI_MISMATCH,
                   "the backend speaks version %u of the interface; this library speaks 1 to %u",
                   from->abi, HY_ABI_VERSION);
  hy_backend b = {0};
  memcpy(&b, from, from->size < sizeof b ? from->size : sizeof b);
  b.size = sizeof b;
  if (!hy__valid_name(b.name))
    return hy_fail(
        HY_FORMAT,
        "the backend has no valid name: lower-case letters, digits and _, starting with a "
        "letter, fewer than %d of them",
        HY__MAX_NAME);
  if (hy__known_provider_find(b.name))
    return hy_fail(HY_FORMAT, "%s is the name of a provider; a backend cannot have it", b.name);
  HY_TRY(check_functions(&b));
  HY_TRY(check_families(&b));
  HY_TRY(import_providers(&b, providers));
  if (!b.stream_create) hy__use_inline_streams(&b);
  *to = b;
  return HY_OK;
}
