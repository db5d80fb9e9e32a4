// echo_npu_funnel - a byte queue between streams of different grain: pieces of up to 64 bytes go in, any
// number of bytes up to 64 are taken from the front. Keeps up with 64 bytes a cycle at any alignment.
/* verilator tracing_off */
module echo_npu_funnel (
    input wire clk,
    input wire clear,
    input wire push,  // only with in_ready
    input wire [6:0] in_bytes,
    input wire [511:0] in,  // bytes from in_bytes up are zero
    output wire in_ready,
    input wire [6:0] take,  // at most avail
    output wire [7:0] avail,
    output wire [511:0] out
);
  reg [1023:0] hold;
  reg [7:0] count;
  wire [7:0] left = count - {1'b0, take};
  wire [6:0] place = left[6:0];

  assign avail = count;
  assign out = hold[511:0];
  assign in_ready = left <= 8'd64;

  always @(posedge clk)
    if (clear) begin
      hold <= 0;
      count <= 0;
    end else begin
      count <= left + (push ? {1'b0, in_bytes} : 8'd0);
      if (push)
        hold <= (hold >> {take, 3'd0}) | ({512'd0, in} << {place, 3'd0});
      else if (take != 0)
        hold <= hold >> {take, 3'd0};
    end
endmodule
