// Texts that the program carries with it: some of the project's own C and Verilog.
#ifndef HALYARD_CLI_CORPUS_H_
#define HALYARD_CLI_CORPUS_H_

#include <stddef.h>

typedef struct corpus_text {
  const char* text;  // not terminated
  size_t length;
} corpus_text;

corpus_text corpus_code(void);
corpus_text corpus_verilog(void);

#endif  // HALYARD_CLI_CORPUS_H_
