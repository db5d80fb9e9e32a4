// Number conversions of isa.md section 4, to be included inside a module.

// Integer to binary32, to nearest even.
function automatic [31:0] i2f(input [31:0] x);
  reg [31:0] n;
  reg [4:0] lz;
  reg [30:0] r;
  begin
    n = x[31] ? -x : x;
    lz[4] = n[31:16] == 0;
    n = n << {lz[4], 4'd0};
    lz[3] = n[31:24] == 0;
    n = n << {lz[3], 3'd0};
    lz[2] = n[31:28] == 0;
    n = n << {lz[2], 2'd0};
    lz[1] = n[31:30] == 0;
    n = n << {lz[1], 1'd0};
    lz[0] = !n[31];
    n = n << lz[0];
    r = {8'd158 - {3'd0, lz}, n[30:8]} + {30'd0, n[7] & (n[8] | (n[6:0] != 0))};
    i2f = n[31] ? {x[31], r} : 32'd0;
  end
endfunction

// binary32 to integer, to nearest even, saturating; NaN gives 0.
function automatic [31:0] f2i(input [31:0] x);
  reg [7:0] e;
  reg [55:0] m;  // 32 integer bits, 24 fraction bits
  reg [31:0] n;
  begin
    e = x[30:23];
    if (e == 8'hff && x[22:0] != 0) f2i = 32'd0;
    else if (e >= 8'd158) f2i = x[31] ? 32'h80000000 : 32'h7fffffff;
    else if (e < 8'd126) f2i = 32'd0;
    else begin
      m = {31'd0, 1'b1, x[22:0], 1'b0};          // 1.f at exponent 127
      m = e == 8'd126 ? m >> 1 : m << (e[4:0] - 5'd31);
      n = m[55:24] + {31'd0, m[23] & (m[24] | (m[22:0] != 0))};
      f2i = x[31] ? -n : n;
    end
  end
endfunction

function automatic [7:0] to_i8(input [31:0] x);
  to_i8 = x[31:7] == 25'd0 || x[31:7] == 25'h1ffffff ? x[7:0] : x[31] ? 8'h80 : 8'h7f;
endfunction

function automatic [15:0] to_bf16(input [31:0] x);
  reg [31:0] r;
  begin
    r = x + 32'h7fff + {31'd0, x[16]};
    to_bf16 = x[30:0] > 31'h7f800000 ? 16'h7fc0 : r[31:16];
  end
endfunction
