"""Known gaps of the op_db sweep: op -> why. A listed op that passes all its cases is an error, so the list stays true."""

SPARSE = "tensors of sparse layouts cannot be made on the device"
TIES = "which of equal elements comes first is not defined where `stable` is not asked for"
STATISTICS = "the statistics of half types are f32, as on GPUs, not the half type, as on the cpu"

GAPS = {
    "sparse.sampled_addmm": SPARSE,
    "sparse.mm.reduce": SPARSE,
    "to_sparse": SPARSE,
    "topk": TIES,
    "sort": TIES,
    "argsort": TIES,
    "native_layer_norm": STATISTICS,
    "native_batch_norm": STATISTICS,
    "_native_batch_norm_legit": STATISTICS,
    "tensor_split": "PyTorch wants its tensor of sections on the host, and the harness moves all tensors to the device",
    "_unsafe_masked_index_put_accumulate": "half types round once, after all terms, and at every term on the cpu",
}

# Malformed inputs that are not refused as on the cpu: op -> why.
ERROR_GAPS = {
    "narrow_copy": "a dimension out of range is an IndexError here; the cpu's own kernel asserts",
}
