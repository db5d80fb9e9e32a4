// Conformance in a child process (fork, exec): a device that crashes, exits or hangs in one op
// takes that op's verdict with it and nothing else; another child goes on behind it.
//
// Parent and child share one file in memory. The parent opens no device.
#ifndef HALYARD_VERIFY_CHILD_H_
#define HALYARD_VERIFY_CHILD_H_

#include <stdatomic.h>

#include "verify/capability.h"

enum { HY__VERIFY_SLOTS = 256 };  // ops and checks of one run at most

typedef struct hy__verify_slot {
  char name[32];
  bool is_check;
  hy__op_verdict verdict;  // its name is above
} hy__verify_slot;

typedef struct hy__verify_progress {
  // Where the child begins: the number of an op in the table, or of a check behind all ops.
  int32_t first;
  // Where it is.
  int32_t at;         // as `first`
  atomic_uint beats;  // one more with each case
  hy__case_key key;   // the case under way
  char check[32];     // the check under way; empty while ops are
  bool started;       // the device is open
  bool ended;         // everything was done
  char stopped[600];  // why conformance could not go on
  char selector[64], backend[32];
  int32_t declared;
  bool declares_nothing;
  hy__capability_record capabilities;
  atomic_int n_slots;
  hy__verify_slot slots[HY__VERIFY_SLOTS];
} hy__verify_progress;

// In the child: what the parent shares, or NULL where this process is no such child.
hy__verify_progress* hy__verify_shared(void);
// In the child: an on_op function, its context being what is shared.
void hy__verify_publish(void* progress, const hy__op_verdict* verdict);

// In the parent: runs `argv` (ended by NULL) in this program's place, again and again behind what
// took it down, until everything is done. `options` has no device, and gets its names. A child
// without progress for `seconds` is ended; 0: never. `*code` is the exit code of a child that ended
// by itself before its device was open, else -1.
hy_status hy__verify_in_children(hy__verify_options* options, char* const* argv, int seconds,
                                 hy__verify_summary* summary, int* code);

#endif  // HALYARD_VERIFY_CHILD_H_
