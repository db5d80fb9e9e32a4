// Conformance cases: calls of an op with data, made from a seed and a number.
//
// A case is the same on every machine: all choices come from splitmix64 of seed, op and index. Its
// tensors are in one image of memory; every byte of it that is no element of an output must survive
// the call, so that writes outside the outputs, into gaps between strided elements or into inputs
// are seen.
#ifndef HALYARD_VERIFY_CASE_H_
#define HALYARD_VERIFY_CASE_H_

#include "halyard/ops.h"

// What is special about a valid case.
#define HY__FLAVOUR_MAP(X)                                                 \
  X(PLAIN, "contiguous")                                                   \
  X(OFFSET, "contiguous, data not aligned to more than an element")        \
  X(TRANSPOSED, "dimensions in another order in memory")                   \
  X(GAPS, "slices: memory between the elements that is not theirs")        \
  X(EXPANDED, "inputs repeated by strides of 0")                           \
  X(NEGATIVE, "negative strides")                                          \
  X(MIXED, "types that promote, strides and values all drawn")             \
  X(EMPTY, "a dimension of size 0 where the op allows it")                 \
  X(TINY, "sizes of 1 and no dimensions")                                  \
  X(SPECIAL, "NaN, infinities, zeros of both signs, values that overflow") \
  X(IN_PLACE, "an output that is an input, where the op's row allows it")  \
  X(LARGE, "sizes beyond a block of any kernel")                           \
  X(SUBNORMAL, "magnitudes from the smallest of the type to 1")            \
  X(HUGE, "magnitudes from 1 to the largest of the type")                  \
  X(MODEL, "one size as real models have it, the others small")

typedef enum hy__flavour {
#define HY_AS_ENUM(name, text) HY__FLAVOUR_##name,
  HY__FLAVOUR_MAP(HY_AS_ENUM)
#undef HY_AS_ENUM
      HY__FLAVOUR_COUNT
} hy__flavour;

const char* hy__flavour_text(hy__flavour flavour);

// How many cases of the flavour MODEL there are of a type: each has another large size.
#define HY__MODEL_SIZES 4
// Sizes up to this are tried in every type, larger ones in one that the seed chooses, and a
// sixteenth of them in the others; with `quick`, in one of 48 ops.
#define HY__EVERY_TYPE 5000

// Which case. The same key always makes the same case.
typedef struct hy__case_key {
  hy_op op;
  uint64_t seed;
  int index;      // 0 .. hy__case_count - 1
  bool quick;     // small shapes, for slow simulators
  int64_t limit;  // no dimension larger than this, for shrinking; 0: no limit
  bool simple;    // contiguous tensors, no special values, for shrinking
  bool narrow;    // no magnitudes that HY_BACKEND_NARROW_RANGE excludes
} hy__case_key;

typedef struct hy__case {
  hy__case_key key;
  const hy_op_info* info;
  hy__flavour flavour;
  hy_call call;  // its tensors point into `image`
  hy_tensor in[HY_MAX_INPUTS], out[HY_MAX_OUTPUTS];
  hy_dtype result[HY_MAX_OUTPUTS];  // what the op computes; an output may have another type
  hy_status expected;               // HY_OK, or the code with which the call must be refused
  bool by_value;  // refused for what a tensor holds: the outputs may have been written to
  char what[64];  // what is wrong with a call that must be refused
  bool mixed;     // types that promote or cast: beyond what a declaration promises
  int64_t terms;  // how many products or values are summed into one element
  double scale;   // size of the largest of them
  bool wide;      // `scale` was given by the generator, not taken from the inputs
  unsigned char* image;
  size_t used;

  // For generators.
  hy_dtype dtype;  // of the first tensor
  uint64_t random;
  int specials;  // how many special values were drawn
  int wrong;     // 0: valid, n: the op's own n-th mistake
  int model;     // which size of a MODEL case is large, 0 .. HY__MODEL_SIZES - 1
  bool missing;  // there is no such case
  bool too_large;
  bool main;  // of the types of a MODEL case the one that has sizes beyond HY__EVERY_TYPE
} hy__case;

hy_status hy__case_create(hy__case** c);
void hy__case_destroy(hy__case* c);
// How many indices an op has: valid ones first, cycling through the dtypes of its row, then
// mistakes.
int hy__case_count(hy_op op);
// HY_NOT_FOUND: this number is a mistake that this op cannot make, or a size it does not have; with
// `quick`, one type of each size and half the types of each layout are all there is. Reuses the
// memory of `c`.
hy_status hy__case_make(hy__case* c, const hy__case_key* key);
// Whether the case is one that a declaration promises: valid, contiguous, one type.
bool hy__case_is_promised(const hy__case* c);
// The call in words, and which outputs are inputs: "out = in[0]". Always terminated.
void hy__case_describe(const hy__case* c, char* buffer, size_t size);

// ---- for generators: random choices ----

uint64_t hy__draw(hy__case* c);
int64_t hy__draw_int(hy__case* c, int64_t low, int64_t high);  // both ends included
double hy__draw_real(hy__case* c, double low, double high);
bool hy__draw_bool(hy__case* c);
// Whether an optional input is there: always at the sizes of models, and between gaps.
bool hy__draw_present(hy__case* c);
hy_dtype hy__draw_dtype(hy__case* c, uint32_t dtypes);
// A size for one dimension: odd ones and 1 often, 0 when the case is about empty tensors.
int64_t hy__draw_size(hy__case* c);
int64_t hy__draw_size_from_1(hy__case* c);
// A size at most `most`, at least 1, whatever the flavour.
int64_t hy__draw_small(hy__case* c, int64_t most);
// In a MODEL case `size` if that is the case's large one, else 1 to 3; in others hy__draw_size or
// hy__draw_small(most).
int64_t hy__draw_sized(hy__case* c, int which, int64_t size);
int64_t hy__draw_small_sized(hy__case* c, int64_t most, int which, int64_t size);
bool hy__is_model(const hy__case* c, int which);
// Says that an op has no more than `sizes` MODEL cases.
void hy__has_sizes_to(hy__case* c, int sizes);
// A shape of low to high dimensions; returns how many. MODEL cases: more than 2^17 elements in one
// dimension, HY_MAX_DIMS dimensions (where high is 4; 7 where it is 3), 5 of them with more than
// 20,000 in one.
int hy__draw_shape(hy__case* c, int low, int high, int64_t* shape);
hy_scalar hy__draw_scalar(hy__case* c, hy_dtype dtype);

// ---- for generators: tensors ----

// Appends an input, strided by the case's flavour and filled with values that suit any op.
hy_tensor* hy__add_input(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape);
hy_tensor* hy__add_contiguous(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape);
// As hy__add_input, but no element is repeated by strides of 0.
hy_tensor* hy__add_unrepeated(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape);
void hy__add_absent(hy__case* c);
// One of the two: NULL where the input is absent.
hy_tensor* hy__add_optional(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape);
// Appends an output, for ops that create from nothing.
hy_tensor* hy__add_output(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape);
// Values of both signs, with ties among them; what hy__add_input fills with.
void hy__fill_any(hy__case* c, hy_tensor* t);
void hy__fill_uniform(hy__case* c, hy_tensor* t, double low, double high);
void hy__fill_ints(hy__case* c, hy_tensor* t, int64_t low, int64_t high);
// Different values along every line, for ops whose answer to a tie is open.
void hy__fill_distinct(hy__case* c, hy_tensor* t);
// Mostly 0 with some 1, or the other way round; special values stay.
void hy__fill_rarely(hy__case* c, hy_tensor* t, bool ones);
void hy__make_positive(hy_tensor* t);  // of floats
// In plain and large cases adds a mean that is large beside the spread, so that a variance computed
// as the difference of two large numbers is seen; not in bf16, which would lose the spread itself.
void hy__add_mean(hy__case* c, hy_tensor* t);
void hy__replace_zeros(hy_tensor* t, double zero);
// The largest magnitude among the finite elements of a floating tensor; 0 where there is none.
double hy__largest(const hy_tensor* t);
// The largest finite number of the type.
double hy__finite_max(hy_dtype dtype);
// Whether the inputs of a SUBNORMAL or HUGE case have magnitudes of their own, element by element;
// else each tensor has one, so that sums of `factors` products stay finite and say something.
bool hy__mixes_magnitudes(const hy__case* c);
// `size`, or the longest line that hy__fill_distinct can fill in this type.
int64_t hy__distinct_limit(hy_dtype dtype, int64_t size);
// Runs the reference of `op` on inputs of this case and appends its n-th output as an input.
void hy__add_result(hy__case* c, hy_op op, const hy_attrs* attrs, int n_in, const hy_tensor* in,
                    int output);

// True when the case is to make the op's own n-th mistake (n from 1), which must be refused with
// `status`.
bool hy__mistake(hy__case* c, int n, hy_status status, const char* what);
// The same for a mistake that only the data shows.
bool hy__mistake_in_data(hy__case* c, int n, hy_status status, const char* what);

// The generators named in the op table.
#define HY_OP(id, name, outputs, inputs, attrs, dtypes, dtype_rule, shape_rule, alias, kernel, \
              split, grad, cases, ...)                                                         \
  void hy__cases_##cases(hy__case* c);
#include "halyard/ops.def"

#endif  // HALYARD_VERIFY_CASE_H_
