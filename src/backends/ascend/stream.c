// Ascend streams: nothing beside what every vendor's have.
#include <stdlib.h>

#include "backends/ascend/ascend.h"

hy_status hy__ascend_stream_create(void* device, void** stream) {
  hy__vendor_stream* s = calloc(1, sizeof *s);
  if (!s) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
  hy_status status = hy__vendor_stream_init(device, s);
  if (status != HY_OK)
    hy__ascend_stream_destroy(device, s);
  else
    *stream = s;
  return status;
}

void hy__ascend_stream_destroy(void* device, void* stream) {
  (void)device;
  hy__vendor_stream_release(stream);
  free(stream);
}
