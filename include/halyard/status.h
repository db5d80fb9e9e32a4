// Status codes, which every function that can fail returns, and the message of the last failure.
#ifndef HALYARD_STATUS_H_
#define HALYARD_STATUS_H_

#ifdef __cplusplus
extern "C" {
#endif

#if defined(HALYARD_BUILDING_LIBRARY)
#define HY_API __attribute__((visibility("default")))
#else
#define HY_API
#endif

// Name, value, text. Values are part of the plugin ABI: append only.
#define HY_STATUS_MAP(X)                                                  \
  X(OK, 0, "success")                                                     \
  X(INVALID_ARGUMENT, 1, "an argument is not valid")                      \
  X(SHAPE, 2, "shapes do not fit together")                               \
  X(DTYPE, 3, "a data type does not fit the operation")                   \
  X(LAYOUT, 4, "a memory layout does not fit the operation")              \
  X(OVERLAP, 5, "an output overlaps memory it must not overlap")          \
  X(INDEX, 6, "an index is out of range")                                 \
  X(OUT_OF_MEMORY, 7, "out of memory")                                    \
  X(NOT_FOUND, 8, "no such name")                                         \
  X(UNAVAILABLE, 9, "the device or backend is not available")             \
  X(UNSUPPORTED, 10, "not supported here")                                \
  X(FALLBACK_REFUSED, 11, "strict mode forbids a fallback to the cpu")    \
  X(NOT_READY, 12, "still running")                                       \
  X(DEVICE_FAILED, 13, "the device reported a failure")                   \
  X(IO, 14, "a file could not be read or written")                        \
  X(FORMAT, 15, "a file is not in the expected format")                   \
  X(ABI_MISMATCH, 16, "a plugin speaks another version of the interface") \
  X(INTERNAL, 17, "a defect in the library")                              \
  X(CANCELLED, 18, "the caller cancelled it")

typedef enum hy_status {
#define HY_AS_ENUM(name, value, text) HY_##name = value,
  HY_STATUS_MAP(HY_AS_ENUM)
#undef HY_AS_ENUM
} hy_status;

// "SHAPE", and "shapes do not fit together". Never NULL, for any value.
HY_API const char* hy_status_name(hy_status status);
HY_API const char* hy_status_text(hy_status status);

// What went wrong in the calling thread's last failed call: what, which op, which shapes, which
// device, what to do. Empty before the first failure. Valid until the same thread's next failing
// call.
HY_API const char* hy_last_error(void);

// Sets the calling thread's message and returns `status`, so that a failure is one line:
//   return hy_fail(HY_SHAPE, "mm: a is [%d, %d]", m, k);
HY_API hy_status hy_fail(hy_status status, const char* format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

// Tells the static analyzer what it cannot see: hy_fail returns the status it was given.
#ifdef __clang_analyzer__
#define hy_fail(status, ...) (hy_fail(status, __VA_ARGS__), (status))
#endif

// Returns the failure of `expression` to the caller.
#define HY_TRY(expression)                            \
  do {                                                \
    hy_status hy_try_status = (expression);           \
    if (hy_try_status != HY_OK) return hy_try_status; \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_STATUS_H_
