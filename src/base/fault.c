// Fault injection: makes the nth event of a kind fail, so that tests reach every unwinding path.
#include "base/memory.h"

atomic_int hy__faults_armed;  // one bit per kind

static struct {
  atomic_llong nth;
  atomic_llong events;
} faults[HY_FAULT_COUNT];

static bool is_fault(hy_fault fault) {
  return (unsigned)fault < HY_FAULT_COUNT;
}

void hy_inject_fault(hy_fault fault, int64_t nth) {
  if (!is_fault(fault)) return;
  atomic_fetch_and(&hy__faults_armed, ~(1 << fault));
  atomic_store(&faults[fault].events, 0);
  atomic_store(&faults[fault].nth, nth);
  if (nth > 0) atomic_fetch_or(&hy__faults_armed, 1 << fault);
}

int64_t hy_fault_events(hy_fault fault) {
  return is_fault(fault) ? atomic_load(&faults[fault].events) : 0;
}

bool hy__fault_now(hy_fault fault) {
  if (!(atomic_load_explicit(&hy__faults_armed, memory_order_relaxed) & (1 << fault))) return false;
  long long event = atomic_fetch_add(&faults[fault].events, 1) + 1;
  return event == atomic_load(&faults[fault].nth);
}
