// A line editor for chat: raw terminal, history, UTF-8.
#include "cli/line_editor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum {
  CTRL_A = 1,
  CTRL_B,
  CTRL_C,
  CTRL_D,
  CTRL_E,
  CTRL_F,
  BACKSPACE = 8,
  NEWLINE = 10,
  CTRL_K,
  CTRL_L
};
enum { RETURN = 13, CTRL_N, CTRL_P = 16, CTRL_U = 21, CTRL_W = 23, ESCAPE = 27, RUBOUT = 127 };
// What escape sequences mean, beyond the range of bytes.
enum { KEY_LEFT = 256, KEY_RIGHT, KEY_UP, KEY_DOWN, KEY_HOME, KEY_END, KEY_DELETE, KEY_NONE };

line_editor line_editor_begin(bool terminal) {
  return (line_editor){.terminal = terminal};
}

void line_editor_end(line_editor* e) {
  free(e->line);
  for (int i = 0; i < e->n_history; i++) free(e->history[i]);
  *e = (line_editor){0};
}

// ---- the line ----

static bool reserve(line_editor* e, size_t length) {
  if (length < e->capacity) return true;
  char* grown = realloc(e->line, 2 * length + 64);
  if (!grown) return false;
  e->line = grown;
  e->capacity = 2 * length + 64;
  return true;
}

static void insert(line_editor* e, char byte) {
  if (!reserve(e, e->length + 1)) return;
  memmove(e->line + e->cursor + 1, e->line + e->cursor, e->length - e->cursor);
  e->line[e->cursor++] = byte;
  e->line[++e->length] = 0;
}

static void erase(line_editor* e, size_t from, size_t to) {
  memmove(e->line + from, e->line + to, e->length - to);
  e->length -= to - from;
  e->line[e->length] = 0;
  e->cursor = from;
}

static bool is_continuation(char byte) {
  return ((unsigned char)byte & 0xc0) == 0x80;
}

static size_t before(const line_editor* e, size_t at) {
  while (at > 0 && is_continuation(e->line[--at])) {
  }
  return at;
}

static size_t after(const line_editor* e, size_t at) {
  if (at < e->length) at++;
  while (at < e->length && is_continuation(e->line[at])) at++;
  return at;
}

static size_t word_before(const line_editor* e) {
  size_t at = e->cursor;
  while (at > 0 && e->line[at - 1] == ' ') at--;
  while (at > 0 && e->line[at - 1] != ' ') at--;
  return at;
}

static void replace(line_editor* e, const char* text) {
  size_t length = strlen(text);
  if (!reserve(e, length)) return;
  memcpy(e->line, text, length + 1);
  e->length = e->cursor = length;
}

// ---- drawing ----

// Columns that the character at `text` takes: two for East Asian scripts and emoji, none for marks
// that combine.
static int columns_of(const char* text) {
  const unsigned char* b = (const unsigned char*)text;
  unsigned code = b[0];
  if (b[0] >= 0xf0)
    code = (b[0] & 7u) << 18 | (b[1] & 63u) << 12 | (b[2] & 63u) << 6 | (b[3] & 63u);
  else if (b[0] >= 0xe0)
    code = (b[0] & 15u) << 12 | (b[1] & 63u) << 6 | (b[2] & 63u);
  else if (b[0] >= 0xc0)
    code = (b[0] & 31u) << 6 | (b[1] & 63u);
  if ((code >= 0x300 && code < 0x370) || code == 0x200d || (code >= 0xfe00 && code < 0xfe10))
    return 0;
  bool wide = (code >= 0x1100 && code < 0x1160) || (code >= 0x2e80 && code < 0xa4d0) ||
              (code >= 0xac00 && code < 0xd7a4) || (code >= 0xf900 && code < 0xfb00) ||
              (code >= 0xfe30 && code < 0xfe70) || (code >= 0xff00 && code < 0xff61) ||
              (code >= 0x1f300 && code < 0x1f650) || (code >= 0x1f900 && code < 0x1fa00) ||
              (code >= 0x20000 && code < 0x3fffe);
  return wide ? 2 : 1;
}

static int columns_between(const line_editor* e, size_t from, size_t to) {
  int columns = 0;
  for (size_t at = from; at < to; at = after(e, at)) columns += columns_of(e->line + at);
  return columns;
}

// One row of the screen: what does not fit is cut so that the cursor stays in sight.
static void draw(const line_editor* e, const char* prompt) {
  struct winsize size;
  int width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
  int room = width - (int)strlen(prompt) - 1;
  size_t from = 0, to = e->length;
  while (columns_between(e, from, e->cursor) > room) from = after(e, from);
  while (columns_between(e, from, to) > room) to = before(e, to);
  printf("\r%s%.*s\x1b[K\r\x1b[%dC", prompt, (int)(to - from), e->line + from,
         (int)strlen(prompt) + columns_between(e, from, e->cursor));
  fflush(stdout);
}

// ---- keys ----

// The next byte; -1 at the end of the input.
static int next_byte(line_editor* e) {
  while (e->next_pending == e->n_pending) {
    ssize_t n = read(STDIN_FILENO, e->pending, sizeof e->pending);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    e->n_pending = (int)n;
    e->next_pending = 0;
  }
  return e->pending[e->next_pending++];
}

// ESC [ or ESC O, a number perhaps, and a letter or ~.
static int escape_key(line_editor* e) {
  int kind = next_byte(e), number = 0, byte;
  if (kind != '[' && kind != 'O') return KEY_NONE;
  while ((byte = next_byte(e)) >= '0' && byte <= ';')
    if (byte <= '9') number = byte - '0';
  switch (byte) {
    case 'A': return KEY_UP;
    case 'B': return KEY_DOWN;
    case 'C': return KEY_RIGHT;
    case 'D': return KEY_LEFT;
    case 'H': return KEY_HOME;
    case 'F': return KEY_END;
    case '~': break;
    default: return KEY_NONE;
  }
  if (number == 3) return KEY_DELETE;
  return number == 1 || number == 7 ? KEY_HOME : number == 4 || number == 8 ? KEY_END : KEY_NONE;
}

static void edit(line_editor* e, int key) {
  switch (key) {
    case CTRL_A:
    case KEY_HOME: e->cursor = 0; break;
    case CTRL_E:
    case KEY_END: e->cursor = e->length; break;
    case CTRL_B:
    case KEY_LEFT: e->cursor = before(e, e->cursor); break;
    case CTRL_F:
    case KEY_RIGHT: e->cursor = after(e, e->cursor); break;
    case BACKSPACE:
    case RUBOUT: erase(e, before(e, e->cursor), e->cursor); break;
    case CTRL_D:
    case KEY_DELETE: erase(e, e->cursor, after(e, e->cursor)); break;
    case CTRL_U: erase(e, 0, e->cursor); break;
    case CTRL_K: erase(e, e->cursor, e->length); break;
    case CTRL_W: erase(e, word_before(e), e->cursor); break;
    case CTRL_L: printf("\x1b[H\x1b[2J"); break;
    default:
      if (key >= ' ' && key < 256) insert(e, (char)key);
  }
}

// ---- history ----

static void remember(line_editor* e) {
  if (e->length == 0) return;
  if (e->n_history > 0 && strcmp(e->history[e->n_history - 1], e->line) == 0) return;
  char* copy = strdup(e->line);
  if (!copy) return;
  if (e->n_history == LINE_HISTORY) {
    free(e->history[0]);
    memmove(e->history, e->history + 1, (LINE_HISTORY - 1) * sizeof *e->history);
    e->n_history--;
  }
  e->history[e->n_history++] = copy;
}

// ---- reading ----

static line_result edit_line(line_editor* e, const char* prompt) {
  int shown = e->n_history;  // which line of the history stands there; n_history: a new one
  replace(e, "");
  for (;;) {
    // A paste is drawn once.
    if (e->next_pending == e->n_pending) draw(e, prompt);
    int key = next_byte(e);
    if (key == ESCAPE) key = escape_key(e);
    if (key < 0 || (key == CTRL_D && e->length == 0)) return LINE_END;
    if (key == CTRL_C) return LINE_INTERRUPTED;
    if (key == RETURN || key == NEWLINE) return LINE_READ;
    if (key == KEY_UP || key == CTRL_P || key == KEY_DOWN || key == CTRL_N) {
      int to = key == KEY_UP || key == CTRL_P ? shown - 1 : shown + 1;
      if (to < 0 || to > e->n_history) continue;
      shown = to;
      replace(e, to < e->n_history ? e->history[to] : "");
    } else {
      edit(e, key);
    }
  }
}

static line_result read_plain(line_editor* e) {
  errno = 0;
  ssize_t n = getline(&e->line, &e->capacity, stdin);
  if (n < 0 && errno == EINTR) {
    clearerr(stdin);
    return LINE_INTERRUPTED;
  }
  if (n < 0) return LINE_END;
  while (n > 0 && (e->line[n - 1] == '\n' || e->line[n - 1] == '\r')) e->line[--n] = 0;
  e->length = (size_t)n;
  return LINE_READ;
}

line_result line_editor_read(line_editor* e, const char* prompt) {
  struct termios before_editing, editing;
  if (!e->terminal || tcgetattr(STDIN_FILENO, &before_editing) != 0) return read_plain(e);
  if (!reserve(e, 1)) return LINE_END;
  editing = before_editing;
  editing.c_iflag &= ~(tcflag_t)(ICRNL | IXON);
  editing.c_lflag &= ~(tcflag_t)(ECHO | ICANON | ISIG | IEXTEN);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &editing);
  line_result result = edit_line(e, prompt);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &before_editing);
  printf("\n");
  fflush(stdout);
  if (result == LINE_READ) remember(e);
  return result;
}
