// Starting and stopping the library, and the services it offers to backends.
#include "core/registry.h"
#include "halyard/trace.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool ready;

const char* hy_version(void) {
  return HY_VERSION_STRING;
}

static hy_status start(void) {
  hy__log_level();  // warns of a HALYARD_LOG that is none
  hy_status status = hy__registry_init();
  if (status != HY_OK) return status;
  status = hy__plugin_scan();
  if (status == HY_OK) status = hy__trace_init();
  if (status != HY_OK) hy__registry_clear();
  return status;
}

hy_status hy_init(void) {
  if (atomic_load_explicit(&ready, memory_order_acquire)) return HY_OK;
  hy_status status = HY_OK;
  pthread_mutex_lock(&mutex);
  if (!atomic_load(&ready)) {
    status = start();
    if (status == HY_OK) atomic_store_explicit(&ready, true, memory_order_release);
  }
  pthread_mutex_unlock(&mutex);
  return status;
}

void hy_shutdown(void) {
  pthread_mutex_lock(&mutex);
  if (atomic_load(&ready)) {
    hy__ops.shutdown();
    hy__choice_clear();
    hy__devices_close();
    hy__comm_shutdown();
    hy__registry_clear();
    if (hy_trace_stop() != HY_OK) hy__log(0, "%s", hy_last_error());  // who asked is told
    atomic_store(&ready, false);
  }
  pthread_mutex_unlock(&mutex);
}

static hy_status reference(const hy_call* call) {
  return hy__ops.reference(call);
}

static const char* op_name(hy_op op) {
  return hy__ops.op_name(op);
}

const hy_host* hy__host(void) {
  static const hy_host host = {
      .size = sizeof(hy_host),
      .abi = HY_ABI_VERSION,
      .fail = hy_fail,
      .log = hy__log,
      .reference = reference,
      .op_name = op_name,
      .last_error = hy_last_error,
      .open_library = hy__open_library,
      .visible_devices = hy__visible_devices,
  };
  return &host;
}
