// The report as a picture: where the cycles go, and what other devices would make of it.
#include <errno.h>
#include <math.h>
#include <string.h>

#include "echo_report.h"

enum { WIDTH = 860, LEFT = 150, RIGHT = 40, ROW = 22, BARS = 12, CHART = 300 };
static const char* const unit_names[4] = {"matrix", "vector", "copy", "queue"};
static const char* const colours[4] = {"#2563eb", "#16a34a", "#ea580c", "#9ca3af"};
static const char* const lines[ECHO_REPORT_LATENCIES] = {"#1e3a8a", "#2563eb", "#0891b2",
                                                         "#9333ea"};

static void text(FILE* f, double x, double y, const char* anchor, const char* fill,
                 const char* words) {
  fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", x, y, anchor, fill);
  for (; *words; ++words) {
    if (*words == '<')
      fputs("&lt;", f);
    else if (*words == '&')
      fputs("&amp;", f);
    else
      fputc(*words, f);
  }
  fputs("</text>\n", f);
}

// A bar for each op, as long as its share of the cycles, cut by unit.
static double draw_ops(const echo_report* r, FILE* f, double y) {
  char words[96];
  const int n = r->n_ops < BARS ? r->n_ops : BARS;
  const double width = WIDTH - LEFT - RIGHT - 70,
               most = n && r->ops[0].cost.cycles ? (double)r->ops[0].cost.cycles : 1;
  for (int u = 0; u < 4; ++u) {
    fprintf(f, "<rect x=\"%d\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>\n",
            LEFT + 100 * u, y, colours[u]);
    text(f, LEFT + 100 * u + 18, y + 11, "start", "#333", unit_names[u]);
  }
  y += 26;
  for (int i = 0; i < n; ++i, y += ROW) {
    const echo_cost* c = &r->ops[i].cost;
    const uint64_t parts[4] = {c->matrix_busy, c->vector_busy, c->copy_busy, echo_report_idle(c)};
    double x = LEFT;
    text(f, LEFT - 8, y + 13, "end", "#333", r->ops[i].label);
    for (int u = 0; u < 4; ++u) {
      double length = width * (double)parts[u] / most;
      fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"16\" fill=\"%s\"/>\n", x, y,
              length, colours[u]);
      x += length;
    }
    snprintf(words, sizeof words, "%.1f%%",
             r->total.cycles ? 100 * (double)c->cycles / (double)r->total.cycles : 0);
    text(f, x + 6, y + 13, "start", "#555", words);
  }
  return y + 20;
}

// Rate over cells, both in powers, a line for each latency.
static void draw_sweep(const echo_report* r, FILE* f, double top) {
  char words[96];
  double least_x = 1e300, most_x = 0, least_y = 1e300, most_y = 0;
  for (int i = 0; i < r->n_points; ++i) {
    double x = (double)r->points[i].cells, y = echo_report_rate(r, &r->points[i].cost);
    least_x = fmin(least_x, x), most_x = fmax(most_x, x);
    least_y = fmin(least_y, y), most_y = fmax(most_y, y);
  }
  least_x /= 1.2, most_x *= 1.2, least_y /= 1.2, most_y *= 1.2;
  const double width = WIDTH - LEFT - RIGHT, height = CHART - 70;
  const double scale_x = width / log(most_x / least_x), scale_y = height / log(most_y / least_y);
  text(f, LEFT, top + 4, "start", "#111",
       "tokens/s over cells of Yosys (both axes in powers), by memory latency");
  top += 20;
  fprintf(f,
          "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" "
          "stroke=\"#ccc\"/>\n",
          LEFT, top, width, height);
  for (int l = 0; l < ECHO_REPORT_LATENCIES; ++l) {
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", lines[l]);
    for (int i = l; i < r->n_points; i += ECHO_REPORT_LATENCIES)
      fprintf(f, "%.1f,%.1f ", LEFT + scale_x * log((double)r->points[i].cells / least_x),
              top + height - scale_y * log(echo_report_rate(r, &r->points[i].cost) / least_y));
    fprintf(f, "\"/>\n");
    snprintf(words, sizeof words, "latency %u", r->points[l].latency);
    text(f, LEFT + 10, top + 18 + 17 * l, "start", lines[l], words);
  }
  for (int i = 0; i < r->n_points; ++i) {
    const echo_report_point* p = &r->points[i];
    double rate = echo_report_rate(r, &p->cost);
    double x = LEFT + scale_x * log((double)p->cells / least_x),
           y = top + height - scale_y * log(rate / least_y);
    fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x, y,
            lines[i % ECHO_REPORT_LATENCIES]);
    if (i % ECHO_REPORT_LATENCIES == 0) {
      snprintf(words, sizeof words, "%.3g", rate);
      text(f, x, y - 8, "middle", "#333", words);
      snprintf(words, sizeof words, "N = %u, %.2f M", p->array, (double)p->cells * 1e-6);
      text(f, x, top + height + 18, "middle", "#555", words);
    }
  }
}

int echo_report_svg(const echo_report* r, const char* path, char* reason, size_t size) {
  char temporary[1200], words[200];
  if ((size_t)snprintf(temporary, sizeof temporary, "%s.part", path) >= sizeof temporary) {
    snprintf(reason, size, "the name of the picture is too long");
    return -1;
  }
  FILE* f = fopen(temporary, "w");
  if (!f) {
    snprintf(reason, size, "%s: %s", temporary, strerror(errno));
    return -1;
  }
  const int bars = r->n_ops < BARS ? r->n_ops : BARS;
  const int sweep = r->n_points && r->options.tokens;
  const int height = 76 + 26 + bars * ROW + 20 + (sweep ? CHART : 0);
  fprintf(f,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
          "font-family=\"sans-serif\" font-size=\"13\">\n"
          "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<g font-size=\"18\">\n",
          WIDTH, height);
  text(f, 20, 28, "start", "#111", r->options.title);
  fprintf(f, "</g>\n");
  snprintf(words, sizeof words,
           "%s, N = %u, memory latency %u: %llu cycles, %.2f tokens/s at %.4g MHz", r->backend,
           r->array, r->options.latency, (unsigned long long)r->total.cycles,
           echo_report_rate(r, &r->total), r->options.clock * 1e-6);
  text(f, 20, 50, "start", "#555", words);
  double y = draw_ops(r, f, 66);
  if (sweep) draw_sweep(r, f, y);
  fprintf(f, "</svg>\n");
  int failed = ferror(f);
  failed |= fclose(f) != 0;
  if (!failed) failed = rename(temporary, path) != 0;
  if (!failed) return 0;
  snprintf(reason, size, "%s: %s", path, strerror(errno));
  remove(temporary);
  return -1;
}
