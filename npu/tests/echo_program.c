// echo_program.c - random program generator: packets that are mostly valid, and some that must
// fault.
#include "echo_program.h"

#include <stdio.h>
#include <string.h>

#include "echo_ucode.h"

typedef struct generator {
  uint64_t state;
  uint32_t limit;
  echo_program* out;
  // Regions read and written since the last packet that waited for all before it.
  uint32_t reads, writes;
} generator;

static uint64_t next(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static uint32_t below(generator* g, uint32_t n) {
  return (uint32_t)(next(&g->state) % n);
}
// Small sizes are as likely as large ones.
static uint32_t dim(generator* g) {
  uint32_t top = below(g, 3) ? g->limit : g->limit < 20 ? g->limit : 20;
  return 1 + below(g, top);
}
static uint32_t pad(generator* g) {
  return below(g, 2) ? 0 : below(g, 9);
}

static uint64_t region(uint32_t i) {
  return ECHO_PROGRAM_BASE + (uint64_t)i * ECHO_PROGRAM_REGION;
}
static uint32_t size_of(uint32_t type) {
  return type == ECHO_NPU_BF16 ? 2 : type == ECHO_NPU_I8 ? 1 : 4;
}
// An address near the start of the region, aligned to the element and no more.
static uint64_t place(generator* g, uint32_t i, uint32_t size) {
  return region(i) + (uint64_t)size * (below(g, 2) ? 0 : below(g, 64));
}

// Decides OVERLAP for a packet that reads and writes these regions, and appends it.
static void append(generator* g, echo_npu_packet p, uint32_t reads, uint32_t writes) {
  int clashes = (writes & (g->reads | g->writes)) || (reads & g->writes);
  if (!clashes && below(g, 2) && p.opcode != ECHO_NPU_OP_SYNC) {
    p.flags |= ECHO_NPU_FLAG_OVERLAP;
    g->reads |= reads;
    g->writes |= writes;
  } else {
    g->reads = reads;
    g->writes = writes;
  }
  if (below(g, 8) == 0) p.flags |= ECHO_NPU_FLAG_IRQ;
  g->out->packets[g->out->count++] = p;
}

static void pick_three(generator* g, uint32_t* a, uint32_t* b, uint32_t* c) {
  *a = below(g, ECHO_PROGRAM_REGIONS);
  *b = below(g, 8) ? (*a + 1 + below(g, ECHO_PROGRAM_REGIONS - 1)) % ECHO_PROGRAM_REGIONS : *a;
  do *c = below(g, ECHO_PROGRAM_REGIONS);
  while (*c == *a || *c == *b);
}

// Up to 4 iterations that move by whole operands, when they fit in the regions.
static void repeat(generator* g, uint64_t s1, uint64_t s2, uint64_t d) {
  uint32_t outer = 1 + below(g, 2), inner = 1 + below(g, 3);
  echo_npu_packet p = {
      .opcode = ECHO_NPU_OP_REPEAT,
      .param = {outer, (uint32_t)(s1 * inner), (uint32_t)(s2 * inner), (uint32_t)(d * inner), inner,
                (uint32_t)s1, (uint32_t)s2, (uint32_t)d}};
  g->out->packets[g->out->count++] = p;
}
static int fits(uint64_t elements, uint32_t size) {
  return 6 * elements * size + 64 * 4 <= ECHO_PROGRAM_REGION;
}

static void matmul(generator* g) {
  uint32_t t1, t2, td;
  if (below(g, 4) == 0)
    t1 = t2 = ECHO_NPU_I8, td = ECHO_NPU_I32;
  else
    t1 = below(g, 2), t2 = below(g, 2), td = below(g, 2);
  uint32_t m = dim(g), n = dim(g), k = dim(g), ta = below(g, 2), tb = below(g, 2);
  uint32_t lda = (ta ? m : k) + pad(g), ldb = (tb ? k : n) + pad(g), ldc = n + pad(g), a, b, c;
  pick_three(g, &a, &b, &c);
  uint64_t ea = (uint64_t)lda * (ta ? k : m), eb = (uint64_t)ldb * (tb ? n : k),
           ec = (uint64_t)ldc * m;
  if (below(g, 3) == 0 && fits(ea, size_of(t1)) && fits(eb, size_of(t2)) && fits(ec, size_of(td)))
    repeat(g, ea, below(g, 2) ? eb : 0, ec);
  append(
      g,
      (echo_npu_packet){.opcode = ECHO_NPU_OP_MATMUL,
                        .flags = t1 << ECHO_NPU_FLAG_T1_SHIFT | t2 << ECHO_NPU_FLAG_T2_SHIFT |
                                 td << ECHO_NPU_FLAG_TD_SHIFT | (ta ? ECHO_NPU_FLAG_TRANS_A : 0) |
                                 (tb ? ECHO_NPU_FLAG_TRANS_B : 0) |
                                 (below(g, 3) ? 0 : ECHO_NPU_FLAG_ACCUMULATE),
                        .src1 = place(g, a, size_of(t1)),
                        .src2 = place(g, b, size_of(t2)),
                        .dst = place(g, c, size_of(td)),
                        .param = {m, n, lda, ldb, ldc, k}},
      1u << a | 1u << b | 1u << c, 1u << c);
}

static void vector(generator* g) {
  static const uint32_t scales[] = {0x3f800000, 0x3f000000, 0xbf99999a, 0x3c000000, 0x40490fdb};
  const echo_ucode_function* f =
      &echo_ucode_functions[below(g, (uint32_t)echo_ucode_function_count)];
  int y = echo_ucode_loads_y(f) != 0, paired = echo_ucode_is_paired(f);
  uint32_t t1 = below(g, 3) ? 0 : below(g, 4), t2 = y && !below(g, 3) ? below(g, 4) : 0,
           td = below(g, 3) ? 0 : below(g, 4);
  uint32_t rows = dim(g), cols = dim(g), wide = cols, a, b, c;
  if (paired && cols > 1) cols = cols / 2, wide = 2 * cols;
  if (paired && cols == 1) wide = 2;
  pick_three(g, &a, &b, &c);
  uint32_t flags = (uint32_t)f->id << ECHO_NPU_FLAG_FN_SHIFT | t1 << ECHO_NPU_FLAG_T1_SHIFT |
                   t2 << ECHO_NPU_FLAG_T2_SHIFT | td << ECHO_NPU_FLAG_TD_SHIFT;
  uint32_t s1 = wide + pad(g), s2 = y ? (below(g, 3) ? wide + pad(g) : 0) : 0, sd = wide + pad(g);
  uint32_t beta = scales[below(g, 5)];
  uint64_t src1 = place(g, a, size_of(t1)), src2 = y ? place(g, b, size_of(t2)) : 0,
           dst = place(g, c, size_of(td));
  if (echo_ucode_is_reduction(f)) sd = 1 + pad(g);
  if (y && !paired) {
    uint32_t form = below(g, 5);
    if (form == 0) flags |= ECHO_NPU_FLAG_SRC2_BCAST;
    if (form == 1) {
      flags = (flags | ECHO_NPU_FLAG_SRC2_IMM) & ~(3u << ECHO_NPU_FLAG_T2_SHIFT);
      src2 = 0, s2 = 0, y = 0;
    }
    if (f->id < ECHO_NPU_FN_MOVE && below(g, 3) == 0) flags |= ECHO_NPU_FLAG_SWAP;
  }
  if (f->id >= ECHO_NPU_FN_SOFTMAX && f->id <= ECHO_NPU_FN_SOFTMAX_BWD && below(g, 2)) {
    flags |= ECHO_NPU_FLAG_CAUSAL;
    beta = below(g, cols + 2);
  }
  if (!paired && !echo_ucode_is_reduction(f) && below(g, 5) == 0) {  // in place
    c = a, td = t1, dst = src1, sd = s1;
    flags = (flags & ~(3u << ECHO_NPU_FLAG_TD_SHIFT)) | td << ECHO_NPU_FLAG_TD_SHIFT;
    if (b == a && y) b = (a + 1) % ECHO_PROGRAM_REGIONS, src2 = place(g, b, size_of(t2));
  } else if (below(g, 4) == 0 && fits((uint64_t)s1 * rows, size_of(t1)) &&
             fits((uint64_t)sd * rows, size_of(td)) && fits((uint64_t)s2 * rows, size_of(t2))) {
    repeat(g, (uint64_t)s1 * rows, (uint64_t)s2 * rows, (uint64_t)sd * rows);
  }
  uint32_t opcode = ECHO_NPU_OP_VECTOR;
  if (f->id == ECHO_NPU_FN_AXPY && below(g, 2)) {
    opcode = ECHO_NPU_OP_ADD_TENSOR;
    flags &= 0xffff, beta = 0;
  }
  append(g,
         (echo_npu_packet){.opcode = opcode,
                           .flags = flags,
                           .src1 = src1,
                           .src2 = src2,
                           .dst = dst,
                           .param = {rows, cols, s1, s2, sd, scales[below(g, 5)], beta}},
         1u << a | (y ? 1u << b : 0) | 1u << c, 1u << c);
}

static void copy(generator* g) {
  uint32_t a, b, c, t = below(g, 4), rows = dim(g), cols = dim(g), kind = below(g, 6);
  pick_three(g, &a, &b, &c);
  echo_npu_packet p = {.dst = place(g, c, size_of(t))};
  if (kind == 0) {
    p.opcode = ECHO_NPU_OP_MEMCPY;
    p.src1 = region(a) + below(g, 200);
    p.dst = region(c) + below(g, 200);
    p.param[0] = 1 + below(g, 40000);
  } else if (kind == 1) {
    p.opcode = ECHO_NPU_OP_FILL;
    p.flags = t << ECHO_NPU_FLAG_TD_SHIFT;
    uint32_t step = below(g, 3) ? 1 : 1 + below(g, 3);
    if (step > 1 && cols > 60) cols = 60;
    memcpy(p.param,
           (uint32_t[8]){rows, cols, 0, 0, (cols - 1) * step + 1 + pad(g), step,
                         (uint32_t)next(&g->state), 0},
           sizeof p.param);
  } else if (kind < 4) {
    p.opcode = ECHO_NPU_OP_COPY;
    p.flags = t << ECHO_NPU_FLAG_T1_SHIFT | t << ECHO_NPU_FLAG_TD_SHIFT;
    p.src1 = place(g, a, size_of(t));
    uint32_t form = below(g, 4), ls = cols + pad(g), ld = cols + pad(g);
    if (form == 0)  // transpose
      memcpy(p.param, (uint32_t[8]){rows, cols, ls, 1, 1, rows + pad(g)}, sizeof p.param);
    else if (form == 1)  // expand a column
      memcpy(p.param, (uint32_t[8]){rows, cols, 1, 0, ld, 1}, sizeof p.param);
    else
      memcpy(p.param, (uint32_t[8]){rows, cols, ls, 1, ld, 1}, sizeof p.param);
    if (below(g, 4) == 0 && fits(240 * (uint64_t)(rows > cols ? rows : cols), size_of(t)))
      repeat(g, 240, 0, 240 * (uint64_t)(rows > cols ? rows : cols));
  } else {
    int gather = kind == 4;
    if (!gather) t = below(g, 2);
    uint32_t td = gather ? t : ECHO_NPU_F32, wide = below(g, 2), table = 200;
    if (cols > 200) cols = 200;
    if (rows > 200) rows = 200;
    p.opcode = gather ? ECHO_NPU_OP_GATHER : ECHO_NPU_OP_SCATTER_ADD;
    p.flags = t << ECHO_NPU_FLAG_T1_SHIFT | td << ECHO_NPU_FLAG_TD_SHIFT |
              (wide ? ECHO_NPU_FLAG_INDEX64 : 0);
    p.src1 = place(g, a, size_of(t));
    p.src2 = region(ECHO_PROGRAM_REGIONS) + (wide ? ECHO_PROGRAM_INDEX : 0) +
             (wide ? 8u : 4u) * below(g, 64);
    p.dst = place(g, c, size_of(td));
    uint32_t s1 = cols + pad(g), sd = cols + pad(g);
    memcpy(p.param, (uint32_t[8]){rows, cols, s1, 0, sd, table}, sizeof p.param);
  }
  append(g, p, 1u << a | 1u << c, 1u << c);
}

static void sync(generator* g) {
  uint32_t c = below(g, ECHO_PROGRAM_REGIONS);
  echo_npu_packet p = {.opcode = below(g, 3) ? ECHO_NPU_OP_SYNC : ECHO_NPU_OP_NOP};
  if (p.opcode == ECHO_NPU_OP_SYNC && below(g, 2)) {
    p.dst = region(c) + 8 * below(g, 1000);
    p.param[0] = (uint32_t)next(&g->state);
    p.param[1] = (uint32_t)next(&g->state);
  }
  append(g, p, 0, 1u << c);
}

// Breaks one field of the last packet so that it most likely faults; either way the outcome is
// defined.
static void spoil(generator* g) {
  echo_npu_packet* p = &g->out->packets[g->out->count - 1];
  switch (below(g, 8)) {
    case 0: p->opcode = 0x10 + below(g, 200); break;
    case 1: p->flags |= 1u << (24 + below(g, 8)); break;
    case 2: p->param[0] = 0; break;
    case 3: p->param[1] = 0x10000000u + below(g, 1000); break;
    case 4: p->param[4] = 0x80000000u; break;
    case 5: p->dst += (uint64_t)1 << (36 + below(g, 20)); break;
    case 6: p->src1 = 0x20000000u + 64 * below(g, 100); break;
    default: p->param[7] = 1 + below(g, 100); break;
  }
}

void echo_program_generate(echo_program* program, uint64_t seed, uint32_t limit) {
  generator g = {.state = seed * 2 + 1,
                 .limit = limit < 1     ? 1
                          : limit > 200 ? 200
                                        : limit,
                 .out = program};
  program->seed = seed;
  program->count = 0;
  uint32_t commands = 1 + below(&g, 8);
  for (uint32_t i = 0; i < commands; ++i) switch (below(&g, 10)) {
      case 0:
      case 1:
      case 2: matmul(&g); break;
      case 3:
      case 4:
      case 5:
      case 6: vector(&g); break;
      case 7:
      case 8: copy(&g); break;
      default: sync(&g); break;
    }
  if (below(&g, 10) == 0) spoil(&g);
}

void echo_program_image(uint64_t seed, uint8_t* image) {
  uint64_t state = seed ^ 0x5851f42d4c957f2du;
  uint32_t words = ECHO_PROGRAM_REGION * ECHO_PROGRAM_REGIONS / 4;
  for (uint32_t i = 0; i < words; ++i) {
    uint64_t r = next(&state);
    // Mostly floats between 2^-8 and 2^8; one in 64 any pattern at all.
    uint32_t v =
        r >> 58 ? (uint32_t)(r & 0x807fffff) | (119 + (uint32_t)(r >> 40) % 16) << 23 : (uint32_t)r;
    memcpy(image + 4 * i, &v, 4);
  }
  uint8_t* index = image + ECHO_PROGRAM_REGION * ECHO_PROGRAM_REGIONS;
  for (uint32_t i = 0; i < ECHO_PROGRAM_INDEX / 4; ++i) {
    uint32_t v = (uint32_t)(next(&state) % 200);
    memcpy(index + 4 * i, &v, 4);
  }
  for (uint32_t i = 0; i < ECHO_PROGRAM_INDEX / 8; ++i) {
    uint64_t v = next(&state) % 200;
    memcpy(index + ECHO_PROGRAM_INDEX + 8 * i, &v, 8);
  }
}

void echo_program_describe(const echo_npu_packet* p, char* text, size_t size) {
  snprintf(text, size, "op %02x flags %08x src1 %llx src2 %llx dst %llx p %u %u %u %u %u %x %x %x",
           p->opcode, p->flags, (unsigned long long)p->src1, (unsigned long long)p->src2,
           (unsigned long long)p->dst, p->param[0], p->param[1], p->param[2], p->param[3],
           p->param[4], p->param[5], p->param[6], p->param[7]);
}
