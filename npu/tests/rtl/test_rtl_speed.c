// test_rtl_speed.c - how busy the units of the hardware are, in cycles, and the functional model's
// estimate of it. The time the simulation itself takes is printed and not judged.
#include <time.h>

#include "echo_cmodel.h"
#include "rtl_bench.h"

#define MIB (1u << 20)
static const echo_area board[ECHO_NPU_AREAS] = {
    {0, 4 * MIB}, {RTL_RING, RTL_RING + 16 * MIB}, {ECHO_NPU_HIGH_BASE, ECHO_NPU_HIGH_BASE}};

#define A (RTL_RING + 1 * MIB)
#define B (RTL_RING + 5 * MIB)
#define C (RTL_RING + 9 * MIB)
#define BF16 (ECHO_NPU_BF16 << ECHO_NPU_FLAG_T1_SHIFT | ECHO_NPU_BF16 << ECHO_NPU_FLAG_T2_SHIFT)

typedef struct figure {
  const char* name;
  echo_npu_packet p;
  uint32_t busy;       // counter of the unit
  double peak, least;  // work a cycle, and the share of it that is asked for
  uint32_t work;       // counter of the work
} figure;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// The first `count` figures, with this share of the bus's cycles stalled. Without stalls the units
// must reach what is asked of them.
static void measure(uint32_t stall_percent, size_t count) {
  char text[32];
  snprintf(text, sizeof text, "stall=%u", stall_percent);
  setenv("ECHO_NPU_RTL_BUS", text, 1);  // for the estimate
  echo_rtlmodel* m = echo_rtlmodel_create(board, -1);
  echo_cmodel* c = echo_cmodel_create(board, -1);
  assert_true(m && c);
  const echo_rtl_bus bus = {.latency = 40, .stall_percent = stall_percent, .seed = 1};
  echo_rtlmodel_set_bus(m, &bus);
  const uint32_t n = echo_rtlmodel_read(m, ECHO_NPU_REG_CONFIG) & 0xff;
  const double macs = (double)n * n;
  const figure figures[] = {
      {"matmul bf16 256x256x256",
       {ECHO_NPU_OP_MATMUL, BF16, A, B, C, {256, 256, 256, 256, 256, 256}},
       ECHO_NPU_COUNTER_MATRIX_BUSY,
       macs,
       0.90,
       ECHO_NPU_COUNTER_MACS},
      {"matmul bf16 128x896x896, B transposed",
       {ECHO_NPU_OP_MATMUL, BF16 | ECHO_NPU_FLAG_TRANS_B, A, B, C, {128, 896, 896, 896, 896, 896}},
       ECHO_NPU_COUNTER_MATRIX_BUSY,
       macs,
       0.80,
       ECHO_NPU_COUNTER_MACS},
      {"matmul f32 128x128x256",
       {ECHO_NPU_OP_MATMUL, 0, A, B, C, {128, 128, 256, 128, 128, 256}},
       ECHO_NPU_COUNTER_MATRIX_BUSY,
       macs,
       0.80,
       ECHO_NPU_COUNTER_MACS},
      {"matmul bf16 1x896x896, B transposed",
       {ECHO_NPU_OP_MATMUL, BF16 | ECHO_NPU_FLAG_TRANS_B, A, B, C, {1, 896, 896, 896, 896, 896}},
       ECHO_NPU_COUNTER_MATRIX_BUSY,
       n,
       0.70,
       ECHO_NPU_COUNTER_MACS},
      {"copy 1 MiB",
       {ECHO_NPU_OP_MEMCPY, 0, A, 0, C, {MIB}},
       ECHO_NPU_COUNTER_COPY_BUSY,
       1,
       0.90,
       ECHO_NPU_COUNTER_WRITE_BEATS},
      {"copy 1 MiB, unaligned",
       {ECHO_NPU_OP_MEMCPY, 0, A + 5, 0, C + 11, {MIB}},
       ECHO_NPU_COUNTER_COPY_BUSY,
       1,
       0.90,
       ECHO_NPU_COUNTER_WRITE_BEATS},
      {"add f32 64x1024",
       {ECHO_NPU_OP_ADD_TENSOR, 0, A, B, C, {64, 1024, 1024, 1024, 1024}},
       ECHO_NPU_COUNTER_VECTOR_BUSY,
       16,
       0,
       ECHO_NPU_COUNTER_UOPS},
      {"silu f32 64x1024",
       {ECHO_NPU_OP_VECTOR, ECHO_NPU_FN_SILU << 16, A, 0, C, {64, 1024, 1024, 0, 1024}},
       ECHO_NPU_COUNTER_VECTOR_BUSY,
       16,
       0.50,
       ECHO_NPU_COUNTER_UOPS},
      {"softmax f32 64x256",
       {ECHO_NPU_OP_VECTOR, ECHO_NPU_FN_SOFTMAX << 16, A, 0, C, {64, 256, 256, 0, 256, 0x3f800000}},
       ECHO_NPU_COUNTER_VECTOR_BUSY,
       16,
       0,
       ECHO_NPU_COUNTER_UOPS},
      {"rms norm f32 64x896",
       {ECHO_NPU_OP_VECTOR,
        ECHO_NPU_FN_RMS_NORM << 16,
        A,
        B,
        C,
        {64, 896, 896, 0, 896, 0x358637bd, 0x3a924925}},
       ECHO_NPU_COUNTER_VECTOR_BUSY,
       16,
       0,
       ECHO_NPU_COUNTER_UOPS},
  };
  print_message("  bus stalls %2u%%                           %9s %6s %9s %8s\n", stall_percent,
                "cycles", "busy", "estimate", "kHz");
  for (size_t i = 0; i < sizeof figures / sizeof *figures && i < count; ++i) {
    const figure* f = &figures[i];
    rtl_reset(m);
    echo_rtlmodel_write(m, ECHO_NPU_REG_CONTROL,
                        ECHO_NPU_CONTROL_ENABLE | ECHO_NPU_CONTROL_CLEAR_COUNTERS);
    uint64_t first = echo_rtlmodel_cycles(m);
    double start = seconds();
    rtl_post(m, &f->p);
    assert_true(echo_rtlmodel_run(m, 4000000));
    double khz = (double)(echo_rtlmodel_cycles(m) - first) / (seconds() - start) / 1000;
    assert_int_equal(echo_rtlmodel_read(m, ECHO_NPU_REG_STATUS), ECHO_NPU_STATUS_DONE);
    uint64_t cycles = rtl_counter(m, f->busy), work = rtl_counter(m, f->work);
    double share = (double)work / (f->peak * (double)cycles);

    const uint32_t steps[][2] = {
        {ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_RESET | ECHO_NPU_CONTROL_CLEAR_COUNTERS},
        {ECHO_NPU_REG_RING_BASE_LO, RTL_RING},
        {ECHO_NPU_REG_RING_LOG2, RTL_RING_LOG2},
        {ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_ENABLE},
        {ECHO_NPU_REG_RING_TAIL, 1}};
    for (size_t s = 0; s < 5; ++s) echo_cmodel_write(c, steps[s][0], steps[s][1]);
    memcpy(echo_cmodel_memory(c, RTL_RING, 64), &f->p, 64);
    echo_cmodel_run(c, 0);
    uint64_t estimate = echo_cmodel_read(c, ECHO_NPU_REG_COUNTER + 8 * f->busy);
    print_message("  %-40s %9llu %5.1f%% %9llu %8.0f\n", f->name, (unsigned long long)cycles,
                  100 * share, (unsigned long long)estimate, khz);
    if (n == 16) {
      if (stall_percent == 0) assert_true(share >= f->least);
      assert_in_range(estimate, cycles - cycles / 10, cycles + cycles / 10);
    }
  }
  echo_rtlmodel_destroy(m);
  echo_cmodel_destroy(c);
}

static void units_are_busy(void** state) {
  (void)state;
  measure(0, SIZE_MAX);
}

static void estimates_hold_on_a_bus_that_stalls(void** state) {
  (void)state;
  measure(30, 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(units_are_busy),
                                     cmocka_unit_test(estimates_hold_on_a_bus_that_stalls)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
