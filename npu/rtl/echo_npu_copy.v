// echo_npu_copy - the copy engine: MEMCPY, COPY, FILL and GATHER.
//
// Two loops make runs for the reader and for the writer, a row at a time where the column stride is one,
// else an element at a time; between them a pump moves bytes and knows nothing of rows. GATHER reads a bus
// beat of indices at a time, then makes both runs of a row together.
module echo_npu_copy (
    input wire clk,
    input wire clear,
    input wire start,
    input wire [511:0] packet,
    input wire [47:0] src1,
    input wire [47:0] src2,
    input wire [47:0] dst,
    output wire done,
    output reg index_fault,
    output wire [47:0] index_fault_addr,
    output wire rd_run,
    input wire rd_run_ready,
    output wire [47:0] rd_addr,
    output wire [40:0] rd_bytes,
    input wire [7:0] rd_avail,
    input wire [511:0] rd_data,
    output wire [6:0] rd_take,
    input wire rd_idle,
    output wire wr_run,
    input wire wr_run_ready,
    output wire [47:0] wr_addr,
    output wire [40:0] wr_bytes,
    output wire wr_push,
    input wire wr_push_ready,
    output wire [6:0] wr_push_bytes,
    output wire [511:0] wr_push_data
);
  `include "echo_npu_defs.vh"

  wire [31:0] opcode = packet[31:0];
  wire is_memcpy = opcode == `ECHO_NPU_OP_MEMCPY;
  wire is_fill = opcode == `ECHO_NPU_OP_FILL;
  wire is_gather = opcode == `ECHO_NPU_OP_GATHER;
  wire [31:0] p0 = packet[287:256], p1 = packet[319:288], p2 = packet[351:320], p3 = packet[383:352],
      p4 = packet[415:384], p5 = packet[447:416], p6 = packet[479:448];
  wire [1:0] dtype = packet[41:40];
  wire [1:0] size = is_memcpy ? 2'd0 : dtype == 2'd1 ? 2'd1 : dtype == 2'd2 ? 2'd0 : 2'd2;

  wire [40:0] row_bytes = is_memcpy ? {p1[8:0], p0} : {13'd0, p1[27:0]} << size;
  wire [40:0] element_bytes = 41'd1 << size;
  wire by_row_src = is_memcpy || is_gather || p3 == 1 || p1 == 1;
  wire by_row_dst = is_memcpy || is_gather || p5 == 1 || p1 == 1;
  wire [27:0] rows = is_memcpy ? 28'd1 : p0[27:0];
  wire [27:0] cols = p1[27:0];
  wire [47:0] row_step_src = {16'd0, p2} << size, col_step_src = {16'd0, p3} << size;
  wire [47:0] row_step_dst = {16'd0, p4} << size, col_step_dst = {16'd0, p5} << size;

  // ---- Reading loop (and GATHER's rows) ----
  localparam R_OFF = 0, R_RUN = 1, R_INDEX = 2, R_INDEX_WAIT = 3, R_CHECK = 4, R_ROW = 5, R_DRY = 6;
  reg [2:0] rstate;
  reg [27:0] rrow, rcol;  // rows, columns left after this one
  reg [47:0] rrow_addr, raddr;
  reg [511:0] indices;
  reg [4:0] batch;
  reg [47:0] index_addr;
  wire wide = packet[32+10];
  wire [4:0] batch_max = wide ? 5'd8 : 5'd16;
  wire [27:0] rows_now = rrow + 28'd1;
  wire [4:0] batch_next = rows_now < {23'd0, batch_max} ? rows_now[4:0] : batch_max;
  wire [6:0] batch_bytes = wide ? {batch[3:0], 3'd0} : {batch, 2'd0};
  wire [63:0] index = wide ? indices[63:0] : {{32{indices[31]}}, indices[31:0]};
  wire bad_index = index[63] || index >= {32'd0, p5};
  reg [47:0] table_offset;
  wire [58:0] table_product = {31'd0, index[27:0]} * {28'd0, p2[30:0]};

  // ---- Writing loop ----
  reg wactive;
  reg [27:0] wrow, wcol;
  reg [47:0] wrow_addr, waddr;
  wire gather_row = rstate == R_ROW && rd_run_ready && wr_run_ready;
  reg [40:0] fill_left;
  wire fill_push = is_fill && fill_left != 0 && wr_push_ready;
  wire wr_allowed = !is_fill || fill_left == 0;

  assign rd_run = rstate == R_RUN || rstate == R_INDEX || (rstate == R_ROW && wr_run_ready);
  assign rd_addr = rstate == R_INDEX ? index_addr : rstate == R_ROW ? src1 + table_offset : raddr;
  assign rd_bytes = rstate == R_INDEX ? {34'd0, batch_bytes} : by_row_src ? row_bytes : element_bytes;
  assign wr_run = (wactive && wr_allowed) || gather_row;
  assign wr_addr = waddr;
  assign wr_bytes = by_row_dst ? row_bytes : element_bytes;
  wire wr_made = wr_run && wr_run_ready;

  // ---- Pump ----
  wire pump = !is_fill && rstate != R_INDEX && rstate != R_INDEX_WAIT && wr_push_ready && rd_avail != 0;
  wire [6:0] pump_bytes = rd_avail > 8'd64 ? 7'd64 : rd_avail[6:0];
  wire [6:0] fill_bytes = fill_left > 41'd64 ? 7'd64 : fill_left[6:0];
  wire [511:0] pattern = size == 2'd0 ? {64{p6[7:0]}} : size == 2'd1 ? {32{p6[15:0]}} : {16{p6}};
  wire [511:0] source = is_fill ? pattern : rd_data;
  wire index_take = rstate == R_INDEX_WAIT && rd_avail >= {1'b0, batch_bytes};
  assign rd_take = pump ? pump_bytes : index_take ? batch_bytes : 7'd0;
  assign wr_push = pump || fill_push;
  assign wr_push_bytes = is_fill ? fill_bytes : pump_bytes;
  assign wr_push_data = wr_push_bytes == 7'd64 ? source : source & ~({512{1'b1}} << {wr_push_bytes, 3'd0});

  reg working;
  assign done = working && rstate == R_OFF && !wactive && rd_idle && fill_left == 0;
  assign index_fault_addr = index_addr;

  always @(posedge clk)
    if (clear) begin
      working <= 0;
      rstate <= R_OFF;
      wactive <= 0;
      fill_left <= 0;
      index_fault <= 0;
    end else begin
      if (start) begin
        working <= 1;
        index_fault <= 0;
        rstate <= is_fill ? R_OFF : is_gather ? R_DRY : R_RUN;
        wactive <= !is_gather;
        {rrow, rcol} <= {rows - 28'd1, cols - 28'd1};
        {wrow, wcol} <= {rows - 28'd1, cols - 28'd1};
        {rrow_addr, raddr} <= {src1, src1};
        {wrow_addr, waddr} <= {dst, dst};
        index_addr <= src2;
        fill_left <= 0;
      end else if (done) working <= 0;

      case (rstate)
        R_RUN:
        if (rd_run_ready) begin
          rcol <= rcol - 1;
          raddr <= raddr + col_step_src;
          if (by_row_src || rcol == 0) begin
            rcol <= cols - 28'd1;
            rrow <= rrow - 1;
            rrow_addr <= rrow_addr + row_step_src;
            raddr <= rrow_addr + row_step_src;
            if (rrow == 0) rstate <= R_OFF;
          end
        end
        R_DRY: begin
          batch <= batch_next;
          if (rd_idle) rstate <= R_INDEX;
        end
        R_INDEX: if (rd_run_ready) rstate <= R_INDEX_WAIT;
        R_INDEX_WAIT:
        if (index_take) begin
          indices <= rd_data;
          rstate <= R_CHECK;
        end
        R_CHECK: begin
          table_offset <= table_product[47:0] << size;
          index_fault <= bad_index;
          rstate <= bad_index ? R_OFF : R_ROW;
        end
        R_ROW:
        if (gather_row) begin
          indices <= wide ? indices >> 64 : indices >> 32;
          index_addr <= index_addr + (wide ? 48'd8 : 48'd4);
          batch <= batch - 1;
          rrow <= rrow - 1;
          waddr <= waddr + row_step_dst;
          rstate <= rrow == 0 ? R_OFF : batch == 1 ? R_DRY : R_CHECK;
        end
        default: ;
      endcase

      if (fill_push) fill_left <= fill_left - {34'd0, fill_bytes};
      if (wactive && wr_made) begin
        if (is_fill) fill_left <= wr_bytes;
        wcol <= wcol - 1;
        waddr <= waddr + col_step_dst;
        if (by_row_dst || wcol == 0) begin
          wcol <= cols - 28'd1;
          wrow <= wrow - 1;
          wrow_addr <= wrow_addr + row_step_dst;
          waddr <= wrow_addr + row_step_dst;
          if (wrow == 0) wactive <= 0;
        end
      end
    end
endmodule
