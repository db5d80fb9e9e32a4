// Asynchronous errors: one that sticks to a stream is told once, then the stream is usable again.
#pragma once

#include "runtime.h"

namespace halyard_torch {

// The slot's mutex is held.
inline void check_on(StreamSlot& slot, hy_status status) {
  if (C10_LIKELY(status == HY_OK)) return;
  std::string message = hy_last_error();
  hy_status sticky = hy_stream_query(slot.handle);
  if (sticky != HY_OK && sticky != HY_NOT_READY) hy_stream_reset(slot.handle);
  hy_fail(status, "%s", message.c_str());
  raise(status);
}

}  // namespace halyard_torch
