// A trainer from within: what train.c, train_parameters.c and train_state.c share.
#ifndef HALYARD_MODEL_TRAINER_H_
#define HALYARD_MODEL_TRAINER_H_

#include "model/train.h"

// A matrix of several parameters that are consecutive, from element `at` of all of them on.
typedef struct hy__joint_leaf {
  hy_array* array;
  int64_t at;
} hy__joint_leaf;

// What is trained. Adapters are consecutive in one array, and so are all gradients, so that
// clearing, adding, clipping and stepping are one call each.
typedef struct hy__train_parameters {
  hy_array** arrays;  // what is stepped and saved
  hy_array** leaves;  // what a pass reads: the arrays, or copies of them in the activations' type
  hy__joint_leaf* joint;  // what a pass reads in place of some leaves
  int n_joint;
  char (*names)[160];
  int n, capacity;
  hy_array* flat;  // adapters: the memory of `arrays`
  hy_array* copy;  // the memory of `leaves` where they are copies, else NULL
  hy_array* pass;  // gradients of the leaves by one pass
  hy_array* sum;   // of the arrays by all passes of a step; may be `pass` itself
} hy__train_parameters;

// Makes the model's parameters, or its adapters, leaves; what failed half way is for
// hy__train_parameters_release.
hy_status hy__train_parameters_take(hy__train_parameters* p, hy_tape* tape, hy__transformer* model,
                                    const hy__train_options* options);
void hy__train_parameters_release(hy__train_parameters* p, hy__transformer* model);
// The gradients of a pass gather from 0.
void hy__train_parameters_begin_pass(hy_scope* s, hy__train_parameters* p);
// Adds the gradients of a pass, p->pass or another rank's, to those of the step.
void hy__train_parameters_add_pass(hy_scope* s, hy__train_parameters* p, hy_array* pass,
                                   bool first);
// The sum becomes the gradients of the arrays.
hy_status hy__train_parameters_end_passes(hy__train_parameters* p);
// After the arrays were written.
hy_status hy__train_parameters_refresh(hy__train_parameters* p, hy_tape* tape);

struct hy__trainer {
  hy_stream* stream;
  hy_tape* tape;
  hy__transformer* model;
  hy__train_options options;
  hy__train_parameters parameters;
  hy_optimizer* optimizer;
  hy_array *cos, *sin;  // of one pass
  hy_array* head;       // the head's weight, in floats where the model's is quantised
  int64_t steps;
  // The captured pass of a step, and what it reads and writes.
  hy_graph* graph;
  hy_graph_report report;
  hy_array *ids, *wanted, *scale, *mean;
};

#endif  // HALYARD_MODEL_TRAINER_H_
