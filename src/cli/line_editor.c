// A line editor for chat: raw terminal, history, UTF-8.
#include "cli/line_editor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/columns.h"
#include "cli/interrupt.h"

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
enum {
  TAB = 9,
  RETURN = 13,
  CTRL_N,
  CTRL_P = 16,
  CTRL_U = 21,
  CTRL_W = 23,
  ESCAPE = 27,
  RUBOUT = 127
};
// What escape sequences mean, beyond the range of bytes.
enum {
  KEY_LEFT = 256,
  KEY_RIGHT,
  KEY_UP,
  KEY_DOWN,
  KEY_HOME,
  KEY_END,
  KEY_DELETE,
  KEY_PASTE,
  KEY_NONE
};

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

// The character at `at`, and how many columns it takes.
static int width_at(const line_editor* e, size_t at, size_t* size) {
  return columns_of(e->line + at, e->length - at, size);
}

// Marks that combine go with the character before them.
static size_t after(const line_editor* e, size_t at) {
  size_t size;
  if (at >= e->length) return e->length;
  width_at(e, at, &size);
  for (at += size; at < e->length && width_at(e, at, &size) == 0; at += size) continue;
  return at;
}

static size_t before(const line_editor* e, size_t at) {
  size_t from = 0;
  for (size_t next = 0; next < at; next = after(e, next)) from = next;
  return from;
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

static int columns_between(const line_editor* e, size_t from, size_t to) {
  int columns = 0;
  size_t size;
  for (size_t at = from; at < to; at += size) columns += width_at(e, at, &size);
  return columns;
}

// A tab is shown as one blank, a line break as an arrow.
static void print_part(const line_editor* e, size_t from, size_t to) {
  for (size_t at = from; at < to; at++) {
    char c = e->line[at];
    if (c == '\n')
      fputs("\xe2\x86\xb5", stdout);
    else
      fputc(c == '\t' ? ' ' : c, stdout);
  }
}

// One row of the screen: what does not fit is cut so that the cursor stays in sight. The last
// column stays free, since a character there would move some terminals to the next row.
static void draw(const line_editor* e, const char* prompt) {
  struct winsize size;
  int width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  if (width < (int)strlen(prompt) + 4) prompt = "";
  int room = width - (int)strlen(prompt) - 1;
  size_t from = 0, to = e->length;
  while (from < e->cursor && columns_between(e, from, e->cursor) > room) from = after(e, from);
  while (to > e->cursor && columns_between(e, from, to) > room) to = before(e, to);
  printf("\r%s", prompt);
  print_part(e, from, to);
  int at = (int)strlen(prompt) + columns_between(e, from, e->cursor);
  printf("\x1b[K\r");
  if (at > 0) printf("\x1b[%dC", at);
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

// Whether more follows at once: the bytes of a key come together, and a person does not type that
// fast behind an Esc.
static bool more_follows(const line_editor* e) {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  return e->next_pending < e->n_pending || poll(&input, 1, 50) > 0;
}

// ESC [ or ESC O, numbers perhaps, and a letter or ~. Alone, or before another character, an Esc
// means nothing.
static int escape_key(line_editor* e) {
  if (!more_follows(e)) return KEY_NONE;
  int kind = next_byte(e), number = 0, byte;
  if (kind != '[' && kind != 'O') {
    if (kind >= 0) e->next_pending--;
    return KEY_NONE;
  }
  bool first = true;  // of the numbers, the one that says which key; others are modifiers
  while ((byte = next_byte(e)) >= ' ' && byte <= '?') {
    if (byte < '0' || byte > '9')
      first = false;
    else if (first && number < 1000)
      number = 10 * number + byte - '0';
  }
  switch (byte) {
    case 'A': return KEY_UP;
    case 'B': return KEY_DOWN;
    case 'C': return KEY_RIGHT;
    case 'D': return KEY_LEFT;
    case 'H': return KEY_HOME;
    case 'F': return KEY_END;
    case '[': next_byte(e); return KEY_NONE;  // a function key of the console
    case '~': break;
    default: return KEY_NONE;
  }
  switch (number) {
    case 1:
    case 7: return KEY_HOME;
    case 3: return KEY_DELETE;
    case 4:
    case 8: return KEY_END;
    case 200: return KEY_PASTE;
    default: return KEY_NONE;
  }
}

// What is pasted is text whatever it holds, up to ESC [ 201 ~: line breaks do not end the line.
static void paste(line_editor* e) {
  static const char end[] = "\x1b[201~";
  size_t start = e->cursor;
  bool after_return = false;
  for (int byte; (byte = next_byte(e)) >= 0;) {
    if (byte == 0 || (byte == NEWLINE && after_return)) {
      after_return = false;
      continue;
    }
    after_return = byte == RETURN;
    insert(e, (char)(byte == RETURN ? NEWLINE : byte));
    size_t n = sizeof end - 1;
    if (e->cursor - start < n || memcmp(e->line + e->cursor - n, end, n) != 0) continue;
    erase(e, e->cursor - n, e->cursor);
    break;
  }
  // Other control characters would move the cursor when they are drawn.
  for (size_t i = start; i < e->cursor; i++) {
    unsigned char c = (unsigned char)e->line[i];
    if ((c < ' ' && c != NEWLINE && c != TAB) || c == RUBOUT) e->line[i] = ' ';
  }
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
    case KEY_PASTE: paste(e); break;
    default:
      if (key == TAB || (key >= ' ' && key < 256)) insert(e, (char)key);
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
  interrupt_reads(true);
  ssize_t n = getline(&e->line, &e->capacity, stdin);
  int error = errno;
  interrupt_reads(false);
  if (n < 0 && error == EINTR) {
    clearerr(stdin);
    return LINE_INTERRUPTED;
  }
  if (n < 0) return LINE_END;
  while (n > 0 && (e->line[n - 1] == '\n' || e->line[n - 1] == '\r')) e->line[--n] = 0;
  e->length = (size_t)n;
  return LINE_READ;
}

// ---- the terminal ----

#define PASTE_ON "\x1b[?2004h"
#define PASTE_OFF "\x1b[?2004l"

// What ends the program while a line is edited; Ctrl-C and its like are keys then.
static const int deadly[] = {SIGTERM, SIGHUP, SIGQUIT, SIGINT};
enum { N_DEADLY = sizeof deadly / sizeof deadly[0] };
static struct termios before_editing;

static void leave_terminal(void) {
  ssize_t written = write(STDOUT_FILENO, PASTE_OFF, sizeof PASTE_OFF - 1);
  (void)written;
  tcsetattr(STDIN_FILENO, TCSANOW, &before_editing);
}

// The action was reset when the signal came: raised again, it ends the program.
static void on_deadly(int number) {
  leave_terminal();
  raise(number);
}

line_result line_editor_read(line_editor* e, const char* prompt) {
  struct termios editing;
  struct sigaction action = {.sa_handler = on_deadly, .sa_flags = (int)SA_RESETHAND};
  struct sigaction kept[N_DEADLY];
  if (!e->terminal || tcgetattr(STDIN_FILENO, &before_editing) != 0) return read_plain(e);
  if (!reserve(e, 1)) return LINE_END;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < N_DEADLY; i++) sigaction(deadly[i], &action, &kept[i]);
  editing = before_editing;
  editing.c_iflag &= ~(tcflag_t)(ICRNL | IXON);
  editing.c_lflag &= ~(tcflag_t)(ECHO | ICANON | ISIG | IEXTEN);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &editing);
  fputs(PASTE_ON, stdout);
  line_result result = edit_line(e, prompt);
  fflush(stdout);
  leave_terminal();
  for (int i = 0; i < N_DEADLY; i++) sigaction(deadly[i], &kept[i], NULL);
  printf("\n");
  fflush(stdout);
  if (result == LINE_READ) remember(e);
  return result;
}
