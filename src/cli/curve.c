// Loss curves, on the terminal and as SVG.
#include "cli/curve.h"

#include <string.h>

#include "base/file.h"

enum { COLUMNS = 64, ROWS = 8, DOTS_X = 2 * COLUMNS, DOTS_Y = 4 * ROWS };

static void bounds(const curve* c, double* least, double* most) {
  *least = *most = c->count ? c->values[0] : 0;
  for (int i = 1; i < c->count; i++) {
    if (c->values[i] < *least) *least = c->values[i];
    if (c->values[i] > *most) *most = c->values[i];
  }
}

// The mean of the values that fall on dot x of `dots`.
static double value_at(const curve* c, int x, int dots) {
  int from = (int)((long)x * c->count / dots), to = (int)((long)(x + 1) * c->count / dots);
  if (to <= from) to = from + 1;
  if (to > c->count) to = c->count;
  double sum = 0;
  for (int i = from; i < to; i++) sum += c->values[i];
  return sum / (to - from);
}

void curve_print(FILE* file, const curve* c) {
  unsigned char cells[ROWS][COLUMNS] = {{0}};
  static const unsigned char dots[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  if (c->count < 2) return;
  double least, most;
  bounds(c, &least, &most);
  int last = -1;
  for (int x = 0; x < DOTS_X; x++) {
    double share = most > least ? (value_at(c, x, DOTS_X) - least) / (most - least) : 0;
    int y = (int)((1 - share) * (DOTS_Y - 1) + 0.5);
    // A steep line is drawn without gaps.
    int from = last < 0 || last == y ? y : last < y ? last + 1 : y;
    int to = last < 0 || last <= y ? y : last - 1;
    for (int d = from; d <= to; d++) cells[d / 4][x / 2] |= dots[d % 4][x % 2];
    last = y;
  }
  for (int row = 0; row < ROWS; row++) {
    if (row == 0)
      fprintf(file, "  %6.2f ", most);
    else if (row == ROWS - 1)
      fprintf(file, "  %6.2f ", least);
    else
      fprintf(file, "         ");
    for (int column = 0; column < COLUMNS; column++) {
      unsigned code = 0x2800u + cells[row][column];
      fprintf(file, "%c%c%c", (int)(0xe0 | code >> 12), (int)(0x80 | (code >> 6 & 0x3f)),
              (int)(0x80 | (code & 0x3f)));
    }
    fprintf(file, "\n");
  }
  fprintf(file, "         %s, %d steps\n", c->title, c->count);
}

// ---- SVG ----

enum { WIDTH = 720, HEIGHT = 360, LEFT = 60, RIGHT = 20, TOP = 50, BOTTOM = 40, POINTS = 300 };
static const char* const colours[] = {"#2563eb", "#ea580c", "#16a34a", "#9333ea"};

static void write_curve(FILE* f, const curve* c, int number, double least, double most) {
  int points = c->count < POINTS ? c->count : POINTS;
  fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"",
          colours[number % 4]);
  for (int i = 0; i < points; i++) {
    double x = LEFT + (points > 1 ? (double)i / (points - 1) : 0) * (WIDTH - LEFT - RIGHT);
    double share = most > least ? (value_at(c, i, points) - least) / (most - least) : 0;
    fprintf(f, "%s%.1f,%.1f", i ? " " : "", x, TOP + (1 - share) * (HEIGHT - TOP - BOTTOM));
  }
  fprintf(f,
          "\"/>\n<text x=\"%d\" y=\"%d\" fill=\"%s\" text-anchor=\"end\">%s: %.3f to %.3f, %d "
          "steps</text>\n",
          WIDTH - RIGHT, TOP + 18 * (number + 1), colours[number % 4], c->title, c->values[0],
          value_at(c, points - 1, points), c->count);
}

static void write_svg(FILE* f, const char* title, const curve* curves, int count) {
  double least = 1e300, most = -1e300;
  for (int i = 0; i < count; i++) {
    double low, high;
    if (curves[i].count == 0) continue;
    bounds(&curves[i], &low, &high);
    if (low < least) least = low;
    if (high > most) most = high;
  }
  fprintf(
      f,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\""
      " font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
      "<text x=\"%d\" y=\"28\" font-size=\"18\">%s</text>\n",
      WIDTH, HEIGHT, LEFT, title);
  for (int i = 0; i <= 4; i++) {
    double y = TOP + i * (HEIGHT - TOP - BOTTOM) / 4.0;
    fprintf(f,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" "
            "y=\"%.1f\" text-anchor=\"end\" fill=\"#555\">%.2f</text>\n",
            LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, most - i * (most - least) / 4);
  }
  fprintf(f, "<text x=\"%d\" y=\"%d\" fill=\"#555\">share of the steps</text>\n", LEFT,
          HEIGHT - 12);
  for (int i = 0; i < count; i++) {
    if (curves[i].count > 0) write_curve(f, &curves[i], i, least, most);
  }
  fprintf(f, "</svg>\n");
}

hy_status curve_save_svg(const char* path, const char* title, const curve* curves, int count) {
  hy__writer writer;
  HY_TRY(hy__write_begin(path, &writer));
  write_svg(writer.file, title, curves, count);
  if (!ferror(writer.file)) return hy__write_commit(&writer);
  hy__write_abandon(&writer);
  return hy_fail(HY_IO, "%s: cannot be written", path);
}
