// Device of a pointer: first by the library's own allocators, then by the vendors' libraries, which
// know memory that others allocated.
#include "core/registry.h"

// Asks a backend that has an open device. The index is -1 where the address is none of its.
static hy_status ask(hy__backend_entry* entry, const void* address, int32_t* index) {
  *index = -1;
  pthread_mutex_lock(&entry->mutex);
  bool in_use = false;
  for (int i = 0; i < entry->device_count && entry->devices; i++)
    in_use = in_use || entry->devices[i] != NULL;
  hy_status status = HY_OK;
  if (in_use && entry->table.pointer_device) {
    status = entry->table.pointer_device(address, index);
    if (status == HY_OK && *index >= entry->device_count) {
      status = hy_fail(HY_DEVICE_FAILED, "%s says that %p is on its device %d of %d", entry->name,
                       address, *index, entry->device_count);
    }
  }
  pthread_mutex_unlock(&entry->mutex);
  return status;
}

hy_status hy_device_of_pointer(const void* address, hy_device** device) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_device_of_pointer: device is NULL");
  *device = hy__memory_of_any(address);
  if (*device || !address) return HY_OK;
  HY_TRY(hy_init());
  hy__backend_entry* entry;
  for (int i = 0; (entry = hy__entry_at(i)); i++) {
    int32_t index;
    HY_TRY(ask(entry, address, &index));
    if (index >= 0) return hy__device_open(entry, index, -1, device);
  }
  return HY_OK;
}
