// Texts of others (plugins, drivers, files) made fit for a terminal: what would move the cursor,
// set colours or write the clipboard becomes a question mark.
#ifndef HALYARD_BASE_PRINTABLE_H_
#define HALYARD_BASE_PRINTABLE_H_

#include <stddef.h>

// In place: control characters, those of U+0080 to U+009F too, except for line breaks and tabs.
void hy__make_printable(char* text);
// The same of an array that may lack its terminator.
void hy__make_array_printable(char* text, size_t size);

#endif  // HALYARD_BASE_PRINTABLE_H_
