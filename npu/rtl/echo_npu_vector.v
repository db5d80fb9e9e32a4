// echo_npu_vector - the vector unit: VECTOR, ADD_TENSOR and SCATTER_ADD.
//
// Runs the passes of a function (microcode ROM) over each row in blocks of 128 columns. A register is 8
// beats of 16 lanes; a micro-operation issues one beat a cycle and its result can be read 7 cycles later,
// which 8 beats hide. The partial results of a reduction are one more register (ACC); adding them up uses
// the same pipeline with an offset in beats, then in lanes.
module echo_npu_vector (
    input wire clk,
    input wire clear,
    input wire start,
    input wire [511:0] packet,
    input wire [47:0] src1,
    input wire [47:0] src2,
    input wire [47:0] dst,
    input wire [7:0] first_pass,
    output wire done,
    output reg index_fault,
    output wire [47:0] index_fault_addr,
    output reg [4:0] count_uops,
    output wire rd_run,
    input wire rd_run_ready,
    output wire [47:0] rd_addr,
    output wire [40:0] rd_bytes,
    input wire [7:0] rd_avail,
    input wire [511:0] rd_data,
    output wire [6:0] rd_take,
    output wire unpack,
    output wire [1:0] unpack_type,
    input wire [511:0] lanes,
    output wire wr_run,
    input wire wr_run_ready,
    output wire [47:0] wr_addr,
    output wire [40:0] wr_bytes,
    input wire wr_idle,
    output wire pack,
    input wire pack_ready,
    output wire [1:0] pack_type,
    output wire [4:0] pack_count,
    output wire [511:0] pack_lanes
);
  `include "echo_npu_defs.vh"
  `include "echo_npu_ucode.vh"

  localparam LATENCY = 7;
  localparam [6:0] ACC = 7'd24;
  localparam [6:0] S_BCAST = 7'd23;
  localparam [31:0] OP_MOV = `ECHO_NPU_UOP_MOV, OP_ADD = `ECHO_NPU_UOP_ADD, OP_MAX = `ECHO_NPU_UOP_MAX,
      OP_FMA = `ECHO_NPU_UOP_FMA, OP_MUL = `ECHO_NPU_UOP_MUL;

  // ---- Command ----
  wire is_scatter = packet[31:0] == `ECHO_NPU_OP_SCATTER_ADD;
  wire [1:0] t1 = packet[37:36], td = packet[41:40];
  wire [1:0] t2 = is_scatter ? td : packet[39:38];
  wire bcast = packet[42] && !is_scatter;
  wire imm = packet[43], swap = packet[44], causal = packet[45];
  wire wide_index = packet[42];
  wire [31:0] p0 = packet[287:256], p1 = packet[319:288], p2 = packet[351:320], p3 = packet[383:352],
      p4 = packet[415:384], p5 = packet[447:416], p6 = packet[479:448];
  wire [27:0] rows = p0[27:0], cols = p1[27:0];
  function automatic [1:0] log2_size(input [1:0] t);
    log2_size = t == 2'd1 ? 2'd1 : t == 2'd2 ? 2'd0 : 2'd2;
  endfunction
  wire [1:0] size_x = log2_size(t1), size_y = log2_size(t2), size_d = log2_size(td);
  wire [47:0] step_x = {16'd0, p2} << size_x, step_y = {16'd0, p3} << size_y, step_d = {16'd0, p4} << size_d;
  wire [3:0] load_mask = imm ? 4'b0101 : 4'b1111;

  // ---- Sequencer ----
  localparam OFF = 0, ROW = 1, INDEX = 2, INDEX_WAIT = 3, INDEX_CHECK = 4, PASS = 5, BLOCK = 6, LOAD = 7, SPREAD = 8,
      FETCH = 9, PROGRAM = 10, STORE = 11, STORE_READ = 12, STORE_PUSH = 13, BLOCK_NEXT = 14, TREE = 15,
      POST_MOVE = 16, POST_FETCH = 17, POST = 18, POST_END = 19, SCALAR = 20, SCALAR_PUSH = 21, ZERO = 22,
      ZERO_PUSH = 23, PASS_NEXT = 24;
  reg [4:0] state;
  reg [27:0] rows_left, col;
  reg [32:0] seen;
  reg [47:0] row_d, index_addr;
  reg [7:0] pass_index;
  reg [63:0] pass;
  reg [2:0] pass_number;
  reg [3:0] todo;
  reg [3:0] beat;
  reg [27:0] zero_left;
  reg [31:0] s[0:7];
  reg [9:0] pc, left;
  reg [31:0] word;
  reg [2:0] tree_step;
  reg second_store;

  wire [9:0] pass_entry = pass[`ECHO_NPU_PASS_ENTRY_LSB+:10], pass_length = pass[`ECHO_NPU_PASS_LENGTH_LSB+:10];
  wire [9:0] post_entry = pass[`ECHO_NPU_PASS_POST_LSB+:10], post_length = pass[`ECHO_NPU_PASS_POST_LENGTH_LSB+:10];
  wire [3:0] pass_loads = pass[`ECHO_NPU_PASS_LOAD_LSB+:4] & load_mask;
  wire [1:0] pass_reduce = pass[`ECHO_NPU_PASS_REDUCE_LSB+:2];
  wire [2:0] pass_store = pass[`ECHO_NPU_PASS_STORE_LSB+:3];
  wire pass_last = pass[`ECHO_NPU_PASS_LAST_LSB];
  wire reduce_max = pass_reduce == 2'd2;
  wire spread_y = pass[`ECHO_NPU_PASS_LOAD_LSB+1] && (imm || bcast);

  wire [27:0] valid = causal && seen < {5'd0, cols} ? seen[27:0] : cols;
  wire [27:0] columns_left = valid - col;
  wire [7:0] n = columns_left > 28'd128 ? 8'd128 : columns_left[7:0];
  wire [3:0] beats = n[7:4] + {3'd0, n[3:0] != 0};
  wire [7:0] beat_left = n - {beat[3:0], 4'd0};
  wire [4:0] beat_lanes = beat_left > 8'd16 ? 5'd16 : beat_left[4:0];

  // ---- Loading ----
  wire [1:0] pick = todo[0] ? 2'd0 : todo[1] ? 2'd1 : todo[2] ? 2'd2 : 2'd3;
  wire pick_bcast = pick == 2'd2 && bcast;
  wire [1:0] load_size = pick[1] ? size_y : size_x;
  wire [4:0] load_lanes = pick_bcast ? 5'd1 : beat_lanes;
  wire [6:0] load_bytes = {2'd0, load_lanes} << load_size;
  wire pipe_empty;
  assign unpack = state == LOAD && todo != 0 && rd_avail >= {1'b0, load_bytes};
  assign unpack_type = pick[1] ? t2 : t1;
  reg load_write, load_bcast;
  reg [7:0] load_addr;
  wire [6:0] index_bytes = wide_index ? 7'd8 : 7'd4;
  wire index_take = state == INDEX_WAIT && rd_avail >= {1'b0, index_bytes};
  assign rd_take = unpack ? load_bytes : index_take ? index_bytes : 7'd0;
  // X0 goes to R0, Y0 to R1 (exchanged by SWAP), X1 to R2, Y1 to R3.
  wire [4:0] load_reg = pick == 2'd0 ? {4'd0, swap} : pick == 2'd2 ? {4'd0, !swap} : pick == 2'd1 ? 5'd2 : 5'd3;

  // ---- Index of SCATTER_ADD ----
  reg [63:0] index;
  wire bad_index = index[63] || index >= {32'd0, p5};
  wire [58:0] table_product = {31'd0, index[27:0]} * {28'd0, p4[30:0]};
  wire [47:0] table_row = dst + (table_product[47:0] << 2);
  wire row_go = state == INDEX_CHECK && !bad_index;
  assign index_fault_addr = index_addr;

  wire loads_run;
  wire [47:0] loads_addr;
  wire [40:0] loads_bytes;
  echo_npu_vector_loads loads (
      .clk(clk), .clear(clear), .start(start), .by_row(is_scatter), .row_go(row_go), .row_y_addr(table_row),
      .first_pass(first_pass), .load_mask(load_mask), .bcast(bcast), .causal(causal && !is_scatter),
      .causal_count(p6), .rows(rows), .cols(cols), .size_x(size_x), .size_y(size_y), .src1(src1), .src2(src2),
      .step_x(step_x), .step_y(step_y), .run(loads_run), .run_ready(rd_run_ready), .run_addr(loads_addr),
      .run_bytes(loads_bytes));
  wire index_run = state == INDEX && wr_idle;
  assign rd_run = loads_run || index_run;
  assign rd_addr = index_run ? index_addr : loads_addr;
  assign rd_bytes = index_run ? {34'd0, index_bytes} : loads_bytes;

  // ---- Micro-operation in issue ----
  reg u_active;
  reg [4:0] u_op, u_dst;
  reg [6:0] u_a, u_b, u_c;
  reg [31:0] u_sa, u_sb, u_sc;
  reg u_neg_a, u_neg_c;
  reg [3:0] u_beats, u_beat, u_count;
  reg [2:0] u_offset;  // beats added to the c (or b) operand's
  reg [3:0] u_rotate;  // lanes likewise
  reg u_mask;          // columns that do not exist read as the identity of the reduction
  reg u_counted, u_single;
  wire u_issue = u_active && u_beat < u_beats;
  wire u_free = !u_active || (u_count >= LATENCY - 1 && u_beat + 4'd1 >= u_beats);

  function automatic [31:0] scalar_value(input [6:0] operand);
    scalar_value = operand[6:5] != 0 ? echo_ucode_const(operand - 7'd32) : s[operand[2:0]];
  endfunction
  function automatic is_register(input [6:0] operand);
    is_register = operand < 7'd16 || operand == ACC;
  endfunction

  task launch(input [31:0] w, input [3:0] count, input counted);
    begin
      u_active <= 1;
      u_beat <= 0;
      u_count <= 0;
      u_op <= w[4:0];
      u_dst <= {1'b0, w[8:5]};
      u_a <= w[15:9];
      u_b <= w[22:16];
      u_c <= w[29:23];
      u_sa <= scalar_value(w[15:9]);
      u_sb <= scalar_value(w[22:16]);
      u_sc <= scalar_value(w[29:23]);
      u_neg_a <= w[30];
      u_neg_c <= w[31];
      u_beats <= count;
      u_offset <= 0;
      u_rotate <= 0;
      u_mask <= 0;
      u_counted <= counted;
      u_single <= 0;
    end
  endtask

  // ACC = ACC + other, or the larger; `other` is an operand of ADD's c and MAX's b.
  task launch_reduce(input [6:0] other, input [3:0] count);
    begin
      launch({2'b00, other, other, ACC, 4'd0, reduce_max ? OP_MAX[4:0] : OP_ADD[4:0]}, count, 1'b0);
      u_dst <= ACC[4:0];
    end
  endtask

  // ---- Register file: one copy for each operand ----
  wire store_read = state == STORE_READ || (state == STORE_PUSH && pack && beat + 4'd1 < beats);
  wire [3:0] store_beat = state == STORE_READ ? 4'd0 : beat + 4'd1;
  wire [7:0] read_a = store_read ? {4'd0, second_store, store_beat[2:0]} : {u_a[4:0], u_beat[2:0]};
  wire [7:0] read_b = {u_b[4:0], u_beat[2:0] + u_offset};
  wire [7:0] read_c = {u_c[4:0], u_beat[2:0] + u_offset};
  wire [511:0] rf_a, rf_b, rf_c;
  wire z_valid;
  wire [511:0] z;
  wire [7:0] z_addr;
  wire rf_we = z_valid || load_write;
  wire [7:0] rf_waddr = z_valid ? z_addr : load_addr;
  wire [511:0] rf_wdata = z_valid ? z : lanes;
  echo_npu_ram #(.WIDTH(512), .DEPTH(256), .ABITS(8)) file_a (
      .clk(clk), .we(rf_we), .waddr(rf_waddr), .wdata(rf_wdata), .re(u_issue || store_read), .raddr(read_a), .rdata(rf_a));
  echo_npu_ram #(.WIDTH(512), .DEPTH(256), .ABITS(8)) file_b (
      .clk(clk), .we(rf_we), .waddr(rf_waddr), .wdata(rf_wdata), .re(u_issue), .raddr(read_b), .rdata(rf_b));
  echo_npu_ram #(.WIDTH(512), .DEPTH(256), .ABITS(8)) file_c (
      .clk(clk), .we(rf_we), .waddr(rf_waddr), .wdata(rf_wdata), .re(u_issue), .raddr(read_c), .rdata(rf_c));

  // ---- Operands ----
  reg x_valid, x_reg_a, x_reg_b, x_reg_c, x_neg_a, x_neg_c, x_mask;
  reg [4:0] x_op, x_lanes;
  reg [31:0] x_sa, x_sb, x_sc;
  reg [3:0] x_rotate;
  reg [7:0] x_dst;
  wire x_is_fma = x_op == OP_FMA[4:0] || x_op == OP_MUL[4:0] || x_op == OP_ADD[4:0];
  wire [511:0] identity = {16{reduce_max ? 32'hff800000 : 32'd0}};
  wire [511:0] lane_mask = {512{1'b1}} << {x_lanes, 5'd0};  // lanes that do not exist
  wire [511:0] other = x_op == OP_MAX[4:0] ? rf_b : rf_c;
  wire [511:0] other_rotated = other >> {x_rotate, 5'd0};
  wire [511:0] other_masked = x_mask ? (other_rotated & ~lane_mask) | (identity & lane_mask) : other_rotated;
  wire [511:0] in_a = (x_reg_a ? rf_a : {16{x_sa}}) ^ {16{x_neg_a, 31'd0}};
  wire [511:0] in_b = !x_reg_b ? {16{x_sb}} : x_op == OP_MAX[4:0] ? other_masked : rf_b;
  wire [511:0] in_c = (!x_reg_c ? {16{x_sc}} : x_op == OP_MAX[4:0] ? rf_c : other_masked) ^ {16{x_neg_c, 31'd0}};

  reg y_valid, y_bypass;
  reg [511:0] y_a, y_b, y_c;
  reg [7:0] y_dst, f1_dst, f2_dst, f3_dst, f4_dst;
  reg f1, f2, f3;
  wire [511:0] alu_z;
  echo_npu_alu alu (
      .clk(clk), .en(x_valid && !x_is_fma), .op(x_op), .a(in_a), .b(in_b), .c(in_c), .z(alu_z));
  echo_npu_fma #(.W(16)) fma (
      .clk(clk), .valid(y_valid), .a(y_a), .b(y_b), .c(y_c), .bypass(y_bypass), .bypass_value(alu_z),
      .z_valid(z_valid), .z(z));
  assign z_addr = f4_dst;
  assign pipe_empty = !u_active && !x_valid && !y_valid && !f1 && !f2 && !f3 && !z_valid;

  always @(posedge clk)
    if (clear) {x_valid, y_valid, f1, f2, f3} <= 0;
    else begin
      x_valid <= u_issue;
      y_valid <= x_valid;
      {f1, f2, f3} <= {y_valid, f1, f2};
      if (u_issue) begin
        x_op <= u_op;
        {x_reg_a, x_reg_b, x_reg_c} <= {is_register(u_a), is_register(u_b), is_register(u_c)};
        {x_sa, x_sb, x_sc} <= {u_sa, u_sb, u_sc};
        {x_neg_a, x_neg_c} <= {u_neg_a, u_neg_c};
        x_rotate <= u_rotate;
        x_mask <= u_mask && n - {u_beat, 4'd0} < 8'd16;
        x_lanes <= {1'b0, n[3:0]};
        x_dst <= {u_dst, u_beat[2:0]};
      end
      if (x_valid) begin
        y_bypass <= !x_is_fma;
        y_dst <= x_dst;
        if (x_is_fma) begin
          y_a <= in_a;
          y_b <= x_op == OP_ADD[4:0] ? {16{32'h3f800000}} : in_b;
          y_c <= x_op == OP_MUL[4:0] ? {16{32'h80000000}} : in_c;
        end
      end
      f1_dst <= y_dst;
      f2_dst <= f1_dst;
      f3_dst <= f2_dst;
      f4_dst <= f3_dst;
    end

  wire [7:0] u_lanes_left = n - {u_beat, 4'd0};
  always @*
    if (!u_issue || !u_counted) count_uops = 0;
    else if (u_single) count_uops = 1;
    else count_uops = u_lanes_left > 8'd16 ? 5'd16 : u_lanes_left[4:0];

  // ---- Storing ----
  reg [31:0] result;  // lane 0 of the last R0, beat 0
  wire [28:0] store_element = {1'b0, col} + (second_store ? {1'b0, cols} : 29'd0);
  assign wr_run = state == STORE || state == SCALAR || state == ZERO;
  assign wr_addr = state == STORE ? row_d + ({19'd0, store_element} << size_d) :
      state == ZERO ? row_d + ({20'd0, valid} << size_d) : row_d;
  assign wr_bytes = state == STORE ? {33'd0, n} << size_d :
      state == ZERO ? {13'd0, cols - valid} << size_d : 41'd1 << size_d;
  wire zero_last = zero_left <= 28'd16;
  assign pack = pack_ready && (state == STORE_PUSH || state == SCALAR_PUSH || state == ZERO_PUSH);
  assign pack_type = td;
  assign pack_count = state == STORE_PUSH ? beat_lanes : state == SCALAR_PUSH ? 5'd1 : zero_last ? zero_left[4:0] : 5'd16;
  assign pack_lanes = state == STORE_PUSH ? rf_a : state == SCALAR_PUSH ? {480'd0, result} : 512'd0;

  reg working;
  assign done = working && state == OFF;

  always @(posedge clk)
    if (clear) begin
      state <= OFF;
      working <= 0;
      u_active <= 0;
      load_write <= 0;
      index_fault <= 0;
    end else begin
      load_write <= unpack && !pick_bcast;
      load_bcast <= unpack && pick_bcast;
      load_addr <= {load_reg, beat[2:0]};
      if (load_bcast) s[7] <= lanes[31:0];
      if (z_valid && z_addr == 8'd0) result <= z[31:0];
      if (u_active) begin
        u_count <= u_count + {3'd0, u_count != 4'd15};
        if (u_issue) u_beat <= u_beat + 1;
        if (u_free) u_active <= 0;
      end

      case (state)
        OFF: begin
          if (done) working <= 0;
          if (start) begin
            working <= 1;
            index_fault <= 0;
            state <= ROW;
            rows_left <= rows;
            row_d <= dst;
            index_addr <= src2;
            seen <= {1'b0, p6};
          end
        end
        ROW: begin
          s[0] <= p5;
          s[1] <= p6;
          pass_index <= first_pass;
          pass <= echo_ucode_pass(first_pass);
          pass_number <= 0;
          state <= is_scatter ? INDEX : PASS;
        end
        INDEX: if (index_run && rd_run_ready) state <= INDEX_WAIT;
        INDEX_WAIT:
        if (index_take) begin
          index <= wide_index ? rd_data[63:0] : {{32{rd_data[31]}}, rd_data[31:0]};
          state <= INDEX_CHECK;
        end
        INDEX_CHECK: begin
          row_d <= table_row;
          index_addr <= index_addr + {41'd0, index_bytes};
          state <= PASS;
          if (bad_index) begin
            index_fault <= 1;
            index_addr <= index_addr;
            state <= OFF;
          end
        end
        PASS:
        if (u_free) begin
          col <= 0;
          state <= BLOCK;
          if (pass_reduce != 0) begin
            launch(OP_MOV, 4'd8, 1'b0);
            u_dst <= ACC[4:0];
            u_a <= 7'd32;
            u_sa <= reduce_max ? 32'hff800000 : 32'd0;
          end
        end
        BLOCK: begin
          todo <= {pass_loads[3], pass_loads[1], pass_loads[2], pass_loads[0]};
          beat <= 0;
          if (columns_left == 0 && pipe_empty) begin
            tree_step <= 0;
            state <= pass_reduce != 0 ? TREE : pass_store[1:0] != 0 && valid < cols ? ZERO : PASS_NEXT;
          end else if (pipe_empty) state <= LOAD;
        end
        LOAD:
        if (todo == 0) begin
          pc <= pass_entry;
          left <= pass_length;
          state <= spread_y ? SPREAD : FETCH;
        end else if (unpack) begin
          beat <= beat + 1;
          if (pick_bcast || beat + 4'd1 == beats) begin
            beat <= 0;
            todo <= todo & (todo - 4'd1);
          end
        end
        SPREAD: begin  // one idle cycle lets the last load and s[7] settle
          if (!load_write && !load_bcast) begin
            launch(OP_MOV, beats, 1'b0);
            u_dst <= {4'd0, !swap};
            u_a <= S_BCAST;
            u_sa <= imm ? p5 : s[7];
            state <= FETCH;
          end
        end
        FETCH: begin
          word <= echo_ucode_word(pc);
          if (!load_write) state <= PROGRAM;
        end
        PROGRAM:
        if (u_free) begin
          if (left == 0) begin
            if (pass_reduce != 0) begin
              launch_reduce(7'd0, beats);
              u_mask <= 1;
            end
            second_store <= 0;
            state <= pass_store[1:0] != 0 ? STORE : BLOCK_NEXT;
          end else begin
            launch(word, beats, 1'b1);
            pc <= pc + 1;
            word <= echo_ucode_word(pc + 10'd1);
            left <= left - 1;
          end
        end
        STORE: if (wr_run_ready) state <= STORE_READ;
        STORE_READ: begin
          beat <= 0;
          if (pipe_empty) state <= STORE_PUSH;
        end
        STORE_PUSH:
        if (pack) begin
          beat <= beat + 1;
          if (beat + 4'd1 == beats) begin
            second_store <= 1;
            state <= pass_store[1] && !second_store ? STORE : BLOCK_NEXT;
          end
        end
        BLOCK_NEXT:
        if (pipe_empty) begin
          col <= col + {20'd0, n};
          state <= BLOCK;
        end
        TREE:  // reads beats of the step before, so that must be complete
        if (pipe_empty) begin
          tree_step <= tree_step + 1;
          case (tree_step)
            3'd0: launch_reduce(ACC, 4'd4);
            3'd1: launch_reduce(ACC, 4'd2);
            default: launch_reduce(ACC, 4'd1);
          endcase
          u_offset <= tree_step == 3'd0 ? 3'd4 : tree_step == 3'd1 ? 3'd2 : tree_step == 3'd2 ? 3'd1 : 3'd0;
          u_rotate <= tree_step == 3'd3 ? 4'd8 : tree_step == 3'd4 ? 4'd4 : tree_step == 3'd5 ? 4'd2 :
              tree_step == 3'd6 ? 4'd1 : 4'd0;
          if (tree_step == 3'd6) state <= POST_MOVE;
        end
        POST_MOVE:
        if (u_free) begin
          launch(OP_MOV, 4'd1, 1'b0);
          u_a <= ACC;
          pc <= post_entry;
          left <= post_length;
          state <= POST_FETCH;
        end
        POST_FETCH: begin
          word <= echo_ucode_word(pc);
          state <= POST;
        end
        POST:
        if (u_free) begin
          if (left == 0) state <= POST_END;
          else begin
            launch(word, 4'd1, 1'b1);
            u_single <= 1;
            pc <= pc + 1;
            word <= echo_ucode_word(pc + 10'd1);
            left <= left - 1;
          end
        end
        POST_END:
        if (pipe_empty) begin
          s[3'd2+pass_number] <= result;
          state <= pass_store[2] ? SCALAR : PASS_NEXT;
        end
        SCALAR: if (wr_run_ready) state <= SCALAR_PUSH;
        SCALAR_PUSH: if (pack) state <= PASS_NEXT;
        ZERO: begin
          zero_left <= cols - valid;
          if (wr_run_ready) state <= ZERO_PUSH;
        end
        ZERO_PUSH:
        if (pack) begin
          zero_left <= zero_left - 28'd16;
          if (zero_last) state <= PASS_NEXT;
        end
        PASS_NEXT: begin
          pass_index <= pass_index + 1;
          pass <= echo_ucode_pass(pass_index + 8'd1);
          pass_number <= pass_number + 1;
          state <= PASS;
          if (pass_last) begin
            rows_left <= rows_left - 1;
            row_d <= row_d + step_d;
            seen <= seen + 1;
            state <= rows_left == 1 ? OFF : ROW;
          end
        end
        default: state <= OFF;
      endcase
    end
endmodule
