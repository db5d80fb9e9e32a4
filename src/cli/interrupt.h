// Signals as a question that the program asks itself when it is a good moment to stop.
#ifndef HALYARD_CLI_INTERRUPT_H_
#define HALYARD_CLI_INTERRUPT_H_

#include <stdbool.h>

// From now on the first Ctrl-C is only remembered; a second one before interrupt_clear ends the
// program as usual.
void interrupt_watch(void);
// The same for SIGTERM and SIGHUP too, by which a job's manager or a terminal ends a program.
void interrupt_watch_all(void);
// Whether Ctrl-C ends a read that waits, with EINTR; at first it does not.
void interrupt_reads(bool on);
bool interrupt_asked(void);
int interrupt_code(void);  // the exit code of a program that a signal ended: 130 for Ctrl-C
void interrupt_clear(void);

#endif  // HALYARD_CLI_INTERRUPT_H_
