// PersistentKernel: a decoding or prefill step of a model, compiled to one launch.
//
// The step is captured as a graph, its passes are run, and it stays resident: on a device that
// captures graphs a step is one launch of the device's own; on the cpu a team of threads that
// belongs to the kernel takes the whole step, and the next ones, without returning to the caller in
// between. Tokens, positions and sampling stay on the device; the caller waits once for as many
// steps as it asks for. A device that captures but cannot choose tokens, as echo, runs the forward
// pass in one launch, and the cpu chooses behind it: a wait a step.
//
// Backends are tried in order. One that is missing, or cannot run the step, leaves its reason and
// the next is tried.
//
// Several ranks share the model (tensor parallel): processes that mpirun started, or the ranks of a
// communicator of the caller's. The step's collectives are nodes of its graph (graph.h). Every rank
// makes the same calls with the same arguments, and gets the same tokens. A device that captures
// graphs of its own runs no such step; the cpu does, and plugins whose graphs are replayed by
// calls.
//
// Threads: a kernel may be used by one thread at a time.
#ifndef HALYARD_PERSISTENT_H_
#define HALYARD_PERSISTENT_H_

#include "halyard/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hy_persistent_kernel hy_persistent_kernel;

typedef enum hy_persistent_mode { HY_PERSISTENT_DECODE, HY_PERSISTENT_PREFILL } hy_persistent_mode;

typedef struct hy_persistent_options {
  hy_persistent_mode mode;
  const char* backend;                   // a selector, such as "cuda:0"; NULL: the default device
  const char* const* fallback_backends;  // tried after it
  int32_t n_fallback_backends;
  int32_t world_size, rank;  // 0 and 0, or 1 and 0: a step is on one device; else see `comm`
  int64_t tokens;            // PREFILL: of every prompt
  int64_t positions;         // DECODE: of the longest context
  hy_weight_format weights;
  hy_generate_options sampling;  // max_tokens and stops do not apply
  // Of world_size ranks, this one being `rank`; on the device that the step is for, and the
  // caller's, to be destroyed after the kernel. NULL: the launcher's world (hy_comm_world), with a
  // device for each process of a machine (hy_comm_world_device).
  struct hy_comm* comm;
} hy_persistent_options;

// DECODE of 4096 positions on the default device, sampling as hy_generate_defaults.
HY_API void hy_persistent_defaults(hy_persistent_options* options);

// Where no backend will do, the message has every reason. All ranks of a world make theirs: a
// backend serves where it serves every one of them, and where their steps have not the same
// collectives, as those of two models, it is HY_INVALID_ARGUMENT on each.
HY_API hy_status hy_persistent_kernel_create(const char* model_folder,
                                             const hy_persistent_options* options,
                                             hy_persistent_kernel** kernel);
HY_API void hy_persistent_kernel_destroy(hy_persistent_kernel* kernel);  // NULL is fine

// The selector of the device that it runs on.
HY_API const char* hy_persistent_kernel_device(const hy_persistent_kernel* kernel);
// Why backends before it were passed over, a line each; "" where none was.
HY_API const char* hy_persistent_kernel_reasons(const hy_persistent_kernel* kernel);

// DECODE: a new sequence. The prompt is run, all but its last token, which the first step takes.
HY_API hy_status hy_persistent_kernel_begin(hy_persistent_kernel* kernel, const int32_t* prompt,
                                            int64_t n);
// DECODE: runs `steps` steps and gives the tokens they choose. Waits once. A failure on one rank
// ends the others': at once where the communicator is the kernel's, which has failed then, else by
// its time limit or the caller's hy_comm_abort.
HY_API hy_status hy_persistent_kernel_decode(hy_persistent_kernel* kernel, int64_t steps,
                                             int32_t* tokens);
// PREFILL: runs a prompt of options.tokens and gives the token that follows.
HY_API hy_status hy_persistent_kernel_prefill(hy_persistent_kernel* kernel, const int32_t* prompt,
                                              int32_t* token);

typedef struct hy_persistent_stats {
  int64_t steps;     // since it was made
  int64_t launches;  // handed to the device: one a step; on the cpu one for all steps asked for
  int64_t waits;     // of the caller, and of steps whose tokens the cpu chooses
  int64_t nodes;     // of a step
  uint64_t bytes;    // that a step reads and writes, but for past keys and values
  uint64_t memory;   // planned for what is between the nodes
} hy_persistent_stats;
HY_API void hy_persistent_kernel_stats(const hy_persistent_kernel* kernel,
                                       hy_persistent_stats* stats);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_PERSISTENT_H_
