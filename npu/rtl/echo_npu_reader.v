// echo_npu_reader - AXI4 read master. Takes runs (address, length in bytes), issues aligned bursts of up to
// 16 beats with many outstanding, and delivers the bytes of all runs, in order, as one stream.
//
// A beat is requested only when the buffer has room for it, so rready is always set and the bus is never
// held up. `flush` drops everything: requests on the bus are completed and their data thrown away.
module echo_npu_reader #(
    parameter BUS_LOG2 = 6,
    parameter DEPTH_LOG2 = 6  // beats in flight or buffered
) (
    input wire clk,
    input wire reset,
    input wire flush,
    input wire run_valid,
    output wire run_ready,
    input wire [47:0] run_addr,
    input wire [40:0] run_bytes,
    output wire [7:0] avail,
    output wire [511:0] data,
    input wire [6:0] take,
    output wire idle,   // nothing requested, buffered or in flight
    output wire quiet,  // nothing in flight on the bus
    output wire error,
    output wire [47:0] error_addr,
    output reg arvalid,
    input wire arready,
    output reg [47:0] araddr,
    output reg [7:0] arlen,
    input wire rvalid,
    output wire rready,
    input wire [(8<<BUS_LOG2)-1:0] rdata,
    input wire [1:0] rresp
);
  localparam BUS = 1 << BUS_LOG2;
  localparam SPAN = BUS_LOG2 + 4;  // a burst stays inside an aligned block of 16 beats

  // ---- Requests ----
  reg run_active;
  reg [47:0] addr;
  reg [40:0] left;
  reg [DEPTH_LOG2:0] held;     // beats in flight or buffered
  reg [DEPTH_LOG2:0] inflight;

  wire [SPAN:0] room = {1'b1, {SPAN{1'b0}}} - {1'b0, addr[SPAN-1:0]};
  wire last_burst = left <= {{(40 - SPAN) {1'b0}}, room};
  wire [SPAN:0] burst_bytes = last_burst ? left[SPAN:0] : room;
  wire [SPAN:0] burst_end = {{(SPAN + 1 - BUS_LOG2) {1'b0}}, addr[BUS_LOG2-1:0]} + burst_bytes - 1'b1;
  wire [SPAN-BUS_LOG2:0] beats = burst_end[SPAN:BUS_LOG2] + 1'b1;
  wire desc_full, desc_valid;
  wire room_held = held <= (1 << DEPTH_LOG2) - 16;
  wire issue = run_active && !desc_full && room_held && (!arvalid || arready) && !flush;
  assign run_ready = (!run_active || (issue && last_burst)) && !flush;

  wire beat_in = rvalid;
  wire beat_out;
  assign rready = 1'b1;

  always @(posedge clk)
    if (reset) begin
      run_active <= 0;
      arvalid <= 0;
      held <= 0;
      inflight <= 0;
    end else begin
      if (arready) arvalid <= 0;
      if (issue) begin
        arvalid <= 1;
        araddr <= {addr[47:BUS_LOG2], {BUS_LOG2{1'b0}}};
        arlen <= {{(7 - SPAN + BUS_LOG2) {1'b0}}, beats} - 8'd1;
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
      inflight <= inflight + (issue ? {2'd0, beats} : 0) - {{DEPTH_LOG2{1'b0}}, beat_in};
      held <= flush ? inflight - {{DEPTH_LOG2{1'b0}}, beat_in} :
          held + (issue ? {2'd0, beats} : 0) - {{DEPTH_LOG2{1'b0}}, beat_out};
    end

  // ---- Answers ----
  wire [48+SPAN:0] desc;
  wire buffer_valid, funnel_ready;
  wire [8*BUS:0] buffered;
  reg [SPAN:0] done;  // bytes of the burst already delivered

  wire [47:0] desc_addr = desc[47:0];
  wire [SPAN:0] desc_left = desc[48+SPAN:48] - done;
  wire [47:0] beat_addr = desc_addr + {{(47 - SPAN) {1'b0}}, done};
  wire [BUS_LOG2-1:0] offset = beat_addr[BUS_LOG2-1:0];
  wire [BUS_LOG2:0] to_end = BUS[BUS_LOG2:0] - {1'b0, offset};
  wire cut = desc_left < {{(SPAN - BUS_LOG2) {1'b0}}, to_end};
  wire [BUS_LOG2:0] bytes = cut ? desc_left[BUS_LOG2:0] : to_end;
  wire desc_last = desc_left == {{(SPAN - BUS_LOG2) {1'b0}}, bytes};
  wire [8*BUS-1:0] moved = buffered[8*BUS-1:0] >> {offset, 3'd0};
  wire [8*BUS-1:0] piece = cut ? moved & ~({8 * BUS{1'b1}} << {bytes, 3'd0}) : moved;
  wire unused_full;
  wire buffer_full;

  assign beat_out = buffer_valid && funnel_ready && !flush;
  assign error = buffer_valid && buffered[8*BUS] && !flush;
  assign error_addr = {beat_addr[47:BUS_LOG2], {BUS_LOG2{1'b0}}};
  assign quiet = inflight == 0 && !arvalid;
  assign idle = !run_active && held == 0 && avail == 0;
  assign unused_full = buffer_full | desc_valid;

  echo_npu_fifo #(.WIDTH(49 + SPAN), .LOG2(DEPTH_LOG2)) bursts (
      .clk(clk), .clear(reset | flush), .push(issue), .in({burst_bytes, addr}),
      .pop(beat_out & desc_last), .out(desc), .valid(desc_valid), .full(desc_full));
  echo_npu_fifo #(.WIDTH(8 * BUS + 1), .LOG2(DEPTH_LOG2)) buffer (
      .clk(clk), .clear(reset | flush), .push(beat_in), .in({rresp[1], rdata}),
      .pop(beat_out), .out(buffered), .valid(buffer_valid), .full(buffer_full));

  always @(posedge clk)
    if (reset | flush) done <= 0;
    else if (beat_out) done <= desc_last ? 0 : done + {{(SPAN - BUS_LOG2) {1'b0}}, bytes};

  wire [6:0] piece_bytes;
  wire [511:0] piece_data;
  generate
    if (BUS_LOG2 == 6) begin : full_width
      assign piece_bytes = bytes;
      assign piece_data = piece;
    end else begin : narrow
      assign piece_bytes = {{(6 - BUS_LOG2) {1'b0}}, bytes};
      assign piece_data = {{(512 - 8 * BUS) {1'b0}}, piece};
    end
  endgenerate

  echo_npu_funnel funnel (
      .clk(clk), .clear(reset | flush), .push(beat_out), .in_bytes(piece_bytes), .in(piece_data),
      .in_ready(funnel_ready), .take(take), .avail(avail), .out(data));
endmodule
