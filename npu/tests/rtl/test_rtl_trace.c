// test_rtl_trace.c - a model's packets on the hardware: its cycles, and the timing model's estimate
// of them. Time does not depend on values, so memory is zero and only the packets are needed.
#include "echo_trace.h"
#include "rtl_bench.h"

#define GIB (1ull << 30)
#define MIB (1ull << 20)
static const echo_area board[ECHO_NPU_AREAS] = {
    {0, 256 * MIB},
    {RTL_RING, RTL_RING + 256 * MIB},
    {ECHO_NPU_HIGH_BASE, ECHO_NPU_HIGH_BASE + 16 * GIB}};
#define MOST_LABELS 64

typedef struct sum {
  const char* label;
  uint64_t packets, counted, estimated;
} sum;

static sum* sum_of(sum* sums, const char* label) {
  int i = 0;
  while (i < MOST_LABELS - 1 && sums[i].label && strcmp(sums[i].label, label) != 0) ++i;
  if (!sums[i].label) sums[i].label = label;
  return &sums[i];
}

static double off_by(uint64_t estimated, uint64_t counted) {
  return counted ? (double)estimated / (double)counted - 1 : 0;
}

// A decoding step of the demo's model, recorded on the functional model, on this bus.
static void the_estimate_holds(const echo_rtl_bus* bus) {
  char reason[256] = "";
  echo_trace trace;
  const char* path = getenv("ECHO_NPU_TRACE_FILE");
  const int each = getenv("ECHO_NPU_TRACE_EACH") != NULL;
  if (echo_trace_read(path ? path : ECHO_NPU_TEST_DATA "/demo_decode.trace", &trace, reason,
                      sizeof reason) != 0)
    fail_msg("%s", reason);
  assert_true(trace.count > 0);
  echo_rtlmodel* m = echo_rtlmodel_create(board, -1);
  echo_cost* costs = calloc(trace.count, sizeof *costs);
  assert_true(m && costs);
  echo_rtlmodel_set_bus(m, bus);
  echo_timing timing =
      echo_timing_of(echo_rtlmodel_read(m, ECHO_NPU_REG_CONFIG) & 0xff, bus->latency);
  timing.stall_percent = bus->stall_percent;
  assert_int_equal(echo_trace_time(&trace, &timing, costs, reason, sizeof reason), 0);

  // The ring is where no recorded address is.
  echo_rtlmodel_write(m, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_RESET);
  const uint32_t ring = (uint32_t)(255 * MIB);
  echo_rtlmodel_write(m, ECHO_NPU_REG_RING_BASE_LO, ring);
  echo_rtlmodel_write(m, ECHO_NPU_REG_RING_LOG2, RTL_RING_LOG2);
  echo_rtlmodel_write(m, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_ENABLE);

  sum sums[MOST_LABELS] = {{0}}, all = {0};
  uint64_t before = rtl_counter(m, ECHO_NPU_COUNTER_BUSY);
  for (size_t i = 0; i < trace.count; ++i) {
    const echo_trace_packet* p = &trace.packets[i];
    const uint32_t slot = (uint32_t)i & ((1u << RTL_RING_LOG2) - 1);
    memcpy(echo_rtlmodel_memory(m, ring + 64u * slot, 64), &p->packet, 64);
    echo_rtlmodel_write(m, ECHO_NPU_REG_RING_TAIL, (uint32_t)i + 1);
    assert_true(echo_rtlmodel_run(m, 2000000000));
    assert_int_equal(echo_rtlmodel_read(m, ECHO_NPU_REG_STATUS), ECHO_NPU_STATUS_DONE);
    const uint64_t now = rtl_counter(m, ECHO_NPU_COUNTER_BUSY), cycles = now - before;
    before = now;
    if (each)
      print_message("  %4zu %-16s op %02x fn %02x  %5u %5u k %5u  %9llu %9llu %6.1f%%\n", i,
                    p->label, p->packet.opcode, p->packet.flags >> 16 & 0xff, p->packet.param[0],
                    p->packet.param[1], p->packet.param[5], (unsigned long long)cycles,
                    (unsigned long long)costs[i].cycles, 100 * off_by(costs[i].cycles, cycles));
    sum* s = sum_of(sums, p->label);
    s->packets += 1, s->counted += cycles, s->estimated += costs[i].cycles;
    all.packets += 1, all.counted += cycles, all.estimated += costs[i].cycles;
  }
  print_message("  N = %u, memory latency %u, bus stalls %u%%\n  %-20s %7s %10s %10s\n", timing.n,
                bus->latency, bus->stall_percent, "", "packets", "cycles", "estimate");
  for (int i = 0; i < MOST_LABELS && sums[i].label; ++i)
    print_message("  %-20s %7llu %10llu %10llu %+6.1f%%\n", sums[i].label,
                  (unsigned long long)sums[i].packets, (unsigned long long)sums[i].counted,
                  (unsigned long long)sums[i].estimated,
                  100 * off_by(sums[i].estimated, sums[i].counted));
  const double off = off_by(all.estimated, all.counted);
  print_message("  %-20s %7llu %10llu %10llu %+6.1f%%\n", "all", (unsigned long long)all.packets,
                (unsigned long long)all.counted, (unsigned long long)all.estimated, 100 * off);
  assert_true(off > -0.1 && off < 0.1);
  echo_rtlmodel_destroy(m);
  free(costs);
  echo_trace_free(&trace);
}

static void a_decoding_step(void** state) {
  (void)state;
  const echo_rtl_bus bus = {.latency = (uint32_t)rtl_number("ECHO_NPU_RAM_LATENCY", 40)};
  the_estimate_holds(&bus);
}

static void a_decoding_step_on_a_bus_that_stalls(void** state) {
  (void)state;
  static const echo_rtl_bus buses[] = {{.latency = 40, .stall_percent = 10, .seed = 1},
                                       {.latency = 40, .stall_percent = 30, .seed = 2},
                                       {.latency = 40, .stall_percent = 50, .seed = 3},
                                       {.latency = 100, .stall_percent = 30, .seed = 4}};
  for (size_t i = 0; i < sizeof buses / sizeof *buses; ++i) the_estimate_holds(&buses[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_decoding_step),
                                     cmocka_unit_test(a_decoding_step_on_a_bus_that_stalls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
