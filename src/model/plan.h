// Planning a split of a model over devices on paper: memory, bytes on the wire and tokens a second
// of decoding, from config.json alone.
//
// Decoding reads every weight and key-value once a token, so that a device's time is its bytes over
// the rate at which it reads them, and a fixed time for each block's calls. A collective takes a
// latency, and its bytes over the link.
#ifndef HALYARD_MODEL_PLAN_H_
#define HALYARD_MODEL_PLAN_H_

#include "halyard/model.h"
#include "model/config.h"

typedef struct hy__plan_machine {
  double read;     // bytes a second of weights, of a device
  double block;    // seconds of a block besides reading
  double latency;  // seconds of a collective or message, besides its bytes
  double link;     // bytes a second between two devices
} hy__plan_machine;

typedef enum hy__plan_split {
  HY__PLAN_TENSOR,
  HY__PLAN_PIPELINE,
  HY__PLAN_DATA,
  HY__PLAN_SPLITS
} hy__plan_split;

typedef struct hy__split_plan {
  hy__plan_split split;
  char refused[200];    // why the split is not possible; empty where it is
  double weights, kv;   // bytes of the device that has most
  double wire;          // bytes that a device sends for a token
  double seconds;       // of a token of one sequence
  double tokens_s;      // of all sequences that run at once
  int64_t sequences;    // that run at once: one, but a sequence a device where data is split
  double wire_of_step;  // bytes that a device sends for a step of training an adapter; else 0
} hy__split_plan;

// One sequence of `context` tokens on `devices` equal devices; rank: of an adapter on q, k, v and
// o.
hy_status hy__plan_make(const hy__config* config, hy_weight_format format, int devices,
                        int64_t context, int64_t rank, const hy__plan_machine* machine,
                        hy__split_plan plans[HY__PLAN_SPLITS]);

// Bytes of the weights of all blocks, of the embedding, and of the head with the last norm.
hy_status hy__plan_bytes(const hy__config* config, hy_weight_format format, double* blocks,
                         double* embedding, double* head);

#endif  // HALYARD_MODEL_PLAN_H_
