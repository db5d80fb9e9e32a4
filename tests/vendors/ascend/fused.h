// Calls that conformance's shapes do not reach: regular enough for Ascend's fused ops. Each runs on
// the test's device, without a fallback, and by the reference; false, with a line of why, where
// they do not agree or the device refuses.
#ifndef HALYARD_TESTS_VENDORS_FUSED_H_
#define HALYARD_TESTS_VENDORS_FUSED_H_

#include "halyard/halyard.h"

// Three sequences with these many new tokens and keys, in blocks in any order.
bool fused_paged_attention(int64_t block, int64_t size, const int64_t* queries,
                           const int64_t* keys);
bool fused_attention(hy_causal causal);
bool fused_attention_backward(hy_causal causal);
bool fused_quantised_product(hy_dtype dtype, hy_dtype weights, int64_t n_groups);

#endif  // HALYARD_TESTS_VENDORS_FUSED_H_
