// Arrays and autograd: arrays own their memory, and a tape records what is computed with them.
//
// A hy_array is reference-counted: a function that returns one through a hy_array** returns a
// reference that the caller must release; an array passed in remains the caller's. On failure
// nothing is returned (the pointers are set to NULL) and nothing leaks.
//
// Threads: reference counts are atomic. A tape, its stream and the arrays recorded on it are used,
// and released, by one thread at a time. Leaves (weights) may be read by several tapes at once, but
// only one tape at a time may accumulate their gradients.
#ifndef HALYARD_ARRAY_H_
#define HALYARD_ARRAY_H_

#include "halyard/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hy_array hy_array;
typedef struct hy_tape hy_tape;

// ---- Making and reading arrays ----

// Contiguous, on the stream's device. `shape` may be NULL when ndim is 0.
HY_API hy_status hy_array_empty(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                                const int64_t* shape);
HY_API hy_status hy_array_zeros(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                                const int64_t* shape);
// Copies contiguous host data; `data` may be reused on return, as after hy_upload.
HY_API hy_status hy_array_from_host(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                                    const int64_t* shape, const void* data);
// A 0-dimensional array with this value.
HY_API hy_status hy_array_scalar(hy_stream* stream, hy_array** out, hy_dtype dtype, double value);
// Every element `value`.
HY_API hy_status hy_array_full(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                               const int64_t* shape, hy_scalar value);
// start, start + step, ...: n of them, 1-dimensional.
HY_API hy_status hy_array_range(hy_stream* stream, hy_array** out, hy_dtype dtype, int64_t n,
                                hy_scalar start, hy_scalar step);
// Random numbers of [low, high), whole ones for integer types; the same for the same seed on every
// device, up to rounding.
HY_API hy_status hy_array_rand(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                               const int64_t* shape, uint64_t seed, double low, double high);
// Normally distributed.
HY_API hy_status hy_array_randn(hy_stream* stream, hy_array** out, hy_dtype dtype, int ndim,
                                const int64_t* shape, uint64_t seed, double mean, double deviation);
// Wraps device memory that the caller allocated. `release` (may be NULL) is called once with
// `context` when the last array over it is gone; on failure it is not called and the memory remains
// the caller's.
HY_API hy_status hy_array_wrap(hy_stream* stream, hy_array** out, const hy_tensor* tensor,
                               void (*release)(void* context), void* context);

HY_API hy_array* hy_array_retain(hy_array* array);  // returns `array`; NULL is fine
HY_API void hy_array_release(hy_array* array);      // NULL is fine

// The view of its memory; valid as long as the array. Code that writes through it must call
// hy_array_touch.
HY_API const hy_tensor* hy_array_tensor(const hy_array* array);
HY_API hy_device* hy_array_device(const hy_array* array);
// Marks the memory as modified, so that a backward that needs the old values fails instead of using
// the new ones.
HY_API void hy_array_touch(hy_array* array);

// A contiguous copy on the stream's device, of an array on another one, directly where the devices
// can and through the host where not; waits for both. An array of the same device is shared, not
// copied. Without history on a tape.
HY_API hy_status hy_array_to(hy_stream* stream, hy_array** out, hy_array* array);
// The stream is of the array's device, and is synchronised. `bytes` must be exactly the size of the
// elements, row-major.
HY_API hy_status hy_array_to_host(hy_stream* stream, const hy_array* array, void* data,
                                  size_t bytes);
// The value of a one-element array of any type except packed ones. Synchronises the stream.
HY_API hy_status hy_array_item(hy_stream* stream, const hy_array* array, double* value);

// ---- Files ----

// Writes arrays to one file in the safetensors format, whole or not at all. Of any type but packed
// ones; the stream is of their device.
HY_API hy_status hy_arrays_save(hy_stream* stream, const char* path, const char* const* names,
                                hy_array* const* arrays, int n);
// Called for each array of a file, in the order of their names; the array is the visitor's only
// until it returns (hy_array_retain keeps it). Another status than HY_OK ends the reading with it.
typedef hy_status (*hy_array_visitor)(void* context, const char* name, hy_array* array);
// Reads a safetensors file onto the stream's device.
HY_API hy_status hy_arrays_load(hy_stream* stream, const char* path, hy_array_visitor visit,
                                void* context);

// ---- Gradients of arrays ----

// Makes the array a leaf, whose gradient hy_backward accumulates; only f32, f64, f16 and bf16 have
// gradients. False discards the gradient; it is an error for an array that the tape computed
// (detach it instead).
HY_API hy_status hy_array_set_requires_grad(hy_array* array, bool requires_grad);
HY_API bool hy_array_requires_grad(const hy_array* array);
// Keeps the gradient of an array that the tape computed; leaves keep theirs anyway.
HY_API hy_status hy_array_retain_grad(hy_array* array);
// Borrowed; NULL if there is none yet. Has the array's shape and type.
HY_API hy_array* hy_array_grad(const hy_array* array);
// Replaces the gradient of an array that requires one; takes a reference. `grad` is contiguous and
// has the array's shape and type; NULL discards the gradient.
HY_API hy_status hy_array_set_grad(hy_array* array, hy_array* grad);
HY_API void hy_array_zero_grad(hy_array* array);  // frees the gradient
// The same memory without history on the tape.
HY_API hy_status hy_array_detach(hy_array** out, hy_array* array);

// ---- The tape ----

// Records on `stream`, which the caller owns and which must outlive the tape. Recording is on.
HY_API hy_status hy_tape_create(hy_stream* stream, hy_tape** tape);
// Discards what was recorded: arrays stay valid, their history does not. NULL is fine.
HY_API void hy_tape_destroy(hy_tape* tape);
HY_API hy_stream* hy_tape_stream(const hy_tape* tape);
// Returns the old setting. While off, results have no history and nothing is saved for a backward.
HY_API bool hy_tape_set_recording(hy_tape* tape, bool recording);
// The number of live nodes: recorded, and reachable from a live array.
HY_API int64_t hy_tape_size(const hy_tape* tape);

// Computes the gradient of `array` with respect to every leaf it depends on and adds it to the
// leaf's. `seed` is the gradient of `array`; NULL means 1, for an array of one element. Gradients
// are computed by the same ops on the tape's stream. The history of `array` is consumed and its
// memory freed along the way: a second backward through it is an error (so second derivatives are
// not supported). On failure the gradients of leaves may hold a partial sum.
HY_API hy_status hy_backward(hy_tape* tape, hy_array* array, hy_array* seed);

// A part of a model as a function: reads `inputs` and computes `outputs` with hy_array functions on
// `tape`. It is called again in the backward with equal inputs and must compute the same; random
// ops do, since their seed is an attribute.
typedef hy_status (*hy_checkpoint_function)(hy_tape* tape, void* context, hy_array* const* inputs,
                                            int n_inputs, hy_array** outputs, int n_outputs);
// Gradient checkpointing: runs `function`, saves only its inputs, and runs it again in the
// backward. Leaves that it uses besides its inputs get gradients too; other arrays with history
// must be among the inputs. `context` must live until `release` (may be NULL) is called with it,
// exactly once: when the backward is done, when nothing needs it any more, or when this call fails.
// At most HY_MAX_OUTPUTS outputs and HY_MAX_INPUTS inputs.
HY_API hy_status hy_checkpoint(hy_tape* tape, hy_checkpoint_function function, void* context,
                               void (*release)(void* context), hy_array* const* inputs,
                               int n_inputs, hy_array** outputs, int n_outputs);

// The mean (or sum) of the cross-entropy of linear(x, weight) and `target`, over targets other than
// ignore_index, without storing all logits: rows of x are processed in chunks of `chunk_rows`, and
// while recording the gradients are computed together with the loss. x [n, k],
// weight [classes, k], target i64 [n], loss f32 or f64, 0-dimensional. With no target left, a mean
// is NaN, as in PyTorch.
HY_API hy_status hy_array_linear_cross_entropy(hy_tape* tape, hy_array** loss, hy_array* x,
                                               hy_array* weight, hy_array* target,
                                               int64_t ignore_index, hy_reduction reduction,
                                               int64_t chunk_rows);

// out[i] = ys[i] + scaling * low_i bs[i]^T for up to HY_MAX_OUTPUTS layers: low-rank updates of
// layers that read one x. ys[i] [rows, outputs], bs[i] [outputs, rank]; low [rows, all ranks] has
// the columns of one layer after the other, x times the layers' first factors.
HY_API hy_status hy_array_add_low_rank(hy_tape* tape, hy_array** out, hy_array* const* ys, int n,
                                       hy_array* low, hy_array* const* bs, double scaling);

// silu(gate) * up, element by element. Keeps `gate` and `up` for the backward, and not silu(gate).
HY_API hy_status hy_array_silu_mul(hy_tape* tape, hy_array** out, hy_array* gate, hy_array* up);

// ---- Views: no copies; they share memory and gradient. A NULL tape records nothing. ----

HY_API hy_status hy_array_view(hy_tape* tape, hy_array** out, hy_array* x, int ndim,
                               const int64_t* shape);  // one -1 allowed
HY_API hy_status hy_array_transpose(hy_tape* tape, hy_array** out, hy_array* x, int dim0, int dim1);
HY_API hy_status hy_array_permute(hy_tape* tape, hy_array** out, hy_array* x, const int* dims);
HY_API hy_status hy_array_squeeze(hy_tape* tape, hy_array** out, hy_array* x, int dim);
HY_API hy_status hy_array_unsqueeze(hy_tape* tape, hy_array** out, hy_array* x, int dim);
HY_API hy_status hy_array_expand(hy_tape* tape, hy_array** out, hy_array* x, int ndim,
                                 const int64_t* shape);  // -1 keeps a size
HY_API hy_status hy_array_slice(hy_tape* tape, hy_array** out, hy_array* x, int dim, int64_t start,
                                int64_t stop, int64_t step);
HY_API hy_status hy_array_select(hy_tape* tape, hy_array** out, hy_array* x, int dim,
                                 int64_t index);
// A dimension in reverse order.
HY_API hy_status hy_array_flip(hy_tape* tape, hy_array** out, hy_array* x, int dim);
// The same array if it is contiguous already, otherwise a copy.
HY_API hy_status hy_array_contiguous(hy_tape* tape, hy_array** out, hy_array* x);

// ---- Ops on arrays ----

// Runs any op of the table: creates the outputs, and records the call if an input requires a
// gradient. `inputs` and `outputs` are in the order of the op's row; absent inputs are NULL, and a
// NULL in `outputs` means that the result is not needed. Ops without inputs (fill, arange, random)
// have no shape to infer from: they write to an existing array.
HY_API hy_status hy_array_apply(hy_tape* tape, hy_op op, hy_array* const* inputs, int n_inputs,
                                const hy_attrs* attrs, hy_array** const* outputs, int n_outputs);
// Runs an op into existing arrays, in place where the op's row allows it. Never recorded: while the
// tape is recording, none of the arrays may require a gradient.
HY_API hy_status hy_array_apply_into(hy_tape* tape, hy_op op, hy_array* const* inputs, int n_inputs,
                                     const hy_attrs* attrs, hy_array* const* outputs,
                                     int n_outputs);

// hy_array_add(tape, &out, a, b, hy_int(1)) and so on: hy_array_apply with typed arguments.
#define HY_OUT(name) , hy_array** name
#define HY_OUT_OPT(name) , hy_array** name
#define HY_IN(name) , hy_array* name
#define HY_IN_OPT(name) , hy_array* name
#define HY_IN_LIST(name) , hy_array *const *name, int n_##name
#define HY_AS_PARAMETER(kind, type, name) , type name
#define HY_OP(id, name, outputs, inputs, attrs, ...) \
  HY_API hy_status hy_array_##name(                  \
      hy_tape* tape outputs inputs HY_ATTRS_##attrs(HY_AS_PARAMETER, attrs));
#include "halyard/ops.def"
#undef HY_AS_PARAMETER

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_ARRAY_H_
