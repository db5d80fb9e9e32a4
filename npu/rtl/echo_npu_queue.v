// echo_npu_queue - the command queue: fetches packets from the ring, has them checked, runs each on its
// engine (once, or in the loops of a REPEAT), and retires it when memory has acknowledged its writes.
//
// One packet is in work at a time; OVERLAP is accepted and not used. A fault or a reset raises `flush` until
// the bus is quiet; work that comes meanwhile waits, and the watchdog ends its wait too.
module echo_npu_queue (
    input wire clk,
    input wire reset,
    // Registers
    input wire soft_reset,
    input wire run,
    input wire [47:0] ring_base,
    input wire [31:0] ring_log2,
    input wire [31:0] head,
    input wire [31:0] watchdog,
    input wire [6*48-1:0] areas,
    input wire [63:0] busy_cycles,
    output reg retire,
    output wire retire_irq,
    output wire [31:0] retire_cycles,
    output reg fault,
    output reg [3:0] fault_code,
    output reg [63:0] fault_addr,
    // Bus
    output wire flush,
    input wire bus_quiet,
    input wire bus_waiting,
    input wire bus_progress,
    input wire read_error,
    input wire [47:0] read_error_addr,
    input wire write_error,
    input wire [47:0] write_error_addr,
    // Own reads and writes
    output wire rd_run,
    input wire rd_run_ready,
    output wire [47:0] rd_addr,
    input wire [7:0] rd_avail,
    input wire [511:0] rd_data,
    output wire [6:0] rd_take,
    output wire wr_run,
    input wire wr_run_ready,
    output wire [47:0] wr_addr,
    output wire [40:0] wr_bytes,
    output wire wr_push,
    output wire [127:0] wr_data,
    input wire wr_idle,
    // Engines: 0 copy, 1 vector, 2 matrix
    output reg [511:0] packet,
    output reg [47:0] src1,
    output reg [47:0] src2,
    output reg [47:0] dst,
    output wire [7:0] first_pass,
    output reg [2:0] start,
    output reg [2:0] active,
    input wire [2:0] done,
    input wire [2:0] index_fault,
    input wire [47:0] index_fault_addr
);
  `include "echo_npu_defs.vh"
  localparam IDLE = 0, FETCH = 1, WAIT = 2, DECODE = 3, LOCATE = 4, START = 5, WORK = 6, DRAIN = 7,
      FLUSH = 8;
  reg [3:0] state;

  wire [31:0] opcode = packet[31:0];
  wire is_nop = opcode == `ECHO_NPU_OP_NOP;
  wire is_repeat = opcode == `ECHO_NPU_OP_REPEAT;
  wire is_sync = opcode == `ECHO_NPU_OP_SYNC;
  wire is_matrix = opcode == `ECHO_NPU_OP_MATMUL;
  wire is_vector = opcode == `ECHO_NPU_OP_VECTOR || opcode == `ECHO_NPU_OP_ADD_TENSOR ||
      opcode == `ECHO_NPU_OP_SCATTER_ADD;

  // ---- Ring ----
  wire [47:0] ring_bytes = 48'd64 << ring_log2[4:0];
  function automatic ring_in(input [47:0] base, input [47:0] limit);
    ring_in = ring_base >= base && ring_base < limit && ring_bytes <= limit - ring_base;
  endfunction
  wire ring_ok = ring_log2 >= `ECHO_NPU_RING_LOG2_MIN && ring_log2 <= `ECHO_NPU_RING_LOG2_MAX &&
      ring_base[5:0] == 0 && (ring_in(areas[47:0], areas[95:48]) || ring_in(areas[143:96], areas[191:144]) ||
      ring_in(areas[239:192], areas[287:240]));
  wire [31:0] slot = head & ~(32'hffffffff << ring_log2[4:0]);

  assign rd_run = state == FETCH;
  assign rd_addr = ring_base + {10'd0, slot, 6'd0};
  assign rd_take = state == WAIT && rd_avail >= 8'd64 ? 7'd64 : 7'd0;

  // ---- SYNC ----
  wire stamp = packet[32+10];
  assign wr_run = state == START && is_sync && wr_idle;
  assign wr_addr = dst;
  assign wr_bytes = stamp ? 41'd16 : 41'd8;
  assign wr_push = wr_run && wr_run_ready;
  assign wr_data = {stamp ? busy_cycles : 64'd0, packet[319:256]};

  // ---- Checks ----
  reg decode, locate;
  wire check_done;
  wire [3:0] check_code;
  wire [63:0] check_addr;
  wire [2:0] used;
  wire [8:0] sizes;
  reg repeat_pending;
  reg [63:0] at1, at2, at3;  // addresses of this iteration, unbounded
  echo_npu_check check (
      .clk(clk), .clear(reset | flush), .decode(decode), .locate(locate), .packet(packet),
      .after_repeat(repeat_pending), .addr1(at1), .addr2(at2), .addr3(at3), .areas(areas), .done(check_done),
      .code(check_code), .fault_addr(check_addr), .used(used), .sizes(sizes), .first_pass_index(first_pass));

  // ---- REPEAT ----
  reg [255:0] loops;
  reg [27:0] outer_left, inner_left;  // iterations after this one
  reg [63:0] row1, row2, row3;        // addresses at inner = 0
  function automatic [63:0] step(input use_it, input [31:0] stride, input [2:0] size);
    step = use_it ? {32'd0, stride} << size : 64'd0;
  endfunction
  wire [63:0] inner1 = step(used[0], loops[191:160], sizes[2:0]);
  wire [63:0] inner2 = step(used[1], loops[223:192], sizes[5:3]);
  wire [63:0] inner3 = step(used[2], loops[255:224], sizes[8:6]);
  wire [63:0] outer1 = step(used[0], loops[63:32], sizes[2:0]);
  wire [63:0] outer2 = step(used[1], loops[95:64], sizes[5:3]);
  wire [63:0] outer3 = step(used[2], loops[127:96], sizes[8:6]);

  // ---- Watchdog ----
  reg [31:0] stalled;
  wire timeout = watchdog != 0 && stalled >= watchdog && state != IDLE;
  always @(posedge clk)
    if (reset || bus_progress || !bus_waiting || (flush && !run) || fault) stalled <= 0;
    else stalled <= stalled + 1;

  // ---- Sequence ----
  reg [31:0] cycles;
  reg bad_index;
  reg [47:0] bad_index_addr;
  assign flush = state == FLUSH;
  assign retire_irq = packet[32] && !is_repeat;
  assign retire_cycles = cycles;

  task fail(input [3:0] code, input [63:0] addr);
    begin
      fault <= 1;
      fault_code <= code;
      fault_addr <= addr;
      state <= FLUSH;
    end
  endtask

  always @(posedge clk) begin
    decode <= 0;
    locate <= 0;
    retire <= 0;
    fault <= 0;
    start <= 0;
    cycles <= cycles + 1;
    case (state)
      IDLE: begin
        cycles <= 1;
        active <= 0;
        bad_index <= 0;
        if (run && !retire && !fault) begin
          if (ring_ok) state <= FETCH;
          else fail(4'd11, 0);
        end
      end
      FETCH: if (rd_run_ready) state <= WAIT;
      WAIT:
      if (rd_take != 0) begin
        packet <= rd_data;
        decode <= 1;
        state <= DECODE;
      end
      DECODE:
      if (check_done) begin
        if (check_code != 0) fail(check_code, check_addr);
        else if (is_nop || is_repeat || (is_sync && packet[255:192] == 0)) begin
          retire <= 1;
          state <= IDLE;
          if (is_repeat) loops <= packet[511:256];
          repeat_pending <= is_repeat;
        end else begin
          {at1, at2, at3} <= {packet[127:64], packet[191:128], packet[255:192]};
          {row1, row2, row3} <= {packet[127:64], packet[191:128], packet[255:192]};
          outer_left <= repeat_pending ? loops[27:0] - 28'd1 : 28'd0;
          inner_left <= repeat_pending ? loops[155:128] - 28'd1 : 28'd0;
          locate <= 1;
          state <= LOCATE;
        end
      end
      LOCATE:
      if (check_done) begin
        {src1, src2, dst} <= {at1[47:0], at2[47:0], at3[47:0]};
        if (check_code != 0) fail(check_code, check_addr);
        else begin
          state <= START;
          if (!is_sync) begin
            start <= is_matrix ? 3'b100 : is_vector ? 3'b010 : 3'b001;
            active <= is_matrix ? 3'b100 : is_vector ? 3'b010 : 3'b001;
            state <= WORK;
          end
        end
      end
      START: if (wr_push) state <= DRAIN;
      WORK:
      if ((done & active) != 0 && start == 0) begin
        bad_index <= (index_fault & active) != 0;
        bad_index_addr <= index_fault_addr;
        state <= DRAIN;
      end
      DRAIN:
      if (wr_idle) begin
        if (bad_index) fail(4'd9, {16'd0, bad_index_addr});
        else if (inner_left != 0) begin
          inner_left <= inner_left - 1;
          {at1, at2, at3} <= {at1 + inner1, at2 + inner2, at3 + inner3};
          locate <= 1;
          state <= LOCATE;
        end else if (outer_left != 0) begin
          outer_left <= outer_left - 1;
          inner_left <= loops[155:128] - 28'd1;
          {at1, at2, at3} <= {row1 + outer1, row2 + outer2, row3 + outer3};
          {row1, row2, row3} <= {row1 + outer1, row2 + outer2, row3 + outer3};
          locate <= 1;
          state <= LOCATE;
        end else begin
          retire <= 1;
          repeat_pending <= 0;
          state <= IDLE;
        end
      end
      FLUSH: begin
        active <= 0;
        if (bus_quiet) state <= IDLE;
        else if (timeout && run && !fault) fail(4'd14, 0);
      end
      default: state <= IDLE;
    endcase

    if (state != IDLE && state != FLUSH) begin
      if (read_error) fail(4'd12, {16'd0, read_error_addr});
      else if (write_error) fail(4'd13, {16'd0, write_error_addr});
      else if (timeout) fail(4'd14, 0);
      if (read_error || write_error || timeout) retire <= 0;
    end
    if (soft_reset || reset) begin
      state <= FLUSH;
      repeat_pending <= 0;
      retire <= 0;
      fault <= 0;
      active <= 0;
      start <= 0;
    end
  end
endmodule
