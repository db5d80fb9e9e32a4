#include "echo_rtlmodel.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "echo_axi_memory.h"
#include "verilated.h"
#include "verilated_fst_c.h"

struct echo_rtlmodel {
  VerilatedContext context;
  echo_ram ram;
  std::unique_ptr<Vecho_npu_top> top;
  std::unique_ptr<EchoAxiMemory> memory;
  std::unique_ptr<VerilatedFstC> wave;
  uint64_t cycle = 0;

  void tick() {
    memory->drive(cycle);
    top->clk = 1;
    top->eval();
    if (wave) wave->dump(2 * cycle);
    top->clk = 0;
    top->eval();
    if (wave) wave->dump(2 * cycle + 1);
    ++cycle;
  }
};

namespace {

// Waveforms are of one model: the first that is created while the variable is set.
bool wave_taken = false;

void open_wave(echo_rtlmodel* m) {
  const char* path = getenv("ECHO_NPU_TRACE");
  if (!path || !*path || wave_taken) return;
  wave_taken = true;
  m->wave = std::make_unique<VerilatedFstC>();
  m->top->trace(m->wave.get(), 99);
  m->wave->open(path);
}

echo_rtl_bus default_bus() {
  const char* text = getenv("ECHO_NPU_RAM_LATENCY");
  unsigned long latency = text ? strtoul(text, nullptr, 10) : 40;
  echo_rtl_bus bus = {};
  bus.latency = static_cast<uint32_t>(latency >= 1 && latency <= 10000 ? latency : 40);
  const char* rest = getenv("ECHO_NPU_RTL_BUS");
  for (unsigned long long a, b; rest && *rest;) {
    if (sscanf(rest, "stall=%llu", &a) == 1) bus.stall_percent = a < 99 ? a : 99;
    if (sscanf(rest, "freeze=%llu", &a) == 1) bus.freeze_at = a;
    if (sscanf(rest, "error=%lli+%llu", reinterpret_cast<long long*>(&a), &b) == 2) {
      bus.error_base = a;
      bus.error_limit = a + b;
    }
    if (sscanf(rest, "serial=%llu", &a) == 1) bus.serial = a != 0;
    rest = strchr(rest, ',');
    if (rest) ++rest;
  }
  return bus;
}

}  // namespace

extern "C" {

echo_rtlmodel* echo_rtlmodel_create(const echo_area* areas, int fd) {
  std::unique_ptr<echo_rtlmodel> m(new (std::nothrow) echo_rtlmodel);
  if (!m || echo_ram_create(&m->ram, areas, fd) != 0) return nullptr;
  m->context.traceEverOn(true);
  m->top = std::make_unique<Vecho_npu_top>(&m->context, "npu");
  m->memory = std::make_unique<EchoAxiMemory>(m->top.get(), &m->ram);
  m->memory->set_bus(default_bus());
  open_wave(m.get());
  m->top->resetn = 0;
  for (int i = 0; i < 8; ++i) m->tick();
  m->top->resetn = 1;
  for (int i = 0; i < 8; ++i) m->tick();
  for (int a = 0; a < ECHO_NPU_AREAS; ++a) {
    const uint64_t bounds[2] = {areas[a].base, areas[a].limit};
    for (uint32_t w = 0; w < 4; ++w)
      echo_rtlmodel_write(m.get(), ECHO_NPU_REG_AREA + 16u * static_cast<uint32_t>(a) + 4 * w,
                          static_cast<uint32_t>(bounds[w / 2] >> (w % 2 ? 32 : 0)));
  }
  return m.release();
}

void echo_rtlmodel_destroy(echo_rtlmodel* m) {
  if (!m) return;
  if (m->wave) {
    m->wave->close();
    wave_taken = false;
  }
  m->top->final();
  echo_ram_destroy(&m->ram);
  delete m;
}

uint32_t echo_rtlmodel_read(echo_rtlmodel* m, uint32_t offset) {
  m->top->s_axil_araddr = static_cast<uint16_t>(offset);
  m->top->s_axil_arvalid = 1;
  m->top->s_axil_rready = 1;
  for (bool taken = false; !taken;) {
    taken = m->top->s_axil_arready;
    m->tick();
  }
  m->top->s_axil_arvalid = 0;
  while (!m->top->s_axil_rvalid) m->tick();
  uint32_t value = m->top->s_axil_rdata;
  m->tick();
  return value;
}

void echo_rtlmodel_write(echo_rtlmodel* m, uint32_t offset, uint32_t value) {
  m->top->s_axil_awaddr = static_cast<uint16_t>(offset);
  m->top->s_axil_wdata = value;
  m->top->s_axil_wstrb = 0xf;
  m->top->s_axil_awvalid = m->top->s_axil_wvalid = 1;
  m->top->s_axil_bready = 1;
  while (m->top->s_axil_awvalid || m->top->s_axil_wvalid) {
    const bool address = m->top->s_axil_awready, data = m->top->s_axil_wready;
    m->tick();
    if (address) m->top->s_axil_awvalid = 0;
    if (data) m->top->s_axil_wvalid = 0;
  }
  while (!m->top->s_axil_bvalid) m->tick();
  m->tick();
}

void* echo_rtlmodel_memory(echo_rtlmodel* m, uint64_t addr, uint64_t bytes) {
  return echo_ram_at(&m->ram, addr, bytes);
}

int echo_rtlmodel_track(echo_rtlmodel* m, uint64_t addr, uint64_t bytes, int allocated) {
  try {
    m->memory->track(addr, bytes, allocated != 0);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return 0;
}

void echo_rtlmodel_set_ring(echo_rtlmodel* m, uint64_t ring, uint64_t ring_bytes) {
  m->memory->set_ring(ring, ring_bytes);
}

void echo_rtlmodel_set_bus(echo_rtlmodel* m, const echo_rtl_bus* bus) { m->memory->set_bus(*bus); }

void echo_rtlmodel_step(echo_rtlmodel* m, uint64_t cycles) {
  while (cycles--) m->tick();
}

int echo_rtlmodel_run(echo_rtlmodel* m, uint64_t limit) {
  const uint64_t end = m->cycle + limit;
  while (echo_rtlmodel_read(m, ECHO_NPU_REG_STATUS) == ECHO_NPU_STATUS_BUSY) {
    if (m->cycle >= end) return 0;
    echo_rtlmodel_step(m, 24);
  }
  return 1;
}

uint64_t echo_rtlmodel_cycles(const echo_rtlmodel* m) { return m->cycle; }
const char* echo_rtlmodel_violation(const echo_rtlmodel* m) { return m->memory->violation(); }
int echo_rtlmodel_irq(const echo_rtlmodel* m) { return m->top->irq; }

}  // extern "C"
