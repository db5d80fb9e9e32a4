// echo_npu_hw.h - the hardware contract of the ECHO NPU.
//
// One header for both sides: C includes it, and tools/gen_vh.c turns every `#define NAME integer`
// line into a Verilog `define in echo_npu_defs.vh. So values are plain integer literals, one per
// line, and nothing here is an expression. docs/isa.md says what they mean.
#ifndef ECHO_NPU_HW_H
#define ECHO_NPU_HW_H

#include <stdint.h>

#define ECHO_NPU_ID 0x4543484f
#define ECHO_NPU_HW_VERSION 0x00010001

// ---- Architecture constants -------------------------------------------------------------------
// Fixed for every implementation: results depend on them. The matrix array size N, the bus width
// and all latencies are implementation parameters and never change a result.

#define ECHO_NPU_LANES 16
#define ECHO_NPU_PARTIALS 128
#define ECHO_NPU_ALIGN 64
#define ECHO_NPU_PACKET_BYTES 64
#define ECHO_NPU_PACKET_SHIFT 6

// Largest legal dimension, stride (in elements), linear copy (in bytes) and physical address.
#define ECHO_NPU_MAX_DIM 0x0fffffff
#define ECHO_NPU_MAX_STRIDE 0x7fffffff
#define ECHO_NPU_MAX_BYTES 0x10000000000
#define ECHO_NPU_ADDR_BITS 48

// ---- Command packet ---------------------------------------------------------------------------

typedef struct echo_npu_packet {
  uint32_t opcode;
  uint32_t flags;
  uint64_t src1;
  uint64_t src2;
  uint64_t dst;
  uint32_t param[8];
} echo_npu_packet;

#define ECHO_NPU_OP_NOP 0x00
#define ECHO_NPU_OP_MATMUL 0x01
#define ECHO_NPU_OP_ADD_TENSOR 0x02
#define ECHO_NPU_OP_MEMCPY 0x03
#define ECHO_NPU_OP_COPY 0x04
#define ECHO_NPU_OP_FILL 0x05
#define ECHO_NPU_OP_GATHER 0x06
#define ECHO_NPU_OP_SCATTER_ADD 0x07
#define ECHO_NPU_OP_VECTOR 0x08
#define ECHO_NPU_OP_REPEAT 0x0f
#define ECHO_NPU_OP_SYNC 0xff

// Position of each parameter. Words 0, 1 and 4 mean the same in every opcode that has them.
#define ECHO_NPU_P_ROWS 0
#define ECHO_NPU_P_COLS 1
#define ECHO_NPU_P_STRIDE1 2
#define ECHO_NPU_P_STRIDE2 3
#define ECHO_NPU_P_STRIDE_DST 4
#define ECHO_NPU_P_K 5
#define ECHO_NPU_P_ALPHA 5
#define ECHO_NPU_P_BETA 6
#define ECHO_NPU_P_CAUSAL 6
#define ECHO_NPU_P_COL_STRIDE_SRC 3
#define ECHO_NPU_P_COL_STRIDE_DST 5
#define ECHO_NPU_P_PATTERN 6
#define ECHO_NPU_P_TABLE_ROWS 5
#define ECHO_NPU_P_BYTES_LO 0
#define ECHO_NPU_P_BYTES_HI 1
#define ECHO_NPU_P_VALUE_LO 0
#define ECHO_NPU_P_VALUE_HI 1
// REPEAT: an outer and an inner loop, each a count and three strides (src1, src2, dst).
#define ECHO_NPU_P_OUTER 0
#define ECHO_NPU_P_INNER 4

// flags: bits 1..0 common, 9..4 data types, 15..10 per opcode, 23..16 vector function; rest zero.
#define ECHO_NPU_FLAG_IRQ 0x00000001
#define ECHO_NPU_FLAG_OVERLAP 0x00000002
#define ECHO_NPU_FLAG_T1_SHIFT 4
#define ECHO_NPU_FLAG_T2_SHIFT 6
#define ECHO_NPU_FLAG_TD_SHIFT 8
#define ECHO_NPU_FLAG_FN_SHIFT 16

#define ECHO_NPU_FLAG_TRANS_A 0x00000400
#define ECHO_NPU_FLAG_TRANS_B 0x00000800
#define ECHO_NPU_FLAG_ACCUMULATE 0x00001000

#define ECHO_NPU_FLAG_SRC2_BCAST 0x00000400
#define ECHO_NPU_FLAG_SRC2_IMM 0x00000800
#define ECHO_NPU_FLAG_SWAP 0x00001000
#define ECHO_NPU_FLAG_CAUSAL 0x00002000

#define ECHO_NPU_FLAG_INDEX64 0x00000400

#define ECHO_NPU_FLAG_STAMP 0x00000400

// Data types, two bits. ECHO_NPU_SIZE_LOG2_x of the type in the same order: 2, 1, 0, 2.
#define ECHO_NPU_F32 0
#define ECHO_NPU_BF16 1
#define ECHO_NPU_I8 2
#define ECHO_NPU_I32 3

// ---- Vector functions (flags 23..16) ----------------------------------------------------------
// x is src1, y is src2, a is alpha, b is beta. Programs: ucode/echo_ucode.c.

// Elementwise, two operands.
#define ECHO_NPU_FN_ADD 0x00
#define ECHO_NPU_FN_SUB 0x01
#define ECHO_NPU_FN_MUL 0x02
#define ECHO_NPU_FN_DIV 0x03
#define ECHO_NPU_FN_POW 0x04
#define ECHO_NPU_FN_MAX 0x05
#define ECHO_NPU_FN_MIN 0x06
#define ECHO_NPU_FN_AXPY 0x07
#define ECHO_NPU_FN_EQ 0x08
#define ECHO_NPU_FN_LT 0x09
#define ECHO_NPU_FN_LE 0x0a
#define ECHO_NPU_FN_SILU_BWD 0x10
#define ECHO_NPU_FN_GELU_BWD 0x11
#define ECHO_NPU_FN_TANH_BWD 0x12
#define ECHO_NPU_FN_SIGMOID_BWD 0x13
#define ECHO_NPU_FN_RELU_BWD 0x14
#define ECHO_NPU_FN_SILU_MUL 0x15
// Elementwise, one operand.
#define ECHO_NPU_FN_MOVE 0x20
#define ECHO_NPU_FN_NEG 0x21
#define ECHO_NPU_FN_ABS 0x22
#define ECHO_NPU_FN_SQRT 0x23
#define ECHO_NPU_FN_RSQRT 0x24
#define ECHO_NPU_FN_RECIP 0x25
#define ECHO_NPU_FN_EXP 0x26
#define ECHO_NPU_FN_LOG 0x27
#define ECHO_NPU_FN_SIN 0x28
#define ECHO_NPU_FN_COS 0x29
#define ECHO_NPU_FN_TANH 0x2a
#define ECHO_NPU_FN_SIGMOID 0x2b
#define ECHO_NPU_FN_SILU 0x2c
#define ECHO_NPU_FN_GELU 0x2d
#define ECHO_NPU_FN_GELU_TANH 0x2e
#define ECHO_NPU_FN_RELU 0x2f
#define ECHO_NPU_FN_SCALE 0x30
// Row reductions: dst holds one element per row.
#define ECHO_NPU_FN_ROW_SUM 0x40
#define ECHO_NPU_FN_ROW_MEAN 0x41
#define ECHO_NPU_FN_ROW_MAX 0x42
#define ECHO_NPU_FN_ROW_MIN 0x43
#define ECHO_NPU_FN_ROW_SUMSQ 0x44
#define ECHO_NPU_FN_ROW_DOT 0x45
// Row functions: dst holds a row per row.
#define ECHO_NPU_FN_SOFTMAX 0x50
#define ECHO_NPU_FN_SOFTMAX_MASK 0x51
#define ECHO_NPU_FN_LOG_SOFTMAX 0x52
#define ECHO_NPU_FN_SOFTMAX_BWD 0x53
#define ECHO_NPU_FN_RMS_NORM 0x54
#define ECHO_NPU_FN_LAYER_NORM 0x55
#define ECHO_NPU_FN_ROPE 0x56
#define ECHO_NPU_FN_ROPE_BWD 0x57

// ---- Vector microcode -------------------------------------------------------------------------
// A micro-operation is 32 bits: op 4..0, dst 8..5, a 15..9, b 22..16, c 29..23, negate a 30, negate
// c 31. An operand is a lane register 0..15, a row scalar 16..23 or a constant 32..127.

#define ECHO_NPU_UOP_MOV 0
#define ECHO_NPU_UOP_FMA 1
#define ECHO_NPU_UOP_MUL 2
#define ECHO_NPU_UOP_ADD 3
#define ECHO_NPU_UOP_MAX 4
#define ECHO_NPU_UOP_MIN 5
#define ECHO_NPU_UOP_F2I 6
#define ECHO_NPU_UOP_I2F 7
#define ECHO_NPU_UOP_IADD 8
#define ECHO_NPU_UOP_ISUB 9
#define ECHO_NPU_UOP_AND 10
#define ECHO_NPU_UOP_OR 11
#define ECHO_NPU_UOP_XOR 12
#define ECHO_NPU_UOP_SHL 13
#define ECHO_NPU_UOP_SHR 14
#define ECHO_NPU_UOP_SAR 15
#define ECHO_NPU_UOP_CLT 16
#define ECHO_NPU_UOP_CLE 17
#define ECHO_NPU_UOP_CEQ 18
#define ECHO_NPU_UOP_SEL 19

#define ECHO_NPU_UOP_NEG_P 0x40000000
#define ECHO_NPU_UOP_NEG_C 0x80000000
#define ECHO_NPU_UOP_SCALAR_BASE 16
#define ECHO_NPU_UOP_CONST_BASE 32
#define ECHO_NPU_UCODE_CONSTS 96

// A function is a list of passes over the row; a pass is 64 bits:
//   9..0 entry of the lane program, 19..10 its length, 29..20 entry of the post program,
//   39..30 its length, 43..40 loads (bit 0 X0->R0, 1 Y0->R1, 2 X1->R2, 3 Y1->R3), 45..44 reduction
//   of R0, 48..46 stores (bit 0 D0<-R0, bit 1 D1<-R1, bit 2 one scalar<-R0), 49 last pass.
#define ECHO_NPU_LOAD_X0 1
#define ECHO_NPU_LOAD_Y0 2
#define ECHO_NPU_LOAD_X1 4
#define ECHO_NPU_LOAD_Y1 8
#define ECHO_NPU_REDUCE_NONE 0
#define ECHO_NPU_REDUCE_SUM 1
#define ECHO_NPU_REDUCE_MAX 2
#define ECHO_NPU_STORE_D0 1
#define ECHO_NPU_STORE_D1 2
#define ECHO_NPU_STORE_SCALAR 4
#define ECHO_NPU_PASS_ENTRY_LSB 0
#define ECHO_NPU_PASS_LENGTH_LSB 10
#define ECHO_NPU_PASS_POST_LSB 20
#define ECHO_NPU_PASS_POST_LENGTH_LSB 30
#define ECHO_NPU_PASS_LOAD_LSB 40
#define ECHO_NPU_PASS_REDUCE_LSB 44
#define ECHO_NPU_PASS_STORE_LSB 46
#define ECHO_NPU_PASS_LAST_LSB 49

// ---- Status and errors ------------------------------------------------------------------------

#define ECHO_NPU_STATUS_IDLE 0
#define ECHO_NPU_STATUS_BUSY 1
#define ECHO_NPU_STATUS_DONE 2
#define ECHO_NPU_STATUS_ERROR 3

#define ECHO_NPU_FAULT_NONE 0
#define ECHO_NPU_FAULT_OPCODE 1
#define ECHO_NPU_FAULT_RESERVED 2
#define ECHO_NPU_FAULT_FUNCTION 3
#define ECHO_NPU_FAULT_DTYPE 4
#define ECHO_NPU_FAULT_DIM 5
#define ECHO_NPU_FAULT_STRIDE 6
#define ECHO_NPU_FAULT_ALIGN 7
#define ECHO_NPU_FAULT_RANGE 8
#define ECHO_NPU_FAULT_INDEX 9
#define ECHO_NPU_FAULT_REPEAT 10
#define ECHO_NPU_FAULT_RING 11
#define ECHO_NPU_FAULT_BUS_READ 12
#define ECHO_NPU_FAULT_BUS_WRITE 13
#define ECHO_NPU_FAULT_TIMEOUT 14
#define ECHO_NPU_FAULT_UNALLOCATED 15

// ---- Physical memory map ----------------------------------------------------------------------
// Three memory areas and the register window. Bases are fixed; sizes are a board's choice and are
// told to the device in the AREA registers. HIGH is for boards with more than 512 MiB.

#define ECHO_NPU_WEIGHT_BASE 0x00000000
#define ECHO_NPU_WEIGHT_MAX 0x10000000
#define ECHO_NPU_ACT_BASE 0x10000000
#define ECHO_NPU_ACT_MAX 0x10000000
#define ECHO_NPU_REG_BASE 0x20000000
#define ECHO_NPU_REG_BYTES 0x10000
#define ECHO_NPU_HIGH_BASE 0x100000000
#define ECHO_NPU_HIGH_MAX 0x10000000000
#define ECHO_NPU_AREAS 3
#define ECHO_NPU_AREA_WEIGHT 0
#define ECHO_NPU_AREA_ACT 1
#define ECHO_NPU_AREA_HIGH 2

// ---- Registers (byte offsets from ECHO_NPU_REG_BASE, 32 bits each) ----------------------------

#define ECHO_NPU_REG_ID 0x000
#define ECHO_NPU_REG_VERSION 0x004
#define ECHO_NPU_REG_CONFIG 0x008
#define ECHO_NPU_REG_CLOCK_MHZ 0x00c
#define ECHO_NPU_REG_CONTROL 0x010
#define ECHO_NPU_REG_STATUS 0x014
#define ECHO_NPU_REG_FAULT_CODE 0x018
#define ECHO_NPU_REG_FAULT_INDEX 0x01c
#define ECHO_NPU_REG_FAULT_ADDR_LO 0x020
#define ECHO_NPU_REG_FAULT_ADDR_HI 0x024
#define ECHO_NPU_REG_WATCHDOG 0x028
#define ECHO_NPU_REG_LAST_CYCLES 0x02c
#define ECHO_NPU_REG_RING_BASE_LO 0x030
#define ECHO_NPU_REG_RING_BASE_HI 0x034
#define ECHO_NPU_REG_RING_LOG2 0x038
#define ECHO_NPU_REG_RING_HEAD 0x03c
#define ECHO_NPU_REG_RING_TAIL 0x040
#define ECHO_NPU_REG_IRQ_STATUS 0x044
#define ECHO_NPU_REG_IRQ_ENABLE 0x048
// Area a: base at AREA + 16 a (low, high), limit (first byte after) at AREA + 16 a + 8.
#define ECHO_NPU_REG_AREA 0x080
// Counter c, 64 bits: low at COUNTER + 8 c, high after it. Reading low latches high.
#define ECHO_NPU_REG_COUNTER 0x100

#define ECHO_NPU_CONTROL_ENABLE 0x1
#define ECHO_NPU_CONTROL_RESET 0x2
#define ECHO_NPU_CONTROL_CLEAR_COUNTERS 0x4

#define ECHO_NPU_RING_LOG2_MIN 1
#define ECHO_NPU_RING_LOG2_MAX 16

#define ECHO_NPU_IRQ_PACKET 0x1
#define ECHO_NPU_IRQ_FAULT 0x2
#define ECHO_NPU_IRQ_DRAINED 0x4

// CONFIG: array size N 7..0, vector lanes 15..8, log2 of bus bytes 19..16, FMA latency 27..20.
#define ECHO_NPU_CONFIG_N_SHIFT 0
#define ECHO_NPU_CONFIG_LANES_SHIFT 8
#define ECHO_NPU_CONFIG_BUS_SHIFT 16
#define ECHO_NPU_CONFIG_LATENCY_SHIFT 20

#define ECHO_NPU_COUNTERS 10
#define ECHO_NPU_COUNTER_CYCLES 0
#define ECHO_NPU_COUNTER_BUSY 1
#define ECHO_NPU_COUNTER_PACKETS 2
#define ECHO_NPU_COUNTER_MATRIX_BUSY 3
#define ECHO_NPU_COUNTER_MACS 4
#define ECHO_NPU_COUNTER_VECTOR_BUSY 5
#define ECHO_NPU_COUNTER_UOPS 6
#define ECHO_NPU_COUNTER_COPY_BUSY 7
#define ECHO_NPU_COUNTER_READ_BEATS 8
#define ECHO_NPU_COUNTER_WRITE_BEATS 9

#endif  // ECHO_NPU_HW_H
