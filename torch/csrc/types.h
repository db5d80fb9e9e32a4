// Data types and numbers: PyTorch's as Halyard's.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include "halyard/call.h"

namespace halyard_torch {

// HY_NONE for a type the op table does not have.
inline hy_dtype dtype_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return HY_F32;
    case c10::ScalarType::Double: return HY_F64;
    case c10::ScalarType::Half: return HY_F16;
    case c10::ScalarType::BFloat16: return HY_BF16;
    case c10::ScalarType::Char: return HY_I8;
    case c10::ScalarType::Short: return HY_I16;
    case c10::ScalarType::Int: return HY_I32;
    case c10::ScalarType::Long: return HY_I64;
    case c10::ScalarType::Byte: return HY_U8;
    case c10::ScalarType::Bool: return HY_BOOL;
    case c10::ScalarType::Float8_e4m3fn: return HY_F8E4M3;
    case c10::ScalarType::Float8_e5m2: return HY_F8E5M2;
    default: return HY_NONE;
  }
}

inline c10::ScalarType type_of(hy_dtype dtype) {
  switch (dtype) {
    case HY_F32: return c10::ScalarType::Float;
    case HY_F64: return c10::ScalarType::Double;
    case HY_F16: return c10::ScalarType::Half;
    case HY_BF16: return c10::ScalarType::BFloat16;
    case HY_I8: return c10::ScalarType::Char;
    case HY_I16: return c10::ScalarType::Short;
    case HY_I32: return c10::ScalarType::Int;
    case HY_I64: return c10::ScalarType::Long;
    case HY_U8: return c10::ScalarType::Byte;
    case HY_BOOL: return c10::ScalarType::Bool;
    case HY_F8E4M3: return c10::ScalarType::Float8_e4m3fn;
    case HY_F8E5M2: return c10::ScalarType::Float8_e5m2;
    default: return c10::ScalarType::Undefined;
  }
}

}  // namespace halyard_torch
