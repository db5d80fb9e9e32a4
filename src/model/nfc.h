// Unicode normalization form C of UTF-8 text, and making text UTF-8 in the first place.
#ifndef HALYARD_MODEL_NFC_H_
#define HALYARD_MODEL_NFC_H_

#include <stddef.h>
#include <stdint.h>

#include "halyard/status.h"

// A new terminated buffer, freed with hy__mfree.

// Bytes that are no UTF-8 become U+FFFD, one for each maximal part of a character, as Python's
// "replace" does.
hy_status hy__utf8_repair(const char* text, size_t length, char** out, size_t* out_length);
// `text` is UTF-8.
hy_status hy__nfc(const char* text, size_t length, char** out, size_t* out_length);

#endif  // HALYARD_MODEL_NFC_H_
