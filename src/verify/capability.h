// Capability bits that a device claims, held against calls that ran on it and passed.
#ifndef HALYARD_VERIFY_CAPABILITY_H_
#define HALYARD_VERIFY_CAPABILITY_H_

#include "verify/verify.h"

// What of each row of the table has been seen, kept while ops are verified.
#define HY__CAPABILITY_ROWS 24
typedef struct hy__capability_record {
  int passed[HY__CAPABILITY_ROWS], failed[HY__CAPABILITY_ROWS];  // calls that ran on the device
  bool declared[HY__CAPABILITY_ROWS];
  bool communicators;  // passed their conformance
  uint32_t dtypes;     // of the tensors of calls that ran on the device and passed
} hy__capability_record;

// `declared` are the types that the device's providers promise for the op.
void hy__capability_declared(hy__capability_record* record, const hy_device* device, hy_op op,
                             uint32_t declared);
void hy__capability_ran(hy__capability_record* record, const hy_call* call, bool passed);
// One case for each capability and each type that the device claims.
hy_status hy__capability_judge(const hy__capability_record* record, hy_device* device,
                               hy__op_verdict* verdict);

#endif  // HALYARD_VERIFY_CAPABILITY_H_
