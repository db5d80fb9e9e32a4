// A lying backend: it declares every op, computes by the reference, and breaks the result in
// exactly one way. Conformance must see every one of them.
//
// As a plugin, HALYARD_LIE says which: "mm:axis:1:0:100" and so on, in the words of liar_describe.
#ifndef HALYARD_TESTS_LIAR_H_
#define HALYARD_TESTS_LIAR_H_

#include "halyard/plugin.h"

// Each kind with what `a` and `b` of a lie mean. "Wrong" is one element, the last of output 0.
#define LIE_MAP(X)                                                                               \
  X(NOTHING, "nothing")         /* success without computing */                                  \
  X(REFUSES, "refuses")         /* supports() says yes to hy_place, no to hy_run */              \
  X(LAST, "last")               /* the last element of output a */                               \
  X(FIRST, "first")             /* the first element of output a */                              \
  X(DTYPE, "dtype")             /* wrong where the first tensor has type a */                    \
  X(NUMEL, "numel")             /* wrong where a tensor has more than a elements */              \
  X(NDIM, "ndim")               /* wrong where a tensor has more than a dimensions */            \
  X(LONG, "long")               /* wrong where a dimension is beyond a */                        \
  X(AXIS, "axis")               /* wrong where the b-th last dimension of input a is beyond c */ \
  X(INPUTS, "inputs")           /* wrong where there are more than a inputs */                   \
  X(ONE_ROW, "one_row")         /* wrong where x is one row and out beyond a */                  \
  X(FIXED, "fixed")             /* attribute a is taken to be value b of its type */             \
  X(CAPPED, "capped")           /* attribute a is taken to be at most b */                       \
  X(ZERO_SIGN, "zero_sign")     /* -0 becomes 0 */                                               \
  X(FLUSHED, "flushed")         /* subnormal results become 0 */                                 \
  X(SMALL_LOST, "small_lost")   /* results below 2^-20 become 0 */                               \
  X(LARGE_WRONG, "large_wrong") /* finite results from 2^(3/4 of the exponents) up */            \
  X(NAN_LOST, "nan_lost")       /* NaN becomes 1 */                                              \
  X(INFINITY_LOST, "infinity_lost")   /* infinities become 1 */                                  \
  X(THROUGH_DOUBLE, "through_double") /* 64-bit integers lose what a double does not hold */     \
  X(LARGE_INT, "large_int")           /* integers beyond 2^30 */                                 \
  X(CONTIGUOUS, "contiguous")         /* input a is read as if it were contiguous */             \
  X(IN_PLACE, "in_place")             /* wrong where an output is an input */                    \
  X(NO_OUTPUT, "no_output")           /* wrong where the optional output a is absent */          \
  X(OUTPUT, "output")                 /* wrong where the optional output a is present */         \
  X(NO_INPUT, "no_input")             /* wrong where the optional input a is absent */           \
  X(INPUT, "input")                   /* wrong where the optional input a is present */          \
  X(FAR, "far")                       /* elements whose input is beyond a */                     \
  X(NEAR, "near")                     /* elements whose input is below 2^-a */                   \
  X(NAIVE_VARIANCE, "naive_variance") /* what E[x^2] - E[x]^2 in the arithmetic loses */

typedef enum lie_kind {
  LIE_NONE,
#define LIE_AS_ENUM(name, text) LIE_##name,
  LIE_MAP(LIE_AS_ENUM)
#undef LIE_AS_ENUM
} lie_kind;

typedef struct lie {
  hy_op op;
  lie_kind kind;
  int64_t a, b, c;
} lie;

// What came of the calls since liar_tell.
typedef struct liar_record {
  int calls, told;  // of these, results that are no longer the reference's
  int meant;        // an attribute differed from what it was taken to be
  int refused;      // and the reference refuses the call with that
} liar_record;

// The backend, as a plugin's query gives it.
hy_status halyard_backend_query(uint32_t abi, const hy_host* host, const hy_backend** backend);

void liar_tell(const lie* lie);  // NULL: the truth
liar_record liar_recorded(void);
// Whether the lie can be told of this call, by all but its values: false is certain.
bool liar_applies(const lie* lie, const hy_call* call);
// The values of a computed call that lies are about, as bits of their kinds.
uint64_t liar_values(const hy_call* call);
const char* liar_describe(const lie* lie, char* buffer, size_t size);

#endif  // HALYARD_TESTS_LIAR_H_
