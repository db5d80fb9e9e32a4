// Conformance: every op of the table on a device against the reference.
//
// A device passes when nothing failed and everything its providers declare ran natively: by a
// provider of that backend, as the core counted it at the call itself. A call that no provider runs
// is done by the reference, on a host device or by falling back: its result is compared all the
// same, and it is counted as unsupported, with the reason. The reference is native to the cpu
// alone.
#ifndef HALYARD_VERIFY_VERIFY_H_
#define HALYARD_VERIFY_VERIFY_H_

#include <stdio.h>

#include "halyard/comm.h"
#include "verify/case.h"

// The others are asked on top of the first: what is wrong in one is wrong in all.
typedef enum hy__verify_mode {
  HY__VERIFY_VALUES,       // results against the reference, sentinels, refusals
  HY__VERIFY_DETERMINISM,  // and the same call twice gives the same bits
  HY__VERIFY_GRADIENTS     // and gradients on the device equal those on the cpu
} hy__verify_mode;

// Of an op, or of a check of something else.
typedef struct hy__op_verdict {
  const char* name;
  const char* check;  // that name, where it is a check and no op; else NULL
  bool quick;         // given: a check is to be short
  int cases, passed, failed, refused, unsupported;
  uint32_t declared;   // types that a provider promises
  uint32_t native;     // types with at least one call that ran on the device itself
  hy_support reason;   // of the first unsupported call
  hy__case_key first;  // the smallest case found that fails
  char failure[1200];  // what is wrong with it, in words; empty when nothing failed
  char call[800];      // that call
} hy__op_verdict;

typedef struct hy__verify_options {
  hy_device* device;
  // Where a child has the device and this process has not: its names, and NULL above.
  const char *selector, *backend;
  struct hy__verify_progress* progress;  // in that child: what it shares with its parent; else NULL
  hy_op op;                              // HY_OP_NONE: all
  const char* check;                     // only this one of the checks, and no op; NULL: all
  uint64_t seed;
  int index;  // -1: all
  bool quick;
  int64_t limit;
  bool simple;
  hy__verify_mode mode;
  bool until_failure;  // stop at the first case that fails, as it is
  void (*on_op)(void* context, const hy__op_verdict* verdict);  // after each op; may be NULL
  void* context;
} hy__verify_options;

typedef struct hy__verify_summary {
  int ops, checks, cases, passed, failed, refused, unsupported;
  int declared;           // ops that the device's providers declare
  bool declares_nothing;  // counts as a failure of its own
} hy__verify_summary;

// A failing case is no failure of this function: HY_OK and summary->failed > 0. Not HY_OK:
// conformance itself could not go on (no memory, the device is gone). One thread at a time.
hy_status hy__verify(const hy__verify_options* options, hy__verify_summary* summary);
bool hy__verify_passed(const hy__verify_summary* summary);

// Names of the checks; NULL past the last.
const char* hy__verify_check_at(int index);

// The command that repeats a case; all of them for a key without an op.
const char* hy__verify_command(const hy__verify_options* options, const hy__case_key* key,
                               char* buffer, size_t size);

// Checks of what is no op, made when all ops are. Each counts its cases in the verdict, none where
// the device lacks what it is about; not HY_OK as for hy__verify.
typedef hy_status (*hy__verify_check)(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_copies(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_order(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_memory(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_concurrency(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_communicators(hy_device* device, hy__op_verdict* verdict);
// The same on one communicator, in every process that has a rank of it.
hy_status hy__verify_rank(hy_comm* comm, hy__op_verdict* verdict);
hy_status hy__verify_graphs(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_streams(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_pointers(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_peers(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_sharing(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_compilation(hy_device* device, hy__op_verdict* verdict);
hy_status hy__verify_threads(hy_device* device, hy__op_verdict* verdict);

// ---- reports ----

typedef struct hy__report hy__report;

typedef struct hy__report_options {
  FILE* table;        // for people; NULL: none
  const char* junit;  // a file, written beside and renamed when complete; NULL: none
  bool all;           // list every op, not only what failed or fell back
} hy__report_options;

hy_status hy__report_create(const hy__report_options* options, const hy__verify_options* run,
                            hy__report** report);
void hy__report_op(void* report, const hy__op_verdict* verdict);  // an on_op function
// The end of the table, the JUnit file, and the JSON line on `json` (NULL: none).
hy_status hy__report_finish(hy__report* report, const hy__verify_summary* summary, FILE* json);
void hy__report_destroy(hy__report* report);

#endif  // HALYARD_VERIFY_VERIFY_H_
