// echo_npu_control - proof harness: the registers and the command queue as the device wires them, everything around
// them free to do anything in any cycle. What is asserted holds in every state that can be reached from reset;
// scripts/prove.sh shows it by induction over one cycle.
module echo_npu_control (
    input wire clk,
    input wire reset,
    // The host
    input wire s_awvalid, s_wvalid, s_bready, s_arvalid, s_rready,
    input wire [15:0] s_awaddr, s_araddr,
    input wire [31:0] s_wdata,
    input wire [3:0] s_wstrb,
    // The bus
    input wire bus_quiet, bus_waiting, bus_progress, read_error, write_error,
    input wire [47:0] read_error_addr, write_error_addr,
    input wire rd_run_ready, wr_run_ready, wr_idle,
    input wire [7:0] rd_avail,
    input wire [511:0] rd_data,
    // The engines
    input wire [2:0] done, index_fault,
    input wire [47:0] index_fault_addr,
    input wire [15:0] count_macs,
    input wire [4:0] count_uops,
    input wire count_read, count_write
);
  wire soft_reset, run, retire, retire_irq, fault, flush, rd_run;
  wire [47:0] ring_base;
  wire [31:0] ring_log2, head, watchdog, retire_cycles;
  wire [6*48-1:0] areas;
  wire [63:0] busy_cycles, fault_addr;
  wire [3:0] fault_code;
  wire [2:0] active;

  echo_npu_regs regs (
      .*, .s_awready(), .s_wready(), .s_bvalid(), .s_bresp(), .s_arready(), .s_rvalid(), .s_rdata(), .s_rresp(), .irq(),
      .fault_code_in(fault_code), .fault_addr_in(fault_addr), .count_matrix(active[2]), .count_vector(active[1]),
      .count_copy(active[0]));
  echo_npu_queue queue (
      .*, .rd_addr(), .rd_take(), .wr_run(), .wr_addr(), .wr_bytes(), .wr_push(), .wr_data(), .packet(), .src1(),
      .src2(), .dst(), .first_pass(), .start());

  // Connected to the registers of these names when the hierarchy is flattened.
  (* hierconn *) wire [1:0] \regs.status ;
  (* hierconn *) wire [31:0] \regs.tail ;
  (* hierconn *) wire [31:0] \regs.fault_index ;
  (* hierconn *) wire [3:0] \queue.state ;
  localparam [1:0] IDLE = 0, BUSY = 1, ERROR = 3;
  localparam [3:0] QUEUE_IDLE = 0, QUEUE_FLUSH = 8;

  wire drained = head == \regs.tail ;
  wire is_error = \regs.status == ERROR;
  wire at_rest = (\queue.state == QUEUE_IDLE || \queue.state == QUEUE_FLUSH) && !rd_run && !retire && !fault;

  always @*
    if (!reset) begin
      // A device that says IDLE has an empty ring that starts at 0, whenever RESET was written.
      if (\regs.status == IDLE) assert (head == 0 && drained);
      // BUSY is work in the ring, in both directions.
      if (!is_error) assert ((\regs.status == BUSY) == !drained);
      // HEAD stays at the packet that faulted.
      if (is_error) assert (\regs.fault_index == head);
      // Nothing is fetched, retired or reported without work in the ring, or after a fault. In the cycle of
      // soft_reset the queue has not yet heard.
      if ((drained || is_error) && !soft_reset) assert (at_rest);
    end
endmodule
