// echo_npu_regs - the AXI4-Lite registers (isa.md section 10): configuration, ring pointers, status, faults,
// interrupts and counters. The command queue reports what happened; the rest of the device is told here
// what to do.
module echo_npu_regs #(
    parameter N = 16,
    parameter BUS_LOG2 = 6,
    parameter FMA_LATENCY = 4,
    parameter CLOCK_MHZ = 0
) (
    input wire clk,
    input wire reset,
    // AXI4-Lite
    input wire s_awvalid,
    output reg s_awready,
    input wire [15:0] s_awaddr,
    input wire s_wvalid,
    output reg s_wready,
    input wire [31:0] s_wdata,
    input wire [3:0] s_wstrb,
    output reg s_bvalid,
    input wire s_bready,
    output wire [1:0] s_bresp,
    input wire s_arvalid,
    output reg s_arready,
    input wire [15:0] s_araddr,
    output reg s_rvalid,
    input wire s_rready,
    output reg [31:0] s_rdata,
    output wire [1:0] s_rresp,
    output wire irq,
    // To the device
    output reg soft_reset,  // one cycle: drop everything
    output wire run,        // packets are waiting and may start
    output reg [47:0] ring_base,
    output reg [31:0] ring_log2,
    output reg [31:0] head,
    output reg [31:0] watchdog,
    output wire [6*48-1:0] areas,  // base, limit of area 0, then 1, 2
    output wire [63:0] busy_cycles,
    // From the command queue
    input wire retire,
    input wire retire_irq,
    input wire [31:0] retire_cycles,
    input wire fault,
    input wire [3:0] fault_code_in,
    input wire [63:0] fault_addr_in,
    // What to count in this cycle
    input wire count_matrix,
    input wire [15:0] count_macs,
    input wire count_vector,
    input wire [4:0] count_uops,
    input wire count_copy,
    input wire count_read,
    input wire count_write
);
  `include "echo_npu_defs.vh"
  localparam [31:0] SIZE_N = N;
  localparam [31:0] SIZE_BUS = BUS_LOG2;
  localparam [31:0] SIZE_FMA = FMA_LATENCY;
  localparam [31:0] CLOCK = CLOCK_MHZ;
  localparam [31:0] CONFIG = (SIZE_N << `ECHO_NPU_CONFIG_N_SHIFT) |
      (`ECHO_NPU_LANES << `ECHO_NPU_CONFIG_LANES_SHIFT) | (SIZE_BUS << `ECHO_NPU_CONFIG_BUS_SHIFT) |
      (SIZE_FMA << `ECHO_NPU_CONFIG_LATENCY_SHIFT);

  localparam [31:0] IDLE32 = `ECHO_NPU_STATUS_IDLE, BUSY32 = `ECHO_NPU_STATUS_BUSY, DONE32 = `ECHO_NPU_STATUS_DONE,
      ERROR32 = `ECHO_NPU_STATUS_ERROR, RING32 = `ECHO_NPU_FAULT_RING;
  localparam [1:0] IDLE = IDLE32[1:0], BUSY = BUSY32[1:0], DONE = DONE32[1:0], ERROR = ERROR32[1:0];

  localparam [63:0] HIGH_BASE = `ECHO_NPU_HIGH_BASE;

  reg enable;
  reg [1:0] status;
  reg [15:0] clock_mhz;
  reg [31:0] tail, fault_index, last_cycles;
  reg [3:0] fault_code;
  reg [63:0] fault_addr;
  reg [2:0] irq_status, irq_enable;
  reg [47:0] area[0:5];
  reg [63:0] counter[0:9];
  reg [31:0] latched;

  wire is_error = status == ERROR;
  assign run = enable && !is_error && head != tail && !soft_reset;
  assign irq = (irq_status & irq_enable) != 0;
  assign areas = {area[5], area[4], area[3], area[2], area[1], area[0]};
  assign busy_cycles = counter[1];

  // ---- Writes: address and data are taken in either order, each into a register of its own ----
  reg aw_held, w_held;
  reg [15:0] held_addr;
  reg [31:0] wdata;
  reg [3:0] wstrb;
  wire write = aw_held && w_held && !s_bvalid;
  wire keep_aw = (aw_held && !write) || (s_awvalid && s_awready);
  wire keep_w = (w_held && !write) || (s_wvalid && s_wready);
  wire whole = wstrb == 4'hf;
  wire [31:0] waddr = {16'd0, held_addr};
  wire we = write && whole;
  wire is_area = waddr >= `ECHO_NPU_REG_AREA && waddr < `ECHO_NPU_REG_AREA + 48 && waddr[1:0] == 0;
  wire [2:0] area_word = {1'b0, waddr[5:4]} + {1'b0, waddr[5:4]} + {2'd0, waddr[3]};
  wire we_control = we && waddr == `ECHO_NPU_REG_CONTROL;
  wire do_reset = we_control && wdata[1];
  wire doorbell = we && waddr == `ECHO_NPU_REG_RING_TAIL && !is_error;

  // In the cycle of soft_reset the queue still tells of what it did before it heard.
  wire retired = retire && !is_error && !soft_reset;
  wire faulted = fault && !is_error && !soft_reset;
  wire [31:0] next_head = head + {31'd0, retired};
  wire [31:0] next_tail = doorbell ? wdata : tail;
  wire overfull = doorbell && ring_log2 <= `ECHO_NPU_RING_LOG2_MAX && wdata - next_head > (32'd1 << ring_log2[4:0]);
  wire withdrawn = doorbell && status == BUSY && wdata == next_head;

  always @(posedge clk)
    if (reset) {s_awready, s_wready, aw_held, w_held} <= 0;
    else begin
      {aw_held, s_awready} <= {keep_aw, !keep_aw};
      {w_held, s_wready} <= {keep_w, !keep_w};
      if (s_awvalid && s_awready) held_addr <= s_awaddr;
      if (s_wvalid && s_wready) {wdata, wstrb} <= {s_wdata, s_wstrb};
    end
  assign s_bresp = 2'b00;
  assign s_rresp = 2'b00;

  integer i;
  always @(posedge clk)
    if (reset) begin
      s_bvalid <= 0;
      soft_reset <= 0;
      watchdog <= 0;
      clock_mhz <= CLOCK[15:0];
      area[0] <= {16'd0, `ECHO_NPU_WEIGHT_BASE};
      area[1] <= {16'd0, `ECHO_NPU_WEIGHT_BASE + `ECHO_NPU_WEIGHT_MAX};
      area[2] <= {16'd0, `ECHO_NPU_ACT_BASE};
      area[3] <= {16'd0, `ECHO_NPU_ACT_BASE + `ECHO_NPU_ACT_MAX};
      area[4] <= HIGH_BASE[47:0];
      area[5] <= HIGH_BASE[47:0];
    end else begin
      if (s_bready) s_bvalid <= 0;
      if (write) s_bvalid <= 1;
      soft_reset <= do_reset || overfull || withdrawn;
      if (we && waddr == `ECHO_NPU_REG_WATCHDOG) watchdog <= wdata;
      if (we && waddr == `ECHO_NPU_REG_CLOCK_MHZ && !enable) clock_mhz <= wdata[15:0];
      if (we && is_area && !enable) begin
        if (waddr[2]) area[area_word] <= {wdata[15:0], area[area_word][31:0]};
        else area[area_word] <= {area[area_word][47:32], wdata};
      end
    end

  always @(posedge clk)
    if (reset || do_reset) begin
      enable <= 0;
      status <= IDLE;
      head <= 0;
      tail <= 0;
      ring_base <= 0;
      ring_log2 <= 0;
      fault_code <= 0;
      fault_addr <= 0;
      fault_index <= 0;
      last_cycles <= 0;
      irq_status <= 0;
      irq_enable <= 0;
    end else begin
      if (we_control) enable <= wdata[0];
      if (we && !enable && waddr == `ECHO_NPU_REG_RING_BASE_LO) ring_base[31:0] <= wdata;
      if (we && !enable && waddr == `ECHO_NPU_REG_RING_BASE_HI) ring_base[47:32] <= wdata[15:0];
      if (we && !enable && waddr == `ECHO_NPU_REG_RING_LOG2) ring_log2 <= wdata;
      if (we && waddr == `ECHO_NPU_REG_IRQ_ENABLE) irq_enable <= wdata[2:0];
      if (we && waddr == `ECHO_NPU_REG_IRQ_STATUS) irq_status <= irq_status & ~wdata[2:0];
      if (retired) begin
        last_cycles <= retire_cycles;
        if (retire_irq) irq_status[0] <= 1;
        if (next_head == next_tail) irq_status[2] <= 1;
      end
      head <= next_head;
      tail <= next_tail;
      if (next_head != next_tail) status <= BUSY;
      else if (status == BUSY) status <= DONE;
      if (is_error) status <= ERROR;
      if (faulted || overfull) begin
        status <= ERROR;
        fault_code <= faulted ? fault_code_in : RING32[3:0];
        fault_addr <= faulted ? fault_addr_in : 64'd0;
        fault_index <= next_head;
        irq_status[1] <= 1;
      end
    end

  // ---- Counters ----
  always @(posedge clk)
    if (reset || (we_control && wdata[2])) for (i = 0; i < 10; i = i + 1) counter[i] <= 0;
    else begin
      counter[0] <= counter[0] + 1;
      if (status == BUSY) counter[1] <= counter[1] + 1;
      if (retired) counter[2] <= counter[2] + 1;
      if (count_matrix) counter[3] <= counter[3] + 1;
      if (count_matrix) counter[4] <= counter[4] + {48'd0, count_macs};
      if (count_vector) counter[5] <= counter[5] + 1;
      if (count_vector) counter[6] <= counter[6] + {59'd0, count_uops};
      if (count_copy) counter[7] <= counter[7] + 1;
      if (count_read) counter[8] <= counter[8] + 1;
      if (count_write) counter[9] <= counter[9] + 1;
    end

  // ---- Reads ----
  wire read = s_arvalid && s_arready;
  wire [31:0] raddr = {16'd0, s_araddr};
  wire is_counter = raddr >= `ECHO_NPU_REG_COUNTER && raddr < `ECHO_NPU_REG_COUNTER + 80;
  wire is_area_r = raddr >= `ECHO_NPU_REG_AREA && raddr < `ECHO_NPU_REG_AREA + 48;
  wire [2:0] area_word_r = {1'b0, raddr[5:4]} + {1'b0, raddr[5:4]} + {2'd0, raddr[3]};

  always @(posedge clk)
    if (reset) {s_arready, s_rvalid} <= 0;
    else begin
      if (s_rready) s_rvalid <= 0;
      s_arready <= !read && (!s_rvalid || s_rready);
      if (read) begin
        s_rvalid <= 1;
        case (raddr)
          `ECHO_NPU_REG_ID: s_rdata <= `ECHO_NPU_ID;
          `ECHO_NPU_REG_VERSION: s_rdata <= `ECHO_NPU_HW_VERSION;
          `ECHO_NPU_REG_CONFIG: s_rdata <= CONFIG;
          `ECHO_NPU_REG_CLOCK_MHZ: s_rdata <= {16'd0, clock_mhz};
          `ECHO_NPU_REG_CONTROL: s_rdata <= {31'd0, enable};
          `ECHO_NPU_REG_STATUS: s_rdata <= {30'd0, status};
          `ECHO_NPU_REG_FAULT_CODE: s_rdata <= {28'd0, fault_code};
          `ECHO_NPU_REG_FAULT_INDEX: s_rdata <= fault_index;
          `ECHO_NPU_REG_FAULT_ADDR_LO: s_rdata <= fault_addr[31:0];
          `ECHO_NPU_REG_FAULT_ADDR_HI: s_rdata <= fault_addr[63:32];
          `ECHO_NPU_REG_WATCHDOG: s_rdata <= watchdog;
          `ECHO_NPU_REG_LAST_CYCLES: s_rdata <= last_cycles;
          `ECHO_NPU_REG_RING_BASE_LO: s_rdata <= ring_base[31:0];
          `ECHO_NPU_REG_RING_BASE_HI: s_rdata <= {16'd0, ring_base[47:32]};
          `ECHO_NPU_REG_RING_LOG2: s_rdata <= ring_log2;
          `ECHO_NPU_REG_RING_HEAD: s_rdata <= head;
          `ECHO_NPU_REG_RING_TAIL: s_rdata <= tail;
          `ECHO_NPU_REG_IRQ_STATUS: s_rdata <= {29'd0, irq_status};
          `ECHO_NPU_REG_IRQ_ENABLE: s_rdata <= {29'd0, irq_enable};
          default:
          if (raddr[1:0] != 0) s_rdata <= 0;
          else if (is_counter) begin
            s_rdata <= raddr[2] ? latched : counter[raddr[6:3]][31:0];
            if (!raddr[2]) latched <= counter[raddr[6:3]][63:32];
          end else if (is_area_r)
            s_rdata <= raddr[2] ? {16'd0, area[area_word_r][47:32]} : area[area_word_r][31:0];
          else s_rdata <= 0;
        endcase
      end
    end
endmodule
