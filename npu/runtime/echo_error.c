// echo_error.c - error messages, one for each thread, and debug output.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "echo_runtime.h"

static _Thread_local char message[512];

echoNpuError echo__fail(echoNpuError error, const char* format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return error;
}

const char* echoNpuGetLastErrorMessage(void) {
  return message;
}

#define ERRORS(E)                                                      \
  E(SUCCESS, "success")                                                \
  E(ERROR_INVALID_VALUE, "an argument is not valid")                   \
  E(ERROR_OUT_OF_MEMORY, "out of device memory")                       \
  E(ERROR_INVALID_DEVICE, "no such device")                            \
  E(ERROR_INVALID_POINTER, "not a pointer to allocated device memory") \
  E(ERROR_INVALID_HANDLE, "not a live stream or event")                \
  E(ERROR_NOT_READY, "work is still pending")                          \
  E(ERROR_FAULT, "the device reported a fault")                        \
  E(ERROR_DEVICE_LOST, "the device no longer answers")                 \
  E(ERROR_TIMEOUT, "the device did not finish in time")                \
  E(ERROR_UNAVAILABLE, "the backend is not available")                 \
  E(ERROR_OUT_OF_HOST_MEMORY, "out of host memory")

const char* echoNpuGetErrorName(echoNpuError error) {
  switch (error) {
#define E(name, text) \
  case ECHO_NPU_##name: return "ECHO_NPU_" #name;
    ERRORS(E)
#undef E
  }
  return "ECHO_NPU_ERROR_UNKNOWN";
}

const char* echoNpuGetErrorString(echoNpuError error) {
  switch (error) {
#define E(name, text) \
  case ECHO_NPU_##name: return text;
    ERRORS(E)
#undef E
  }
  return "unknown error";
}

const char* echoNpuGetFaultString(uint32_t code) {
  switch (code) {
    case ECHO_NPU_FAULT_NONE: return "no fault";
    case ECHO_NPU_FAULT_OPCODE: return "unknown opcode";
    case ECHO_NPU_FAULT_RESERVED: return "a reserved field is not zero";
    case ECHO_NPU_FAULT_FUNCTION: return "unknown vector function";
    case ECHO_NPU_FAULT_DTYPE: return "data types not allowed";
    case ECHO_NPU_FAULT_DIM: return "a dimension is zero or too large";
    case ECHO_NPU_FAULT_STRIDE: return "a stride is too large or destination elements coincide";
    case ECHO_NPU_FAULT_ALIGN: return "an address is not aligned to its element";
    case ECHO_NPU_FAULT_RANGE: return "an operand is outside device memory";
    case ECHO_NPU_FAULT_INDEX: return "an index is outside its table";
    case ECHO_NPU_FAULT_REPEAT: return "REPEAT before a packet that cannot repeat";
    case ECHO_NPU_FAULT_RING: return "the command ring is not set up or overrun";
    case ECHO_NPU_FAULT_BUS_READ: return "memory answered a read with an error";
    case ECHO_NPU_FAULT_BUS_WRITE: return "memory answered a write with an error";
    case ECHO_NPU_FAULT_TIMEOUT: return "the memory bus stalled";
    case ECHO_NPU_FAULT_UNALLOCATED: return "an operand is outside every allocation";
  }
  return "unknown fault";
}

int echo__debug_level;
static int colour;

static void read_environment(void) {
  const char* text = getenv("ECHO_NPU_DEBUG_LEVEL");
  echo__debug_level = text ? atoi(text) : 0;
  colour = isatty(STDERR_FILENO);
}

void echo__debug_init(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_environment);
}

void echo__debug_print(echoNpuDebugTag tag, const char* format, ...) {
  static const struct {
    const char *text, *on;
  } tags[] = {
      {"[NPU]", "\033[32m"}, {"[CPU]", "\033[31m"}, {"[COPY]", "\033[34m"}, {"[VIEW]", "\033[36m"}};
  char line[400];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  fprintf(stderr, "%s%s%s %s\n", colour ? tags[tag].on : "", tags[tag].text,
          colour ? "\033[0m" : "", line);
}

int echoNpuGetDebugLevel(void) {
  echo__debug_init();
  return echo__debug_level;
}

void echoNpuDebugLog(int level, echoNpuDebugTag tag, const char* text) {
  if (text && tag >= ECHO_NPU_DEBUG_NPU && tag <= ECHO_NPU_DEBUG_VIEW &&
      echoNpuGetDebugLevel() >= level)
    echo__debug_print(tag, "%s", text);
}
