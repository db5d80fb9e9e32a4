// The library's version, stated here and nowhere else: CMake and pkg-config read it from this file.
//
// Compile time only: what a program was built with. hy_version() says what it runs with.
#ifndef HALYARD_VERSION_H_
#define HALYARD_VERSION_H_

#define HY_VERSION_MAJOR 0
#define HY_VERSION_MINOR 1
#define HY_VERSION_PATCH 0

#define HY_VERSION_AS_TEXT(major, minor, patch) #major "." #minor "." #patch
#define HY_VERSION_EXPAND(major, minor, patch) HY_VERSION_AS_TEXT(major, minor, patch)
#define HY_VERSION_STRING HY_VERSION_EXPAND(HY_VERSION_MAJOR, HY_VERSION_MINOR, HY_VERSION_PATCH)

#endif  // HALYARD_VERSION_H_
