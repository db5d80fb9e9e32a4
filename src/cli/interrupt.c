// Ctrl-C, and where something must be saved SIGTERM and SIGHUP: finish what must be whole, then
// leave.
#include "cli/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;
static bool reading;

static void on_signal(int number) {
  asked = number;
}

static void watch(int number) {
  // Output goes on behind a signal: a write that it cuts short would be lost.
  int flags = (int)SA_RESETHAND | (reading ? 0 : SA_RESTART);
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags}, before;
  sigemptyset(&action.sa_mask);
  // What the caller ignores (nohup) stays ignored.
  if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN) return;
  sigaction(number, &action, NULL);
}

void interrupt_watch(void) {
  watch(SIGINT);
}

void interrupt_watch_all(void) {
  watch(SIGINT);
  watch(SIGTERM);
  watch(SIGHUP);
}

void interrupt_reads(bool on) {
  struct sigaction now;
  reading = on;
  if (sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == on_signal) watch(SIGINT);
}

bool interrupt_asked(void) {
  return asked != 0;
}

int interrupt_code(void) {
  return 128 + asked;
}

void interrupt_clear(void) {
  asked = 0;
  interrupt_watch();
}
