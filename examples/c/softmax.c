#include <halyard/halyard.h>
#include <stdio.h>

#define CHECK(call) \
  if ((call) != HY_OK) return fprintf(stderr, "%s\n", hy_last_error()), 1

int main(void) {
  float host[2][3] = {{1, 2, 3}, {1, 1, 1}};
  hy_device* device;
  hy_stream* stream;
  void *a, *b;
  hy_tensor x, y;
  CHECK(hy_device_get(NULL, &device));  // the best device here; "cuda:1" or "cpu" chooses one
  CHECK(hy_stream_default(device, &stream));
  CHECK(hy_alloc(stream, sizeof host, &a));
  CHECK(hy_alloc(stream, sizeof host, &b));
  CHECK(hy_tensor_init(&x, a, HY_F32, 2, (int64_t[]){2, 3}));
  CHECK(hy_tensor_init(&y, b, HY_F32, 2, (int64_t[]){2, 3}));
  CHECK(hy_memcpy(stream, a, host, sizeof host, HY_COPY_HOST_TO_DEVICE));
  CHECK(hy_softmax(stream, &y, &x, -1));
  CHECK(hy_memcpy(stream, host, b, sizeof host, HY_COPY_DEVICE_TO_HOST));
  CHECK(hy_stream_sync(stream));
  for (int i = 0; i < 2; i++) printf("%.4f %.4f %.4f\n", host[i][0], host[i][1], host[i][2]);
  hy_shutdown();  // returns all memory, closes the device
}
