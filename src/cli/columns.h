// Columns of a terminal that characters take (wcwidth, without a locale).
#ifndef HALYARD_CLI_COLUMNS_H_
#define HALYARD_CLI_COLUMNS_H_

#include <stddef.h>

// Of the UTF-8 character that begins a text of `length` bytes, at least 1: two for East Asian
// scripts and emoji, none for marks that combine with what stands before them. A byte that begins
// none takes one. `size` receives its bytes.
int columns_of(const char* text, size_t length, size_t* size);

#endif  // HALYARD_CLI_COLUMNS_H_
