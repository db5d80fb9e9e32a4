// Training a transformer: LoRA adapters, or all parameters of a small one.
#ifndef HALYARD_MODEL_TRAIN_H_
#define HALYARD_MODEL_TRAIN_H_

#include "halyard/comm.h"
#include "halyard/graph.h"
#include "halyard/optim.h"
#include "model/dataset.h"
#include "model/rope.h"
#include "model/transformer.h"

enum { HY__LOSS_ROWS = 1024 };  // of logits, that are held at once

// Activation checkpointing: what the backward computes again in place of keeping it.
typedef enum hy__checkpoint {
  HY__KEEP_ALL,
  HY__CHECKPOINT_MLP,    // norm, gate and up: most of what a block keeps
  HY__CHECKPOINT_BLOCK,  // all but a block's input
} hy__checkpoint;

typedef struct hy__train_options {
  int64_t batch, length;  // sequences of a pass, tokens of each
  int64_t accumulate;     // passes of a step
  int64_t steps, warmup;  // in all, for the schedule
  double lr, weight_decay, clip;
  hy__checkpoint checkpoint;
  bool all_parameters;  // else the adapters alone
  bool graph;           // forward and backward captured once and launched for each step
  uint64_t seed;        // of dropout
  // NULL, or the ranks that share the passes of a step, on the stream's device (data parallelism).
  // Each has the whole model and gets the same tokens; gradients are added in the order of passes,
  // so that every rank ends with the bits of one that runs all of them. For adapters.
  hy_comm* comm;
} hy__train_options;

typedef struct hy__trainer hy__trainer;

// The model stays the caller's and outlives the trainer; its parameters, or its adapters, are made
// leaves.
// A graph is HY_UNSUPPORTED with several passes a step, or with dropout, whose draws would repeat.
hy_status hy__trainer_create(hy_stream* stream, hy__transformer* model,
                             const hy__train_options* options, hy__trainer** trainer);
void hy__trainer_destroy(hy__trainer* trainer);  // NULL is fine

// Tokens and targets of one step: accumulate x batch rows of `length`. A target is the token that
// should follow, or HY__IGNORE. `loss` is the mean over all that count. HY_DEVICE_FAILED where the
// loss or the gradient is no finite number: then nothing was changed.
hy_status hy__trainer_step(hy__trainer* trainer, const int32_t* tokens, const int32_t* targets,
                           double* loss);
// The mean loss over the dataset's evaluation part, without learning. HY_INVALID_ARGUMENT where
// nothing of it counts.
hy_status hy__trainer_evaluate(hy__trainer* trainer, const hy__dataset* dataset, double* loss);
// Of the captured step; NULL before the first one, and without options.graph.
const hy_graph_report* hy__trainer_report(const hy__trainer* trainer);
const hy__train_options* hy__trainer_options(const hy__trainer* trainer);
int64_t hy__trainer_steps(const hy__trainer* trainer);  // done so far
double hy__trainer_lr(const hy__trainer* trainer);      // of the next step

// Everything that the rest of the training depends on, in one file that is written beside and
// renamed: parameters or adapters, the optimizer's state, the number of steps, the options.
// Resuming with other options is HY_INVALID_ARGUMENT, since it would be another training.
hy_status hy__trainer_save(hy__trainer* trainer, const char* path);
hy_status hy__trainer_resume(hy__trainer* trainer, const char* path);

#endif  // HALYARD_MODEL_TRAIN_H_
