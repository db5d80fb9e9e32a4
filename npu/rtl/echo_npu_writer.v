// echo_npu_writer - AXI4 write master. Takes runs (address, length in bytes) and a stream of bytes that
// fills them in order; issues aligned bursts of up to 16 beats and counts their answers.
//
// A burst is announced when all its beats are held, so that an open write never waits for anything but the
// bus: a memory may keep reads back until it has been given the data.
//
// `flush` drops runs and data; bursts already announced are completed with no byte enabled.
module echo_npu_writer #(
    parameter BUS_LOG2 = 6,
    parameter BURSTS_LOG2 = 6,  // bursts announced and not yet answered
    parameter HELD_LOG2 = 5  // beats held: a burst on its way out and the next one
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

  // ---- Runs, cut into bursts ----
  reg run_active;
  reg [47:0] addr;
  reg [40:0] left;
  wire [SPAN:0] room = {1'b1, {SPAN{1'b0}}} - {1'b0, addr[SPAN-1:0]};
  wire last_burst = left <= {{(40 - SPAN) {1'b0}}, room};
  wire [SPAN:0] burst_bytes = last_burst ? left[SPAN:0] : room;
  wire work_valid, work_full, announce, send, send_last;
  wire cut = run_active && !work_full && !flush;
  assign run_ready = (!run_active || (cut && last_burst)) && !flush;

  always @(posedge clk)
    if (reset || flush) run_active <= 0;
    else begin
      if (cut) begin
        addr <= addr + {{(47 - SPAN) {1'b0}}, burst_bytes};
        left <= left - {{(40 - SPAN) {1'b0}}, burst_bytes};
        if (last_burst) run_active <= 0;
      end
      if (run_valid && run_ready) begin
        run_active <= 1;
        addr <= run_addr;
        left <= run_bytes;
      end
    end

  wire [48+SPAN:0] work;
  echo_npu_fifo #(.WIDTH(49 + SPAN), .LOG2(BURSTS_LOG2)) todo (
      .clk(clk), .clear(reset | flush), .push(cut), .in({burst_bytes, addr}),
      .pop(announce), .out(work), .valid(work_valid), .full(work_full));

  // ---- Bytes, made into beats; the last beat of a burst announces it ----
  wire [47:0] work_addr = work[47:0];
  wire [SPAN:0] work_bytes = work[48+SPAN:48];
  reg [SPAN:0] done;
  reg [3:0] beats;  // of this burst before this one
  wire [SPAN:0] work_left = work_bytes - done;
  wire [BUS_LOG2-1:0] offset = done == 0 ? work_addr[BUS_LOG2-1:0] : {BUS_LOG2{1'b0}};
  wire [BUS_LOG2:0] to_end = BUS[BUS_LOG2:0] - {1'b0, offset};
  wire beat_last = work_left <= {{(SPAN - BUS_LOG2) {1'b0}}, to_end};
  wire [BUS_LOG2:0] bytes = beat_last ? work_left[BUS_LOG2:0] : to_end;
  wire [7:0] avail;
  wire [511:0] head;
  wire held_valid, held_full, sending_valid, sending_full, answer_valid, answer_full;
  wire may_announce = (!awvalid || awready) && !sending_full && !answer_full;
  wire beat = work_valid && avail >= {{(7 - BUS_LOG2) {1'b0}}, bytes} && !held_full && (!beat_last || may_announce) &&
      !flush;
  assign announce = beat && beat_last;
  wire [6:0] take;
  generate
    if (BUS_LOG2 == 6) begin : full_width
      assign take = beat ? bytes : 7'd0;
    end else begin : narrow
      assign take = beat ? {{(6 - BUS_LOG2) {1'b0}}, bytes} : 7'd0;
    end
  endgenerate

  always @(posedge clk)
    if (reset || flush) begin
      done <= 0;
      beats <= 0;
    end else if (beat) begin
      done <= beat_last ? 0 : done + {{(SPAN - BUS_LOG2) {1'b0}}, bytes};
      beats <= beat_last ? 0 : beats + 4'd1;
    end

  always @(posedge clk)
    if (reset) awvalid <= 0;
    else begin
      if (awready) awvalid <= 0;
      if (announce) begin
        awvalid <= 1;
        awaddr <= {work_addr[47:BUS_LOG2], {BUS_LOG2{1'b0}}};
        awlen <= {4'd0, beats};
      end
    end

  wire [9*BUS-1:0] held;
  wire [3:0] sending_len;
  echo_npu_funnel funnel (
      .clk(clk), .clear(reset | flush), .push(push), .in_bytes(push_bytes), .in(push_data),
      .in_ready(push_ready), .take(take), .avail(avail), .out(head));
  echo_npu_fifo #(.WIDTH(9 * BUS), .LOG2(HELD_LOG2)) hold (
      .clk(clk), .clear(reset | flush), .push(beat),
      .in({~({BUS{1'b1}} << bytes) << offset, head[8*BUS-1:0] << {offset, 3'd0}}), .pop(send && !flush), .out(held),
      .valid(held_valid), .full(held_full));
  echo_npu_fifo #(.WIDTH(4), .LOG2(BURSTS_LOG2)) announced (
      .clk(clk), .clear(reset), .push(announce), .in(beats), .pop(send && send_last), .out(sending_len),
      .valid(sending_valid), .full(sending_full));

  // ---- Beats of announced bursts ----
  reg [3:0] sent;
  assign send = sending_valid && (held_valid || flush) && (!wvalid || wready);
  assign send_last = sent == sending_len;
  always @(posedge clk)
    if (reset) begin
      wvalid <= 0;
      sent <= 0;
    end else begin
      if (wready) wvalid <= 0;
      if (send) begin
        wvalid <= 1;
        wdata <= held[8*BUS-1:0];
        wstrb <= flush ? {BUS{1'b0}} : held[9*BUS-1:8*BUS];
        wlast <= send_last;
        sent <= send_last ? 4'd0 : sent + 4'd1;
      end
    end

  // ---- Answers, in order ----
  wire [47:0] answer_addr;
  wire answer = bvalid && answer_valid;
  assign bready = 1'b1;
  assign error = answer && bresp[1] && !flush;
  assign error_addr = {answer_addr[47:BUS_LOG2], {BUS_LOG2{1'b0}}};
  assign quiet = !answer_valid && !awvalid && !wvalid && !sending_valid;
  assign idle = quiet && !run_active && !work_valid && avail == 0;

  echo_npu_fifo #(.WIDTH(48), .LOG2(BURSTS_LOG2)) answers (
      .clk(clk), .clear(reset), .push(announce), .in(work_addr),
      .pop(answer), .out(answer_addr), .valid(answer_valid), .full(answer_full));
endmodule
