// The smallest kernel: what a probe runs to see that everything works.

KERNEL void probe_double(f32* values, i64 n) {
  GRID_STRIDE(i, n) values[i] += values[i];
}
