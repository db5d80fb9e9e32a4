// test_fuzz.c - malformed packets and register pokes never crash, hang or write where they must
// not, and the device works after reset. ECHO_NPU_FUZZ sets how many (50000 by default; 1000000 for
// the night).
#include <stdio.h>

#include "bench_model.h"
#include "echo_program.h"

#define RING 0x10000000u
#define ARENA ECHO_PROGRAM_BASE
#define ARENA_BYTES ECHO_PROGRAM_BYTES
#define GUARD 0x4000u
#define BOARD_END (ARENA + ARENA_BYTES + 0x10000)

static echo_cmodel* model;
static uint8_t *memory, *guard_low, *guard_high, pattern[GUARD];
static uint64_t seed = 99;

static uint32_t below(uint32_t n) {
  return (uint32_t)(bench_random(&seed) % n);
}

static void reset(void) {
  static const uint64_t limits[ECHO_NPU_AREAS][2] = {{0, 0x10000}, {RING, BOARD_END}, {0, 0}};
  echo_cmodel_write(model, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_RESET);
  for (uint32_t a = 0; a < ECHO_NPU_AREAS; ++a)
    for (uint32_t w = 0; w < 4; ++w)
      echo_cmodel_write(model, ECHO_NPU_REG_AREA + 16 * a + 4 * w,
                        (uint32_t)(limits[a][w / 2] >> (w % 2 ? 32 : 0)));
  echo_cmodel_write(model, ECHO_NPU_REG_WATCHDOG, 0);
  bench_reset(model);
}

static uint64_t some_address(void) {
  switch (below(8)) {
    case 0: return bench_random(&seed);
    case 1: return ARENA + ARENA_BYTES - below(64);
    case 2: return ECHO_NPU_REG_BASE + below(0x10000);
    case 3: return 0;
    default: return ARENA + 4 * below(ARENA_BYTES / 4);
  }
}

static uint32_t some_number(void) {
  switch (below(6)) {
    case 0: return (uint32_t)bench_random(&seed);
    case 1: return 0;
    case 2: return 1u << below(32);
    case 3: return (1u << below(32)) - 1;
    default: return below(40);
  }
}

// The next packet of a valid program.
static echo_npu_packet valid_packet(void) {
  static echo_program program;
  static size_t next;
  if (next == program.count) {
    echo_program_generate(&program, bench_random(&seed), 24);
    next = 0;
  }
  return program.packets[next++];
}

static void spoil(echo_npu_packet* p) {
  switch (below(7)) {
    case 0: p->opcode = below(2) ? below(16) : (uint32_t)bench_random(&seed); break;
    case 1: p->flags ^= 1u << below(32); break;
    case 2: p->flags ^= below(256) << 16; break;
    case 3: *(below(2) ? &p->src1 : below(2) ? &p->src2 : &p->dst) = some_address(); break;
    case 4: *(below(2) ? &p->src1 : &p->dst) += below(8); break;
    default: p->param[below(8)] = some_number(); break;
  }
}

// Anything at all, or a valid packet with up to three fields spoiled.
static echo_npu_packet some_packet(void) {
  echo_npu_packet p;
  if (below(8) == 0) {
    uint64_t words[8];
    for (int i = 0; i < 8; ++i) words[i] = bench_random(&seed);
    memcpy(&p, words, sizeof p);
    if (below(2)) p.opcode &= 0xf;
  } else {
    p = valid_packet();
    for (uint32_t i = below(4); i > 0; --i) spoil(&p);
  }
  // A valid command may legally run for ages; keep it short.
  if (p.opcode == ECHO_NPU_OP_REPEAT) {
    if (p.param[0] <= ECHO_NPU_MAX_DIM) p.param[0] %= 9;
    if (p.param[4] <= ECHO_NPU_MAX_DIM) p.param[4] %= 9;
  }
  if (p.opcode == ECHO_NPU_OP_MATMUL && p.param[5] <= ECHO_NPU_MAX_DIM) p.param[5] %= 300;
  return p;
}

static void the_device_still_works(void) {
  reset();
  float* a = (float*)memory;
  for (int i = 0; i < 16; ++i) a[i] = (float)i;
  echo_npu_packet p = {.opcode = ECHO_NPU_OP_ADD_TENSOR,
                       .src1 = ARENA,
                       .src2 = ARENA,
                       .dst = ARENA + 64,
                       .param = {1, 16, 0, 0, 0, bench_bits(1)}};
  assert_int_equal(bench_send(model, &p), 0);
  for (int i = 0; i < 16; ++i) assert_true(a[16 + i] == (float)(2 * i));
}

static void check_guards(void) {
  assert_memory_equal(guard_low, pattern, GUARD);
  assert_memory_equal(guard_high, pattern, GUARD);
}

static void open_small_board(void) {
  const echo_area areas[ECHO_NPU_AREAS] = {{0, 0x10000}, {RING, BOARD_END}, {0, 0}};
  model = echo_cmodel_create(areas, -1);
  assert_non_null(model);
  // Allocations: the arena only. What is around it must never change.
  assert_int_equal(echo_cmodel_track(model, ARENA, ARENA_BYTES, 1), 0);
  memory = echo_cmodel_memory(model, ARENA, ARENA_BYTES);
  guard_low = echo_cmodel_memory(model, ARENA - GUARD, GUARD);
  guard_high = echo_cmodel_memory(model, ARENA + ARENA_BYTES, GUARD);
  memset(pattern, 0xc3, sizeof pattern);
  memcpy(guard_low, pattern, GUARD);
  memcpy(guard_high, pattern, GUARD);
}

static void malformed_packets(void** state) {
  (void)state;
  const char* text = getenv("ECHO_NPU_FUZZ");
  uint64_t count = text ? strtoull(text, NULL, 10) : 50000, seen[16] = {0};
  open_small_board();
  reset();
  for (uint64_t i = 0; i < count; ++i) {
    echo_npu_packet p = some_packet();
    uint32_t code = bench_send(model, &p);
    assert_true(code < 16);
    ++seen[code];
    uint32_t status = echo_cmodel_read(model, ECHO_NPU_REG_STATUS);
    assert_int_equal(status, code ? ECHO_NPU_STATUS_ERROR : ECHO_NPU_STATUS_DONE);
    if (code) {
      assert_int_equal(echo_cmodel_read(model, ECHO_NPU_REG_RING_HEAD),
                       echo_cmodel_read(model, ECHO_NPU_REG_FAULT_INDEX));
      if (below(16) == 0)
        the_device_still_works();
      else
        reset();
    }
    if (i % 256 == 0) check_guards();
  }
  check_guards();
  for (uint32_t c = 0; c < 16; ++c)
    print_message("  fault %2u: %llu\n", c, (unsigned long long)seen[c]);
  for (uint32_t c = 0; c <= ECHO_NPU_FAULT_REPEAT; ++c) assert_true(count < 50000 || seen[c] > 0);
  echo_cmodel_destroy(model);
}

static void register_pokes(void** state) {
  (void)state;
  open_small_board();
  reset();
  for (int i = 0; i < 20000; ++i) {
    uint32_t offset = below(3) ? 4 * below(0x60) : (uint32_t)bench_random(&seed) & 0xffff;
    uint32_t value = some_number();
    // A ring that points into the arena is a program; its packets are whatever is there.
    if (offset == ECHO_NPU_REG_RING_TAIL)
      value = echo_cmodel_read(model, ECHO_NPU_REG_RING_HEAD) + value % 3;
    if (below(4)) echo_cmodel_write(model, offset, value);
    (void)echo_cmodel_read(model, offset);
    if (below(64) == 0) echo_cmodel_run(model, 2);
    if (below(512) == 0) the_device_still_works();
  }
  the_device_still_works();
  check_guards();
  echo_cmodel_destroy(model);
}

static void faults_are_precise(void** state) {
  (void)state;
  open_small_board();
  static const struct {
    uint32_t code;
    echo_npu_packet p;
    uint64_t address;
  } cases[] = {
      {ECHO_NPU_FAULT_OPCODE, {.opcode = 0x09}, 0},
      {ECHO_NPU_FAULT_RESERVED, {.opcode = 0, .param = {0, 0, 1}}, 0},
      {ECHO_NPU_FAULT_RESERVED,
       {.opcode = ECHO_NPU_OP_MEMCPY,
        .flags = 0x10,
        .src1 = ARENA,
        .dst = ARENA + 64,
        .param = {4}},
       0},
      {ECHO_NPU_FAULT_FUNCTION, {.opcode = ECHO_NPU_OP_VECTOR, .flags = 0x3f0000}, 0},
      {ECHO_NPU_FAULT_DTYPE,
       {.opcode = ECHO_NPU_OP_MATMUL, .flags = 0x20, .param = {1, 1, 1, 1, 1, 1}},
       0},
      {ECHO_NPU_FAULT_DIM, {.opcode = ECHO_NPU_OP_MATMUL, .param = {1, 1, 1, 1, 1, 0}}, 0},
      {ECHO_NPU_FAULT_DIM, {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = ARENA, .dst = ARENA}, 0},
      {ECHO_NPU_FAULT_STRIDE,
       {.opcode = ECHO_NPU_OP_MATMUL,
        .src1 = ARENA,
        .src2 = ARENA,
        .dst = ARENA,
        .param = {2, 4, 4, 4, 3, 4}},
       0},
      {ECHO_NPU_FAULT_STRIDE,
       {.opcode = ECHO_NPU_OP_FILL, .dst = ARENA, .param = {3, 3, 0, 0, 2, 2}},
       0},
      {ECHO_NPU_FAULT_ALIGN,
       {.opcode = ECHO_NPU_OP_COPY, .src1 = ARENA, .dst = ARENA + 66, .param = {1, 1, 1, 1, 1, 1}},
       ARENA + 66},
      {ECHO_NPU_FAULT_RANGE,
       {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = ARENA, .dst = BOARD_END - 16, .param = {32}},
       BOARD_END - 16},
      {ECHO_NPU_FAULT_RANGE,
       {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = ECHO_NPU_REG_BASE, .dst = ARENA, .param = {32}},
       ECHO_NPU_REG_BASE},
      {ECHO_NPU_FAULT_RANGE,
       {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = 0xfffffffffffffff0u, .dst = ARENA, .param = {32}},
       0xfffffffffffffff0u},
      {ECHO_NPU_FAULT_UNALLOCATED,
       {.opcode = ECHO_NPU_OP_MEMCPY,
        .src1 = ARENA,
        .dst = ARENA + ARENA_BYTES - 16,
        .param = {32}},
       ARENA + ARENA_BYTES - 16},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    reset();
    uint32_t got = bench_send(model, &cases[i].p);
    if (got != cases[i].code) fail_msg("case %zu: fault %u, not %u", i, got, cases[i].code);
    assert_int_equal(bench_fault_addr(model), cases[i].address);
  }
  // The ring itself.
  reset();
  echo_cmodel_write(model, ECHO_NPU_REG_RING_TAIL, 65);
  assert_int_equal(echo_cmodel_read(model, ECHO_NPU_REG_FAULT_CODE), ECHO_NPU_FAULT_RING);
  echo_cmodel_write(model, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_RESET);
  echo_cmodel_write(model, ECHO_NPU_REG_RING_LOG2, 4);
  echo_cmodel_write(model, ECHO_NPU_REG_RING_BASE_LO, ECHO_NPU_REG_BASE);
  echo_cmodel_write(model, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_ENABLE);
  echo_cmodel_write(model, ECHO_NPU_REG_RING_TAIL, 1);
  echo_cmodel_run(model, 0);
  assert_int_equal(echo_cmodel_read(model, ECHO_NPU_REG_FAULT_CODE), ECHO_NPU_FAULT_RING);
  the_device_still_works();
  echo_cmodel_destroy(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(malformed_packets),
      cmocka_unit_test(register_pokes),
      cmocka_unit_test(faults_are_precise),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
