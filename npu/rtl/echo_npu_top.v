// echo_npu_top - the ECHO NPU: AXI4-Lite registers on one side, an AXI4 master to memory on the other.
//
// The reader and the writer are shared; the engine that works on the current packet owns them, or the
// command queue when none does.
module echo_npu_top #(
    parameter N = 16,  // the matrix array is N x N: 4, 8, 16 or 32
    parameter NL = 4,  // log2 N
    parameter BUS_LOG2 = 6,  // log2 of the bytes of the data bus: 4, 5 or 6
    parameter CLOCK_MHZ = 0  // of clk, for the host to read; 0: firmware writes the register, or nobody
) (
    input wire clk,
    input wire resetn,  // asynchronous; at power-up low for at least 4 cycles
    output wire irq,
    input wire s_axil_awvalid,
    output wire s_axil_awready,
    input wire [15:0] s_axil_awaddr,
    input wire s_axil_wvalid,
    output wire s_axil_wready,
    input wire [31:0] s_axil_wdata,
    input wire [3:0] s_axil_wstrb,
    output wire s_axil_bvalid,
    input wire s_axil_bready,
    output wire [1:0] s_axil_bresp,
    input wire s_axil_arvalid,
    output wire s_axil_arready,
    input wire [15:0] s_axil_araddr,
    output wire s_axil_rvalid,
    input wire s_axil_rready,
    output wire [31:0] s_axil_rdata,
    output wire [1:0] s_axil_rresp,
    output wire m_axi_arvalid,
    input wire m_axi_arready,
    output wire [47:0] m_axi_araddr,
    output wire [7:0] m_axi_arlen,
    output wire [2:0] m_axi_arsize,
    output wire [1:0] m_axi_arburst,
    input wire m_axi_rvalid,
    output wire m_axi_rready,
    input wire [(8<<BUS_LOG2)-1:0] m_axi_rdata,
    input wire [1:0] m_axi_rresp,
    input wire m_axi_rlast,
    output wire m_axi_awvalid,
    input wire m_axi_awready,
    output wire [47:0] m_axi_awaddr,
    output wire [7:0] m_axi_awlen,
    output wire [2:0] m_axi_awsize,
    output wire [1:0] m_axi_awburst,
    output wire m_axi_wvalid,
    input wire m_axi_wready,
    output wire [(8<<BUS_LOG2)-1:0] m_axi_wdata,
    output wire [(1<<BUS_LOG2)-1:0] m_axi_wstrb,
    output wire m_axi_wlast,
    input wire m_axi_bvalid,
    output wire m_axi_bready,
    input wire [1:0] m_axi_bresp
);
  localparam FMA_LATENCY = 4;

  // resetn knows no clock: it is caught however short it is, and two registers bring it to the clock.
  reg caught;
  (* ASYNC_REG = "TRUE" *)
  reg [1:0] synchronised;
  always @(posedge clk or negedge resetn)
    if (!resetn) caught <= 1;
    else caught <= 0;
  always @(posedge clk) synchronised <= {synchronised[0], caught};
  wire reset = synchronised[1];

  assign m_axi_arsize = BUS_LOG2[2:0];
  assign m_axi_awsize = BUS_LOG2[2:0];
  assign m_axi_arburst = 2'b01;
  assign m_axi_awburst = 2'b01;

  // ---- Registers ----
  wire soft_reset, run, retire, retire_irq, fault;
  wire [47:0] ring_base;
  wire [31:0] ring_log2, head, watchdog, retire_cycles;
  wire [6*48-1:0] areas;
  wire [63:0] busy_cycles, fault_addr;
  wire [3:0] fault_code;
  wire [2:0] active;
  wire [15:0] count_macs;
  wire [4:0] count_uops;
  echo_npu_regs #(.N(N), .BUS_LOG2(BUS_LOG2), .FMA_LATENCY(FMA_LATENCY), .CLOCK_MHZ(CLOCK_MHZ)) regs (
      .clk(clk), .reset(reset), .s_awvalid(s_axil_awvalid), .s_awready(s_axil_awready), .s_awaddr(s_axil_awaddr),
      .s_wvalid(s_axil_wvalid), .s_wready(s_axil_wready), .s_wdata(s_axil_wdata), .s_wstrb(s_axil_wstrb),
      .s_bvalid(s_axil_bvalid), .s_bready(s_axil_bready), .s_bresp(s_axil_bresp), .s_arvalid(s_axil_arvalid),
      .s_arready(s_axil_arready), .s_araddr(s_axil_araddr), .s_rvalid(s_axil_rvalid), .s_rready(s_axil_rready),
      .s_rdata(s_axil_rdata), .s_rresp(s_axil_rresp), .irq(irq), .soft_reset(soft_reset), .run(run),
      .ring_base(ring_base), .ring_log2(ring_log2), .head(head), .watchdog(watchdog), .areas(areas),
      .busy_cycles(busy_cycles), .retire(retire), .retire_irq(retire_irq), .retire_cycles(retire_cycles),
      .fault(fault), .fault_code_in(fault_code), .fault_addr_in(fault_addr),
      .count_matrix(active[2]), .count_macs(count_macs), .count_vector(active[1]), .count_uops(count_uops),
      .count_copy(active[0]), .count_read(m_axi_rvalid && m_axi_rready), .count_write(m_axi_wvalid && m_axi_wready));

  // ---- Memory ----
  wire flush, rd_run_ready, rd_idle, rd_quiet, rd_error, wr_run_ready, wr_push_ready, wr_busy_idle, wr_quiet, wr_error;
  reg rd_run, wr_run;
  reg [47:0] rd_addr, wr_addr;
  reg [40:0] rd_bytes, wr_bytes;
  reg [6:0] rd_take;
  wire [7:0] rd_avail;
  wire [511:0] rd_data;
  wire [47:0] rd_error_addr, wr_error_addr;
  wire wr_push;
  wire [6:0] wr_push_bytes;
  wire [511:0] wr_push_data;
  echo_npu_reader #(.BUS_LOG2(BUS_LOG2)) reader (
      .clk(clk), .reset(reset), .flush(flush), .run_valid(rd_run), .run_ready(rd_run_ready), .run_addr(rd_addr),
      .run_bytes(rd_bytes), .avail(rd_avail), .data(rd_data), .take(rd_take), .idle(rd_idle), .quiet(rd_quiet),
      .error(rd_error), .error_addr(rd_error_addr), .arvalid(m_axi_arvalid), .arready(m_axi_arready),
      .araddr(m_axi_araddr), .arlen(m_axi_arlen), .rvalid(m_axi_rvalid), .rready(m_axi_rready), .rdata(m_axi_rdata),
      .rresp(m_axi_rresp));
  echo_npu_writer #(.BUS_LOG2(BUS_LOG2)) writer (
      .clk(clk), .reset(reset), .flush(flush), .run_valid(wr_run), .run_ready(wr_run_ready), .run_addr(wr_addr),
      .run_bytes(wr_bytes), .push(wr_push), .push_ready(wr_push_ready), .push_bytes(wr_push_bytes),
      .push_data(wr_push_data), .idle(wr_busy_idle), .quiet(wr_quiet), .error(wr_error), .error_addr(wr_error_addr),
      .awvalid(m_axi_awvalid), .awready(m_axi_awready), .awaddr(m_axi_awaddr), .awlen(m_axi_awlen),
      .wvalid(m_axi_wvalid), .wready(m_axi_wready), .wdata(m_axi_wdata), .wstrb(m_axi_wstrb), .wlast(m_axi_wlast),
      .bvalid(m_axi_bvalid), .bready(m_axi_bready), .bresp(m_axi_bresp));

  // ---- Conversion between memory types and lanes ----
  wire v_unpack, m_unpack, v_pack, m_pack, m_pack_raw, pack_ready, pack_push;
  wire [1:0] v_unpack_type, m_unpack_type, v_pack_type, m_pack_type;
  wire [4:0] v_pack_count, m_pack_count;
  wire [511:0] v_pack_lanes, m_pack_lanes, lanes, pack_data;
  wire [6:0] pack_bytes;
  wire integers;
  echo_npu_unpack unpack (
      .clk(clk), .en(v_unpack || m_unpack), .dtype(active[2] ? m_unpack_type : v_unpack_type),
      .raw(active[2]), .data(rd_data), .lanes(lanes));
  echo_npu_pack pack (
      .clk(clk), .clear(reset || flush), .valid(v_pack || m_pack), .ready(pack_ready),
      .dtype(active[2] ? m_pack_type : v_pack_type), .raw(integers),
      .count(active[2] ? m_pack_count : v_pack_count), .lanes(active[2] ? m_pack_lanes : v_pack_lanes),
      .push(pack_push), .push_ready(wr_push_ready), .push_bytes(pack_bytes), .push_data(pack_data));
  assign integers = active[2] && m_pack_raw;
  wire wr_idle = wr_busy_idle && !pack_push;

  // ---- Command queue ----
  wire bus_progress = (m_axi_arvalid && m_axi_arready) || m_axi_rvalid || (m_axi_awvalid && m_axi_awready) ||
      (m_axi_wvalid && m_axi_wready) || m_axi_bvalid;
  wire q_rd_run, q_wr_run, q_wr_push;
  wire [47:0] q_rd_addr, q_wr_addr, src1, src2, dst;
  wire [40:0] q_wr_bytes;
  wire [6:0] q_rd_take;
  wire [127:0] q_wr_data;
  wire [511:0] packet;
  wire [7:0] first_pass;
  wire [2:0] start, done, index_fault;
  wire [47:0] c_index_addr, v_index_addr;
  echo_npu_queue queue (
      .clk(clk), .reset(reset), .soft_reset(soft_reset), .run(run), .ring_base(ring_base), .ring_log2(ring_log2),
      .head(head), .watchdog(watchdog), .areas(areas), .busy_cycles(busy_cycles), .retire(retire),
      .retire_irq(retire_irq), .retire_cycles(retire_cycles), .fault(fault), .fault_code(fault_code),
      .fault_addr(fault_addr), .flush(flush), .bus_quiet(rd_quiet && wr_quiet), .bus_waiting(!rd_quiet || !wr_quiet),
      .bus_progress(bus_progress), .read_error(rd_error), .read_error_addr(rd_error_addr), .write_error(wr_error),
      .write_error_addr(wr_error_addr), .rd_run(q_rd_run), .rd_run_ready(rd_run_ready), .rd_addr(q_rd_addr),
      .rd_avail(rd_avail), .rd_data(rd_data), .rd_take(q_rd_take), .wr_run(q_wr_run), .wr_run_ready(wr_run_ready),
      .wr_addr(q_wr_addr), .wr_bytes(q_wr_bytes), .wr_push(q_wr_push), .wr_data(q_wr_data), .wr_idle(wr_idle),
      .packet(packet), .src1(src1), .src2(src2), .dst(dst), .first_pass(first_pass), .start(start), .active(active),
      .done(done), .index_fault(index_fault), .index_fault_addr(active[1] ? v_index_addr : c_index_addr));
  wire clear = reset || flush;
  assign index_fault[2] = 1'b0;

  // ---- Engines ----
  wire c_rd_run, c_wr_run, c_wr_push, v_rd_run, v_wr_run, m_rd_run, m_wr_run;
  wire [47:0] c_rd_addr, c_wr_addr, v_rd_addr, v_wr_addr, m_rd_addr, m_wr_addr;
  wire [40:0] c_rd_bytes, c_wr_bytes, v_rd_bytes, v_wr_bytes, m_rd_bytes, m_wr_bytes;
  wire [6:0] c_rd_take, v_rd_take, m_rd_take, c_push_bytes;
  wire [511:0] c_push_data;
  echo_npu_copy copy (
      .clk(clk), .clear(clear), .start(start[0]), .packet(packet), .src1(src1), .src2(src2), .dst(dst), .done(done[0]),
      .index_fault(index_fault[0]), .index_fault_addr(c_index_addr), .rd_run(c_rd_run), .rd_run_ready(rd_run_ready),
      .rd_addr(c_rd_addr), .rd_bytes(c_rd_bytes), .rd_avail(active[0] ? rd_avail : 8'd0), .rd_data(rd_data),
      .rd_take(c_rd_take), .rd_idle(rd_idle), .wr_run(c_wr_run), .wr_run_ready(wr_run_ready), .wr_addr(c_wr_addr),
      .wr_bytes(c_wr_bytes), .wr_push(c_wr_push), .wr_push_ready(wr_push_ready && active[0]),
      .wr_push_bytes(c_push_bytes), .wr_push_data(c_push_data));
  echo_npu_vector vector (
      .clk(clk), .clear(clear), .start(start[1]), .packet(packet), .src1(src1), .src2(src2), .dst(dst),
      .first_pass(first_pass), .done(done[1]), .index_fault(index_fault[1]), .index_fault_addr(v_index_addr),
      .count_uops(count_uops), .rd_run(v_rd_run), .rd_run_ready(rd_run_ready), .rd_addr(v_rd_addr),
      .rd_bytes(v_rd_bytes), .rd_avail(rd_avail), .rd_data(rd_data), .rd_take(v_rd_take), .unpack(v_unpack),
      .unpack_type(v_unpack_type), .lanes(lanes), .wr_run(v_wr_run), .wr_run_ready(wr_run_ready), .wr_addr(v_wr_addr),
      .wr_bytes(v_wr_bytes), .wr_idle(wr_idle), .pack(v_pack), .pack_ready(pack_ready), .pack_type(v_pack_type),
      .pack_count(v_pack_count), .pack_lanes(v_pack_lanes));
  echo_npu_matrix #(.N(N), .NL(NL)) matrix (
      .clk(clk), .clear(clear), .start(start[2]), .packet(packet), .src1(src1), .src2(src2), .dst(dst), .done(done[2]),
      .count_macs(count_macs), .rd_run(m_rd_run), .rd_run_ready(rd_run_ready), .rd_addr(m_rd_addr),
      .rd_bytes(m_rd_bytes), .rd_avail(rd_avail), .rd_take(m_rd_take), .unpack(m_unpack), .unpack_type(m_unpack_type),
      .lanes(lanes), .wr_run(m_wr_run), .wr_run_ready(wr_run_ready), .wr_addr(m_wr_addr), .wr_bytes(m_wr_bytes),
      .pack(m_pack), .pack_ready(pack_ready), .pack_type(m_pack_type), .pack_raw(m_pack_raw),
      .pack_count(m_pack_count), .pack_lanes(m_pack_lanes));

  always @*
    case (active)
      3'b001: begin
        {rd_run, rd_addr, rd_bytes, rd_take} = {c_rd_run, c_rd_addr, c_rd_bytes, c_rd_take};
        {wr_run, wr_addr, wr_bytes} = {c_wr_run, c_wr_addr, c_wr_bytes};
      end
      3'b010: begin
        {rd_run, rd_addr, rd_bytes, rd_take} = {v_rd_run, v_rd_addr, v_rd_bytes, v_rd_take};
        {wr_run, wr_addr, wr_bytes} = {v_wr_run, v_wr_addr, v_wr_bytes};
      end
      3'b100: begin
        {rd_run, rd_addr, rd_bytes, rd_take} = {m_rd_run, m_rd_addr, m_rd_bytes, m_rd_take};
        {wr_run, wr_addr, wr_bytes} = {m_wr_run, m_wr_addr, m_wr_bytes};
      end
      default: begin
        {rd_run, rd_addr, rd_bytes, rd_take} = {q_rd_run, q_rd_addr, 41'd64, q_rd_take};
        {wr_run, wr_addr, wr_bytes} = {q_wr_run, q_wr_addr, q_wr_bytes};
      end
    endcase
  assign wr_push = active[0] ? c_wr_push : active == 0 ? q_wr_push : pack_push && wr_push_ready;
  assign wr_push_bytes = active[0] ? c_push_bytes : active == 0 ? q_wr_bytes[6:0] : pack_bytes;
  assign wr_push_data = active[0] ? c_push_data : active == 0 ? {384'd0, q_wr_data} : pack_data;
endmodule
