// echo_report - prints what a recorded stream of packets says about the device.
#include <stdlib.h>
#include <string.h>

#include "echo_report.h"

static int usage(void) {
  fputs(
      "Usage: echo_report TRACE [--clock 1GHz] [--tokens COUNT] [--latency CYCLES] [--title TEXT]\n"
      "                   [--sweep] [--svg FILE] [--json]\n\n"
      "TRACE is a file of echoNpuRecordStart. --tokens gives tokens a second, --latency tells the\n"
      "memory latency it was recorded with (40), --sweep times the same packets on other "
      "devices.\n",
      stderr);
  return 2;
}

int main(int argc, char** argv) {
  const char *path = NULL, *svg = NULL;
  int json = 0;
  echo_report_options options = {.title = "", .clock = 1e9, .latency = 40};
  for (int i = 1; i < argc; ++i) {
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
    if (strcmp(argv[i], "--json") == 0) {
      json = 1;
    } else if (strcmp(argv[i], "--sweep") == 0) {
      options.sweep = 1;
    } else if (argv[i][0] != '-' && !path) {
      path = argv[i];
    } else if (!value) {
      return usage();
    } else {
      if (strcmp(argv[i], "--clock") == 0)
        options.clock = echo_report_clock(value);
      else if (strcmp(argv[i], "--tokens") == 0)
        options.tokens = strtoull(value, NULL, 10);
      else if (strcmp(argv[i], "--latency") == 0)
        options.latency = (uint32_t)strtoul(value, NULL, 10);
      else if (strcmp(argv[i], "--title") == 0)
        snprintf(options.title, sizeof options.title, "%s", value);
      else if (strcmp(argv[i], "--svg") == 0)
        svg = value;
      else
        return usage();
      ++i;
    }
  }
  if (!path || options.clock == 0) return usage();
  if (!options.title[0]) snprintf(options.title, sizeof options.title, "%s", path);

  char reason[256];
  echo_trace trace;
  echo_report report;
  if (echo_trace_read(path, &trace, reason, sizeof reason) != 0) {
    fprintf(stderr, "echo_report: %s\n", reason);
    return 1;
  }
  int failed = echo_report_make(&trace, &options, &report, reason, sizeof reason);
  echo_trace_free(&trace);
  if (!failed && json) echo_report_json(&report, stdout);
  if (!failed && !json) echo_report_text(&report, stdout);
  if (!failed && svg) failed = echo_report_svg(&report, svg, reason, sizeof reason);
  if (failed) fprintf(stderr, "echo_report: %s\n", reason);
  return failed ? 1 : 0;
}
