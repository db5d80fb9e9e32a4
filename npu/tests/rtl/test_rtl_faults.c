// test_rtl_faults.c - what goes wrong on the hardware: malformed packets and register pokes, bus
// errors, a bus that stands still, resets in the middle of work. Never a hang or a stray write; the
// fault is the functional model's; the device works after reset. ECHO_NPU_RTL_FUZZ sets the number
// of packets (20000).
#include "echo_cmodel.h"
#include "echo_program.h"
#include "rtl_bench.h"

#define ARENA 0x10001000u
#define ARENA_BYTES 0x8000u
#define GUARD 0x1000u
#define BOARD_END (ARENA + ARENA_BYTES + GUARD)
#define CYCLES 300000u  // a packet may legally run longer; then it is stopped by reset

static const echo_area board[ECHO_NPU_AREAS] = {
    {0, 0x1000}, {RTL_RING, BOARD_END + 0x1000}, {0, 0}};
static echo_rtlmodel* rtl;
static echo_cmodel* model;
static uint8_t* memory;
static uint64_t state;

static uint64_t draw(void) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static uint32_t below(uint32_t n) {
  return (uint32_t)(draw() % n);
}

// The registers allow the ring and the arena; guards are on both sides of the arena.
static void set_area(uint64_t base, uint64_t limit) {
  const uint32_t words[4] = {(uint32_t)base, (uint32_t)(base >> 32), (uint32_t)limit,
                             (uint32_t)(limit >> 32)};
  for (uint32_t i = 0; i < 4; ++i) {
    echo_rtlmodel_write(rtl, ECHO_NPU_REG_AREA + 16 * ECHO_NPU_AREA_ACT + 4 * i, words[i]);
    echo_cmodel_write(model, ECHO_NPU_REG_AREA + 16 * ECHO_NPU_AREA_ACT + 4 * i, words[i]);
  }
}

static void reset_both(void) {
  static const uint32_t steps[][2] = {{ECHO_NPU_REG_RING_BASE_LO, RTL_RING},
                                      {ECHO_NPU_REG_RING_LOG2, RTL_RING_LOG2},
                                      {ECHO_NPU_REG_WATCHDOG, 0},
                                      {ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_ENABLE}};
  echo_rtlmodel_write(rtl, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_RESET);
  echo_cmodel_write(model, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_RESET);
  set_area(RTL_RING, ARENA + ARENA_BYTES);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; ++i) {
    echo_rtlmodel_write(rtl, steps[i][0], steps[i][1]);
    echo_cmodel_write(model, steps[i][0], steps[i][1]);
  }
}

static int open_both(void** unused) {
  (void)unused;
  rtl = echo_rtlmodel_create(board, -1);
  model = echo_cmodel_create(board, -1);
  assert_true(rtl && model);
  memory = echo_rtlmodel_memory(rtl, ARENA - GUARD / 2, ARENA_BYTES + GUARD);
  memset(memory, 0xc3, ARENA_BYTES + GUARD);
  state = 7;
  reset_both();
  return 0;
}

static int close_both(void** unused) {
  (void)unused;
  echo_rtlmodel_destroy(rtl);
  echo_cmodel_destroy(model);
  return 0;
}

// The ring fills the first half page before the low guard.
static void check_guards(void) {
  for (uint32_t i = 0; i < GUARD / 2; ++i) {
    assert_int_equal(memory[i], 0xc3);
    assert_int_equal(memory[GUARD / 2 + ARENA_BYTES + i], 0xc3);
  }
}

static void the_device_still_works(void) {
  const echo_rtl_bus quiet = {.latency = 5};
  echo_rtlmodel_set_bus(rtl, &quiet);
  reset_both();
  float* a = echo_rtlmodel_memory(rtl, ARENA, 256);
  for (int i = 0; i < 16; ++i) a[i] = (float)i, a[16 + i] = -1;
  const echo_npu_packet p = {.opcode = ECHO_NPU_OP_ADD_TENSOR,
                             .src1 = ARENA,
                             .src2 = ARENA,
                             .dst = ARENA + 64,
                             .param = {1, 16, 0, 0, 0, 0x3f800000}};
  rtl_post(rtl, &p);
  assert_true(echo_rtlmodel_run(rtl, 2000));
  assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_STATUS), ECHO_NPU_STATUS_DONE);
  for (int i = 0; i < 16; ++i) assert_true(a[16 + i] == (float)(2 * i));
  assert_null(echo_rtlmodel_violation(rtl));
}

// Nothing moves any more: HEAD stays, no packet retires.
static void the_device_rests(uint32_t status) {
  const uint32_t head = echo_rtlmodel_read(rtl, ECHO_NPU_REG_RING_HEAD);
  const uint64_t packets = rtl_counter(rtl, ECHO_NPU_COUNTER_PACKETS);
  assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_STATUS), status);
  echo_rtlmodel_step(rtl, 400);
  assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_STATUS), status);
  assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_RING_HEAD), head);
  assert_int_equal(rtl_counter(rtl, ECHO_NPU_COUNTER_PACKETS), packets);
}

static uint64_t some_address(void) {
  switch (below(8)) {
    case 0: return draw();
    case 1: return ARENA + ARENA_BYTES - below(64);
    case 2: return ECHO_NPU_REG_BASE + below(0x10000);
    case 3: return 0;
    default: return ARENA + 4 * below(ARENA_BYTES / 4);
  }
}

static uint32_t some_number(void) {
  switch (below(6)) {
    case 0: return (uint32_t)draw();
    case 1: return 0;
    case 2: return 1u << below(32);
    case 3: return (1u << below(32)) - 1;
    default: return below(40);
  }
}

// A packet of a valid program, moved into the arena, with up to three fields spoiled; or anything
// at all.
static echo_npu_packet some_packet(void) {
  static echo_program program;
  static size_t next;
  echo_npu_packet p;
  if (below(8) == 0) {
    uint64_t words[8];
    for (int i = 0; i < 8; ++i) words[i] = draw();
    memcpy(&p, words, sizeof p);
    if (below(2)) p.opcode &= 0xf;
    return p;
  }
  if (next == program.count) {
    echo_program_generate(&program, draw(), 12);
    next = 0;
  }
  p = program.packets[next++];
  uint64_t* const fields[3] = {&p.src1, &p.src2, &p.dst};
  for (int i = 0; i < 3; ++i)
    if (*fields[i]) *fields[i] = ARENA + (*fields[i] - ECHO_PROGRAM_BASE) % (ARENA_BYTES - 0x1000);
  for (uint32_t i = below(4); i > 0; --i) switch (below(7)) {
      case 0: p.opcode = below(2) ? below(16) : (uint32_t)draw(); break;
      case 1: p.flags ^= 1u << below(32); break;
      case 2: p.flags ^= below(256) << 16; break;
      case 3: *fields[below(3)] = some_address(); break;
      case 4: *fields[2 * below(2)] += below(8); break;
      default: p.param[below(8)] = some_number(); break;
    }
  return p;
}

static void malformed_packets(void** unused) {
  (void)unused;
  const uint64_t count = rtl_number("ECHO_NPU_RTL_FUZZ", 20000);
  uint64_t seen[16] = {0}, stopped = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const echo_npu_packet p = some_packet();
    const echo_rtl_bus bus = {
        .latency = 1 + below(12), .stall_percent = below(8) ? 0 : 40, .seed = i};
    echo_rtlmodel_set_bus(rtl, &bus);
    rtl_post(rtl, &p);
    if (!echo_rtlmodel_run(rtl, CYCLES)) {
      ++stopped;
      the_device_still_works();
      continue;
    }
    uint32_t code = echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_CODE);
    uint32_t tail = echo_cmodel_read(model, ECHO_NPU_REG_RING_TAIL);
    memcpy(echo_cmodel_memory(model, ARENA, ARENA_BYTES), memory + GUARD / 2, ARENA_BYTES);
    memcpy(echo_cmodel_memory(model, RTL_RING + 64u * (tail % 64), 64), &p, 64);
    echo_cmodel_write(model, ECHO_NPU_REG_RING_TAIL, tail + 1);
    echo_cmodel_run(model, 0);
    uint32_t want = echo_cmodel_read(model, ECHO_NPU_REG_FAULT_CODE);
    // An INDEX fault depends on data that an overlapping command may leave unpredictable.
    if (code != want && code != ECHO_NPU_FAULT_INDEX && want != ECHO_NPU_FAULT_INDEX) {
      char line[240];
      echo_program_describe(&p, line, sizeof line);
      fail_msg("packet %llu: fault %u, not %u: %s", (unsigned long long)i, code, want, line);
    }
    ++seen[code];
    if (code && code == want) {
      assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_ADDR_LO),
                       echo_cmodel_read(model, ECHO_NPU_REG_FAULT_ADDR_LO));
      assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_ADDR_HI),
                       echo_cmodel_read(model, ECHO_NPU_REG_FAULT_ADDR_HI));
      assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_INDEX),
                       echo_rtlmodel_read(rtl, ECHO_NPU_REG_RING_HEAD));
    }
    if (code || want) {
      if (below(16) == 0)
        the_device_still_works();
      else
        reset_both();
    }
    if (i % 256 == 0) check_guards();
  }
  check_guards();
  for (uint32_t c = 0; c <= ECHO_NPU_FAULT_REPEAT; ++c) {
    print_message("  fault %2u: %llu\n", c, (unsigned long long)seen[c]);
    assert_true(count < 20000 || seen[c] > 0);
  }
  print_message("  stopped by reset: %llu\n", (unsigned long long)stopped);
}

static void register_pokes(void** unused) {
  (void)unused;
  const uint64_t count = rtl_number("ECHO_NPU_RTL_FUZZ", 20000);
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t offset = below(3) ? 4 * below(0x60) : (uint32_t)draw() & 0xffff, value = some_number();
    if (offset == ECHO_NPU_REG_RING_TAIL)
      value = echo_rtlmodel_read(rtl, ECHO_NPU_REG_RING_HEAD) + value % 3;
    if (below(4)) echo_rtlmodel_write(rtl, offset, value);
    (void)echo_rtlmodel_read(rtl, offset);
    if (below(64) == 0) echo_rtlmodel_step(rtl, 200);
    if (below(512) == 0) the_device_still_works();
  }
  the_device_still_works();
}

static void bus_errors(void** unused) {
  (void)unused;
  static const struct {
    echo_npu_packet p;
    uint64_t base, limit;
    uint32_t code;
  } cases[] = {
      {{.opcode = ECHO_NPU_OP_MEMCPY, .src1 = ARENA, .dst = ARENA + 0x4000, .param = {0x1000}},
       ARENA + 0x840,
       ARENA + 0x850,
       ECHO_NPU_FAULT_BUS_READ},
      {{.opcode = ECHO_NPU_OP_MEMCPY, .src1 = ARENA, .dst = ARENA + 0x4000, .param = {0x1000}},
       ARENA + 0x4840,
       ARENA + 0x4850,
       ECHO_NPU_FAULT_BUS_WRITE},
      {{.opcode = ECHO_NPU_OP_ADD_TENSOR,
        .src1 = ARENA,
        .src2 = ARENA + 0x1000,
        .dst = ARENA + 0x2000,
        .param = {4, 64, 64, 64, 64}},
       ARENA + 0x1100,
       ARENA + 0x1104,
       ECHO_NPU_FAULT_BUS_READ},
      {{.opcode = ECHO_NPU_OP_ADD_TENSOR,
        .src1 = ARENA,
        .src2 = ARENA + 0x1000,
        .dst = ARENA + 0x2000,
        .param = {4, 64, 64, 64, 64}},
       ARENA + 0x2100,
       ARENA + 0x2104,
       ECHO_NPU_FAULT_BUS_WRITE},
      {{.opcode = ECHO_NPU_OP_MATMUL,
        .src1 = ARENA,
        .src2 = ARENA + 0x2000,
        .dst = ARENA + 0x4000,
        .param = {32, 32, 32, 32, 32, 32}},
       ARENA + 0x2400,
       ARENA + 0x2404,
       ECHO_NPU_FAULT_BUS_READ},
      {{.opcode = ECHO_NPU_OP_MATMUL,
        .src1 = ARENA,
        .src2 = ARENA + 0x2000,
        .dst = ARENA + 0x4000,
        .param = {32, 32, 32, 32, 32, 32}},
       ARENA + 0x4400,
       ARENA + 0x4404,
       ECHO_NPU_FAULT_BUS_WRITE},
      {{.opcode = ECHO_NPU_OP_NOP}, RTL_RING, RTL_RING + 64, ECHO_NPU_FAULT_BUS_READ},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    reset_both();
    const echo_rtl_bus bus = {
        .latency = 20, .error_base = cases[i].base, .error_limit = cases[i].limit};
    echo_rtlmodel_set_bus(rtl, &bus);
    rtl_post(rtl, &cases[i].p);
    assert_true(echo_rtlmodel_run(rtl, 20000));
    assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_STATUS), ECHO_NPU_STATUS_ERROR);
    assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_CODE), cases[i].code);
    uint64_t addr = rtl_fault_addr(rtl);
    // A read fault names the beat; a write fault the burst, which is what the answer is for.
    if (cases[i].code == ECHO_NPU_FAULT_BUS_READ)
      assert_int_equal(addr, cases[i].base & ~63ull);
    else
      assert_true(addr <= cases[i].base && cases[i].base - addr < 1024);
    the_device_still_works();
  }
}

static void a_bus_that_stands_still(void** unused) {
  (void)unused;
  const echo_npu_packet p = {.opcode = ECHO_NPU_OP_MATMUL,
                             .src1 = ARENA,
                             .src2 = ARENA + 0x2000,
                             .dst = ARENA + 0x4000,
                             .param = {32, 32, 32, 32, 32, 32}};
  for (uint64_t after = 1; after < 1200; after += 37) {
    reset_both();
    echo_rtlmodel_write(rtl, ECHO_NPU_REG_WATCHDOG, 500);
    const echo_rtl_bus bus = {.latency = 20, .freeze_at = echo_rtlmodel_cycles(rtl) + 4 + after};
    echo_rtlmodel_set_bus(rtl, &bus);
    rtl_post(rtl, &p);
    assert_true(echo_rtlmodel_run(rtl, 5000));
    uint32_t code = echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_CODE);
    if (code == 0) break;  // it was done before the bus stopped
    assert_int_equal(code, ECHO_NPU_FAULT_TIMEOUT);
    assert_int_equal(rtl_fault_addr(rtl), 0);
    the_device_still_works();
  }
  // Without a watchdog the device waits for ever, and reset still brings it back.
  reset_both();
  const echo_rtl_bus bus = {.latency = 20, .freeze_at = echo_rtlmodel_cycles(rtl) + 100};
  echo_rtlmodel_set_bus(rtl, &bus);
  rtl_post(rtl, &p);
  assert_false(echo_rtlmodel_run(rtl, 5000));
  the_device_still_works();
}

// WATCHDOG means the same to both: a frozen memory, and one slower than it allows.
static void both_watchdogs_bark(void** unused) {
  (void)unused;
  static const struct {
    uint32_t watchdog, frozen, code, status;
  } cases[] = {
      {0, 0, 0, ECHO_NPU_STATUS_DONE},
      {200, 0, 0, ECHO_NPU_STATUS_DONE},
      {10, 0, ECHO_NPU_FAULT_TIMEOUT, ECHO_NPU_STATUS_ERROR},
      {200, 1, ECHO_NPU_FAULT_TIMEOUT, ECHO_NPU_STATUS_ERROR},
      {0, 1, 0, ECHO_NPU_STATUS_BUSY},
  };
  const echo_npu_packet p = {.opcode = ECHO_NPU_OP_NOP};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    reset_both();
    const echo_rtl_bus bus = {.latency = 40,
                              .freeze_at = cases[i].frozen ? echo_rtlmodel_cycles(rtl) : 0};
    echo_rtlmodel_set_bus(rtl, &bus);
    echo_cmodel_freeze(model, (int)cases[i].frozen);
    echo_rtlmodel_write(rtl, ECHO_NPU_REG_WATCHDOG, cases[i].watchdog);
    echo_cmodel_write(model, ECHO_NPU_REG_WATCHDOG, cases[i].watchdog);
    memcpy(echo_cmodel_memory(model, RTL_RING, 64), &p, 64);
    rtl_post(rtl, &p);
    echo_cmodel_write(model, ECHO_NPU_REG_RING_TAIL, 1);
    echo_rtlmodel_run(rtl, 5000);
    echo_cmodel_run(model, 0);
    static const uint32_t registers[] = {ECHO_NPU_REG_STATUS, ECHO_NPU_REG_FAULT_CODE,
                                         ECHO_NPU_REG_FAULT_INDEX, ECHO_NPU_REG_FAULT_ADDR_LO,
                                         ECHO_NPU_REG_RING_HEAD};
    for (size_t r = 0; r < sizeof registers / sizeof *registers; ++r)
      assert_int_equal(echo_rtlmodel_read(rtl, registers[r]),
                       echo_cmodel_read(model, registers[r]));
    assert_int_equal(echo_cmodel_read(model, ECHO_NPU_REG_STATUS), cases[i].status);
    assert_int_equal(echo_cmodel_read(model, ECHO_NPU_REG_FAULT_CODE), cases[i].code);
    echo_cmodel_freeze(model, 0);
    the_device_still_works();
  }
}

// A bus that is dead stays dead: what comes after the first command is given up too, and nothing
// that was announced before is forgotten.
static void a_dead_bus_ends_every_command(void** unused) {
  (void)unused;
  const echo_npu_packet p = {
      .opcode = ECHO_NPU_OP_MEMCPY, .src1 = ARENA, .dst = ARENA + 0x1000, .param = {1000}};
  for (uint64_t after = 1; after < 100; after += 7) {
    reset_both();
    const echo_rtl_bus bus = {.latency = 20, .freeze_at = echo_rtlmodel_cycles(rtl) + 10 + after};
    echo_rtlmodel_set_bus(rtl, &bus);
    for (int i = 0; i < 3; ++i) {
      if (i) reset_both();
      echo_rtlmodel_write(rtl, ECHO_NPU_REG_WATCHDOG, 300);
      rtl_post(rtl, &p);
      assert_true(echo_rtlmodel_run(rtl, 2000));
      assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_STATUS), ECHO_NPU_STATUS_ERROR);
      assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_CODE), ECHO_NPU_FAULT_TIMEOUT);
      assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_INDEX), 0);
      the_device_rests(ECHO_NPU_STATUS_ERROR);
    }
    the_device_still_works();
  }
}

// A memory with one port: while a write is open it answers no read. Every unit must get through.
static void a_memory_that_serialises(void** unused) {
  (void)unused;
  static const echo_npu_packet packets[] = {
      {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = ARENA, .dst = ARENA + 0x4000, .param = {0x3000}},
      {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = ARENA + 3, .dst = ARENA + 0x4005, .param = {0x1003}},
      {.opcode = ECHO_NPU_OP_COPY,
       .src1 = ARENA,
       .dst = ARENA + 0x4000,
       .param = {40, 40, 1, 40, 40, 1}},
      {.opcode = ECHO_NPU_OP_COPY,
       .src1 = ARENA,
       .dst = ARENA + 0x4000,
       .param = {4, 400, 400, 1, 400, 1}},
      {.opcode = ECHO_NPU_OP_GATHER,
       .src1 = ARENA,
       .src2 = ARENA + 0x3000,
       .dst = ARENA + 0x4000,
       .param = {20, 100, 100, 0, 100, 20}},
      {.opcode = ECHO_NPU_OP_SCATTER_ADD,
       .src1 = ARENA,
       .src2 = ARENA + 0x3000,
       .dst = ARENA + 0x4000,
       .param = {20, 100, 100, 0, 100, 20}},
      {.opcode = ECHO_NPU_OP_ADD_TENSOR,
       .src1 = ARENA,
       .src2 = ARENA + 0x1000,
       .dst = ARENA + 0x4000,
       .param = {8, 300, 300, 300, 300, 0x40200000}},
      {.opcode = ECHO_NPU_OP_MATMUL,
       .flags = ECHO_NPU_FLAG_ACCUMULATE,
       .src1 = ARENA,
       .src2 = ARENA + 0x2000,
       .dst = ARENA + 0x4000,
       .param = {32, 32, 32, 32, 32, 32}},
  };
  const uint32_t size = ARENA_BYTES;
  for (uint32_t stall = 0; stall <= 30; stall += 30)
    for (size_t i = 0; i < sizeof packets / sizeof *packets; ++i) {
      reset_both();
      uint8_t* mine = echo_rtlmodel_memory(rtl, ARENA, size);
      for (uint32_t b = 0; b < size; ++b) mine[b] = (uint8_t)(b * 7 % 61);
      for (uint32_t r = 0; r < 20; ++r) memcpy(mine + 0x3000 + 4 * r, &r, 4);
      memcpy(echo_cmodel_memory(model, ARENA, size), mine, size);
      const echo_rtl_bus bus = {.latency = 20, .stall_percent = stall, .seed = i, .serial = 1};
      echo_rtlmodel_set_bus(rtl, &bus);
      rtl_post(rtl, &packets[i]);
      memcpy(echo_cmodel_memory(model, RTL_RING, 64), &packets[i], 64);
      echo_cmodel_write(model, ECHO_NPU_REG_RING_TAIL, 1);
      echo_cmodel_run(model, 0);
      if (!echo_rtlmodel_run(rtl, 100000)) fail_msg("packet %zu never ends", i);
      assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_STATUS), ECHO_NPU_STATUS_DONE);
      assert_memory_equal(mine, echo_cmodel_memory(model, ARENA, size), size);
    }
  the_device_still_works();
}

static void resets_in_the_middle(void** unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    echo_npu_packet p = some_packet();
    const echo_rtl_bus bus = {.latency = 10, .stall_percent = 20, .seed = seed};
    echo_rtlmodel_set_bus(rtl, &bus);
    rtl_post(rtl, &p);
    echo_rtlmodel_step(rtl, below(400));
    the_device_still_works();
  }
  check_guards();
}

// RESET in each cycle of a few packets, the one in which a packet retires among them: HEAD is 0,
// and with the ring switched on again nothing of it runs before the doorbell.
static void resets_in_every_cycle(void** unused) {
  (void)unused;
  const echo_rtl_bus bus = {.latency = 3};
  const echo_npu_packet packets[] = {
      {.opcode = ECHO_NPU_OP_NOP},
      {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = ARENA, .dst = ARENA + 0x1000, .param = {100}},
      {.opcode = 0x77}};
  for (uint64_t at = 0; at < 120; ++at) {
    echo_rtlmodel_set_bus(rtl, &bus);
    reset_both();
    for (size_t i = 0; i < sizeof packets / sizeof *packets; ++i) rtl_post(rtl, &packets[i]);
    echo_rtlmodel_step(rtl, at);
    reset_both();
    assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_RING_HEAD), 0);
    assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_CODE), 0);
    the_device_rests(ECHO_NPU_STATUS_IDLE);
  }
  the_device_still_works();
}

// The doorbell takes back what it gave while a packet is in work: the device stops there, or says
// RING when HEAD has passed the new TAIL meanwhile.
static void work_is_withdrawn(void** unused) {
  (void)unused;
  const echo_rtl_bus bus = {.latency = 3};
  const echo_npu_packet p = {
      .opcode = ECHO_NPU_OP_MEMCPY, .src1 = ARENA, .dst = ARENA + 0x1000, .param = {100}};
  for (uint64_t at = 0; at < 120; ++at)
    for (uint32_t head = 0; head < 3; ++head) {
      echo_rtlmodel_set_bus(rtl, &bus);
      reset_both();
      for (int i = 0; i < 3; ++i) rtl_post(rtl, &p);
      echo_rtlmodel_step(rtl, at);
      echo_rtlmodel_write(rtl, ECHO_NPU_REG_RING_TAIL, head);
      assert_true(echo_rtlmodel_run(rtl, 1000));
      const uint32_t status = echo_rtlmodel_read(rtl, ECHO_NPU_REG_STATUS);
      if (status == ECHO_NPU_STATUS_ERROR) {
        assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_CODE), ECHO_NPU_FAULT_RING);
        assert_true(echo_rtlmodel_read(rtl, ECHO_NPU_REG_RING_HEAD) > head);
      } else {
        assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_RING_HEAD), head);
      }
      the_device_rests(status);
    }
  the_device_still_works();
}

static void interrupts(void** unused) {
  (void)unused;
  reset_both();
  const echo_npu_packet p = {.opcode = ECHO_NPU_OP_NOP, .flags = ECHO_NPU_FLAG_IRQ};
  echo_rtlmodel_write(rtl, ECHO_NPU_REG_IRQ_ENABLE, ECHO_NPU_IRQ_PACKET | ECHO_NPU_IRQ_FAULT);
  assert_int_equal(echo_rtlmodel_irq(rtl), 0);
  rtl_post(rtl, &p);
  assert_true(echo_rtlmodel_run(rtl, 1000));
  assert_int_equal(echo_rtlmodel_irq(rtl), 1);
  assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_IRQ_STATUS),
                   ECHO_NPU_IRQ_PACKET | ECHO_NPU_IRQ_DRAINED);
  echo_rtlmodel_write(rtl, ECHO_NPU_REG_IRQ_STATUS, ECHO_NPU_IRQ_PACKET);
  assert_int_equal(echo_rtlmodel_irq(rtl), 0);
  const echo_npu_packet bad = {.opcode = 0x77};
  rtl_post(rtl, &bad);
  assert_true(echo_rtlmodel_run(rtl, 1000));
  assert_int_equal(echo_rtlmodel_irq(rtl), 1);
  // A ring that holds more than it has room for.
  reset_both();
  echo_rtlmodel_write(rtl, ECHO_NPU_REG_RING_TAIL, 65);
  assert_int_equal(echo_rtlmodel_read(rtl, ECHO_NPU_REG_FAULT_CODE), ECHO_NPU_FAULT_RING);
  the_device_still_works();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(interrupts, open_both, close_both),
      cmocka_unit_test_setup_teardown(bus_errors, open_both, close_both),
      cmocka_unit_test_setup_teardown(a_bus_that_stands_still, open_both, close_both),
      cmocka_unit_test_setup_teardown(both_watchdogs_bark, open_both, close_both),
      cmocka_unit_test_setup_teardown(a_dead_bus_ends_every_command, open_both, close_both),
      cmocka_unit_test_setup_teardown(a_memory_that_serialises, open_both, close_both),
      cmocka_unit_test_setup_teardown(resets_in_every_cycle, open_both, close_both),
      cmocka_unit_test_setup_teardown(work_is_withdrawn, open_both, close_both),
      cmocka_unit_test_setup_teardown(resets_in_the_middle, open_both, close_both),
      cmocka_unit_test_setup_teardown(register_pokes, open_both, close_both),
      cmocka_unit_test_setup_teardown(malformed_packets, open_both, close_both),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
