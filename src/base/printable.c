// Terminal escapes taken out of texts.
#include "base/printable.h"

void hy__make_printable(char* text) {
  for (unsigned char* c = (unsigned char*)text; *c; c++) {
    if ((*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7f) *c = '?';
    // U+0080 to U+009F in UTF-8; some terminals take the bytes alone, as no UTF-8 has them.
    if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) c[0] = c[1] = '?';
  }
}

void hy__make_array_printable(char* text, size_t size) {
  text[size - 1] = 0;
  hy__make_printable(text);
}
