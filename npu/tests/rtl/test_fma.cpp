// test_fma - the FMA pipeline against an exact integer reference, and against the host's own FMA with
// subnormals flushed where the host has one. Usage: test_fma [vectors] [seed]
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "Vecho_npu_fma.h"
#include "verilated.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr int kLanes = 4;
constexpr int kLatency = 4;

struct Random {
  uint64_t state;
  uint32_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>(state >> 16);
  }
};

bool is_nan(uint32_t x) { return (x & 0x7fffffff) > 0x7f800000; }
bool is_inf(uint32_t x) { return (x & 0x7fffffff) == 0x7f800000; }
bool is_zero(uint32_t x) { return (x & 0x7f800000) == 0; }

// Section 4 of the ISA, by the book: one exact sum in a wide integer, one rounding.
uint32_t reference(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t nan = 0x7fc00000, sp = (a ^ b) & 0x80000000, sc = c & 0x80000000;
  if (is_nan(a) || is_nan(b) || is_nan(c)) return nan;
  if ((is_inf(a) && is_zero(b)) || (is_inf(b) && is_zero(a))) return nan;
  if (is_inf(a) || is_inf(b)) return is_inf(c) && sp != sc ? nan : sp | 0x7f800000;
  if (is_inf(c)) return c;
  bool pz = is_zero(a) || is_zero(b), cz = is_zero(c);
  if (pz && cz) return sp & sc;
  if (pz) return c;
  int ep = static_cast<int>((a >> 23 & 255) + (b >> 23 & 255)) - 254 - 46;
  int ec = static_cast<int>(c >> 23 & 255) - 127 - 23;
  unsigned __int128 p = static_cast<uint64_t>((a & 0x7fffff) | 0x800000) * ((b & 0x7fffff) | 0x800000);
  unsigned __int128 m = cz ? 0 : (c & 0x7fffff) | 0x800000;
  if (cz) ec = ep;
  // Beyond 75 bits of distance the smaller one is only a sticky bit: move it nearer without changing that.
  if (ep - ec > 75) { m = 1; ec = ep - 75; }
  if (ec - ep > 75) { p = 1; ep = ec - 75; }
  int e = ep < ec ? ep : ec;
  p <<= ep - e;
  m <<= ec - e;
  unsigned __int128 sum;
  uint32_t sign = sp;
  if (sp == sc) {
    sum = p + m;
  } else if (p >= m) {
    sum = p - m;
  } else {
    sum = m - p;
    sign = sc;
  }
  if (sum == 0) return 0;
  int lead = 127;
  while (!(sum >> lead & 1)) --lead;
  uint64_t mantissa;
  if (lead <= 23) {
    mantissa = static_cast<uint64_t>(sum << (23 - lead));
  } else {
    unsigned __int128 rest = sum & ((static_cast<unsigned __int128>(1) << (lead - 23)) - 1);
    unsigned __int128 half = static_cast<unsigned __int128>(1) << (lead - 24);
    mantissa = static_cast<uint64_t>(sum >> (lead - 23));
    if (rest > half || (rest == half && (mantissa & 1))) ++mantissa;
  }
  int exponent = e + lead + 127;
  if (mantissa >> 24) {
    mantissa >>= 1;
    ++exponent;
  }
  if (exponent < 1) return sign;
  if (exponent > 254) return sign | 0x7f800000;
  return sign | static_cast<uint32_t>(exponent) << 23 | (mantissa & 0x7fffff);
}

#if defined(__x86_64__)
__attribute__((target("fma"))) uint32_t host_fma(uint32_t a, uint32_t b, uint32_t c) {
  float x, y, z;
  memcpy(&x, &a, 4);
  memcpy(&y, &b, 4);
  memcpy(&z, &c, 4);
  float r = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(x), _mm_set_ss(y), _mm_set_ss(z)));
  uint32_t u;
  memcpy(&u, &r, 4);
  return is_nan(u) ? 0x7fc00000 : u;
}
#endif

const uint32_t kCorners[] = {0x00000000, 0x80000000, 0x00000001, 0x007fffff, 0x00800000, 0x80800000,
                             0x00800001, 0x3f800000, 0xbf800000, 0x3f7fffff, 0x3f800001, 0x7f7fffff,
                             0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff,
                             0x33800000, 0x34000000, 0x4b800000, 0x1f800000, 0x20000000, 0x5f000000};
constexpr int kCornerCount = sizeof kCorners / sizeof kCorners[0];

uint32_t operand(Random& r) {
  uint32_t x = r.next(), kind = r.next() & 15;
  if (kind == 0) return kCorners[x % kCornerCount];
  if (kind < 4) return (x & 0x80000000) | (0x3f800000 + (x & 0x07ffffff) - 0x03000000);
  if (kind < 6) return x & 0xfff80000;                        // few mantissa bits: ties
  if (kind < 7) return (x & 0x8000001f) | 0x007ffff0;         // around the smallest normal
  return x;
}

struct Vector {
  uint32_t a, b, c;
};

}  // namespace

int main(int argc, char** argv) {
  uint64_t vectors = argc > 1 ? strtoull(argv[1], nullptr, 0) : 2000000;
  Random random{argc > 2 ? strtoull(argv[2], nullptr, 0) * 2654435761u + 1 : 88172645463325252u};
  Vecho_npu_fma dut;
  bool host = false;
#if defined(__x86_64__)
  host = __builtin_cpu_supports("fma");
  _mm_setcsr(_mm_getcsr() | 0x8040);  // FTZ, DAZ
#endif
  std::deque<Vector> flight;
  const uint64_t corners = static_cast<uint64_t>(kCornerCount) * kCornerCount * kCornerCount;
  uint64_t total = corners + vectors, sent = 0, checked = 0, wrong = 0;
  for (uint64_t cycle = 0; checked < total && wrong < 10; ++cycle) {
    bool valid = sent < total && (random.next() & 7) != 0;
    dut.valid = valid;
    dut.bypass = 0;
    for (int lane = 0; valid && lane < kLanes; ++lane, ++sent) {
      Vector v;
      if (sent < corners) {
        v = {kCorners[sent % kCornerCount], kCorners[sent / kCornerCount % kCornerCount],
             kCorners[sent / kCornerCount / kCornerCount]};
      } else {
        v = {operand(random), operand(random), operand(random)};
        // Half of the time the addend is near the negated product: cancellation.
        if (random.next() & 1) {
          int d = static_cast<int>(random.next() % 60) - 30;
          uint32_t e = (v.a >> 23 & 255) + (v.b >> 23 & 255) - 127 + static_cast<uint32_t>(d);
          if (random.next() & 1)
            v.c = reference(v.a, v.b, 0) ^ 0x80000000 ^ (random.next() & 3);
          else
            v.c = (v.c & 0x807fffff) | (e & 255) << 23;
        }
      }
      dut.a[lane] = v.a;
      dut.b[lane] = v.b;
      dut.c[lane] = v.c;
      flight.push_back(v);
    }
    dut.clk = 0;
    dut.eval();
    dut.clk = 1;
    dut.eval();
    if (!dut.z_valid) continue;
    for (int lane = 0; lane < kLanes; ++lane, ++checked) {
      Vector v = flight.front();
      flight.pop_front();
      uint32_t want = reference(v.a, v.b, v.c);
#if defined(__x86_64__)
      if (host && host_fma(v.a, v.b, v.c) != want) {
        printf("reference differs from host: fma(%08x, %08x, %08x) = %08x, host %08x\n", v.a, v.b, v.c,
               want, host_fma(v.a, v.b, v.c));
        ++wrong;
      }
#endif
      if (dut.z[lane] != want) {
        printf("fma(%08x, %08x, %08x) = %08x, want %08x\n", v.a, v.b, v.c, dut.z[lane], want);
        ++wrong;
      }
    }
  }
  dut.final();
  printf("%" PRIu64 " vectors (%" PRIu64 " corners), reference checked against the host: %s, %" PRIu64
         " wrong\n", checked, corners, host ? "yes" : "no FMA on this host", wrong);
  return wrong ? 1 : 0;
}
