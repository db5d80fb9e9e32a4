// Optimizers over arrays: AdamW, SGD, gradient clipping, and a learning-rate schedule.
//
// An optimizer is used by one thread at a time, the one that uses its stream.
#ifndef HALYARD_OPTIM_H_
#define HALYARD_OPTIM_H_

#include "halyard/array.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hy_optimizer hy_optimizer;

// lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight decay 0.01: PyTorch's.
HY_API hy_attrs_adamw hy_adamw_defaults(void);
// lr 1e-3, nothing else.
HY_API hy_attrs_sgd hy_sgd_defaults(void);

// An optimizer for these leaves, in this order; holds a reference to each. Its state is on the
// parameters' device, in f32 (f64 for f64 parameters), and starts at zero. The options `step` and
// `first` are ignored.
HY_API hy_status hy_adamw_create(hy_stream* stream, hy_array* const* parameters, int n,
                                 const hy_attrs_adamw* options, hy_optimizer** optimizer);
HY_API hy_status hy_sgd_create(hy_stream* stream, hy_array* const* parameters, int n,
                               const hy_attrs_sgd* options, hy_optimizer** optimizer);
HY_API void hy_optimizer_destroy(hy_optimizer* optimizer);  // NULL is fine

// Updates every parameter that has a gradient in place, with one fused op each; gradients are kept.
// Parameters in a row that are consecutive in one array (hy_array_slice), and whose
// gradients are too, are updated by one op together. After a failure the parameters before the
// failing one have been updated.
HY_API hy_status hy_optimizer_step(hy_optimizer* optimizer);
HY_API void hy_optimizer_zero_grad(hy_optimizer* optimizer);  // frees the gradients
HY_API void hy_optimizer_set_lr(hy_optimizer* optimizer, double lr);
HY_API double hy_optimizer_lr(const hy_optimizer* optimizer);

// ---- State, so that training can be resumed ----

// Called with each array of the state: "steps" (i64, one count per parameter), and of parameter 0
// "0.m" and "0.v" (AdamW) or "0.velocity" (SGD with momentum), and so on. Both are borrowed
// for the call; a failure stops the export and is returned.
typedef hy_status (*hy_state_visitor)(void* context, const char* name, hy_array* array);
HY_API hy_status hy_optimizer_export(hy_optimizer* optimizer, hy_state_visitor visit,
                                     void* context);
// Copies an exported array back; shape and type must be those of the export.
HY_API hy_status hy_optimizer_import(hy_optimizer* optimizer, const char* name, hy_array* array);

// ---- Around the step ----

// Scales the gradients so that their total norm is at most `max_norm`; parameters without a
// gradient are ignored. `norm` receives the norm before scaling. If it is not finite (see isfinite)
// the gradients are left unchanged: skip the step. Synchronises the stream.
HY_API hy_status hy_clip_grad_norm(hy_stream* stream, hy_array* const* parameters, int n,
                                   double max_norm, double* norm);

// Linear from 0 to `peak` over `warmup` steps, then half a cosine down to `floor` at `total`.
HY_API double hy_schedule_cosine(int64_t step, int64_t warmup, int64_t total, double peak,
                                 double floor);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_OPTIM_H_
