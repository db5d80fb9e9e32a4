// Test vendors: mutation of the caller (mutation.h).
#include "mutation.h"

#include <string.h>

enum { MOST = 64 };

static const char *watched, *one_type, *swapped;
static int first, second;
static long n_calls;
static bool differ[MOST][MOST];

void mutation_watch(const char* name, const char* types) {
  watched = name;
  one_type = types;
  swapped = NULL;
  n_calls = 0;
  memset(differ, 0, sizeof differ);
}

long mutation_calls(void) {
  return n_calls;
}

bool mutation_pair(int i, int* a, int* b) {
  for (int k = 0; k < MOST * MOST; k++) {
    if (!differ[k / MOST][k % MOST] || i-- > 0) continue;
    *a = k / MOST;
    *b = k % MOST;
    return true;
  }
  return false;
}

void mutation_swap(const char* name, int a, int b) {
  watched = NULL;
  swapped = name;
  first = a;
  second = b;
}

// Words of one_type are types.
static int type_of(char kind) {
  int word = 0;
  for (const char* c = one_type; *c && *c != kind; c++) word += *c == ' ';
  return word;
}

void mutation_apply(const char* name, argument* args, int n,
                    bool (*same)(const argument* a, const argument* b)) {
  if (watched && strcmp(watched, name) == 0) {
    n_calls++;
    for (int b = 1; b < n && b < MOST; b++)
      for (int a = 0; a < b; a++)
        if (type_of(args[a].kind) == type_of(args[b].kind) && !same(&args[a], &args[b]))
          differ[a][b] = true;
  }
  if (swapped && strcmp(swapped, name) == 0) {
    argument a = args[first], b = args[second];
    args[first] = (argument){a.kind, b.pointer, b.integer, b.real};
    args[second] = (argument){b.kind, a.pointer, a.integer, a.real};
  }
}
