// Test vendors: calls with fault injection, misuse that is loud, and the registry of live handles.
#include "vendor.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MISUSE_EXIT = 86, NAMES = 1024 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // guards all below
static bool started;
static FILE* log_file;
static long calls, fail_call, misuses;
static int fail_code;
static bool fail_always;
static char last_misuse[512];
static struct {
  const char* name;
  long count, failed;
} names[NAMES];
static const char* fail_name;

// ---- calls ----

static void at_end(void) {
  if (misuses == 0) return;
  fprintf(stderr, "vendor: %ld calls were misuse; the last: %s\n", misuses, last_misuse);
  fflush(stderr);
  _exit(MISUSE_EXIT);
}

static void start(void) {
  started = true;
  atexit(at_end);
  const char* fault = getenv("HALYARD_VENDOR_FAIL");
  if (fault) {
    char* rest;
    fail_call = strtol(fault, &rest, 10);
    if (*rest == ':') fail_code = (int)strtol(rest + 1, &rest, 10);
    fail_always = strcmp(rest, ":always") == 0;
  }
  const char* path = getenv("HALYARD_VENDOR_LOG");
  if (path) log_file = fopen(path, "we");
}

static int note(const char* name) {
  int at = 0;
  while (at < NAMES - 1 && names[at].name && strcmp(names[at].name, name) != 0) at++;
  names[at].name = name;
  names[at].count++;
  return at;
}

int vendor_enter(const char* name) {
  pthread_mutex_lock(&mutex);
  if (!started) start();
  calls++;
  int at = note(name);
  if (log_file) fprintf(log_file, "%s\n", name);
  bool fails = fail_call > 0 && (calls == fail_call || (fail_always && calls > fail_call));
  if (fail_name && strcmp(fail_name, name) == 0) {
    fails = true;
    fail_name = NULL;
  }
  int code = fails ? fail_code : 0;
  names[at].failed += fails;
  pthread_mutex_unlock(&mutex);
  return code;
}

long vendor_calls(void) {
  pthread_mutex_lock(&mutex);
  long n = calls;
  pthread_mutex_unlock(&mutex);
  return n;
}

long vendor_calls_of(const char* name) {
  long n = 0;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < NAMES && names[i].name; i++)
    if (strcmp(names[i].name, name) == 0) n = names[i].count;
  pthread_mutex_unlock(&mutex);
  return n;
}

const char* vendor_entry(int i, long* count, long* failed) {
  pthread_mutex_lock(&mutex);
  const char* name = i < NAMES ? names[i].name : NULL;
  *count = name ? names[i].count : 0;
  *failed = name ? names[i].failed : 0;
  pthread_mutex_unlock(&mutex);
  return name;
}

void vendor_fail_call(const char* name, int code) {
  pthread_mutex_lock(&mutex);
  fail_name = name;
  fail_code = code;
  pthread_mutex_unlock(&mutex);
}

void vendor_fail_at(long n, int code, bool always) {
  pthread_mutex_lock(&mutex);
  if (!started) start();
  fail_call = n > 0 ? calls + n : 0;
  fail_code = code;
  fail_always = always;
  pthread_mutex_unlock(&mutex);
}

// ---- misuse ----

void vendor_misuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&mutex);
  if (!started) start();
  misuses++;
  vsnprintf(last_misuse, sizeof last_misuse, format, arguments);
  fprintf(stderr, "vendor: misuse: %s\n", last_misuse);
  pthread_mutex_unlock(&mutex);
  va_end(arguments);
}

long vendor_misuses(void) {
  pthread_mutex_lock(&mutex);
  long n = misuses;
  pthread_mutex_unlock(&mutex);
  return n;
}

const char* vendor_last_misuse(void) {
  return last_misuse;
}

void vendor_forgive(void) {
  pthread_mutex_lock(&mutex);
  misuses = 0;
  last_misuse[0] = 0;
  pthread_mutex_unlock(&mutex);
}

// ---- options ----

static long number(const char* variable, long otherwise, long least, long most) {
  const char* text = getenv(variable);
  if (!text) return otherwise;
  long value = strtol(text, NULL, 10);
  return value < least ? least : value > most ? most : value;
}

int vendor_devices(void) {
  return (int)number("HALYARD_VENDOR_DEVICES", 1, 0, 8);
}

const char* vendor_chip(const char* otherwise) {
  const char* chip = getenv("HALYARD_VENDOR_CHIP");
  return chip && *chip ? chip : otherwise;
}

int vendor_visible_devices(const char* variable, int* map) {
  int total = vendor_devices(), n = 0;
  const char* list = getenv(variable);
  if (!list) {
    for (int d = 0; d < total; d++) map[n++] = d;
    return n;
  }
  while (*list && n < 8) {
    char* rest;
    long d = strtol(list, &rest, 10);
    if (rest == list || d < 0 || d >= total) break;
    map[n++] = (int)d;
    list = *rest == ',' ? rest + 1 : rest;
  }
  return n;
}

// ---- handles: a hash table with open addressing ----

typedef struct handle {
  const void* at;
  const char* kind;  // NULL with `at`: it has died
} handle;

static handle* table;
static size_t capacity, filled;

static size_t slot_of(const void* at) {
  return (size_t)((uintptr_t)at * 0x9e3779b97f4a7c15ull >> 20) & (capacity - 1);
}

static void insert(const void* at, const char* kind) {
  size_t i = slot_of(at);
  while (table[i].at && table[i].at != at) i = (i + 1) & (capacity - 1);
  if (!table[i].at) filled++;
  table[i] = (handle){at, kind};
}

static void grow(void) {
  handle* old = table;
  size_t n = capacity;
  capacity = n ? 2 * n : 1024;
  table = calloc(capacity, sizeof *table);
  if (!table) abort();
  filled = 0;
  for (size_t i = 0; i < n; i++)
    if (old[i].kind) insert(old[i].at, old[i].kind);
  free(old);
}

static handle* find(const void* at, const char* kind) {
  if (!at || !capacity) return NULL;
  for (size_t i = slot_of(at); table[i].at; i = (i + 1) & (capacity - 1))
    if (table[i].at == at)
      return table[i].kind && strcmp(table[i].kind, kind) == 0 ? &table[i] : NULL;
  return NULL;
}

void vendor_born(const void* at, const char* kind) {
  pthread_mutex_lock(&mutex);
  if (2 * (filled + 1) > capacity) grow();
  insert(at, kind);
  pthread_mutex_unlock(&mutex);
}

bool vendor_alive(const void* at, const char* kind) {
  pthread_mutex_lock(&mutex);
  bool alive = find(at, kind) != NULL;
  pthread_mutex_unlock(&mutex);
  return alive;
}

bool vendor_dies(const void* at, const char* kind) {
  pthread_mutex_lock(&mutex);
  handle* h = find(at, kind);
  if (h) h->kind = NULL;
  pthread_mutex_unlock(&mutex);
  return h != NULL;
}

long vendor_living(const char* kind) {
  long n = 0;
  pthread_mutex_lock(&mutex);
  for (size_t i = 0; i < capacity; i++) n += table[i].kind && strcmp(table[i].kind, kind) == 0;
  pthread_mutex_unlock(&mutex);
  return n;
}
