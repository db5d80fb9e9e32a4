// What a run of conformance tells: a table for people, a line of JSON, a JUnit file.
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "verify/verify.h"

struct hy__report {
  hy__report_options options;
  const hy__verify_options* run;
  FILE* junit;  // the cases, in memory: the number of tests is known at the end and heads the file
  char* cases;
  size_t cases_size;
  hy__writer file;
  bool headed;
};

hy_status hy__report_create(const hy__report_options* options, const hy__verify_options* run,
                            hy__report** report) {
  hy__report* r = *report = calloc(1, sizeof *r);
  if (!r) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for the report");
  r->options = *options;
  r->run = run;
  if (!options->junit) return HY_OK;
  // A file that cannot be written is told before the work, not after it.
  hy_status status = hy__write_begin(options->junit, &r->file);
  if (status == HY_OK && !(r->junit = open_memstream(&r->cases, &r->cases_size)))
    status = hy_fail(HY_OUT_OF_MEMORY, "no host memory for the report");
  if (status == HY_OK) return HY_OK;
  hy__report_destroy(r);
  *report = NULL;
  return status;
}

void hy__report_destroy(hy__report* r) {
  if (!r) return;
  if (r->junit) fclose(r->junit);
  hy__write_abandon(&r->file);
  free(r->cases);
  free(r);
}

static void print_xml(FILE* file, const char* text) {
  for (; *text; text++) {
    switch (*text) {
      case '<': fputs("&lt;", file); break;
      case '>': fputs("&gt;", file); break;
      case '&': fputs("&amp;", file); break;
      case '"': fputs("&quot;", file); break;
      default:
        if ((unsigned char)*text >= 32) fputc(*text, file);
    }
  }
}

static void junit_op(FILE* file, const hy__op_verdict* v, const char* command) {
  fprintf(file, "  <testcase classname=\"verify\" name=\"%s\" assertions=\"%d\"", v->name,
          v->cases);
  if (v->failed > 0) {
    fprintf(file, ">\n    <failure message=\"");
    print_xml(file, v->failure);
    fprintf(file, "\">%d of %d cases failed&#10;", v->failed, v->cases);
    print_xml(file, v->call);
    fprintf(file, "&#10;");
    print_xml(file, command);
    fprintf(file, "</failure>\n  </testcase>\n");
  } else if (v->native == 0 && v->unsupported > 0) {
    fprintf(file, ">\n    <skipped message=\"falls back to the cpu: ");
    print_xml(file, hy_support_text(v->reason));
    fprintf(file, "\"/>\n  </testcase>\n");
  } else {
    fprintf(file, "/>\n");
  }
}

// Which functions of a plugin to look at, and where the tutorial speaks of them.
static const char* where_to_look(const hy__op_verdict* v) {
  static const struct {
    const char *name, *place;
  } places[] = {
      {"copies", "hy_backend.copy and set; tutorial, step 3"},
      {"order", "hy_backend.stream_*, event_* and copy; tutorial, \"When the chip has a queue\""},
      {"memory", "hy_backend.memory_alloc, memory_free and memory_info; tutorial, step 3"},
      {"concurrency", "what all threads share in copy, set and run; tutorial, step 3"},
      {"communicators", "hy_backend.comm_* and all_reduce; tutorial, \"What a chip may offer\""},
      {"graphs", "hy_backend.capture_* and graph_*; tutorial, \"What a chip may offer\""},
      {"streams", "hy_backend.stream_native and stream_wrap; tutorial, \"What a chip may offer\""},
      {"pointers", "hy_backend.pointer_device; tutorial, \"What a chip may offer\""},
      {"peers", "hy_backend.copy_peer; tutorial, \"What a chip may offer\""},
      {"sharing",
       "hy_backend.memory_export and memory_import; tutorial, \"What a chip may offer\""},
      {"compilation", "hy_backend.compile and kernel_launch; tutorial, \"What a chip may offer\""},
      {"threads", "hy_backend.set_threads; tutorial, \"What a chip may offer\""},
      {"capabilities", "hy_backend.device_info: capabilities and dtypes; tutorial, step 2"},
      {"closing", "hy_backend.device_close; tutorial, step 2"},
  };
  for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
    if (strcmp(places[i].name, v->name) == 0) return places[i].place;
  return "hy_provider.supports, run and declares; tutorial, step 5";
}

static void table_op(hy__report* r, const hy__op_verdict* v, const char* command) {
  FILE* file = r->options.table;
  if (v->failed == 0 && v->unsupported == 0 && !r->options.all) return;
  if (!r->headed)
    fprintf(file, "%-24s %7s %7s %7s %7s %11s\n", "op", "cases", "passed", "failed", "refused",
            "unsupported");
  r->headed = true;
  fprintf(file, "%-24s %7d %7d %7d %7d %11d", v->name, v->cases, v->passed, v->failed, v->refused,
          v->unsupported);
  if (v->unsupported > 0) fprintf(file, "  %s", hy_support_text(v->reason));
  fprintf(file, "\n");
  if (v->failed == 0) return;
  fprintf(file, "  FAILED: %s\n", v->failure);
  if (v->call[0]) fprintf(file, "  in: %s\n", v->call);
  fprintf(file, "  repeat: %s\n", command);
  fprintf(file, "  look at: %s\n", where_to_look(v));
}

void hy__report_op(void* report, const hy__op_verdict* v) {
  hy__report* r = report;
  char command[300] = "";
  if (v->failed > 0) hy__verify_command(r->run, &v->first, command, sizeof command);
  if (v->failed > 0 && v->check && strcmp(v->check, "capabilities") != 0)
    snprintf(command + strlen(command), sizeof command - strlen(command), " --check %s", v->check);
  if (r->junit) junit_op(r->junit, v, command);
  if (r->options.table) table_op(r, v, command);
}

static const char* selector_of(const hy__report* r) {
  return r->run->device ? hy_device_selector(r->run->device) : r->run->selector;
}

static hy_status finish_junit(hy__report* r, const hy__verify_summary* s) {
  FILE* file = r->file.file;
  int closed = fclose(r->junit);
  r->junit = NULL;
  if (closed != 0) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for the report");
  fprintf(file,
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"halyard verify %s\" "
          "tests=\"%d\" failures=\"%d\" assertions=\"%d\">\n",
          selector_of(r), s->ops + s->checks + s->declares_nothing, s->failed + s->declares_nothing,
          s->cases);
  if (s->declares_nothing)
    fprintf(file,
            "  <testcase classname=\"verify\" name=\"declarations\">\n    <failure message=\"no "
            "provider declares any op\"/>\n  </testcase>\n");
  HY_TRY(hy__write(&r->file, r->cases, r->cases_size));
  fprintf(file, "</testsuite>\n");
  return hy__write_commit(&r->file);
}

hy_status hy__report_finish(hy__report* r, const hy__verify_summary* s, FILE* json) {
  const char* selector = selector_of(r);
  if (r->options.table) {
    if (s->declares_nothing)
      fprintf(r->options.table,
              "FAILED: no provider of %s declares an op, so nothing would be proved\n"
              "  look at: hy_provider.declares; tutorial, step 5\n",
              selector);
    fprintf(
        r->options.table,
        "%s: %s. %d ops are declared. %d cases of %d ops and %d checks: %d passed, %d failed, %d "
        "refused as they must be, %d unsupported; seed %llu\n",
        selector, hy__verify_passed(s) ? "passed" : "FAILED", s->declared, s->cases, s->ops,
        s->checks, s->passed, s->failed, s->refused, s->unsupported,
        (unsigned long long)r->run->seed);
  }
  hy_status status = r->junit ? finish_junit(r, s) : HY_OK;
  if (json)
    fprintf(json,
            "{\"backend\":\"%s\",\"device\":\"%s\",\"seed\":%llu,\"ops\":%d,\"declared\":%d,"
            "\"checks\":%d,"
            "\"cases\":%d,"
            "\"passed\":%d,\"failed\":%d,"
            "\"refused\":%d,\"unsupported\":%d}\n",
            r->run->device ? hy_device_backend(r->run->device) : r->run->backend, selector,
            (unsigned long long)r->run->seed, s->ops, s->declared, s->checks, s->cases, s->passed,
            s->failed + s->declares_nothing, s->refused, s->unsupported);
  return status;
}
