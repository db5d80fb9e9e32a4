// Ctrl-C, and where something must be saved SIGTERM and SIGHUP: finish what must be whole, then
// leave.
#include "cli/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;

static void on_signal(int number) {
  asked = number;
}

static void watch(int number) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, before;
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
