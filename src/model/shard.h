// Shards: tensor parallelism, one rank's part of every weight and the collectives that make the
// ranks' passes one model's; and the layers of a pipeline's stage.
//
// q, k and v are split by heads, gate and up by rows, o and down by columns, so that each rank's
// attention and MLP need nothing from the others and end in a sum over all of them; the vocabulary
// is split by rows. Norms are on every rank. Where there are more ranks than key-value heads,
// several have the same one.
#ifndef HALYARD_MODEL_SHARD_H_
#define HALYARD_MODEL_SHARD_H_

#include "halyard/comm.h"
#include "halyard/scope.h"
#include "model/config.h"

typedef struct hy__span {
  int64_t first, size;
} hy__span;

// Zeroed: the whole model is here.
typedef struct hy__shard {
  hy_comm* comm;  // the caller's; NULL: no other rank has a part
  int rank, size;
  hy__config whole;
  hy__span layers;                       // of the whole's; the same on all ranks
  hy__span heads, kv_heads, mlp, vocab;  // what of each layer this rank has
  int64_t loaded_bytes, file_bytes;      // of weights: read by this rank, and in the files
} hy__shard;

// Rank r's part of n among size ranks, as equal as multiples of `unit` allow.
hy__span hy__shard_range(int64_t n, int64_t unit, int rank, int size);
// Splits `config`, the whole model's, which becomes that of the rank's part. HY_UNSUPPORTED says
// why the ranks cannot share it. One rank alone has all of it.
hy_status hy__shard_split(int rank, int size, hy__config* config, hy__shard* shard);
// The same for the ranks of a communicator; NULL: there is one.
hy_status hy__shard_init(hy_comm* comm, hy__config* config, hy__shard* shard);
// Leaves the given layers in `config` and in the shard that was made of it.
void hy__shard_cut(hy__span layers, hy__config* config, hy__shard* shard);
// Whether what comes before the first layer, and behind the last one, is here.
bool hy__shard_is_first(const hy__shard* shard);
bool hy__shard_is_last(const hy__shard* shard);
// Rows of the embedding and of the head that this rank has.
int64_t hy__shard_vocab(const hy__shard* shard, const hy__config* config);

// ---- weights ----

// The part of a tensor in a file that is a rank's.
typedef struct hy__slice {
  int64_t shape[2];        // of the whole
  hy__span rows, columns;  // rows.size 0: another rank has it
} hy__slice;
// Of the weight, bias or LoRA matrix of a name, which has the shape `own` here.
hy_status hy__shard_slice(const hy__shard* shard, const char* name, int ndim, const int64_t* own,
                          hy__slice* slice);
// That part of a contiguous tensor: a view of it, or where columns are left out a copy, which the
// caller frees with hy__mfree; *copy is NULL for a view.
hy_status hy__slice_take(const hy__slice* slice, const hy_tensor* whole, hy_tensor* part,
                         void** copy);

// ---- passes ----

// The sum of every rank's x, in place; x is contiguous and nobody else's.
hy_array* hy__shard_sum(hy_scope* s, const hy__shard* shard, hy_array* x);
// ids (N) of the whole vocabulary -> rows (N) i64 of this rank's embedding, and `elsewhere` (N, 1)
// bool where another rank has them.
hy_array* hy__shard_rows(hy_scope* s, const hy__shard* shard, hy_array* ids, hy_array** elsewhere);
// Logits (N, this rank's) -> (N, V), the same on all ranks.
hy_array* hy__shard_gather(hy_scope* s, const hy__shard* shard, hy_array* logits);
// Logits (N, this rank's) -> ids (N) i64 of the largest of all ranks; -1 where none is a number.
hy_array* hy__shard_argmax(hy_scope* s, const hy__shard* shard, hy_array* logits);

#endif  // HALYARD_MODEL_SHARD_H_
