// The texts that the demo learns from, embedded.
#include "cli/corpus.h"

// HALYARD_CORPUS is the build's folder of gathered texts.
#if defined(__APPLE__)
#define CORPUS_SECTION ".const_data\n"
#define CORPUS_SYMBOL(name) "_" name
#else
#define CORPUS_SECTION ".section .rodata\n"
#define CORPUS_SYMBOL(name) name
#endif
#define CORPUS_EMBED(name, file)                                                     \
  __asm__(CORPUS_SECTION CORPUS_SYMBOL(name) ":\n.incbin \"" HALYARD_CORPUS "/" file \
                                             "\"\n" CORPUS_SYMBOL(name) "_end:\n.byte 0\n.text\n")

CORPUS_EMBED("corpus_code_bytes", "code.txt");
CORPUS_EMBED("corpus_verilog_bytes", "verilog.txt");
extern const char corpus_code_bytes[], corpus_code_bytes_end[];
extern const char corpus_verilog_bytes[], corpus_verilog_bytes_end[];

corpus_text corpus_code(void) {
  return (corpus_text){corpus_code_bytes, (size_t)(corpus_code_bytes_end - corpus_code_bytes)};
}

corpus_text corpus_verilog(void) {
  return (corpus_text){corpus_verilog_bytes,
                       (size_t)(corpus_verilog_bytes_end - corpus_verilog_bytes)};
}
