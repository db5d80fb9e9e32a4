// The loader maps a shared object without looking at its length, and a file cut short kills the
// process. So the frame of the file is read first.
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "core/registry.h"

#if defined(__x86_64__)
#define THIS_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define THIS_MACHINE EM_AARCH64
#elif defined(__riscv)
#define THIS_MACHINE EM_RISCV
#else
#define THIS_MACHINE EM_NONE  // not checked
#endif

static const char* check_header(const ElfW(Ehdr) * h) {
  int class = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (memcmp(h->e_ident, ELFMAG, SELFMAG)) return "it is not a shared object (ELF)";
  if (h->e_ident[EI_CLASS] != class || (THIS_MACHINE != EM_NONE && h->e_machine != THIS_MACHINE))
    return "it is built for another kind of processor";
  if (h->e_type != ET_DYN) return "it is not a shared object";
  if (h->e_phentsize != sizeof(ElfW(Phdr))) return "its header is damaged";
  return NULL;
}

// What is wrong with the file, or NULL.
static const char* check(FILE* f) {
  struct stat st;
  ElfW(Ehdr) header;
  if (fstat(fileno(f), &st)) return "it cannot be examined";
  if (fread(&header, sizeof header, 1, f) != 1) return "it is too short to be a shared object";
  const char* wrong = check_header(&header);
  if (wrong) return wrong;
  if (header.e_phoff > INT32_MAX || fseek(f, (long)header.e_phoff, SEEK_SET))
    return "its header is damaged";
  for (int i = 0; i < header.e_phnum; i++) {
    ElfW(Phdr) part;
    if (fread(&part, sizeof part, 1, f) != 1) return "it has been cut short";
    if (part.p_type == PT_LOAD && (part.p_offset > (uint64_t)st.st_size ||
                                   part.p_filesz > (uint64_t)st.st_size - part.p_offset))
      return "it has been cut short";
  }
  return NULL;
}

hy_status hy__check_shared_object(const char* path) {
  int fd;
  size_t size;
  if (hy__open_file(path, &fd, &size) != HY_OK) return hy_fail(HY_IO, "plugin %s", hy_last_error());
  FILE* f = fdopen(fd, "r");
  if (!f) {
    close(fd);
    return hy_fail(HY_OUT_OF_MEMORY, "plugin %s: no memory to read it", path);
  }
  const char* wrong = check(f);
  fclose(f);
  return wrong ? hy_fail(HY_FORMAT, "plugin %s could not be loaded: %s", path, wrong) : HY_OK;
}
