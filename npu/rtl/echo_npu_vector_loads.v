// echo_npu_vector_loads - makes the read runs of a vector command, in the order in which the vector unit
// consumes them: for each row, pass and block of 128 columns the operands X0, X1, Y0, Y1 that the pass
// loads. It runs ahead of the unit as far as the reader lets it. With `by_row` a row waits for `row_go`,
// which gives the addresses of its operands.
module echo_npu_vector_loads (
    input wire clk,
    input wire clear,
    input wire start,
    input wire by_row,
    input wire row_go,
    input wire [47:0] row_y_addr,
    input wire [7:0] first_pass,
    input wire [3:0] load_mask,
    input wire bcast,
    input wire causal,
    input wire [31:0] causal_count,
    input wire [27:0] rows,
    input wire [27:0] cols,
    input wire [1:0] size_x,
    input wire [1:0] size_y,
    input wire [47:0] src1,
    input wire [47:0] src2,
    input wire [47:0] step_x,
    input wire [47:0] step_y,
    output wire run,
    input wire run_ready,
    output wire [47:0] run_addr,
    output wire [40:0] run_bytes
);
  `include "echo_npu_defs.vh"
  `include "echo_npu_ucode.vh"

  localparam OFF = 0, ROW = 1, PASS = 2, BLOCK = 3, RUN = 4;
  reg [2:0] state;
  reg [27:0] rows_left, col;
  reg [47:0] row_x, row_y;
  reg [32:0] seen;  // columns of this row that CAUSAL admits
  reg [7:0] pass_index;
  reg [63:0] pass;
  reg [3:0] todo;

  wire [27:0] valid = causal && seen < {5'd0, cols} ? seen[27:0] : cols;
  wire [27:0] left = valid - col;
  wire [7:0] n = left > 28'd128 ? 8'd128 : left[7:0];
  // Order of consumption: X0 (bit 0), X1 (bit 1), Y0 (bit 2), Y1 (bit 3).
  wire [1:0] pick = todo[0] ? 2'd0 : todo[1] ? 2'd1 : todo[2] ? 2'd2 : 2'd3;
  wire [1:0] size = pick[1] ? size_y : size_x;
  wire [27:0] column = pick == 2'd2 && bcast ? 28'd0 : col;
  wire [28:0] element = {1'b0, column} + (pick[0] ? {1'b0, cols} : 29'd0);
  wire [7:0] count = pick == 2'd2 && bcast ? 8'd1 : n;
  wire [3:0] rest = todo & (todo - 4'd1);

  assign run = state == RUN;
  assign run_addr = (pick[1] ? row_y : row_x) + ({19'd0, element} << size);
  assign run_bytes = {33'd0, count} << size;

  wire [3:0] pass_loads = pass[`ECHO_NPU_PASS_LOAD_LSB+:4] & load_mask;

  always @(posedge clk)
    if (clear) state <= OFF;
    else if (start) begin
      state <= ROW;
      rows_left <= rows;
      row_x <= src1;
      row_y <= src2;
      seen <= {1'b0, causal_count};
    end else
      case (state)
        ROW:
        if (!by_row || row_go) begin
          if (by_row) row_y <= row_y_addr;
          pass_index <= first_pass;
          pass <= echo_ucode_pass(first_pass);
          col <= 0;
          state <= BLOCK;
        end
        PASS: begin
          pass_index <= pass_index + 1;
          pass <= echo_ucode_pass(pass_index + 8'd1);
          col <= 0;
          state <= BLOCK;
          if (pass[`ECHO_NPU_PASS_LAST_LSB]) begin
            rows_left <= rows_left - 1;
            row_x <= row_x + step_x;
            row_y <= row_y + step_y;
            seen <= seen + 1;
            state <= rows_left == 1 ? OFF : ROW;
          end
        end
        BLOCK: begin
          todo <= {pass_loads[3], pass_loads[1], pass_loads[2], pass_loads[0]};
          state <= left == 0 ? PASS : RUN;
        end
        RUN:
        if (run_ready) begin
          todo <= rest;
          if (rest == 0) begin
            col <= col + {20'd0, n};
            state <= BLOCK;
          end
        end
        default: ;
      endcase

endmodule
