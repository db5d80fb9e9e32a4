// echo_report.h - what a recorded stream says about the device: where the cycles go by unit and by
// operation, and what other sizes of the device would make of it.
#ifndef ECHO_REPORT_H
#define ECHO_REPORT_H

#include <stdio.h>

#include "echo_trace.h"

#define ECHO_REPORT_OPS 64
#define ECHO_REPORT_ARRAYS 3
#define ECHO_REPORT_LATENCIES 4

typedef struct echo_report_options {
  char title[96];    // what ran
  uint64_t tokens;   // that it read or made; 0: rates are not given
  double clock;      // in Hz
  uint32_t latency;  // of the memory it was recorded with, in cycles
  int sweep;         // time it on other devices too
} echo_report_options;

typedef struct echo_report_op {
  char label[ECHO_NPU_LABEL_BYTES];
  uint64_t packets;
  echo_cost cost;
} echo_report_op;

typedef struct echo_report_point {
  uint32_t array, latency;
  uint64_t cells;  // of Yosys, docs/area.md
  echo_cost cost;
} echo_report_point;

typedef struct echo_report {
  echo_report_options options;
  char backend[16];
  uint32_t array;
  uint64_t packets;
  echo_cost total;
  int n_ops;  // with the most cycles first; the last stands for all that found no place
  echo_report_op ops[ECHO_REPORT_OPS];
  int n_points;  // by array, then by latency
  echo_report_point points[ECHO_REPORT_ARRAYS * ECHO_REPORT_LATENCIES];
} echo_report;

// 0, or -1 with a reason.
int echo_report_make(const echo_trace* trace, const echo_report_options* options,
                     echo_report* report, char* reason, size_t size);
void echo_report_text(const echo_report* report, FILE* file);
void echo_report_json(const echo_report* report, FILE* file);
// Written beside and renamed. 0, or -1 with a reason.
int echo_report_svg(const echo_report* report, const char* path, char* reason, size_t size);

// "1GHz", "800 MHz", "2.5e8"; 0 for what is no clock.
double echo_report_clock(const char* text);

double echo_report_rate(const echo_report* report, const echo_cost* cost);  // tokens a second
// Cycles in which no unit worked: packets fetched, checked, their writes awaited.
uint64_t echo_report_idle(const echo_cost* cost);
// Share of the peak of an array with this side, over all cycles.
double echo_report_mac_share(uint32_t array, const echo_cost* cost);

#endif  // ECHO_REPORT_H
