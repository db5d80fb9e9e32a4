// echo_npu_matrix - the matrix engine: MATMUL on an N x N array of multiply-accumulate units.
//
// Each unit owns 16 accumulators (slots), so a macro tile of 16 N x N outputs is in work: 4N x 4N as a rule,
// N x 16N or 2N x 8N and their mirrors where M or N is small. For each k the engine visits the slots of the tile, one a
// cycle, which hides the latency of the multiply-add; a chain of k therefore stays strictly ascending.
//
// Four machines work at once and meet in flags:
//   loader   makes read runs for the chunks of k of tile after tile, one chunk ahead of the array;
//   filler   puts what arrives into the two scratchpads (or, for ACCUMULATE, into the accumulators);
//   array    computes a chunk when both its pads are full;
//   unloader writes a finished tile while the array computes the next in the other bank.
module echo_npu_matrix #(
    parameter N  = 16,
    parameter NL = 4,
    parameter DL = 9  // log2 of the words in a scratchpad buffer
) (
    input wire clk,
    input wire clear,
    input wire start,
    input wire [511:0] packet,
    input wire [47:0] src1,
    input wire [47:0] src2,
    input wire [47:0] dst,
    output wire done,
    output wire [15:0] count_macs,
    output wire rd_run,
    input wire rd_run_ready,
    output wire [47:0] rd_addr,
    output wire [40:0] rd_bytes,
    input wire [7:0] rd_avail,
    output wire [6:0] rd_take,
    output wire unpack,
    output wire [1:0] unpack_type,
    input wire [511:0] lanes,
    output wire wr_run,
    input wire wr_run_ready,
    output wire [47:0] wr_addr,
    output wire [40:0] wr_bytes,
    output wire pack,
    input wire pack_ready,
    output wire [1:0] pack_type,
    output wire pack_raw,
    output wire [4:0] pack_count,
    output wire [511:0] pack_lanes
);
  localparam G = N < 16 ? N : 16;  // elements moved in a cycle
  localparam GL = N < 16 ? NL : 4;
  localparam SL = 4;
  localparam LOOP = 6;  // cycles from reading an accumulator to reading its new value

  // ---- Command ----
  wire [1:0] t1 = packet[37:36], t2 = packet[39:38], td = packet[41:40];
  wire ta = packet[42], tb = packet[43], accumulate = packet[44];
  wire integers = t1 == 2'd2;
  wire [27:0] m_size = packet[283:256], n_size = packet[315:288], k_size = packet[443:416];
  function automatic [1:0] log2_size(input [1:0] t);
    log2_size = t == 2'd1 ? 2'd1 : t == 2'd2 ? 2'd0 : 2'd2;
  endfunction
  wire [1:0] sa = log2_size(t1), sb = log2_size(t2), sd = log2_size(td);
  wire [47:0] lda = {16'd0, packet[351:320]} << sa, ldb = {16'd0, packet[383:352]} << sb,
      ldc = {16'd0, packet[415:384]} << sd;

  // Shape of the macro tile: N << rsl rows by N << csl columns, chunks of 1 << kcl.
  reg [2:0] rsl, csl;
  reg [3:0] kcl;
  wire [3:0] tml = NL[3:0] + {1'b0, rsl}, tnl = NL[3:0] + {1'b0, csl};
  wire [9:0] tile_m = 10'd1 << tml, tile_n = 10'd1 << tnl, chunk_k = 10'd1 << kcl;
  localparam [31:0] SIZE = N;
  localparam [27:0] N1 = SIZE[27:0], N2 = {SIZE[26:0], 1'b0};

  // ---- Loader ----
  localparam L_OFF = 0, L_TILE = 1, L_ACC = 2, L_CHUNK = 3, L_A = 4, L_B = 5, L_NEXT = 6;
  reg [2:0] lstate;
  reg [27:0] m_left, n_left, k_left;
  reg [47:0] a_tile, a_chunk, b_tile, b_chunk, c_row_tile, c_tile, run_addr;
  reg [9:0] run_index;
  reg l_buf, l_bank, l_first;
  wire [9:0] mt = m_left < {18'd0, tile_m} ? m_left[9:0] : tile_m;
  wire [9:0] nt = n_left < {18'd0, tile_n} ? n_left[9:0] : tile_n;
  wire [9:0] kc = k_left < {18'd0, chunk_k} ? k_left[9:0] : chunk_k;
  wire k_last = k_left <= {18'd0, chunk_k};
  wire n_last = n_left <= {18'd0, tile_n};
  wire m_last = m_left <= {18'd0, tile_m};

  reg [1:0] pad_busy, pad_full;  // by buffer
  reg [1:0] bank_busy;           // holds a tile that is computed or not yet written
  reg [1:0] bank_loaded;
  reg [9:0] info_mt[0:1], info_nt[0:1], info_kc[0:1];
  reg info_first[0:1], info_last[0:1];
  reg [47:0] info_addr[0:1];

  wire todo_full, todo_valid;
  wire loading = lstate == L_ACC || lstate == L_A || lstate == L_B;
  wire [9:0] run_count = lstate == L_ACC ? mt : lstate == L_A ? (ta ? kc : mt) : tb ? nt : kc;
  wire [9:0] run_elements = lstate == L_ACC ? nt : lstate == L_A ? (ta ? mt : kc) : tb ? kc : nt;
  wire [1:0] run_size = lstate == L_ACC ? sd : lstate == L_A ? sa : sb;
  wire run_last = run_index + 10'd1 == run_count;
  wire run_made = rd_run && rd_run_ready;
  assign rd_run = loading && !todo_full;
  assign rd_addr = run_addr;
  assign rd_bytes = {31'd0, run_elements} << run_size;

  // ---- Filler ----
  // A run on its way: kind 0 A, 1 B, 2 accumulators.
  wire [24:0] todo;
  wire [1:0] f_kind = todo[24:23];
  wire f_last = todo[22];
  wire f_side = todo[21];  // buffer or bank
  wire [9:0] f_index = todo[20:11];
  wire [9:0] f_count = {todo[10:1]};
  wire f_along_k = todo[0];
  reg [9:0] f_done;
  wire [9:0] f_left = f_count - f_done;
  wire f_end = f_left <= G[9:0];
  wire [4:0] f_group = f_end ? f_left[4:0] : G[4:0];
  wire [1:0] f_type = f_kind == 2'd0 ? t1 : f_kind == 2'd1 ? t2 : td;
  wire [6:0] f_bytes = {2'd0, f_group} << log2_size(f_type);
  assign unpack = todo_valid && rd_avail >= {1'b0, f_bytes};
  assign unpack_type = f_type;
  assign rd_take = unpack ? f_bytes : 7'd0;
  echo_npu_fifo #(.WIDTH(25), .LOG2(6)) runs (
      .clk(clk), .clear(clear), .push(run_made),
      .in({lstate == L_ACC ? 2'd2 : lstate == L_A ? 2'd0 : 2'd1, run_last, lstate == L_ACC ? l_bank : l_buf,
          run_index, run_elements, lstate == L_A ? !ta : tb}),
      .pop(unpack && f_end), .out(todo), .valid(todo_valid), .full(todo_full));

  reg g_valid, g_last, g_side, g_along_k, g_end;
  reg [1:0] g_kind;
  reg [4:0] g_group;
  reg [9:0] g_index, g_done;
  always @(posedge clk)
    if (clear) begin
      f_done <= 0;
      g_valid <= 0;
    end else begin
      g_valid <= unpack;
      if (unpack) begin
        f_done <= f_end ? 10'd0 : f_done + G[9:0];
        {g_kind, g_last, g_side, g_along_k, g_group, g_index, g_done, g_end} <=
            {f_kind, f_last && f_end, f_side, f_along_k, f_group, f_index, f_done, f_end};
      end
    end
  wire [9:0] g_row = g_along_k ? g_index : g_done, g_k = g_along_k ? g_done : g_index;

  // ---- Array ----
  reg x_run, x_buf, x_bank;
  reg [9:0] x_k;
  reg [3:0] x_r, x_c;
  reg [4:0] x_phase;
  reg x_slots_done;
  wire [9:0] x_mt = info_mt[x_buf], x_nt = info_nt[x_buf], x_kc = info_kc[x_buf];
  wire [9:0] x_rows = x_mt - ({6'd0, x_r} << NL), x_cols = x_nt - ({6'd0, x_c} << NL);
  wire x_r_last = x_rows <= N1[9:0], x_c_last = x_cols <= N1[9:0];
  wire [NL:0] x_rows_here = x_r_last ? x_rows[NL:0] : N1[NL:0];
  wire [NL:0] x_cols_here = x_c_last ? x_cols[NL:0] : N1[NL:0];
  wire x_issue = x_run && !x_slots_done;
  wire x_slots_last = x_slots_done || (x_r_last && x_c_last);
  wire x_step = x_run && x_slots_last && x_phase >= LOOP - 1;  // last cycle of this k
  wire x_end = x_step && x_k + 10'd1 == x_kc;
  wire x_first = info_first[x_buf];
  wire x_may = pad_full[x_buf] && (!x_first || (accumulate ? bank_loaded[x_bank] : !bank_busy[x_bank]));
  wire [2*NL+1:0] macs = x_rows_here * x_cols_here;
  assign count_macs = x_issue ? {{(14 - 2 * NL) {1'b0}}, macs} : 16'd0;

  wire [32*N-1:0] word_a, word_b;
  wire [3:0] x_slot = (x_r << csl) + x_c;
  echo_npu_pad #(.N(N), .NL(NL), .G(G), .GL(GL), .DL(DL)) pad_a (
      .clk(clk), .shift(rsl), .we(g_valid && g_kind == 2'd0), .wbuf(g_side), .along_k(g_along_k), .wcount(g_group),
      .wrow(g_row[8:0]), .wk(g_k[DL-1:0]), .wdata(lanes[32*G-1:0]), .re(x_issue), .rbuf(x_buf), .rk(x_k[DL-1:0]),
      .rslot(x_r), .rdata(word_a));
  echo_npu_pad #(.N(N), .NL(NL), .G(G), .GL(GL), .DL(DL)) pad_b (
      .clk(clk), .shift(csl), .we(g_valid && g_kind == 2'd1), .wbuf(g_side), .along_k(g_along_k), .wcount(g_group),
      .wrow(g_row[8:0]), .wk(g_k[DL-1:0]), .wdata(lanes[32*G-1:0]), .re(x_issue), .rbuf(x_buf), .rk(x_k[DL-1:0]),
      .rslot(x_c), .rdata(word_b));

  reg q1_valid, q2_valid, q1_zero, q2_zero;
  reg [SL:0] q1_slot, q2_slot, q3_slot, q4_slot, q5_slot, q6_slot;  // bank, slot
  reg [NL:0] q1_rows, q2_rows;
  always @(posedge clk)
    if (clear) {q1_valid, q2_valid} <= 0;
    else begin
      q1_valid <= x_issue;
      q2_valid <= q1_valid;
      if (x_issue) begin
        q1_zero <= x_first && !accumulate && x_k == 0;
        q1_slot <= {x_bank, x_slot};
        q1_rows <= x_rows_here;
      end
      {q2_zero, q2_slot, q2_rows} <= {q1_zero, q1_slot, q1_rows};
      {q3_slot, q4_slot, q5_slot, q6_slot} <= {q2_slot, q3_slot, q4_slot, q5_slot};
    end

  // ---- Unloader ----
  localparam D_OFF = 0, D_RUN = 1, D_READ = 2, D_PUSH = 3;
  reg [1:0] dstate;
  reg d_bank;
  reg [1:0] d_pending;
  reg [9:0] d_mt[0:1], d_nt[0:1];
  reg [47:0] d_tile[0:1];
  reg [47:0] d_addr;
  reg [9:0] d_row, d_done;
  reg [7:0] settle0, settle1;  // by bank: cycles since the last issue of its tile, one hot
  wire [9:0] d_left = d_nt[d_bank] - d_done;
  wire d_end = d_left <= G[9:0];
  wire d_push = dstate == D_PUSH && pack_ready;
  wire d_read = dstate == D_READ || (d_push && !d_end);
  wire [9:0] d_next = dstate == D_READ ? 10'd0 : d_done + G[9:0];
  wire [9:0] d_rslot = d_row >> NL, d_cslot = d_next >> NL;
  wire [3:0] d_slot = (d_rslot[3:0] << csl) + d_cslot[3:0];
  assign wr_run = dstate == D_RUN;
  assign wr_addr = d_addr;
  assign wr_bytes = {31'd0, d_nt[d_bank]} << sd;
  assign pack = d_push;
  assign pack_type = td;
  assign pack_raw = integers;
  assign pack_count = d_end ? d_left[4:0] : G[4:0];

  // Accumulators being loaded: one word is N / G groups.
  wire [32*N-1:0] load_word;
  wire load_now, load_part;
  wire [9:0] g_rslot = g_index >> NL, g_cslot = g_done >> NL;
  wire [3:0] load_slot = (g_rslot[3:0] << csl) + g_cslot[3:0];
  wire is_load = g_valid && g_kind == 2'd2;
  wire [511:0] out_lanes;
  wire [N*32*N-1:0] unloaded;
  reg [32*N-1:0] unload_word;
  reg [31:0] u;
  always @* begin
    unload_word = unloaded[32*N-1:0];
    for (u = 1; u < N; u = u + 1) if (d_row[NL-1:0] == u[NL-1:0]) unload_word = unloaded[32*N*u+:32*N];
  end
  generate
    if (N <= 16) begin : one_group
      assign load_word = lanes[32*N-1:0];
      assign load_now = is_load;
      assign load_part = 1'b0;
      if (N == 16) begin : same
        assign out_lanes = unload_word;
      end else begin : narrow
        assign out_lanes = {{(512 - 32 * N) {1'b0}}, unload_word};
      end
    end else begin : two_groups
      reg [511:0] low;
      always @(posedge clk) if (is_load && !g_done[4]) low <= lanes;
      assign load_part = g_done[4];
      assign load_word = load_part ? {lanes, low} : {512'd0, lanes};
      assign load_now = is_load && (load_part || g_end);
      assign out_lanes = d_done[4] ? unload_word[1023:512] : unload_word[511:0];
    end
  endgenerate
  assign pack_lanes = out_lanes;

  genvar i;
  generate
    for (i = 0; i < N; i = i + 1) begin : row
      echo_npu_pe_row #(.N(N), .SL(SL)) pe (
          .clk(clk), .read(q1_valid && i < q1_rows), .read_bank(q1_slot[SL]), .read_slot(q1_slot[SL-1:0]),
          .valid(q2_valid && i < q2_rows), .integers(integers), .zero(q2_zero), .a(word_a[32*i+:32]), .b(word_b),
          .write_bank(q6_slot[SL]), .write_slot(q6_slot[SL-1:0]),
          .unload(d_read && d_row[NL-1:0] == i), .unload_bank(d_bank), .unload_slot(d_slot),
          .unload_data(unloaded[32*N*i+:32*N]),
          .load(load_now && g_index[NL-1:0] == i), .load_bank(g_side), .load_slot(load_slot), .load_data(load_word));
    end
  endgenerate

  reg working;
  assign done = working && lstate == L_OFF && pad_busy == 0 && bank_busy == 0;

  always @(posedge clk)
    if (clear) begin
      working <= 0;
      lstate <= L_OFF;
      dstate <= D_OFF;
      x_run <= 0;
      {pad_busy, pad_full, bank_busy, bank_loaded, d_pending} <= 0;
      {settle0, settle1} <= 0;
      {l_buf, l_bank, x_buf, x_bank, d_bank} <= 0;
    end else begin
      // Loader
      if (run_made) begin
        run_index <= run_index + 1;
        run_addr <= run_addr + (lstate == L_ACC ? ldc : lstate == L_A ? lda : ldb);
      end
      case (lstate)
        L_OFF: begin
          if (done) working <= 0;
          if (start) begin
            working <= 1;
            lstate <= L_TILE;
            {rsl, csl, kcl} <= m_size <= N1 ? {3'd0, 3'd4, DL[3:0] - 4'd4} : m_size <= N2 ? {3'd1, 3'd3, DL[3:0] - 4'd3} :
                n_size <= N1 ? {3'd4, 3'd0, DL[3:0] - 4'd4} : n_size <= N2 ? {3'd3, 3'd1, DL[3:0] - 4'd3} :
                {3'd2, 3'd2, DL[3:0] - 4'd2};
            {m_left, n_left, k_left} <= {m_size, n_size, k_size};
            {a_tile, a_chunk} <= {src1, src1};
            {b_tile, b_chunk} <= {src2, src2};
            {c_row_tile, c_tile} <= {dst, dst};
            l_first <= 1;
            {l_buf, l_bank, x_buf, x_bank, d_bank} <= 0;
          end
        end
        L_TILE: begin
          run_index <= 0;
          run_addr <= c_tile;
          if (!accumulate) lstate <= L_CHUNK;
          else if (!bank_busy[l_bank]) begin
            bank_busy[l_bank] <= 1;
            lstate <= L_ACC;
          end
        end
        L_ACC: if (run_made && run_last) lstate <= L_CHUNK;
        L_CHUNK: begin
          run_index <= 0;
          run_addr <= a_chunk;
          if (!pad_busy[l_buf]) begin
            pad_busy[l_buf] <= 1;
            info_mt[l_buf] <= mt;
            info_nt[l_buf] <= nt;
            info_kc[l_buf] <= kc;
            info_first[l_buf] <= l_first;
            info_last[l_buf] <= k_last;
            info_addr[l_buf] <= c_tile;
            lstate <= L_A;
          end
        end
        L_A:
        if (run_made && run_last) begin
          run_index <= 0;
          run_addr <= b_chunk;
          lstate <= L_B;
        end
        L_B: if (run_made && run_last) lstate <= L_NEXT;
        L_NEXT: begin
          l_buf <= !l_buf;
          l_first <= k_last;
          k_left <= k_left - {18'd0, chunk_k};
          a_chunk <= a_chunk + (ta ? lda << kcl : {38'd0, chunk_k} << sa);
          b_chunk <= b_chunk + (tb ? {38'd0, chunk_k} << sb : ldb << kcl);
          lstate <= L_CHUNK;
          if (k_last) begin
            lstate <= L_TILE;
            k_left <= k_size;
            l_bank <= !l_bank;
            n_left <= n_left - {18'd0, tile_n};
            a_chunk <= a_tile;
            b_tile <= b_tile + (tb ? ldb << tnl : {38'd0, tile_n} << sb);
            b_chunk <= b_tile + (tb ? ldb << tnl : {38'd0, tile_n} << sb);
            c_tile <= c_tile + ({38'd0, tile_n} << sd);
            if (n_last) begin
              n_left <= n_size;
              m_left <= m_left - {18'd0, tile_m};
              a_tile <= a_tile + (ta ? {38'd0, tile_m} << sa : lda << tml);
              a_chunk <= a_tile + (ta ? {38'd0, tile_m} << sa : lda << tml);
              b_tile <= src2;
              b_chunk <= src2;
              c_row_tile <= c_row_tile + (ldc << tml);
              c_tile <= c_row_tile + (ldc << tml);
              if (m_last) lstate <= L_OFF;
            end
          end
        end
        default: lstate <= L_OFF;
      endcase

      // Filler
      if (g_valid && g_last && g_kind == 2'd1) pad_full[g_side] <= 1;
      if (g_valid && g_last && g_kind == 2'd2) bank_loaded[g_side] <= 1;

      // Array
      settle0 <= settle0 << 1;
      settle1 <= settle1 << 1;
      if (!x_run) begin
        if (x_may) begin
          x_run <= 1;
          bank_busy[x_bank] <= 1;
        end
        {x_k, x_r, x_c, x_phase, x_slots_done} <= 0;
      end else begin
        x_phase <= x_phase + {4'd0, x_phase != 5'd31};
        if (x_issue) begin
          x_c <= x_c + 1;
          if (x_c_last) begin
            x_c <= 0;
            x_r <= x_r + 1;
            if (x_r_last) x_slots_done <= 1;
          end
        end
        if (x_step) begin
          {x_r, x_c, x_phase, x_slots_done} <= 0;
          x_k <= x_k + 1;
        end
        if (x_end) begin
          x_run <= 0;
          pad_busy[x_buf] <= 0;
          pad_full[x_buf] <= 0;
          x_buf <= !x_buf;
          if (info_last[x_buf]) begin
            bank_loaded[x_bank] <= 0;
            x_bank <= !x_bank;
            if (x_bank) settle1[0] <= 1;
            else settle0[0] <= 1;
            d_mt[x_bank] <= x_mt;
            d_nt[x_bank] <= x_nt;
            d_tile[x_bank] <= info_addr[x_buf];
          end
        end
      end

      // Unloader. The last result of a tile is in place 7 cycles after its last issue.
      if (settle0[7]) d_pending[0] <= 1;
      if (settle1[7]) d_pending[1] <= 1;
      case (dstate)
        D_OFF: begin
          d_row <= 0;
          d_addr <= d_tile[d_bank];
          if (d_pending[d_bank]) dstate <= D_RUN;
        end
        D_RUN: if (wr_run_ready) dstate <= D_READ;
        D_READ: begin
          d_done <= 0;
          dstate <= D_PUSH;
        end
        D_PUSH:
        if (d_push) begin
          d_done <= d_done + G[9:0];
          if (d_end) begin
            d_row <= d_row + 1;
            d_addr <= d_addr + ldc;
            dstate <= D_RUN;
            if (d_row + 10'd1 == d_mt[d_bank]) begin
              dstate <= D_OFF;
              d_pending[d_bank] <= 0;
              bank_busy[d_bank] <= 0;
              d_bank <= !d_bank;
            end
          end
        end
      endcase
    end
endmodule
