// nvcc over the emulator's compiler, for tests of what is compiled ahead of time:
//   nvcc --cubin -o FILE SOURCE.cu [-DNAME=VALUE ...]       other options are passed over
// Headers are those beside the source.
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int nvrtcCreateProgram(void** program, const char* source, const char* name, int n,
                       const char* const* headers, const char* const* names);
int nvrtcCompileProgram(void* program, int n, const char* const* options);
int nvrtcGetProgramLogSize(void* program, size_t* size);
int nvrtcGetProgramLog(void* program, char* log);
int nvrtcGetCUBINSize(void* program, size_t* size);
int nvrtcGetCUBIN(void* program, char* image);

enum { MOST = 64 };

static char* text_of(const char* path) {
  FILE* file = fopen(path, "r");
  char* text = calloc(1, 1 << 20);
  if (!file || !text || fread(text, 1, (1 << 20) - 1, file) == 0) {
    fprintf(stderr, "nvcc: cannot read %s\n", path);
    exit(1);
  }
  fclose(file);
  return text;
}

int main(int argc, char** argv) {
  const char *out = NULL, *source = NULL, *options[MOST], *headers[MOST], *names[MOST];
  int n_options = 0, n_headers = 0;
  for (int i = 1; i < argc; i++) {
    size_t length = strlen(argv[i]);
    if (!strcmp(argv[i], "-o") && i + 1 < argc)
      out = argv[++i];
    else if (!strncmp(argv[i], "-D", 2) && n_options < MOST)
      options[n_options++] = argv[i];
    else if (length > 3 && !strcmp(argv[i] + length - 3, ".cu"))
      source = argv[i];
  }
  if (!out || !source) return 2;
  char pattern[600];
  glob_t found;
  snprintf(pattern, sizeof pattern, "%.*s/*.*h", (int)(strrchr(source, '/') - source), source);
  if (glob(pattern, 0, NULL, &found) != 0) found.gl_pathc = 0;
  for (size_t i = 0; i < found.gl_pathc && n_headers < MOST; i++) {
    names[n_headers] = strrchr(found.gl_pathv[i], '/') + 1;
    headers[n_headers++] = text_of(found.gl_pathv[i]);
  }
  void* program = NULL;
  size_t size = 0;
  nvrtcCreateProgram(&program, text_of(source), "kernel.cu", n_headers, headers, names);
  if (nvrtcCompileProgram(program, n_options, options) != 0) {
    nvrtcGetProgramLogSize(program, &size);
    char* log = calloc(1, size + 1);
    nvrtcGetProgramLog(program, log);
    fprintf(stderr, "%s\n", log);
    return 1;
  }
  nvrtcGetCUBINSize(program, &size);
  char* image = calloc(1, size);
  nvrtcGetCUBIN(program, image);
  FILE* file = fopen(out, "w");
  return file && fwrite(image, 1, size, file) == size && fclose(file) == 0 ? 0 : 1;
}
