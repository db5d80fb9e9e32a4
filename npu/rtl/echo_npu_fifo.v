// echo_npu_fifo - 2^LOG2 entries, the oldest one visible at `out` while `valid`. The user does not
// push when full nor pop when empty.
/* verilator tracing_off */
module echo_npu_fifo #(
    parameter WIDTH = 32,
    parameter LOG2  = 4
) (
    input wire clk,
    input wire clear,
    input wire push,
    input wire [WIDTH-1:0] in,
    input wire pop,
    output wire [WIDTH-1:0] out,
    output wire valid,
    output wire full
);
  reg [WIDTH-1:0] mem[0:(1<<LOG2)-1];
  reg [LOG2:0] head, tail;

  assign valid = head != tail;
  assign full = (head ^ tail) == {1'b1, {LOG2{1'b0}}};
  assign out = mem[head[LOG2-1:0]];

  always @(posedge clk)
    if (clear) begin
      head <= 0;
      tail <= 0;
    end else begin
      if (push) begin
        mem[tail[LOG2-1:0]] <= in;
        tail <= tail + 1'b1;
      end
      if (pop) head <= head + 1'b1;
    end
endmodule
