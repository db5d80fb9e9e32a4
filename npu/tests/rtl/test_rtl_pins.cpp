// test_rtl_pins.cpp - the register port and the reset of the hardware, pin by pin: AXI4-Lite with
// address and data in any order, READY that does not look at VALID, resets of any length.
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <memory>

extern "C" {
#include <cmocka.h>
}

#include "Vecho_npu_top.h"
#include "echo_npu_hw.h"
#include "verilated.h"

namespace {

constexpr int kPatience = 20;  // cycles in which an idle register port must answer

struct Pins {
  VerilatedContext context;
  Vecho_npu_top top{&context, "npu"};

  Pins() {
    top.resetn = 0;
    tick(8);
    top.resetn = 1;
    tick(8);
  }
  ~Pins() { top.final(); }

  void tick(int cycles = 1) {
    while (cycles--) {
      top.clk = 1;
      top.eval();
      top.clk = 0;
      top.eval();
    }
  }

  // Shows an address or data until it is taken.
  void give_address(uint16_t offset) {
    top.s_axil_awaddr = offset;
    top.s_axil_awvalid = 1;
    give(&top.s_axil_awready);
    top.s_axil_awvalid = 0;
  }
  void give_data(uint32_t value) {
    top.s_axil_wdata = value;
    top.s_axil_wstrb = 0xf;
    top.s_axil_wvalid = 1;
    give(&top.s_axil_wready);
    top.s_axil_wvalid = 0;
  }
  void give(const CData* ready) {
    for (int i = 0; i < kPatience; ++i) {
      const bool taken = *ready;
      tick();
      if (taken) return;
    }
    fail_msg("READY waits for something");
  }
  void take_answer() {
    top.s_axil_bready = 1;
    for (int i = 0; !top.s_axil_bvalid; ++i) {
      assert_true(i < kPatience);
      tick();
    }
    tick();
    top.s_axil_bready = 0;
    assert_int_equal(top.s_axil_bvalid, 0);
  }

  uint32_t read(uint16_t offset) {
    top.s_axil_araddr = offset;
    top.s_axil_arvalid = 1;
    top.s_axil_rready = 0;
    give(&top.s_axil_arready);
    top.s_axil_arvalid = 0;
    for (int i = 0; !top.s_axil_rvalid; ++i) {
      assert_true(i < kPatience);
      tick();
    }
    const uint32_t value = top.s_axil_rdata;
    tick(3);  // it waits for its reader
    assert_int_equal(top.s_axil_rvalid, 1);
    assert_int_equal(top.s_axil_rdata, value);
    top.s_axil_rready = 1;
    tick();
    return value;
  }
};

// No path from VALID to READY inside a cycle, whatever the port is doing.
void ready_does_not_look_at_valid(void**) {
  auto p = std::make_unique<Pins>();
  uint32_t state = 1;
  for (int cycle = 0; cycle < 500; ++cycle) {
    CData ready[2][3];
    for (int valid = 0; valid < 2; ++valid) {
      p->top.s_axil_awvalid = p->top.s_axil_wvalid = p->top.s_axil_arvalid = valid;
      p->top.eval();
      ready[valid][0] = p->top.s_axil_awready;
      ready[valid][1] = p->top.s_axil_wready;
      ready[valid][2] = p->top.s_axil_arready;
    }
    for (int i = 0; i < 3; ++i) assert_int_equal(ready[0][i], ready[1][i]);
    state = state * 1664525 + 1013904223;
    p->top.s_axil_awvalid = state >> 28 & 1;
    p->top.s_axil_wvalid = state >> 27 & 1;
    p->top.s_axil_arvalid = state >> 26 & 1;
    p->top.s_axil_bready = state >> 25 & 1;
    p->top.s_axil_rready = state >> 24 & 1;
    p->top.s_axil_awaddr = ECHO_NPU_REG_IRQ_ENABLE;
    p->tick();
  }
}

// A host may wait for AWREADY before it shows data, and the other way round.
void address_and_data_come_in_any_order(void**) {
  auto p = std::make_unique<Pins>();
  for (uint32_t gap = 0; gap < 5; ++gap) {
    p->give_address(ECHO_NPU_REG_WATCHDOG);
    p->tick(static_cast<int>(gap));
    p->give_data(100 + gap);
    p->take_answer();
    assert_int_equal(p->read(ECHO_NPU_REG_WATCHDOG), 100 + gap);
    p->give_data(200 + gap);
    p->tick(static_cast<int>(gap));
    p->give_address(ECHO_NPU_REG_WATCHDOG);
    p->take_answer();
    assert_int_equal(p->read(ECHO_NPU_REG_WATCHDOG), 200 + gap);
  }
}

// The answer to a write waits for its host, and the next write for the answer.
void writes_wait_for_their_answer(void**) {
  auto p = std::make_unique<Pins>();
  p->give_address(ECHO_NPU_REG_WATCHDOG);
  p->give_data(1);
  p->tick(5);
  assert_int_equal(p->top.s_axil_bvalid, 1);
  p->give_address(ECHO_NPU_REG_WATCHDOG);
  p->give_data(2);
  p->tick(5);
  assert_int_equal(p->read(ECHO_NPU_REG_WATCHDOG), 1);
  p->take_answer();
  p->take_answer();
  assert_int_equal(p->read(ECHO_NPU_REG_WATCHDOG), 2);
}

// resetn knows no clock: a pulse between two edges of it resets too.
void a_short_reset_is_a_reset(void**) {
  auto p = std::make_unique<Pins>();
  for (int hold = 0; hold < 3; ++hold) {
    p->give_address(ECHO_NPU_REG_WATCHDOG);
    p->give_data(1234);
    p->take_answer();
    assert_int_equal(p->read(ECHO_NPU_REG_WATCHDOG), 1234);
    p->top.resetn = 0;
    p->top.eval();
    p->tick(hold);
    p->top.resetn = 1;
    p->top.eval();
    p->tick(6);
    assert_int_equal(p->read(ECHO_NPU_REG_WATCHDOG), 0);
    assert_int_equal(p->read(ECHO_NPU_REG_ID), ECHO_NPU_ID);
  }
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ready_does_not_look_at_valid),
      cmocka_unit_test(address_and_data_come_in_any_order),
      cmocka_unit_test(writes_wait_for_their_answer),
      cmocka_unit_test(a_short_reset_is_a_reset),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
