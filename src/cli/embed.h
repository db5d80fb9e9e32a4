// Files embedded in the program (.incbin), between two symbols.
#ifndef HALYARD_CLI_EMBED_H_
#define HALYARD_CLI_EMBED_H_

#if defined(__APPLE__)
#define EMBED_SECTION ".const_data\n"
#define EMBED_SYMBOL(name) "_" name
#else
#define EMBED_SECTION ".section .rodata\n"
#define EMBED_SYMBOL(name) name
#endif
// Declare `extern const char name[], name_end[];` beside it.
#define EMBED(name, path)                                       \
  __asm__(EMBED_SECTION EMBED_SYMBOL(name) ":\n.incbin \"" path \
                                           "\"\n" EMBED_SYMBOL(name) "_end:\n.byte 0\n.text\n")

#endif  // HALYARD_CLI_EMBED_H_
