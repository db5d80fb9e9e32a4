// test_programs.c - random programs give the same memory and faults on every kernel set of the
// model. ECHO_NPU_PROGRAMS sets how many (300 by default; 10000 for the night).
#include <stdio.h>

#include "bench_model.h"
#include "echo_program.h"

static void run(echo_cmodel* m, const char* kernels, const echo_program* p, const uint8_t* image,
                uint8_t* memory, uint32_t fault[4]) {
  assert_int_equal(echo_cmodel_use_kernels(m, kernels), 0);
  bench_reset(m);
  memcpy(echo_cmodel_memory(m, ECHO_PROGRAM_BASE, ECHO_PROGRAM_BYTES), image, ECHO_PROGRAM_BYTES);
  memcpy(echo_cmodel_memory(m, BENCH_RING, 64 * p->count), p->packets, 64 * p->count);
  echo_cmodel_write(m, ECHO_NPU_REG_RING_TAIL, (uint32_t)p->count);
  echo_cmodel_run(m, 0);
  memcpy(memory, echo_cmodel_memory(m, ECHO_PROGRAM_BASE, ECHO_PROGRAM_BYTES), ECHO_PROGRAM_BYTES);
  for (uint32_t i = 0; i < 4; ++i) fault[i] = echo_cmodel_read(m, ECHO_NPU_REG_FAULT_CODE + 4 * i);
}

static void kernel_sets_agree_on_programs(void** state) {
  (void)state;
  static const char* const sets[] = {"avx2", "avx512"};
  const char* text = getenv("ECHO_NPU_PROGRAMS");
  uint64_t count = text ? strtoull(text, NULL, 10) : 300;
  echo_cmodel* m = bench_open();
  uint8_t *image = malloc(ECHO_PROGRAM_BYTES), *want = malloc(ECHO_PROGRAM_BYTES),
          *got = malloc(ECHO_PROGRAM_BYTES);
  assert_true(image && want && got);
  uint64_t faults = 0;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    echo_program p;
    uint32_t fault[4], other[4];
    echo_program_generate(&p, seed, seed % 4 ? 60 : 200);
    echo_program_image(seed, image);
    run(m, "scalar", &p, image, want, fault);
    faults += fault[0] != 0;
    for (int s = 0; s < 2; ++s) {
      if (echo_cmodel_use_kernels(m, sets[s]) != 0) continue;
      run(m, sets[s], &p, image, got, other);
      assert_memory_equal(fault, other, sizeof fault);
      if (memcmp(want, got, ECHO_PROGRAM_BYTES)) {
        for (size_t i = 0; i < p.count; ++i) {
          char line[200];
          echo_program_describe(&p.packets[i], line, sizeof line);
          print_message("%s\n", line);
        }
        fail_msg("program %llu differs on %s", (unsigned long long)seed, sets[s]);
      }
    }
  }
  print_message("  %llu programs, %llu ended in a fault\n", (unsigned long long)count,
                (unsigned long long)faults);
  assert_true(count < 100 || (faults > count / 50 && faults < count / 4));
  free(image);
  free(want);
  free(got);
  echo_cmodel_destroy(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(kernel_sets_agree_on_programs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
