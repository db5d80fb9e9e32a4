// Progress of long work: rate and ETA, plain where it is no terminal.
#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "bench/bench.h"

progress progress_begin(const char* title, hy_device* device, int64_t first, int64_t last,
                        int64_t tokens, bool quiet) {
  return (progress){.title = title,
                    .device = device,
                    .first = first,
                    .last = last,
                    .tokens = tokens,
                    .started = bench_now(),
                    .terminal = isatty(STDERR_FILENO) == 1,
                    .quiet = quiet};
}

double progress_rate(const progress* p, int64_t step) {
  double seconds = bench_now() - p->started;
  return seconds > 0 ? (double)((step - p->first) * p->tokens) / seconds : 0;
}

uint64_t progress_memory(const progress* p) {
  hy_memory_stats memory = {0};
  hy_memory_get_stats(p->device, &memory);
  return memory.reserved_peak;
}

const char* progress_time(double seconds, char* text, int size) {
  long whole = (long)(seconds + 0.5);
  if (whole >= 3600)
    snprintf(text, (size_t)size, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  else
    snprintf(text, (size_t)size, "%ld:%02ld", whole / 60, whole % 60);
  return text;
}

const char* progress_bytes(uint64_t bytes, char* text, int size) {
  if (bytes >= 1000000000)
    snprintf(text, (size_t)size, "%.1f GB", 1e-9 * (double)bytes);
  else
    snprintf(text, (size_t)size, "%.0f MB", 1e-6 * (double)bytes);
  return text;
}

void progress_step(progress* p, int64_t step, double loss) {
  double now = bench_now(), pause = p->terminal ? 0.1 : 2;
  if (p->quiet || (now - p->shown < pause && step < p->last)) return;
  p->shown = now;
  double rate = progress_rate(p, step);
  double left = rate > 0 ? (double)((p->last - step) * p->tokens) / rate : 0;
  fprintf(stderr, "%s%s step %lld/%lld  loss %.4f  %.0f tok/s  left %s  memory %s%s",
          p->terminal ? "\r" : "", p->title, (long long)step, (long long)p->last, loss, rate,
          progress_time(left, (char[24]){0}, 24),
          progress_bytes(progress_memory(p), (char[24]){0}, 24), p->terminal ? "\033[K" : "\n");
  fflush(stderr);
}

void progress_end(progress* p) {
  if (p->terminal && !p->quiet && p->shown > 0) fprintf(stderr, "\n");
}
