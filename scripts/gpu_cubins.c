// Cubins ahead of time: compiles the library's GPU kernels with nvcc, for the target gpu-cubins.
//
//   gpu_cubins NVCC FOLDER TARGET,... [FILE ...]      such as sm_80,sm_90a; all kernels by default
//
// Sources are those inside the library, option sets those of the kernels' headings, which say
// "// types: f32 bf16" or "// options: -DA=1 -DB=2", and of model_kernels.def. Files are named as
// the library looks for them, by a hash of what they were made of: what is there already stays,
// what the library would no longer ask for goes.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/gpu/compile.h"

enum { MAX_JOBS = 4096, MAX_PATH = 512, MAX_WORDS = 48 };

typedef struct job {
  char file[32], options[256], target[16], name[128];
} job;

static job jobs[MAX_JOBS];
static int n_jobs;
static const char *nvcc, *folder;
static char work[MAX_PATH];

static void die(const char* what, const char* name) {
  fprintf(stderr, "gpu_cubins: %s %s\n", what, name);
  exit(1);
}

// ---- What to compile ----

static void add(const char* file, const char* options, const char* target) {
  char arch[48];
  if (n_jobs == MAX_JOBS) die("too many option sets:", file);
  job* j = &jobs[n_jobs];
  snprintf(arch, sizeof arch, "--gpu-architecture=%s", target);
  snprintf(j->file, sizeof j->file, "%s", file);
  snprintf(j->options, sizeof j->options, "%s", options);
  snprintf(j->target, sizeof j->target, "%s", target);
  hy__gpu_image_name(file, options, arch, "nvcc", j->name, sizeof j->name);
  for (int i = 0; i < n_jobs; i++)
    if (!strcmp(jobs[i].name, j->name)) return;
  n_jobs++;
}

static void add_types(const char* file, char* types, const char* target) {
  char* rest = NULL;
  for (char* type = strtok_r(types, " ", &rest); type; type = strtok_r(NULL, " ", &rest)) {
    char options[64];
    bool integer = strchr("iu", type[0]) || !strcmp(type, "b8");
    snprintf(options, sizeof options, "-DT=%.8s%s", type, integer ? " -DINTEGER" : "");
    add(file, options, target);
  }
}

static void add_file(const char* file, const char* target) {
  char line[256];
  bool headed = false;
  for (const char* at = hy__gpu_source(file); *at;) {
    size_t length = strcspn(at, "\n");
    snprintf(line, sizeof line, "%.*s", (int)length, at);
    at += length + (at[length] == '\n');
    bool types = !strncmp(line, "// types: ", 10), options = !strncmp(line, "// options: ", 12);
    if (types) add_types(file, line + 10, target);
    char* rest = NULL;
    for (char* set = options ? strtok_r(line + 12, "|", &rest) : NULL; set;
         set = strtok_r(NULL, "|", &rest)) {
      set += strspn(set, " ");
      set[strcspn(set, "|")] = 0;
      add(file, set, target);
    }
    headed |= types || options;
  }
  if (!headed) add(file, "", target);
}

static bool chosen(const char* file, char** names) {
  if (!*names) return true;
  while (*names && strcmp(*names, file)) names++;
  return *names != NULL;
}

static void list_jobs(const char* target, char** names) {
  for (int i = 0; hy__gpu_source_name(i); i++)
    if (chosen(hy__gpu_source_name(i), names)) add_file(hy__gpu_source_name(i), target);
#define HY_MODEL_KERNEL(file, options) \
  if (chosen(#file, names)) add(#file, options, target);
#include "backends/gpu/model_kernels.def"
}

// ---- Compiling ----

static void write_text(const char* name, const char* text) {
  char path[MAX_PATH + 64];
  snprintf(path, sizeof path, "%s/%s", work, name);
  FILE* file = fopen(path, "w");
  if (!file || fputs(text, file) < 0 || fclose(file) != 0) die("cannot write", path);
}

static void write_sources(void) {
  for (int i = 0; hy__gpu_header_names[i]; i++)
    write_text(hy__gpu_header_names[i], hy__gpu_header_texts[i]);
  for (int i = 0; hy__gpu_source_name(i); i++) {
    char name[64];
    char* text = hy__gpu_whole_source(hy__gpu_source_name(i));
    if (!text) die("no memory for", hy__gpu_source_name(i));
    snprintf(name, sizeof name, "%.48s.cu", hy__gpu_source_name(i));
    write_text(name, text);
    free(text);
  }
}

static void path_of(const job* j, const char* where, char* path, size_t size) {
  snprintf(path, size, "%s/%s", where, j->name);
}

static pid_t begin(const job* j) {
  pid_t child = fork();
  if (child != 0) return child;
  char arch[32], source[MAX_PATH + 64], out[MAX_PATH + 160], words[256];
  snprintf(arch, sizeof arch, "-arch=%s", j->target);
  snprintf(source, sizeof source, "%s/%s.cu", work, j->file);
  path_of(j, work, out, sizeof out);
  snprintf(words, sizeof words, "%s", j->options);
  char* list[MAX_WORDS] = {(char*)nvcc, "--cubin", "-std=c++17", arch, "-o", out, source};
  int count = 7;
  char* rest = NULL;
  for (char* word = strtok_r(words, " ", &rest); word && count < MAX_WORDS - 1;
       word = strtok_r(NULL, " ", &rest))
    list[count++] = word;
  execv(nvcc, list);
  _exit(127);
}

// Whole files alone come into the folder.
static void end(const job* j, int status) {
  char from[MAX_PATH + 160], to[MAX_PATH + 160];
  path_of(j, work, from, sizeof from);
  path_of(j, folder, to, sizeof to);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fprintf(stderr, "gpu_cubins: %s.cu for %s: ", j->file, j->target);
    die("nvcc failed with", j->options[0] ? j->options : "no options");
  }
  if (rename(from, to) != 0) die("cannot write", to);
}

static int compile_all(void) {
  static pid_t running[MAX_JOBS];
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int busy = 0, made = 0;
  for (int i = 0; i <= n_jobs; i++) {
    while (busy > 0 && (busy >= cores || i == n_jobs)) {
      int status = 0;
      pid_t child = wait(&status);
      for (int k = 0; k < i; k++)
        if (running[k] == child) end(&jobs[k], status);
      busy--;
    }
    char path[MAX_PATH + 160];
    if (i == n_jobs) break;
    path_of(&jobs[i], folder, path, sizeof path);
    if (access(path, R_OK) == 0) continue;
    running[i] = begin(&jobs[i]);
    if (running[i] < 0) die("cannot start", nvcc);
    busy++;
    made++;
  }
  return made;
}

// ---- Folders ----

static void remove_others(const char* where, bool keep_jobs) {
  DIR* list = opendir(where);
  for (struct dirent* entry; list && (entry = readdir(list));) {
    bool wanted = entry->d_name[0] == '.';
    for (int i = 0; i < n_jobs && keep_jobs && !wanted; i++)
      wanted = !strcmp(jobs[i].name, entry->d_name);
    char path[MAX_PATH + 272];
    snprintf(path, sizeof path, "%s/%s", where, entry->d_name);
    if (!wanted) unlink(path);
  }
  if (list) closedir(list);
}

int main(int argc, char** argv) {
  if (argc < 4) die("usage: gpu_cubins NVCC FOLDER", "TARGET,... [FILE ...]");
  nvcc = argv[1];
  folder = argv[2];
  if ((size_t)snprintf(work, sizeof work, "%s/.work", folder) >= sizeof work)
    die("too long a name:", folder);
  mkdir(work, 0777);
  char* rest = NULL;
  for (char* target = strtok_r(argv[3], ",", &rest); target; target = strtok_r(NULL, ",", &rest))
    list_jobs(target, argv + 4);
  write_sources();
  int made = compile_all();
  remove_others(work, false);
  rmdir(work);
  remove_others(folder, true);
  printf("%d cubins in %s, %d of them new\n", n_jobs, folder, made);
  return 0;
}
