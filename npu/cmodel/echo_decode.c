// echo_decode.c - packet decoder: fields to commands, and every check that raises a fault.
#include "echo_decode.h"

#include <string.h>

// Which fields an opcode uses; everything else must be zero.
typedef struct shape {
  uint32_t flags;
  int src1, src2, dst;
  uint8_t params;  // bit i: param[i] may be set
} shape;

#define COMMON (ECHO_NPU_FLAG_IRQ | ECHO_NPU_FLAG_OVERLAP)
#define T1 (3u << ECHO_NPU_FLAG_T1_SHIFT)
#define T2 (3u << ECHO_NPU_FLAG_T2_SHIFT)
#define TD (3u << ECHO_NPU_FLAG_TD_SHIFT)
#define Y_FLAGS (ECHO_NPU_FLAG_SRC2_BCAST | ECHO_NPU_FLAG_SRC2_IMM | ECHO_NPU_FLAG_SWAP)

static int shape_of(uint32_t opcode, shape* s) {
  switch (opcode) {
    case ECHO_NPU_OP_NOP: *s = (shape){COMMON, 0, 0, 0, 0x00}; return 1;
    case ECHO_NPU_OP_MATMUL: *s = (shape){COMMON | T1 | T2 | TD | 0x1c00, 1, 1, 1, 0x3f}; return 1;
    case ECHO_NPU_OP_ADD_TENSOR:
      *s = (shape){COMMON | T1 | T2 | TD | 0x3c00, 1, 1, 1, 0x3f};
      return 1;
    case ECHO_NPU_OP_VECTOR:
      *s = (shape){COMMON | T1 | T2 | TD | 0x3c00 | 0xff0000, 1, 1, 1, 0x7f};
      return 1;
    case ECHO_NPU_OP_MEMCPY: *s = (shape){COMMON, 1, 0, 1, 0x03}; return 1;
    case ECHO_NPU_OP_COPY: *s = (shape){COMMON | T1 | TD, 1, 0, 1, 0x3f}; return 1;
    case ECHO_NPU_OP_FILL: *s = (shape){COMMON | TD, 0, 0, 1, 0x73}; return 1;
    case ECHO_NPU_OP_GATHER:
    case ECHO_NPU_OP_SCATTER_ADD:
      *s = (shape){COMMON | T1 | TD | ECHO_NPU_FLAG_INDEX64, 1, 1, 1, 0x37};
      return 1;
    case ECHO_NPU_OP_REPEAT: *s = (shape){0, 0, 0, 0, 0xff}; return 1;
    case ECHO_NPU_OP_SYNC: *s = (shape){COMMON | ECHO_NPU_FLAG_STAMP, 0, 0, 1, 0x03}; return 1;
  }
  return 0;
}

static int uses_reserved(const echo_npu_packet* p, shape s, const echo_ucode_function* fn) {
  if (p->opcode == ECHO_NPU_OP_SYNC && p->dst == 0) {
    s.flags &= ~ECHO_NPU_FLAG_STAMP;
    s.params = 0;
  }
  if (fn) {
    if (!echo_ucode_loads_y(fn)) s.flags &= ~(T2 | Y_FLAGS), s.src2 = 0, s.params &= 0x77;
    if (p->flags & ECHO_NPU_FLAG_SRC2_IMM)
      s.flags &= ~(T2 | ECHO_NPU_FLAG_SRC2_BCAST), s.src2 = 0, s.params &= 0x77;
    if (echo_ucode_is_paired(fn)) s.flags &= ~Y_FLAGS;
    if (fn->id >= ECHO_NPU_FN_MOVE) s.flags &= ~ECHO_NPU_FLAG_SWAP;
    if (fn->id < ECHO_NPU_FN_SOFTMAX || fn->id > ECHO_NPU_FN_SOFTMAX_BWD)
      s.flags &= ~ECHO_NPU_FLAG_CAUSAL;
  }
  if (p->flags & ~s.flags) return 1;
  if ((!s.src1 && p->src1) || (!s.src2 && p->src2) || (!s.dst && p->dst)) return 1;
  for (int i = 0; i < 8; ++i)
    if (!(s.params >> i & 1) && p->param[i]) return 1;
  return 0;
}

static int types_allowed(const echo_command* c) {
  switch (c->opcode) {
    case ECHO_NPU_OP_MATMUL:
      if (c->type1 == ECHO_NPU_I8) return c->type2 == ECHO_NPU_I8 && c->type_dst == ECHO_NPU_I32;
      return c->type1 <= ECHO_NPU_BF16 && c->type2 <= ECHO_NPU_BF16 && c->type_dst <= ECHO_NPU_BF16;
    case ECHO_NPU_OP_COPY:
    case ECHO_NPU_OP_GATHER: return c->type1 == c->type_dst;
    case ECHO_NPU_OP_SCATTER_ADD: return c->type1 <= ECHO_NPU_BF16 && c->type_dst == ECHO_NPU_F32;
  }
  return 1;
}

static int dim_ok(uint32_t n) {
  return n >= 1 && n <= ECHO_NPU_MAX_DIM;
}

static int dims_allowed(const echo_command* c) {
  const uint32_t* p = c->p;
  switch (c->opcode) {
    case ECHO_NPU_OP_NOP:
    case ECHO_NPU_OP_SYNC: return 1;
    case ECHO_NPU_OP_MEMCPY: {
      uint64_t bytes = p[0] | (uint64_t)p[1] << 32;
      return bytes >= 1 && bytes <= ECHO_NPU_MAX_BYTES;
    }
    case ECHO_NPU_OP_REPEAT: return dim_ok(p[ECHO_NPU_P_OUTER]) && dim_ok(p[ECHO_NPU_P_INNER]);
    case ECHO_NPU_OP_MATMUL:
    case ECHO_NPU_OP_GATHER:
    case ECHO_NPU_OP_SCATTER_ADD: return dim_ok(p[0]) && dim_ok(p[1]) && dim_ok(p[5]);
  }
  return dim_ok(p[0]) && dim_ok(p[1]);
}

// Bit i: param[i] is a stride.
static uint8_t stride_params(uint32_t opcode) {
  switch (opcode) {
    case ECHO_NPU_OP_MATMUL:
    case ECHO_NPU_OP_ADD_TENSOR:
    case ECHO_NPU_OP_VECTOR: return 0x1c;
    case ECHO_NPU_OP_COPY: return 0x3c;
    case ECHO_NPU_OP_FILL: return 0x30;
    case ECHO_NPU_OP_GATHER:
    case ECHO_NPU_OP_SCATTER_ADD: return 0x14;
    case ECHO_NPU_OP_REPEAT: return 0xee;
  }
  return 0;
}

static uint32_t dst_row_length(const echo_command* c) {
  if (!c->fn) return c->p[ECHO_NPU_P_COLS];
  if (echo_ucode_is_reduction(c->fn)) return 1;
  return echo_ucode_is_paired(c->fn) ? 2 * c->p[ECHO_NPU_P_COLS] : c->p[ECHO_NPU_P_COLS];
}

static int strides_allowed(const echo_command* c) {
  const uint32_t* p = c->p;
  uint8_t strides = stride_params(c->opcode);
  for (int i = 0; i < 8; ++i)
    if (strides >> i & 1 && p[i] > ECHO_NPU_MAX_STRIDE) return 0;
  switch (c->opcode) {
    case ECHO_NPU_OP_MATMUL:
    case ECHO_NPU_OP_ADD_TENSOR:
    case ECHO_NPU_OP_VECTOR:
    case ECHO_NPU_OP_GATHER: return p[0] == 1 || p[4] >= dst_row_length(c);
    case ECHO_NPU_OP_SCATTER_ADD: return p[5] == 1 || p[4] >= p[1];
    case ECHO_NPU_OP_COPY:
    case ECHO_NPU_OP_FILL: {
      uint64_t rows = p[0], cols = p[1], r = p[4], s = p[5];
      if ((cols > 1 && s < 1) || (rows > 1 && r < 1)) return 0;
      if (rows == 1 || cols == 1) return 1;
      return r >= (cols - 1) * s + 1 || s >= (rows - 1) * r + 1;
    }
  }
  return 1;
}

static void set_operand(echo_command* c, int which, uint64_t addr, uint32_t size, uint64_t rows,
                        uint64_t stride, uint64_t cols, uint64_t col_stride) {
  c->op[which] =
      (echo_operand){1, addr, size * ((rows - 1) * stride + (cols - 1) * col_stride + 1), size};
}

static void set_operands(const echo_npu_packet* k, echo_command* c) {
  const uint32_t* p = c->p;
  uint32_t s1 = echo_type_size(c->type1), s2 = echo_type_size(c->type2),
           sd = echo_type_size(c->type_dst);
  uint64_t rows = p[0], cols = p[1];
  switch (c->opcode) {
    case ECHO_NPU_OP_MATMUL: {
      int ta = (c->flags & ECHO_NPU_FLAG_TRANS_A) != 0,
          tb = (c->flags & ECHO_NPU_FLAG_TRANS_B) != 0;
      uint64_t depth = p[5];
      set_operand(c, ECHO_SRC1, k->src1, s1, ta ? depth : rows, p[2], ta ? rows : depth, 1);
      set_operand(c, ECHO_SRC2, k->src2, s2, tb ? cols : depth, p[3], tb ? depth : cols, 1);
      set_operand(c, ECHO_DST, k->dst, sd, rows, p[4], cols, 1);
      break;
    }
    case ECHO_NPU_OP_ADD_TENSOR:
    case ECHO_NPU_OP_VECTOR: {
      uint64_t wide = echo_ucode_is_paired(c->fn) ? 2 * cols : cols;
      set_operand(c, ECHO_SRC1, k->src1, s1, rows, p[2], wide, 1);
      if (echo_ucode_loads_y(c->fn) && !(c->flags & ECHO_NPU_FLAG_SRC2_IMM))
        set_operand(c, ECHO_SRC2, k->src2, s2, rows, p[3],
                    c->flags & ECHO_NPU_FLAG_SRC2_BCAST ? 1 : wide, 1);
      set_operand(c, ECHO_DST, k->dst, sd, rows, p[4], dst_row_length(c), 1);
      break;
    }
    case ECHO_NPU_OP_MEMCPY: {
      uint64_t bytes = p[0] | (uint64_t)p[1] << 32;
      set_operand(c, ECHO_SRC1, k->src1, 1, 1, 0, bytes, 1);
      set_operand(c, ECHO_DST, k->dst, 1, 1, 0, bytes, 1);
      break;
    }
    case ECHO_NPU_OP_COPY:
      set_operand(c, ECHO_SRC1, k->src1, s1, rows, p[2], cols, p[3]);
      set_operand(c, ECHO_DST, k->dst, sd, rows, p[4], cols, p[5]);
      break;
    case ECHO_NPU_OP_FILL: set_operand(c, ECHO_DST, k->dst, sd, rows, p[4], cols, p[5]); break;
    case ECHO_NPU_OP_GATHER:
    case ECHO_NPU_OP_SCATTER_ADD: {
      int gather = c->opcode == ECHO_NPU_OP_GATHER;
      uint64_t table = p[5];
      set_operand(c, ECHO_SRC1, k->src1, s1, gather ? table : rows, p[2], cols, 1);
      set_operand(c, ECHO_SRC2, k->src2, c->flags & ECHO_NPU_FLAG_INDEX64 ? 8 : 4, 1, 0, rows, 1);
      set_operand(c, ECHO_DST, k->dst, sd, gather ? rows : table, p[4], cols, 1);
      break;
    }
    case ECHO_NPU_OP_SYNC:
      if (k->dst)
        set_operand(c, ECHO_DST, k->dst, c->flags & ECHO_NPU_FLAG_STAMP ? 16 : 8, 1, 0, 1, 1);
      break;
  }
}

echo_fault echo_decode(const echo_npu_packet* packet, int after_repeat, echo_command* out) {
  shape s;
  memset(out, 0, sizeof *out);
  if (!shape_of(packet->opcode, &s)) return (echo_fault){ECHO_NPU_FAULT_OPCODE, 0};
  out->opcode = packet->opcode;
  out->flags = packet->flags;
  out->type1 = packet->flags >> ECHO_NPU_FLAG_T1_SHIFT & 3;
  out->type2 = packet->flags >> ECHO_NPU_FLAG_T2_SHIFT & 3;
  out->type_dst = packet->flags >> ECHO_NPU_FLAG_TD_SHIFT & 3;
  memcpy(out->p, packet->param, sizeof out->p);
  if (after_repeat && (packet->opcode == ECHO_NPU_OP_NOP || packet->opcode == ECHO_NPU_OP_SYNC ||
                       packet->opcode == ECHO_NPU_OP_REPEAT))
    return (echo_fault){ECHO_NPU_FAULT_REPEAT, 0};
  if (packet->opcode == ECHO_NPU_OP_VECTOR || packet->opcode == ECHO_NPU_OP_ADD_TENSOR) {
    uint32_t id = packet->opcode == ECHO_NPU_OP_VECTOR
                      ? packet->flags >> ECHO_NPU_FLAG_FN_SHIFT & 0xff
                      : ECHO_NPU_FN_AXPY;
    out->fn = echo_ucode_find(id);
    if (!out->fn) return (echo_fault){ECHO_NPU_FAULT_FUNCTION, 0};
  }
  if (uses_reserved(packet, s, out->fn)) return (echo_fault){ECHO_NPU_FAULT_RESERVED, 0};
  if (!types_allowed(out)) return (echo_fault){ECHO_NPU_FAULT_DTYPE, 0};
  if (!dims_allowed(out)) return (echo_fault){ECHO_NPU_FAULT_DIM, 0};
  if (!strides_allowed(out)) return (echo_fault){ECHO_NPU_FAULT_STRIDE, 0};
  set_operands(packet, out);
  return (echo_fault){0, 0};
}

static int touches(const echo_operand* a, const echo_operand* b) {
  return a->used && b->used && a->addr < b->addr + b->bytes && b->addr < a->addr + a->bytes;
}

static int in_place(const echo_command* c, int source) {
  uint32_t stride = c->p[source == ECHO_SRC1 ? ECHO_NPU_P_STRIDE1 : ECHO_NPU_P_STRIDE2];
  int type = source == ECHO_SRC1 ? c->type1 : c->type2;
  return c->fn && c->op[source].addr == c->op[ECHO_DST].addr && type == c->type_dst &&
         (c->p[ECHO_NPU_P_ROWS] == 1 || stride == c->p[ECHO_NPU_P_STRIDE_DST]) &&
         c->op[source].bytes == c->op[ECHO_DST].bytes;
}

int echo_overlaps(const echo_command* c) {
  for (int i = ECHO_SRC1; i <= ECHO_SRC2; ++i)
    if (touches(&c->op[i], &c->op[ECHO_DST]) && !in_place(c, i)) return 1;
  return 0;
}

echo_fault echo_check_addresses(const echo_command* command, const echo_area* areas) {
  for (int i = 0; i < ECHO_OPERANDS; ++i) {
    const echo_operand* op = &command->op[i];
    if (op->used && op->addr % op->size) return (echo_fault){ECHO_NPU_FAULT_ALIGN, op->addr};
  }
  for (int i = 0; i < ECHO_OPERANDS; ++i) {
    const echo_operand* op = &command->op[i];
    int inside = !op->used;
    for (int a = 0; a < ECHO_NPU_AREAS; ++a)
      inside |= echo_area_holds(&areas[a], op->addr, op->bytes);
    if (!inside) return (echo_fault){ECHO_NPU_FAULT_RANGE, op->addr};
  }
  return (echo_fault){0, 0};
}
