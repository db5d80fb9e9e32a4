// echo_npu_ram - one read port, one write port, read data in the next cycle. A read of the word being
// written returns the old one.
/* verilator tracing_off */
module echo_npu_ram #(
    parameter WIDTH = 32,
    parameter DEPTH = 512,
    parameter ABITS = 9
) (
    input wire clk,
    input wire we,
    input wire [ABITS-1:0] waddr,
    input wire [WIDTH-1:0] wdata,
    input wire re,
    input wire [ABITS-1:0] raddr,
    output reg [WIDTH-1:0] rdata
);
  reg [WIDTH-1:0] mem[0:DEPTH-1];
  always @(posedge clk) begin
    if (re) rdata <= mem[raddr];
    if (we) mem[waddr] <= wdata;
  end
endmodule
