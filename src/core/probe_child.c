// Probing a plugin in a child process (fork): what crashes, hangs or ends its process there is a
// reason that a report shows, and nobody's loss. The child's registry is a copy of this one, so
// that it probes as this process would.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/registry.h"

#define TIMEOUT "HALYARD_PROBE_TIMEOUT"
enum { DEFAULT_SECONDS = 20, MOST_SECONDS = 3600 };

static void doing(hy__trial* trial, const char* what, const char* which) {
  snprintf(trial->doing, sizeof trial->doing, "%s%s%s", what, which ? " of " : "",
           which ? which : "");
}

static void copy_text(char* to, size_t size, const char* from) {
  snprintf(to, size, "%s", from ? from : "");
}

// ---- the child ----

static void explore_providers(hy__backend_entry* entry, hy__trial* trial) {
  for (int i = 0; i < entry->table.n_providers && i < HY__MAX_PROVIDERS; i++) {
    hy__trial_provider* p = &trial->providers[i];
    doing(trial, "the probe of provider", entry->providers[i].table.name);
    hy__entry_probe_provider(entry, i);
    copy_text(p->name, sizeof p->name, entry->providers[i].table.name);
    copy_text(p->version, sizeof p->version, entry->providers[i].version);
    p->probe = entry->providers[i].probe;
    trial->n_providers = i + 1;
  }
}

static void explore(hy__backend_entry* entry, hy__trial* trial) {
  doing(trial, "loading, or in its probe", NULL);
  hy__entry_probe_here(entry);
  trial->flags = entry->table.flags;
  copy_text(trial->version, sizeof trial->version, entry->version);
  copy_text(trial->description, sizeof trial->description, entry->description);
  if (entry->state == HY_BACKEND_AVAILABLE) {
    doing(trial, "device_info", NULL);
    for (int i = 0; i < entry->device_count && i < HY__TRIAL_DEVICES; i++) {
      trial->described[i] = hy__entry_device_info(entry, i, &trial->devices[i]);
      if (trial->described[i] != HY_OK)
        copy_text(trial->refusal, sizeof trial->refusal, hy_last_error());
    }
    explore_providers(entry, trial);
    void* device;
    doing(trial, "device_open", NULL);
    if (entry->table.device_open(0, &device) == HY_OK) {
      doing(trial, "device_close", NULL);
      entry->table.device_close(device);
    }
  }
  trial->device_count = entry->device_count;
  trial->state = entry->state;
  trial->probe = entry->probe;
  trial->done = true;
}

// Nothing that it prints reaches anybody, and what it breaks ends it.
static void isolate(void) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGTERM};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++) signal(fatal[i], SIG_DFL);
  int nowhere = open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2 && nowhere >= 0; fd++) dup2(nowhere, fd);
}

// ---- the parent ----

static int time_limit(void) {
  const char* text = hy__env(TIMEOUT);
  int seconds = text ? atoi(text) : DEFAULT_SECONDS;
  return seconds >= 1 && seconds <= MOST_SECONDS ? seconds : DEFAULT_SECONDS;
}

// True where the child was ended because it did not end.
static bool wait_for(pid_t child, int* how) {
  int64_t limit = hy__now_ns() + (int64_t)time_limit() * 1000000000;
  for (unsigned pause = 100; waitpid(child, how, WNOHANG) == 0; pause += pause < 5000 ? 100 : 0) {
    usleep(pause);
    if (hy__now_ns() < limit) continue;
    kill(child, SIGKILL);
    waitpid(child, how, 0);
    return true;
  }
  return false;
}

static void blame(hy__trial* trial, const char* plugin, int how, bool hangs) {
  char what[160];
  hy_probe* probe = &trial->probe;
  hy__probe_begin(probe);
  if (hangs)
    snprintf(what, sizeof what, "did not end within %d seconds", time_limit());
  else if (WIFSIGNALED(how))
    snprintf(what, sizeof what, "crashed (signal %d, %s)", WTERMSIG(how), strsignal(WTERMSIG(how)));
  else
    snprintf(what, sizeof what, "ended the process (exit code %d)", WEXITSTATUS(how));
  trial->doing[sizeof trial->doing - 1] = 0;
  trial->state = HY_BACKEND_FAILED;
  trial->device_count = trial->n_providers = 0;
  probe->stage = HY_STAGE_FOUND;
  probe->status = HY_DEVICE_FAILED;
  snprintf(probe->library, sizeof probe->library, "%s", plugin);
  snprintf(probe->reason, sizeof probe->reason, "plugin %.250s %s in %s", plugin, what,
           trial->doing);
  snprintf(probe->remedy, sizeof probe->remedy,
           "repair the plugin, or take it out of the plugin folder%s%s",
           hangs ? "; more time: " TIMEOUT "=" : "", hangs ? "60" : "");
}

bool hy__probe_in_child(hy__backend_entry* entry) {
  hy__trial* trial =
      mmap(NULL, sizeof *trial, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (trial == MAP_FAILED) return false;
  pid_t child = fork();
  if (child < 0) {
    munmap(trial, sizeof *trial);
    return false;
  }
  if (child == 0) {
    isolate();
    explore(entry, trial);
    _exit(0);
  }
  int how = 0;
  bool hangs = wait_for(child, &how);
  if (!trial->done) blame(trial, entry->plugin, how, hangs);
  hy__trial_release(entry);
  entry->trial = trial;
  entry->state = trial->state;
  entry->device_count = trial->device_count;
  entry->probe = trial->probe;
  return true;
}

void hy__trial_release(hy__backend_entry* entry) {
  if (entry->trial) munmap(entry->trial, sizeof *entry->trial);
  entry->trial = NULL;
}
