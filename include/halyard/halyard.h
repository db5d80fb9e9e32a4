// Everything a program that uses Halyard includes.
#ifndef HALYARD_HALYARD_H_
#define HALYARD_HALYARD_H_

#include "halyard/array.h"
#include "halyard/call.h"
#include "halyard/comm.h"
#include "halyard/compile.h"
#include "halyard/device.h"
#include "halyard/graph.h"
#include "halyard/ops.h"
#include "halyard/optim.h"
#include "halyard/scope.h"
#include "halyard/status.h"
#include "halyard/stream.h"
#include "halyard/tensor.h"
#include "halyard/trace.h"
#include "halyard/version.h"

#endif  // HALYARD_HALYARD_H_
