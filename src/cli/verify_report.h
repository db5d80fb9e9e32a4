// halyard verify --report FILE: all that a developer without the device needs to know, in one file
// that its owner can read before sending it.
#ifndef HALYARD_CLI_VERIFY_REPORT_H_
#define HALYARD_CLI_VERIFY_REPORT_H_

#include "verify/verify.h"

typedef struct cli_verify_report cli_verify_report;

// Begins the file beside its name, and makes the run tell it too; `options` has its on_op and
// context already, which go on being told.
hy_status cli_verify_report_begin(const char* path, hy__verify_options* options,
                                  cli_verify_report** report);
// Ends and renames the file. `summary` is NULL where the run could not go on: then hy_last_error
// says why, and the file does too. Frees the report; NULL is fine.
hy_status cli_verify_report_end(cli_verify_report* report, const hy__verify_summary* summary);

#endif  // HALYARD_CLI_VERIFY_REPORT_H_
