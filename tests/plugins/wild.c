// Plugins that misbehave where they are only looked at: the build compiles this file once for each
// way, with WILD_<way> defined. A process that probes them itself would crash, hang, end or print.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/stub.h"

#if defined(WILD_loading)
__attribute__((constructor)) static void load(void) {
  abort();
}
#define NAME "loading"
#endif

static void crash(void) {
  raise(SIGSEGV);
}

#if defined(WILD_crashing) || defined(WILD_hanging) || defined(WILD_exiting) || \
    defined(WILD_printing)
static hy_status probe(hy_probe* report, int* device_count) {
#if defined(WILD_crashing)
#define NAME "crashing"
  crash();
#elif defined(WILD_hanging)
#define NAME "hanging"
  for (;;) pause();
#elif defined(WILD_exiting)
#define NAME "exiting"
  exit(7);
#elif defined(WILD_printing)
#define NAME "printing"
  printf("a banner that nobody asked for\n");
  fprintf(stderr, "and another\n");
  fflush(NULL);
#endif
  report->stage = HY_STAGE_READY;
  *device_count = 1;
  return HY_OK;
}
#endif

#if defined(WILD_describing)
#define NAME "describing"
static hy_status device_info(int index, hy_device_info* info) {
  (void)index, (void)info;
  crash();
  return HY_OK;
}
#endif

#if defined(WILD_opening)
#define NAME "opening"
static hy_status device_open(int index, void** device) {
  (void)index, (void)device;
  crash();
  return HY_OK;
}
#endif

#if defined(WILD_providing)
#define NAME "providing"
static hy_status probe_provider(hy_probe* report) {
  (void)report;
  crash();
  return HY_OK;
}
#endif

__attribute__((visibility("default"))) hy_status halyard_backend_query(uint32_t max_abi,
                                                                       const hy_host* host,
                                                                       const hy_backend** backend) {
  static hy_backend table;
  (void)max_abi, (void)host, (void)crash;
  stub_reset();
  table = stub_backend(NAME);
#if defined(WILD_describing)
  table.device_info = device_info;
#elif defined(WILD_opening)
  table.device_open = device_open;
#elif defined(WILD_providing)
  static hy_provider provider;
  static const hy_provider* const list[] = {&provider};
  provider = stub_provider("wild_kernels");
  provider.probe = probe_provider;
  table.providers = list;
  table.n_providers = 1;
#elif !defined(WILD_loading)
  table.probe = probe;
#endif
  *backend = &table;
  return HY_OK;
}
