// The smoke test that ends a probe: one small kernel, through all that a real one needs.
#include "backends/common/smoke_test.h"

#include "backends/common/host.h"

enum { N = 2 };

typedef struct smoke {
  const hy_backend* backend;
  void *device, *stream;
  void* memory[3];  // a, b, a + b
} smoke;

static hy_status run_add(const smoke* s) {
  hy_tensor t[3];
  for (int i = 0; i < 3; i++)
    t[i] =
        (hy_tensor){.data = s->memory[i], .dtype = HY_F32, .ndim = 1, .shape = {N}, .stride = {1}};
  hy_call call = {.op = HY_OP_add, .n_in = 2, .n_out = 1, .in = t, .out = &t[2]};
  call.attrs.alpha.alpha = hy_int(1);
  for (int i = 0; i < s->backend->n_providers; i++) {
    const hy_provider* p = s->backend->providers[i];
    if (p->flags & HY_PROVIDER_BY_NAME || (p->probe && p->probe(&(hy_probe){0}) != HY_OK)) continue;
    if (p->supports(s->device, &call) == HY_SUPPORT_YES) return p->run(s->device, s->stream, &call);
  }
  if (s->backend->flags & HY_BACKEND_HOST_MEMORY) return hy__backend_host->reference(&call);
  return hy__backend_host->fail(HY_INTERNAL, "%s: no provider adds two f32 vectors",
                                s->backend->name);
}

static hy_status add_on_device(smoke* s) {
  const float in[2][N] = {{1, 2}, {3, 5}};
  const hy_backend* b = s->backend;
  float sum[N] = {0, 0};
  if (b->stream_create) HY_TRY(b->stream_create(s->device, &s->stream));
  for (int i = 0; i < 3; i++) HY_TRY(b->memory_alloc(s->device, sizeof sum, &s->memory[i]));
  for (int i = 0; i < 2; i++)
    HY_TRY(b->copy(s->device, s->stream, s->memory[i], in[i], sizeof sum, HY_COPY_HOST_TO_DEVICE));
  HY_TRY(run_add(s));
  HY_TRY(b->copy(s->device, s->stream, sum, s->memory[2], sizeof sum, HY_COPY_DEVICE_TO_HOST));
  if (b->stream_sync) HY_TRY(b->stream_sync(s->device, s->stream));
  if (sum[0] != 4 || sum[1] != 7)
    return hy__backend_host->fail(HY_DEVICE_FAILED, "%s: [1, 2] + [3, 5] gave [%g, %g]", b->name,
                                  (double)sum[0], (double)sum[1]);
  return HY_OK;
}

hy_status hy__smoke_test(const hy_backend* backend, int index, hy_probe* report) {
  smoke s = {.backend = backend};
  HY_TRY(backend->device_open(index, &s.device));
  hy_status status = add_on_device(&s);
  for (int i = 0; i < 3; i++) {
    if (s.memory[i]) backend->memory_free(s.device, s.memory[i]);
  }
  if (s.stream && backend->stream_destroy) backend->stream_destroy(s.device, s.stream);
  backend->device_close(s.device);
  if (status == HY_OK) report->stage = HY_STAGE_READY;
  return status;
}
