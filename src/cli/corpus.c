// The texts that the demo learns from, embedded.
#include "cli/corpus.h"

#include "cli/embed.h"

// HALYARD_CORPUS is the build's folder of gathered texts.
EMBED("corpus_code_bytes", HALYARD_CORPUS "/code.txt");
EMBED("corpus_verilog_bytes", HALYARD_CORPUS "/verilog.txt");
extern const char corpus_code_bytes[], corpus_code_bytes_end[];
extern const char corpus_verilog_bytes[], corpus_verilog_bytes_end[];

corpus_text corpus_code(void) {
  return (corpus_text){corpus_code_bytes, (size_t)(corpus_code_bytes_end - corpus_code_bytes)};
}

corpus_text corpus_verilog(void) {
  return (corpus_text){corpus_verilog_bytes,
                       (size_t)(corpus_verilog_bytes_end - corpus_verilog_bytes)};
}
