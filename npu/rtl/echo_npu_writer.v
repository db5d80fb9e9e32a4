// echo_npu_writer - AXI4 write master. Takes runs (address, length in bytes) and a stream of bytes that
// fills them in order; issues aligned bursts of up to 16 beats and counts their answers.
//
// `flush` drops runs and data; bursts already announced are completed with no byte enabled.
module echo_npu_writer #(
    parameter BUS_LOG2 = 6,
    parameter BURSTS_LOG2 = 6  // bursts announced and not yet answered
) (
    input wire clk,
    input wire reset,
    input wire flush,
    input wire run_valid,
    output wire run_ready,
    input wire [47:0] run_addr,
    input wire [40:0] run_bytes,
    input wire push,  // only with push_ready
    output wire push_ready,
    input wire [6:0] push_bytes,
    input wire [511:0] push_data,  // bytes from push_bytes up are zero
    output wire idle,   // everything has been written and acknowledged
    output wire quiet,  // nothing in flight on the bus
    output wire error,
    output wire [47:0] error_addr,
    output reg awvalid,
    input wire awready,
    output reg [47:0] awaddr,
    output reg [7:0] awlen,
    output reg wvalid,
    input wire wready,
    output reg [(8<<BUS_LOG2)-1:0] wdata,
    output reg [(1<<BUS_LOG2)-1:0] wstrb,
    output reg wlast,
    input wire bvalid,
    output wire bready,
    input wire [1:0] bresp
);
  localparam BUS = 1 << BUS_LOG2;
  localparam SPAN = BUS_LOG2 + 4;

  // ---- Bursts ----
  reg run_active;
  reg [47:0] addr;
  reg [40:0] left;
  wire [SPAN:0] room = {1'b1, {SPAN{1'b0}}} - {1'b0, addr[SPAN-1:0]};
  wire last_burst = left <= {{(40 - SPAN) {1'b0}}, room};
  wire [SPAN:0] burst_bytes = last_burst ? left[SPAN:0] : room;
  wire [SPAN:0] burst_end = {{(SPAN + 1 - BUS_LOG2) {1'b0}}, addr[BUS_LOG2-1:0]} + burst_bytes - 1'b1;
  wire [SPAN-BUS_LOG2:0] beats = burst_end[SPAN:BUS_LOG2] + 1'b1;
  wire work_valid, work_full, answer_valid, answer_full;
  wire issue = run_active && !work_full && !answer_full && (!awvalid || awready) && !flush;
  assign run_ready = (!run_active || (issue && last_burst)) && !flush;

  always @(posedge clk)
    if (reset) begin
      run_active <= 0;
      awvalid <= 0;
    end else begin
      if (awready) awvalid <= 0;
      if (issue) begin
        awvalid <= 1;
        awaddr <= {addr[47:BUS_LOG2], {BUS_LOG2{1'b0}}};
        awlen <= {{(7 - SPAN + BUS_LOG2) {1'b0}}, beats} - 8'd1;
        addr <= addr + {{(47 - SPAN) {1'b0}}, burst_bytes};
        left <= left - {{(40 - SPAN) {1'b0}}, burst_bytes};
        if (last_burst) run_active <= 0;
      end
      if (run_valid && run_ready) begin
        run_active <= 1;
        addr <= run_addr;
        left <= run_bytes;
      end
      if (flush) run_active <= 0;
    end

  // ---- Beats ----
  wire [BUS_LOG2+SPAN:0] work;
  wire [SPAN:0] work_bytes = work[BUS_LOG2+SPAN:BUS_LOG2];
  reg [SPAN:0] done;
  wire [SPAN:0] work_left = work_bytes - done;
  wire [BUS_LOG2-1:0] offset = done == 0 ? work[BUS_LOG2-1:0] : {BUS_LOG2{1'b0}};
  wire [BUS_LOG2:0] to_end = BUS[BUS_LOG2:0] - {1'b0, offset};
  wire beat_last = work_left <= {{(SPAN - BUS_LOG2) {1'b0}}, to_end};
  wire [BUS_LOG2:0] bytes = beat_last ? work_left[BUS_LOG2:0] : to_end;
  wire [7:0] avail;
  wire [511:0] head;
  wire ready = flush || avail >= {{(7 - BUS_LOG2) {1'b0}}, bytes};
  wire beat = work_valid && ready && (!wvalid || wready);
  wire [6:0] take;
  generate
    if (BUS_LOG2 == 6) begin : full_width
      assign take = beat && !flush ? bytes : 7'd0;
    end else begin : narrow
      assign take = beat && !flush ? {{(6 - BUS_LOG2) {1'b0}}, bytes} : 7'd0;
    end
  endgenerate

  always @(posedge clk)
    if (reset) begin
      wvalid <= 0;
      done <= 0;
    end else begin
      if (wready) wvalid <= 0;
      if (beat) begin
        wvalid <= 1;
        wdata <= head[8*BUS-1:0] << {offset, 3'd0};
        wstrb <= flush ? {BUS{1'b0}} : ~({BUS{1'b1}} << bytes) << offset;
        wlast <= beat_last;
        done <= beat_last ? 0 : done + {{(SPAN - BUS_LOG2) {1'b0}}, bytes};
      end
    end

  echo_npu_fifo #(.WIDTH(BUS_LOG2 + SPAN + 1), .LOG2(BURSTS_LOG2)) todo (
      .clk(clk), .clear(reset), .push(issue), .in({burst_bytes, addr[BUS_LOG2-1:0]}),
      .pop(beat & beat_last), .out(work), .valid(work_valid), .full(work_full));
  echo_npu_funnel funnel (
      .clk(clk), .clear(reset | flush), .push(push), .in_bytes(push_bytes), .in(push_data),
      .in_ready(push_ready), .take(take), .avail(avail), .out(head));

  // ---- Answers, in order ----
  wire [47:0] answer_addr;
  wire answer = bvalid && answer_valid;
  assign bready = 1'b1;
  assign error = answer && bresp[1] && !flush;
  assign error_addr = {answer_addr[47:BUS_LOG2], {BUS_LOG2{1'b0}}};
  assign quiet = !answer_valid && !awvalid && !wvalid && !work_valid;
  assign idle = quiet && !run_active && avail == 0;

  echo_npu_fifo #(.WIDTH(48), .LOG2(BURSTS_LOG2)) answers (
      .clk(clk), .clear(reset), .push(issue), .in(addr),
      .pop(answer), .out(answer_addr), .valid(answer_valid), .full(answer_full));
endmodule
