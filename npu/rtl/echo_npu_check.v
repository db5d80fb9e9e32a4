// echo_npu_check - the checks of a packet in the order of isa.md section 3.
//
// `decode` starts checks 1 to 7 and the computing of the operands' extents, one multiplication a cycle;
// `locate` starts checks 8 and 9 for the addresses given. `done` comes with a fault code or zero. A packet
// that uses an operand has its bit in `used`; `sizes` are log2 of the element sizes. Operands are numbered
// 0 src1, 1 src2, 2 dst.
module echo_npu_check (
    input wire clk,
    input wire clear,
    input wire decode,
    input wire locate,
    input wire [511:0] packet,
    input wire after_repeat,
    input wire [63:0] addr1,
    input wire [63:0] addr2,
    input wire [63:0] addr3,
    input wire [6*48-1:0] areas,
    output reg done,
    output reg [3:0] code,
    output reg [63:0] fault_addr,
    output reg [2:0] used,
    output reg [8:0] sizes,
    output wire [7:0] first_pass_index
);
  `include "echo_npu_defs.vh"
  `include "echo_npu_ucode.vh"

  localparam IDLE = 0, FUNCTION = 1, PASSES = 2, RULES = 3, OPERAND = 4, ROWS = 5, COLS = 6, ALIGN = 7,
      RANGE = 8;
  reg [3:0] state;

  wire [31:0] opcode = packet[31:0];
  wire [31:0] flags = packet[63:32];
  wire [63:0] src1 = packet[127:64], src2 = packet[191:128], dst = packet[255:192];
  wire [31:0] p0 = packet[287:256], p1 = packet[319:288], p2 = packet[351:320], p3 = packet[383:352],
      p4 = packet[415:384], p5 = packet[447:416], p6 = packet[479:448], p7 = packet[511:480];
  wire [1:0] t1 = flags[5:4], t2 = flags[7:6], td = flags[9:8];

  wire is_nop = opcode == `ECHO_NPU_OP_NOP;
  wire is_add = opcode == `ECHO_NPU_OP_ADD_TENSOR;
  wire is_matmul = opcode == `ECHO_NPU_OP_MATMUL;
  wire is_memcpy = opcode == `ECHO_NPU_OP_MEMCPY;
  wire is_copy = opcode == `ECHO_NPU_OP_COPY;
  wire is_fill = opcode == `ECHO_NPU_OP_FILL;
  wire is_gather = opcode == `ECHO_NPU_OP_GATHER;
  wire is_scatter = opcode == `ECHO_NPU_OP_SCATTER_ADD;
  wire is_repeat = opcode == `ECHO_NPU_OP_REPEAT;
  wire is_sync = opcode == `ECHO_NPU_OP_SYNC;
  wire is_vector = opcode == `ECHO_NPU_OP_VECTOR || is_add;
  wire known = is_nop | is_matmul | is_memcpy | is_copy | is_fill | is_gather | is_scatter | is_repeat |
      is_sync | is_vector;
  localparam [31:0] ADD32 = `ECHO_NPU_FN_ADD, AXPY32 = `ECHO_NPU_FN_AXPY;
  wire [7:0] fn = is_add ? AXPY32[7:0] : is_scatter ? ADD32[7:0] : flags[23:16];

  assign first_pass_index = entry[7:0];

  // What the passes of a vector function say.
  reg [8:0] entry;
  reg [7:0] pass_index;
  reg [63:0] pass;
  reg first_pass, loads_y, paired, reduction;

  // ---- Rules 4 to 7, except coinciding elements of COPY and FILL ----
  reg [31:0] flags_used;
  reg [7:0] params_used, strides;
  reg src1_used, src2_used, dst_used;
  wire imm = flags[11], bcast = flags[10];

  always @* begin
    flags_used = 32'h3;
    params_used = 8'h00;
    strides = 8'h00;
    {src1_used, src2_used, dst_used} = 3'b000;
    if (is_matmul) begin
      flags_used = 32'h00001ff3;
      params_used = 8'h3f;
      strides = 8'h1c;
      {src1_used, src2_used, dst_used} = 3'b111;
    end else if (is_vector) begin
      flags_used = is_add ? 32'h00003ff3 : 32'h00ff3ff3;
      params_used = is_add ? 8'h3f : 8'h7f;
      strides = 8'h1c;
      {src1_used, src2_used, dst_used} = 3'b111;
      if (!loads_y) flags_used = flags_used & ~32'h1cc0;
      if (imm) flags_used = flags_used & ~32'h04c0;
      if (!loads_y || imm) begin
        src2_used = 0;
        params_used[3] = 0;
      end
      if (paired) flags_used = flags_used & ~32'h1c00;
      if ({24'd0, fn} >= `ECHO_NPU_FN_MOVE) flags_used = flags_used & ~32'h1000;
      if ({24'd0, fn} < `ECHO_NPU_FN_SOFTMAX || {24'd0, fn} > `ECHO_NPU_FN_SOFTMAX_BWD) flags_used = flags_used & ~32'h2000;
    end else if (is_memcpy) begin
      params_used = 8'h03;
      {src1_used, src2_used, dst_used} = 3'b101;
    end else if (is_copy) begin
      flags_used = 32'h333;
      params_used = 8'h3f;
      strides = 8'h3c;
      {src1_used, src2_used, dst_used} = 3'b101;
    end else if (is_fill) begin
      flags_used = 32'h303;
      params_used = 8'h73;
      strides = 8'h30;
      {src1_used, src2_used, dst_used} = 3'b001;
    end else if (is_gather || is_scatter) begin
      flags_used = 32'h733;
      params_used = 8'h37;
      strides = 8'h14;
      {src1_used, src2_used, dst_used} = 3'b111;
    end else if (is_repeat) begin
      flags_used = 32'h0;
      params_used = 8'hff;
      strides = 8'hee;
    end else if (is_sync) begin
      if (dst != 0) begin
        flags_used = 32'h403;
        params_used = 8'h03;
        dst_used = 1;
      end
    end
  end

  function automatic big(input [31:0] n);  // not a dimension
    big = n == 0 || n > `ECHO_NPU_MAX_DIM;
  endfunction

  wire reserved = (flags & ~flags_used) != 0 || (!src1_used && src1 != 0) || (!src2_used && src2 != 0) ||
      (!dst_used && dst != 0) || (!params_used[0] && p0 != 0) || (!params_used[1] && p1 != 0) ||
      (!params_used[2] && p2 != 0) || (!params_used[3] && p3 != 0) || (!params_used[4] && p4 != 0) ||
      (!params_used[5] && p5 != 0) || (!params_used[6] && p6 != 0) || (!params_used[7] && p7 != 0);
  wire bad_types =
      is_matmul ? (t1 == 2'd2 ? t2 != 2'd2 || td != 2'd3 : t1 > 2'd1 || t2 > 2'd1 || td > 2'd1) :
      is_copy || is_gather ? t1 != td :
      is_scatter ? t1 > 2'd1 || td != 2'd0 : 1'b0;
  wire bad_dims =
      is_nop || is_sync ? 1'b0 :
      is_memcpy ? {p1, p0} == 0 || {p1, p0} > `ECHO_NPU_MAX_BYTES :
      is_repeat ? big(p0) || big(p4) :
      big(p0) || big(p1) || ((is_matmul || is_gather || is_scatter) && big(p5));
  wire [31:0] dst_row = !is_vector ? p1 : reduction ? 32'd1 : paired ? {p1[30:0], 1'b0} : p1;
  wire bad_strides = (strides[1] && p1[31]) || (strides[2] && p2[31]) || (strides[3] && p3[31]) ||
      (strides[4] && p4[31]) || (strides[5] && p5[31]) || (strides[6] && p6[31]) || (strides[7] && p7[31]) ||
      ((is_matmul || is_vector || is_gather) && p0 != 1 && p4 < dst_row) ||
      (is_scatter && p5 != 1 && p4 < p1) ||
      ((is_copy || is_fill) && ((p1 > 1 && p5 == 0) || (p0 > 1 && p4 == 0)));

  // ---- Extents ----
  reg [1:0] operand;
  reg [31:0] rows, stride, cols, col_stride;
  reg [58:0] row_span;
  reg [63:0] extent[0:2];
  wire [2:0] size = sizes[3*operand+:3];
  wire [31:0] factor_a = state == ROWS ? rows : cols;
  wire [31:0] factor_b = state == ROWS ? stride : col_stride;
  wire [31:0] factor_less = factor_a - 1;
  wire [58:0] product = {31'd0, factor_less[27:0]} * {28'd0, factor_b[30:0]};
  wire [63:0] elements = {5'd0, row_span} + {5'd0, product} + 64'd1;
  wire coincide = (is_copy || is_fill) && p0 > 1 && p1 > 1 && {28'd0, p4} < {1'b0, product} + 60'd1 &&
      {28'd0, p5} < {1'b0, row_span} + 60'd1;

  function automatic [2:0] log2_size(input [1:0] t);
    log2_size = t == 2'd1 ? 3'd1 : t == 2'd2 ? 3'd0 : 3'd2;
  endfunction

  // ---- Addresses ----
  wire [63:0] addr = operand == 0 ? addr1 : operand == 1 ? addr2 : addr3;
  function automatic misaligned(input [63:0] a, input [2:0] log2);
    misaligned = (a[3:0] & ~(4'hf << log2)) != 0;
  endfunction
  function automatic holds(input [63:0] a, input [63:0] bytes, input [47:0] base, input [47:0] limit);
    holds = a[63:48] == 0 && a[47:0] >= base && a[47:0] < limit && bytes <= {16'd0, limit - a[47:0]};
  endfunction
  wire [63:0] bytes = extent[operand];
  wire in_area = holds(addr, bytes, areas[47:0], areas[95:48]) ||
      holds(addr, bytes, areas[143:96], areas[191:144]) || holds(addr, bytes, areas[239:192], areas[287:240]);

  task finish(input [3:0] c, input [63:0] a);
    begin
      done <= 1;
      code <= c;
      fault_addr <= a;
      state <= IDLE;
    end
  endtask

  always @(posedge clk) begin
    done <= 0;
    if (clear) state <= IDLE;
    else
      case (state)
        IDLE: begin
          operand <= 0;
          if (decode) begin
            if (!known) finish(4'd1, 0);
            else if (after_repeat && (is_nop || is_sync || is_repeat)) finish(4'd10, 0);
            else state <= is_vector ? FUNCTION : RULES;
            {loads_y, paired, reduction} <= 3'b000;
            entry <= echo_ucode_function(fn);
          end else if (locate) state <= ALIGN;
        end
        FUNCTION: begin
          if (!entry[8]) finish(4'd3, 0);
          else state <= PASSES;
          pass_index <= entry[7:0];
          pass <= echo_ucode_pass(entry[7:0]);
          first_pass <= 1;
        end
        PASSES: begin
          loads_y <= loads_y | ((first_pass | pass[`ECHO_NPU_PASS_LAST_LSB]) & pass[`ECHO_NPU_PASS_LOAD_LSB+1]);
          if (first_pass) paired <= pass[`ECHO_NPU_PASS_LOAD_LSB+2] | pass[`ECHO_NPU_PASS_LOAD_LSB+3];
          reduction <= pass[`ECHO_NPU_PASS_STORE_LSB+2];
          first_pass <= 0;
          pass_index <= pass_index + 1;
          pass <= echo_ucode_pass(pass_index + 8'd1);
          if (pass[`ECHO_NPU_PASS_LAST_LSB]) state <= RULES;
        end
        RULES: begin
          used <= {dst_used, src2_used, src1_used};
          sizes <= is_memcpy ? 9'd0 : is_sync ? {flags[10] ? 3'd4 : 3'd3, 6'd0} :
              {log2_size(td), is_gather || is_scatter ? (flags[10] ? 3'd3 : 3'd2) : log2_size(t2), log2_size(t1)};
          if (reserved) finish(4'd2, 0);
          else if (bad_types) finish(4'd4, 0);
          else if (bad_dims) finish(4'd5, 0);
          else if (bad_strides) finish(4'd6, 0);
          else if (is_nop || is_repeat) finish(4'd0, 0);
          else state <= OPERAND;
        end
        OPERAND: begin
          rows <= p0;
          cols <= p1;
          col_stride <= 1;
          stride <= operand == 0 ? p2 : operand == 1 ? p3 : p4;
          state <= ROWS;
          if (is_matmul) begin
            if (operand == 0) {rows, cols} <= flags[10] ? {p5, p0} : {p0, p5};
            if (operand == 1) {rows, cols} <= flags[11] ? {p1, p5} : {p5, p1};
          end
          if (is_vector) begin
            if (operand == 1 && bcast) cols <= 1;
            else if (operand == 2) cols <= dst_row;
            else if (paired) cols <= {p1[30:0], 1'b0};
          end
          if (is_copy || is_fill) col_stride <= operand == 0 ? p3 : p5;
          if (is_gather && operand == 0) rows <= p5;
          if (is_scatter && operand == 2) rows <= p5;
          if ((is_gather || is_scatter) && operand == 1) {rows, cols} <= {32'd1, p0};
          if (is_sync) {rows, cols} <= {32'd1, 32'd1};
        end
        ROWS: begin
          row_span <= product;
          state <= COLS;
        end
        COLS: begin
          extent[operand] <= is_memcpy ? {p1, p0} : elements << size;
          operand <= operand + 1;
          state <= OPERAND;
          if (operand == 2) begin
            if (coincide) finish(4'd6, 0);
            else finish(4'd0, 0);
          end
        end
        ALIGN: begin
          state <= RANGE;
          operand <= 0;
          if (used[0] && misaligned(addr1, sizes[2:0])) finish(4'd7, addr1);
          else if (used[1] && misaligned(addr2, sizes[5:3])) finish(4'd7, addr2);
          else if (used[2] && misaligned(addr3, sizes[8:6])) finish(4'd7, addr3);
        end
        RANGE: begin
          operand <= operand + 1;
          if (used[operand] && !in_area) finish(4'd8, addr);
          else if (operand == 2) finish(4'd0, 0);
        end
        default: state <= IDLE;
      endcase
  end
endmodule
