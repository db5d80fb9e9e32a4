// echo_cmodel.c - the functional model: register reads and writes, the ring, and one packet after
// the other.
#include "echo_cmodel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "echo_timing.h"
#include "echo_units.h"

typedef struct extent {
  uint64_t addr, bytes;
} extent;

struct echo_cmodel {
  echo_ram ram;
  echo_context units;
  echo_timing timing;

  int frozen;  // memory does not answer
  uint32_t clock_mhz, control, status, watchdog, last_cycles, irq_status, irq_enable;
  uint32_t fault_index;
  echo_fault fault;
  uint64_t ring_base;
  uint32_t ring_log2, head, tail;
  echo_area areas[ECHO_NPU_AREAS];  // as the registers say; the RAM behind may be smaller
  uint64_t counter[ECHO_NPU_COUNTERS];
  uint32_t counter_latch;

  int repeat_pending;
  uint32_t repeat[8];

  pthread_mutex_t extent_lock;
  extent* extents;  // sorted by address, disjoint
  size_t extent_count, extent_capacity;

  echo_cmodel_trace trace;
  void* trace_context;
};

echo_cmodel* echo_cmodel_create(const echo_area* areas, int memory_fd) {
  echo_cmodel* m = calloc(1, sizeof *m);
  if (!m) return NULL;
  m->units.scratch = aligned_alloc(64, sizeof(echo_scratch));
  if (!m->units.scratch) goto no_scratch;
  if (echo_ram_create(&m->ram, areas, memory_fd) != 0) goto no_ram;
  if (echo_pool_hold() != 0) goto no_pool;
  m->units.kernels = echo_kernels_best();
  m->timing = echo_timing_from_environment();
  memcpy(m->areas, areas, sizeof m->areas);
  pthread_mutex_init(&m->extent_lock, NULL);
  return m;
no_pool:
  echo_ram_destroy(&m->ram);
no_ram:
  free(m->units.scratch);
no_scratch:
  free(m);
  return NULL;
}

void echo_cmodel_destroy(echo_cmodel* m) {
  if (!m) return;
  echo_pool_release();
  echo_ram_destroy(&m->ram);
  free(m->units.scratch);
  free(m->extents);
  pthread_mutex_destroy(&m->extent_lock);
  free(m);
}

void* echo_cmodel_memory(echo_cmodel* m, uint64_t addr, uint64_t bytes) {
  return echo_ram_at(&m->ram, addr, bytes);
}

void echo_cmodel_freeze(echo_cmodel* m, int frozen) {
  m->frozen = frozen;
}

void echo_cmodel_set_trace(echo_cmodel* m, echo_cmodel_trace trace, void* context) {
  m->trace = trace;
  m->trace_context = context;
}

int echo_cmodel_use_kernels(echo_cmodel* m, const char* name) {
  const echo_kernels* k = echo_kernels_named(name);
  if (!k) return -1;
  m->units.kernels = k;
  return 0;
}

// ---- Allocations ------------------------------------------------------------------------------

// Index of the first extent that starts after addr.
static size_t extent_after(const echo_cmodel* m, uint64_t addr) {
  size_t low = 0, high = m->extent_count;
  while (low < high) {
    size_t mid = (low + high) / 2;
    if (m->extents[mid].addr <= addr)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

static int extent_add(echo_cmodel* m, uint64_t addr, uint64_t bytes) {
  if (m->extent_count == m->extent_capacity) {
    size_t capacity = m->extent_capacity ? 2 * m->extent_capacity : 64;
    extent* grown = realloc(m->extents, capacity * sizeof(extent));
    if (!grown) return -1;
    m->extents = grown;
    m->extent_capacity = capacity;
  }
  size_t at = extent_after(m, addr);
  memmove(m->extents + at + 1, m->extents + at, (m->extent_count - at) * sizeof(extent));
  m->extents[at] = (extent){addr, bytes};
  ++m->extent_count;
  return 0;
}

static int extent_remove(echo_cmodel* m, uint64_t addr) {
  size_t at = extent_after(m, addr);
  if (at == 0 || m->extents[at - 1].addr != addr) return -1;
  memmove(m->extents + at - 1, m->extents + at, (m->extent_count - at) * sizeof(extent));
  --m->extent_count;
  return 0;
}

int echo_cmodel_track(echo_cmodel* m, uint64_t addr, uint64_t bytes, int allocated) {
  pthread_mutex_lock(&m->extent_lock);
  int result = allocated ? extent_add(m, addr, bytes) : extent_remove(m, addr);
  pthread_mutex_unlock(&m->extent_lock);
  return result;
}

static int is_allocated(const echo_cmodel* m, uint64_t addr, uint64_t bytes) {
  size_t at = extent_after(m, addr);
  if (at == 0) return 0;
  const extent* e = &m->extents[at - 1];
  return addr - e->addr <= e->bytes && bytes <= e->bytes - (addr - e->addr);
}

static echo_fault check_allocations(echo_cmodel* m, const echo_command* c) {
  echo_fault fault = {0, 0};
  pthread_mutex_lock(&m->extent_lock);
  for (int i = 0; m->extents && !fault.code && i < ECHO_OPERANDS; ++i)
    if (c->op[i].used && !is_allocated(m, c->op[i].addr, c->op[i].bytes))
      fault = (echo_fault){ECHO_NPU_FAULT_UNALLOCATED, c->op[i].addr};
  pthread_mutex_unlock(&m->extent_lock);
  return fault;
}

// ---- Registers --------------------------------------------------------------------------------

static void reset(echo_cmodel* m) {
  m->control = m->status = m->last_cycles = m->irq_status = m->irq_enable = 0;
  m->fault = (echo_fault){0, 0};
  m->fault_index = 0;
  m->ring_base = 0;
  m->ring_log2 = m->head = m->tail = 0;
  m->repeat_pending = 0;
}

static void raise_fault(echo_cmodel* m, echo_fault fault) {
  m->fault = fault;
  m->fault_index = m->head;
  m->status = ECHO_NPU_STATUS_ERROR;
  m->irq_status |= ECHO_NPU_IRQ_FAULT;
}

static uint64_t* area_word(echo_cmodel* m, uint32_t offset) {
  echo_area* a = &m->areas[(offset - ECHO_NPU_REG_AREA) / 16];
  return offset & 8 ? &a->limit : &a->base;
}

static int is_area(uint32_t offset) {
  return offset >= ECHO_NPU_REG_AREA && offset < ECHO_NPU_REG_AREA + 16 * ECHO_NPU_AREAS;
}

static uint32_t read_counter(echo_cmodel* m, uint32_t offset) {
  if (offset & 4) return m->counter_latch;
  uint64_t value = m->counter[(offset - ECHO_NPU_REG_COUNTER) / 8];
  m->counter_latch = (uint32_t)(value >> 32);
  return (uint32_t)value;
}

uint32_t echo_cmodel_read(echo_cmodel* m, uint32_t offset) {
  switch (offset) {
    case ECHO_NPU_REG_ID: return ECHO_NPU_ID;
    case ECHO_NPU_REG_VERSION: return ECHO_NPU_HW_VERSION;
    case ECHO_NPU_REG_CONFIG:
      return m->timing.n << ECHO_NPU_CONFIG_N_SHIFT |
             ECHO_NPU_LANES << ECHO_NPU_CONFIG_LANES_SHIFT |
             (uint32_t)__builtin_ctz(m->timing.bus_bytes) << ECHO_NPU_CONFIG_BUS_SHIFT |
             m->timing.fma_latency << ECHO_NPU_CONFIG_LATENCY_SHIFT;
    case ECHO_NPU_REG_CLOCK_MHZ: return m->clock_mhz;
    case ECHO_NPU_REG_CONTROL: return m->control;
    case ECHO_NPU_REG_STATUS: return m->status;
    case ECHO_NPU_REG_FAULT_CODE: return m->fault.code;
    case ECHO_NPU_REG_FAULT_INDEX: return m->fault_index;
    case ECHO_NPU_REG_FAULT_ADDR_LO: return (uint32_t)m->fault.addr;
    case ECHO_NPU_REG_FAULT_ADDR_HI: return (uint32_t)(m->fault.addr >> 32);
    case ECHO_NPU_REG_WATCHDOG: return m->watchdog;
    case ECHO_NPU_REG_LAST_CYCLES: return m->last_cycles;
    case ECHO_NPU_REG_RING_BASE_LO: return (uint32_t)m->ring_base;
    case ECHO_NPU_REG_RING_BASE_HI: return (uint32_t)(m->ring_base >> 32);
    case ECHO_NPU_REG_RING_LOG2: return m->ring_log2;
    case ECHO_NPU_REG_RING_HEAD: return m->head;
    case ECHO_NPU_REG_RING_TAIL: return m->tail;
    case ECHO_NPU_REG_IRQ_STATUS: return m->irq_status;
    case ECHO_NPU_REG_IRQ_ENABLE: return m->irq_enable;
  }
  if (offset & 3) return 0;
  if (is_area(offset)) {
    uint64_t v = *area_word(m, offset);
    return (uint32_t)(offset & 4 ? v >> 32 : v);
  }
  if (offset >= ECHO_NPU_REG_COUNTER && offset < ECHO_NPU_REG_COUNTER + 8 * ECHO_NPU_COUNTERS)
    return read_counter(m, offset);
  return 0;
}

static void set_half(uint64_t* word, int high, uint32_t value) {
  if (high)
    *word = (*word & 0xffffffffu) | (uint64_t)(value & 0xffff) << 32;
  else
    *word = (*word & ~(uint64_t)0xffffffffu) | value;
}

static void doorbell(echo_cmodel* m, uint32_t tail) {
  if (m->status == ECHO_NPU_STATUS_ERROR) return;
  m->tail = tail;
  if (m->ring_log2 <= ECHO_NPU_RING_LOG2_MAX && tail - m->head > 1u << m->ring_log2)
    raise_fault(m, (echo_fault){ECHO_NPU_FAULT_RING, 0});
  else if (tail != m->head)
    m->status = ECHO_NPU_STATUS_BUSY;
  else if (m->status == ECHO_NPU_STATUS_BUSY) {
    m->status = ECHO_NPU_STATUS_DONE;
    m->repeat_pending = 0;
  }
}

void echo_cmodel_write(echo_cmodel* m, uint32_t offset, uint32_t value) {
  const int enabled = m->control & ECHO_NPU_CONTROL_ENABLE;
  switch (offset) {
    case ECHO_NPU_REG_CONTROL:
      if (value & ECHO_NPU_CONTROL_RESET)
        reset(m);
      else
        m->control = value & ECHO_NPU_CONTROL_ENABLE;
      if (value & ECHO_NPU_CONTROL_CLEAR_COUNTERS) memset(m->counter, 0, sizeof m->counter);
      return;
    case ECHO_NPU_REG_CLOCK_MHZ:
      if (!enabled) m->clock_mhz = value & 0xffff;
      return;
    case ECHO_NPU_REG_WATCHDOG: m->watchdog = value; return;
    case ECHO_NPU_REG_RING_BASE_LO:
    case ECHO_NPU_REG_RING_BASE_HI:
      if (!enabled) set_half(&m->ring_base, offset == ECHO_NPU_REG_RING_BASE_HI, value);
      return;
    case ECHO_NPU_REG_RING_LOG2:
      if (!enabled) m->ring_log2 = value;
      return;
    case ECHO_NPU_REG_RING_TAIL: doorbell(m, value); return;
    case ECHO_NPU_REG_IRQ_STATUS: m->irq_status &= ~value; return;
    case ECHO_NPU_REG_IRQ_ENABLE:
      m->irq_enable = value & (ECHO_NPU_IRQ_PACKET | ECHO_NPU_IRQ_FAULT | ECHO_NPU_IRQ_DRAINED);
      return;
  }
  if (is_area(offset) && !(offset & 3) && !enabled)
    set_half(area_word(m, offset), (offset & 4) != 0, value);
}

// ---- Packets ----------------------------------------------------------------------------------

static void account(echo_cmodel* m, const echo_cost* c) {
  m->counter[ECHO_NPU_COUNTER_CYCLES] += c->cycles;
  m->counter[ECHO_NPU_COUNTER_BUSY] += c->cycles;
  m->counter[ECHO_NPU_COUNTER_MATRIX_BUSY] += c->matrix_busy;
  m->counter[ECHO_NPU_COUNTER_MACS] += c->macs;
  m->counter[ECHO_NPU_COUNTER_VECTOR_BUSY] += c->vector_busy;
  m->counter[ECHO_NPU_COUNTER_UOPS] += c->uops;
  m->counter[ECHO_NPU_COUNTER_COPY_BUSY] += c->copy_busy;
  m->counter[ECHO_NPU_COUNTER_READ_BEATS] += c->read_beats;
  m->counter[ECHO_NPU_COUNTER_WRITE_BEATS] += c->write_beats;
}

// One iteration; its addresses are in c->op.
static echo_fault execute(echo_cmodel* m, const echo_command* c) {
  echo_fault fault = echo_check_addresses(c, m->areas);
  if (!fault.code) fault = check_allocations(m, c);
  if (fault.code) return fault;
  void* at[ECHO_OPERANDS] = {NULL, NULL, NULL};
  for (int i = 0; i < ECHO_OPERANDS; ++i) {
    if (!c->op[i].used) continue;
    at[i] = echo_ram_at(&m->ram, c->op[i].addr, c->op[i].bytes);
    if (!at[i])
      return (echo_fault){i == ECHO_DST ? ECHO_NPU_FAULT_BUS_WRITE : ECHO_NPU_FAULT_BUS_READ,
                          c->op[i].addr};
  }
  switch (c->opcode) {
    case ECHO_NPU_OP_NOP: break;
    case ECHO_NPU_OP_MATMUL: echo_matmul(&m->units, c, at); break;
    case ECHO_NPU_OP_ADD_TENSOR:
    case ECHO_NPU_OP_VECTOR: echo_vector(&m->units, c, at); break;
    case ECHO_NPU_OP_SYNC:
      if (at[ECHO_DST]) {
        uint64_t record[2] = {c->p[0] | (uint64_t)c->p[1] << 32, m->counter[ECHO_NPU_COUNTER_BUSY]};
        memcpy(at[ECHO_DST], record, c->op[ECHO_DST].bytes);
      }
      break;
    default: return echo_copy(&m->units, c, at);
  }
  return (echo_fault){0, 0};
}

static echo_fault execute_all(echo_cmodel* m, echo_command* c, uint64_t* cycles) {
  // The first iteration pays for the fetch too.
  echo_cost cost = echo_timing_estimate(&m->timing, c);
  const echo_command base = *c;
  const uint32_t* r = m->repeat;
  uint32_t outer = m->repeat_pending ? r[ECHO_NPU_P_OUTER] : 1;
  uint32_t inner = m->repeat_pending ? r[ECHO_NPU_P_INNER] : 1;
  for (uint64_t i = 0; i < outer; ++i)
    for (uint64_t j = 0; j < inner; ++j) {
      if (m->repeat_pending)
        for (int o = 0; o < ECHO_OPERANDS; ++o)
          c->op[o].addr = base.op[o].addr + base.op[o].size * (i * r[ECHO_NPU_P_OUTER + 1 + o] +
                                                               j * r[ECHO_NPU_P_INNER + 1 + o]);
      echo_fault fault = execute(m, c);
      if (fault.code) return fault;
      account(m, &cost);
      *cycles += cost.cycles;
      if (i == 0 && j == 0) cost.cycles -= m->timing.packet_cost + m->timing.ram_latency;
    }
  m->repeat_pending = 0;
  return (echo_fault){0, 0};
}

static echo_fault fetch(echo_cmodel* m, echo_npu_packet* packet) {
  if (m->ring_log2 < ECHO_NPU_RING_LOG2_MIN || m->ring_log2 > ECHO_NPU_RING_LOG2_MAX ||
      m->ring_base % ECHO_NPU_PACKET_BYTES)
    return (echo_fault){ECHO_NPU_FAULT_RING, 0};
  uint64_t bytes = (uint64_t)ECHO_NPU_PACKET_BYTES << m->ring_log2;
  int inside = 0;
  for (int i = 0; i < ECHO_NPU_AREAS; ++i)
    inside |= echo_area_holds(&m->areas[i], m->ring_base, bytes);
  if (!inside) return (echo_fault){ECHO_NPU_FAULT_RING, 0};
  // The first read of every packet is its own: a bus that is too slow shows here.
  if (m->watchdog && (m->frozen || m->watchdog < m->timing.ram_latency)) {
    echo_cost waited = {.cycles = m->watchdog};
    account(m, &waited);
    return (echo_fault){ECHO_NPU_FAULT_TIMEOUT, 0};
  }
  uint64_t slot = m->head & ((1u << m->ring_log2) - 1);
  uint64_t addr = m->ring_base + slot * ECHO_NPU_PACKET_BYTES;
  const void* from = echo_ram_at(&m->ram, addr, ECHO_NPU_PACKET_BYTES);
  if (!from) return (echo_fault){ECHO_NPU_FAULT_BUS_READ, addr};
  memcpy(packet, from, sizeof *packet);
  m->counter[ECHO_NPU_COUNTER_READ_BEATS] += 1;
  return (echo_fault){0, 0};
}

static void step(echo_cmodel* m) {
  echo_npu_packet packet;
  echo_command command;
  uint64_t cycles = 0;
  echo_fault fault = fetch(m, &packet);
  if (!fault.code) fault = echo_decode(&packet, m->repeat_pending, &command);
  if (!fault.code) {
    if (command.opcode == ECHO_NPU_OP_REPEAT) {
      memcpy(m->repeat, command.p, sizeof m->repeat);
      m->repeat_pending = 1;
      cycles = m->timing.packet_cost + m->timing.ram_latency;
      echo_cost cost = {.cycles = cycles};
      account(m, &cost);
    } else {
      fault = execute_all(m, &command, &cycles);
    }
  }
  if (fault.code) {
    raise_fault(m, fault);
    return;
  }
  if (m->trace) m->trace(m->trace_context, m->head, &packet, cycles);
  m->last_cycles = cycles > UINT32_MAX ? UINT32_MAX : (uint32_t)cycles;
  m->counter[ECHO_NPU_COUNTER_PACKETS] += 1;
  if (command.flags & ECHO_NPU_FLAG_IRQ && command.opcode != ECHO_NPU_OP_REPEAT)
    m->irq_status |= ECHO_NPU_IRQ_PACKET;
  ++m->head;
}

void echo_cmodel_run(echo_cmodel* m, uint64_t limit) {
  uint32_t saved = echo_fp_enter();
  for (uint64_t n = 0; m->control & ECHO_NPU_CONTROL_ENABLE && m->status == ECHO_NPU_STATUS_BUSY &&
                       (limit == 0 || n < limit) && (!m->frozen || m->watchdog);
       ++n) {
    step(m);
    if (m->status == ECHO_NPU_STATUS_BUSY && m->head == m->tail) {
      m->status = ECHO_NPU_STATUS_DONE;
      m->irq_status |= ECHO_NPU_IRQ_DRAINED;
    }
  }
  echo_fp_leave(saved);
}
