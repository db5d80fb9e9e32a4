// echo_report.c - utilisation report of a trace, as text and JSON.
#include "echo_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t latencies[ECHO_REPORT_LATENCIES] = {20, 40, 100, 200};
// docs/area.md tells how each was got.
static const struct {
  uint32_t array;
  uint64_t cells;
} arrays[ECHO_REPORT_ARRAYS] = {{8, 821180}, {16, 2288220}, {32, 8136242}};

double echo_report_clock(const char* text) {
  char* unit;
  double value = strtod(text, &unit);
  while (*unit == ' ') ++unit;
  double scale = 0;
  if (!*unit || strcmp(unit, "Hz") == 0) scale = 1;
  if (strcmp(unit, "kHz") == 0) scale = 1e3;
  if (strcmp(unit, "MHz") == 0) scale = 1e6;
  if (strcmp(unit, "GHz") == 0) scale = 1e9;
  value *= scale;
  return value > 0 && isfinite(value) ? value : 0;
}

double echo_report_rate(const echo_report* r, const echo_cost* c) {
  return c->cycles ? (double)r->options.tokens * r->options.clock / (double)c->cycles : 0;
}

uint64_t echo_report_idle(const echo_cost* c) {
  uint64_t busy = c->matrix_busy + c->vector_busy + c->copy_busy;
  return c->cycles > busy ? c->cycles - busy : 0;
}

double echo_report_mac_share(uint32_t array, const echo_cost* c) {
  return c->cycles ? (double)c->macs / ((double)array * array * (double)c->cycles) : 0;
}

// ---- Making it --------------------------------------------------------------------------------

static const char* label_of(const echo_trace_packet* p) {
  if (strcmp(p->label, "-") != 0) return p->label;
  switch (p->packet.opcode) {
    case ECHO_NPU_OP_MATMUL: return "MATMUL";
    case ECHO_NPU_OP_ADD_TENSOR: return "ADD_TENSOR";
    case ECHO_NPU_OP_MEMCPY: return "MEMCPY";
    case ECHO_NPU_OP_COPY: return "COPY";
    case ECHO_NPU_OP_FILL: return "FILL";
    case ECHO_NPU_OP_GATHER: return "GATHER";
    case ECHO_NPU_OP_SCATTER_ADD: return "SCATTER_ADD";
    case ECHO_NPU_OP_VECTOR: return "VECTOR";
    case ECHO_NPU_OP_REPEAT: return "REPEAT";
    case ECHO_NPU_OP_SYNC: return "SYNC";
  }
  return "NOP";
}

static echo_report_op* op_named(echo_report* r, const char* label) {
  for (int i = 0; i < r->n_ops; ++i)
    if (strcmp(r->ops[i].label, label) == 0) return &r->ops[i];
  if (r->n_ops == ECHO_REPORT_OPS) {
    echo_report_op* last = &r->ops[r->n_ops - 1];
    snprintf(last->label, sizeof last->label, "others");
    return last;
  }
  echo_report_op* op = &r->ops[r->n_ops++];
  snprintf(op->label, sizeof op->label, "%s", label);
  return op;
}

static int by_cycles(const void* a, const void* b) {
  const echo_report_op *x = a, *y = b;
  return x->cost.cycles < y->cost.cycles ? 1 : x->cost.cycles > y->cost.cycles ? -1 : 0;
}

static int sweep(const echo_trace* trace, echo_report* r, char* reason, size_t size) {
  echo_cost* costs = malloc((trace->count ? trace->count : 1) * sizeof *costs);
  if (!costs) {
    snprintf(reason, size, "no memory for the sweep");
    return -1;
  }
  int failed = 0;
  for (int a = 0; a < ECHO_REPORT_ARRAYS && !failed; ++a)
    for (int l = 0; l < ECHO_REPORT_LATENCIES && !failed; ++l) {
      echo_timing timing = echo_timing_of(arrays[a].array, latencies[l]);
      echo_report_point* p = &r->points[r->n_points++];
      *p = (echo_report_point){arrays[a].array, latencies[l], arrays[a].cells, {0}};
      failed = echo_trace_time(trace, &timing, costs, reason, size) != 0;
      for (size_t i = 0; i < trace->count && !failed; ++i) echo_cost_add(&p->cost, &costs[i]);
    }
  free(costs);
  return failed ? -1 : 0;
}

int echo_report_make(const echo_trace* trace, const echo_report_options* options, echo_report* r,
                     char* reason, size_t size) {
  memset(r, 0, sizeof *r);
  r->options = *options;
  memcpy(r->backend, trace->backend, sizeof r->backend);
  r->array = trace->array;
  r->packets = trace->count;
  for (size_t i = 0; i < trace->count; ++i) {
    const echo_trace_packet* p = &trace->packets[i];
    echo_report_op* op = op_named(r, label_of(p));
    op->packets += 1;
    echo_cost_add(&op->cost, &p->cost);
    echo_cost_add(&r->total, &p->cost);
  }
  qsort(r->ops, (size_t)r->n_ops, sizeof r->ops[0], by_cycles);
  return options->sweep ? sweep(trace, r, reason, size) : 0;
}

// ---- Text -------------------------------------------------------------------------------------

static double percent(double part, double whole) {
  return whole > 0 ? 100 * part / whole : 0;
}

static void print_units(const echo_report* r, FILE* f) {
  const echo_cost* c = &r->total;
  const double all = (double)c->cycles, macs = (double)r->array * r->array;
  fprintf(f, "%-10s %14s %8s %12s %9s\n", "unit", "busy cycles", "of all", "work", "of peak");
  fprintf(f, "%-10s %14llu %7.1f%% %7.2f MMAC %8.1f%%\n", "matrix",
          (unsigned long long)c->matrix_busy, percent((double)c->matrix_busy, all),
          (double)c->macs * 1e-6, percent((double)c->macs, macs * (double)c->matrix_busy));
  fprintf(f, "%-10s %14llu %7.1f%% %7.2f Muop %8.1f%%\n", "vector",
          (unsigned long long)c->vector_busy, percent((double)c->vector_busy, all),
          (double)c->uops * 1e-6, percent((double)c->uops, 16.0 * (double)c->vector_busy));
  fprintf(f, "%-10s %14llu %7.1f%%\n", "copy", (unsigned long long)c->copy_busy,
          percent((double)c->copy_busy, all));
  fprintf(f, "%-10s %14llu %7.1f%%   packets fetched and checked, last writes awaited\n", "queue",
          (unsigned long long)echo_report_idle(c), percent((double)echo_report_idle(c), all));
  fprintf(f, "%-10s %14llu %7.1f%% %9.2f MB\n", "bus read", (unsigned long long)c->read_beats,
          percent((double)c->read_beats, all), (double)c->read_beats * 64e-6);
  fprintf(f, "%-10s %14llu %7.1f%% %9.2f MB\n", "bus write", (unsigned long long)c->write_beats,
          percent((double)c->write_beats, all), (double)c->write_beats * 64e-6);
}

static void print_ops(const echo_report* r, FILE* f) {
  fprintf(f, "\n%-20s %7s %12s %7s %7s %7s %7s %7s %8s %9s\n", "op", "packets", "cycles", "of all",
          "matrix", "vector", "copy", "queue", "MACs", "bus read");
  for (int i = 0; i < r->n_ops; ++i) {
    const echo_report_op* op = &r->ops[i];
    const double own = (double)op->cost.cycles;
    fprintf(f, "%-20s %7llu %12llu %6.1f%% %6.1f%% %6.1f%% %6.1f%% %6.1f%% %7.1f%% %8.1f%%\n",
            op->label, (unsigned long long)op->packets, (unsigned long long)op->cost.cycles,
            percent(own, (double)r->total.cycles), percent((double)op->cost.matrix_busy, own),
            percent((double)op->cost.vector_busy, own), percent((double)op->cost.copy_busy, own),
            percent((double)echo_report_idle(&op->cost), own),
            100 * echo_report_mac_share(r->array, &op->cost),
            percent((double)op->cost.read_beats, own));
  }
  fprintf(f, "MACs: of the array's peak; bus read: of a beat a cycle\n");
}

static void print_sweep(const echo_report* r, FILE* f) {
  fprintf(f, "\n%4s %10s %8s %12s %12s %8s %9s %14s\n", "N", "cells", "latency", "cycles",
          r->options.tokens ? "tokens/s" : "runs/s", "MACs", "bus read", "per Mcell");
  for (int i = 0; i < r->n_points; ++i) {
    const echo_report_point* p = &r->points[i];
    double rate = r->options.tokens ? echo_report_rate(r, &p->cost)
                                    : r->options.clock / (double)p->cost.cycles;
    fprintf(f, "%4u %9.2fM %8u %12llu %12.2f %7.1f%% %8.1f%% %14.2f\n", p->array,
            (double)p->cells * 1e-6, p->latency, (unsigned long long)p->cost.cycles, rate,
            100 * echo_report_mac_share(p->array, &p->cost),
            percent((double)p->cost.read_beats, (double)p->cost.cycles),
            rate / ((double)p->cells * 1e-6));
  }
  fprintf(f, "timing model of the functional model; cells of Yosys, generic gates\n");
}

// Bytes of the bus for each token.
static double per_token(const echo_report* r, uint64_t beats) {
  return r->options.tokens ? (double)beats * 64 / (double)r->options.tokens : 0;
}

void echo_report_text(const echo_report* r, FILE* f) {
  const int counted = strcmp(r->backend, "cmodel") != 0;
  fprintf(f, "%s\n%llu packets, %llu cycles %s, N = %u, memory latency %u\n", r->options.title,
          (unsigned long long)r->packets, (unsigned long long)r->total.cycles,
          counted ? "counted by the hardware" : "estimated by the functional model", r->array,
          r->options.latency);
  fprintf(f, "%.3f ms at %.4g MHz", (double)r->total.cycles / r->options.clock * 1e3,
          r->options.clock * 1e-6);
  if (r->options.tokens)
    fprintf(f, ", %.2f tokens/s (%llu token%s)", echo_report_rate(r, &r->total),
            (unsigned long long)r->options.tokens, r->options.tokens == 1 ? "" : "s");
  fprintf(f, "; the host's time is not in it\n");
  if (r->options.tokens)
    fprintf(f, "per token: %.1f packets, %.3f MB read, %.3f MB written\n",
            (double)r->packets / (double)r->options.tokens,
            per_token(r, r->total.read_beats) * 1e-6, per_token(r, r->total.write_beats) * 1e-6);
  fprintf(f, "\n");
  print_units(r, f);
  print_ops(r, f);
  if (r->n_points) print_sweep(r, f);
}

// ---- JSON -------------------------------------------------------------------------------------

static void json_cost(FILE* f, const echo_cost* c) {
  fprintf(f,
          "\"cycles\":%llu,\"matrix_busy\":%llu,\"macs\":%llu,\"vector_busy\":%llu,\"uops\":%llu,"
          "\"copy_busy\":%llu,\"queue\":%llu,\"read_beats\":%llu,\"write_beats\":%llu",
          (unsigned long long)c->cycles, (unsigned long long)c->matrix_busy,
          (unsigned long long)c->macs, (unsigned long long)c->vector_busy,
          (unsigned long long)c->uops, (unsigned long long)c->copy_busy,
          (unsigned long long)echo_report_idle(c), (unsigned long long)c->read_beats,
          (unsigned long long)c->write_beats);
}

static void json_string(FILE* f, const char* text) {
  fputc('"', f);
  for (; *text; ++text) {
    if (*text == '"' || *text == '\\') fputc('\\', f);
    if ((unsigned char)*text >= ' ') fputc(*text, f);
  }
  fputc('"', f);
}

void echo_report_json(const echo_report* r, FILE* f) {
  fprintf(f, "{\"title\":");
  json_string(f, r->options.title);
  fprintf(f, ",\"backend\":");
  json_string(f, r->backend);
  fprintf(f, ",\"array\":%u,\"latency\":%u,\"clock_hz\":%.17g,\"tokens\":%llu,\"packets\":%llu,",
          r->array, r->options.latency, r->options.clock, (unsigned long long)r->options.tokens,
          (unsigned long long)r->packets);
  fprintf(f, "\"tokens_per_second\":%.6g,\"mac_share\":%.6g,", echo_report_rate(r, &r->total),
          echo_report_mac_share(r->array, &r->total));
  fprintf(f, "\"bytes_read_per_token\":%.17g,\"bytes_written_per_token\":%.17g,",
          per_token(r, r->total.read_beats), per_token(r, r->total.write_beats));
  json_cost(f, &r->total);
  fprintf(f, ",\"ops\":[");
  for (int i = 0; i < r->n_ops; ++i) {
    fprintf(f, "%s{\"op\":", i ? "," : "");
    json_string(f, r->ops[i].label);
    fprintf(f, ",\"packets\":%llu,", (unsigned long long)r->ops[i].packets);
    json_cost(f, &r->ops[i].cost);
    fprintf(f, "}");
  }
  fprintf(f, "],\"sweep\":[");
  for (int i = 0; i < r->n_points; ++i) {
    const echo_report_point* p = &r->points[i];
    fprintf(f,
            "%s{\"array\":%u,\"latency\":%u,\"cells\":%llu,\"tokens_per_second\":%.6g,"
            "\"mac_share\":%.6g,",
            i ? "," : "", p->array, p->latency, (unsigned long long)p->cells,
            echo_report_rate(r, &p->cost), echo_report_mac_share(p->array, &p->cost));
    json_cost(f, &p->cost);
    fprintf(f, "}");
  }
  fprintf(f, "]}\n");
}
