// Reading lines from a person: a small editor with a history where the input is a terminal, plain
// lines where it is not.
#ifndef HALYARD_CLI_LINE_EDITOR_H_
#define HALYARD_CLI_LINE_EDITOR_H_

#include <stdbool.h>
#include <stddef.h>

enum { LINE_HISTORY = 100 };

typedef struct line_editor {
  bool terminal;
  char* line;  // the last one read, without its end
  size_t capacity, length, cursor;
  char* history[LINE_HISTORY];
  int n_history;
  unsigned char pending[64];  // bytes read from the terminal and not used yet
  int n_pending, next_pending;
} line_editor;

typedef enum line_result { LINE_READ, LINE_END, LINE_INTERRUPTED } line_result;

line_editor line_editor_begin(bool terminal);
void line_editor_end(line_editor* editor);

// Reads editor->line. On a terminal: arrows, Home, End, Delete; Ctrl-A E B F U K W L as in a shell;
// up and down walk through earlier lines; Ctrl-D on an empty line is the end, Ctrl-C an interrupt.
// A paste is one line, with the line breaks that it has. Signals that end the program put the
// terminal back first.
line_result line_editor_read(line_editor* editor, const char* prompt);

#endif  // HALYARD_CLI_LINE_EDITOR_H_
