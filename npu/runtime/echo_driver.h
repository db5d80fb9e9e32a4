// echo_driver.h - what the runtime needs from a device, whatever it is made of.
//
// A bottom (cmodel, rtlmodel, fpga, asic) fills in this table. The runtime calls one device from
// one thread at a time. Functions that can fail return 0 or -1 and then write a reason.
#ifndef ECHO_DRIVER_H
#define ECHO_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "echo_npu_runtime.h"

typedef struct echo_board {
  uint64_t base[ECHO_NPU_AREAS], limit[ECHO_NPU_AREAS];  // limit is the first byte after
  uint32_t clock_mhz;                                    // 0: the device does not say
  int memory_fd;  // models: a file to use as the memory, shared, address = offset; -1: private
                  // memory
} echo_board;

typedef enum echo_wait {
  ECHO_WAIT_DONE,     // STATUS is not BUSY
  ECHO_WAIT_TIMEOUT,  // still busy
  ECHO_WAIT_LOST      // the device no longer answers
} echo_wait;

typedef struct echo_driver {
  const char* name;
  const char* features;

  // Number of devices; 0 with a reason when the bottom cannot be used here.
  int (*count)(char* reason, size_t size);
  // `board` asks for memory sizes and returns what the device has.
  int (*open)(int index, echo_board* board, void** device, char* reason, size_t size);
  void (*close)(void* device);

  uint32_t (*read_register)(void* device, uint32_t offset);
  void (*write_register)(void* device, uint32_t offset, uint32_t value);
  int (*read_memory)(void* device, uint64_t address, void* to, uint64_t bytes);
  int (*write_memory)(void* device, uint64_t address, const void* from, uint64_t bytes);

  void (*doorbell)(void* device, uint32_t tail);
  echo_wait (*wait)(void* device, uint32_t milliseconds);

  // Tells a model of allocations so that it can check them; NULL where nobody can. May be called at
  // any time, from any thread.
  int (*track)(void* device, uint64_t address, uint64_t bytes, int allocated);

  // How long one packet may take unless the user says otherwise; 0: as long as it likes, for
  // simulators.
  uint32_t timeout_ms;
} echo_driver;

extern const echo_driver echo_driver_cmodel;
extern const echo_driver echo_driver_fpga;
extern const echo_driver echo_driver_asic;
// The rtlmodel's table, in a library that is loaded at run time; the number changes with this file.
#define ECHO_DRIVER_RTLMODEL "echo_driver_rtlmodel_1"
extern const echo_driver echo_driver_rtlmodel_1;

// The bottom of this name; NULL with a reason.
const echo_driver* echo_driver_named(const char* name, char* reason, size_t size);
// The bottom chosen by ECHO_NPU_BACKEND, or the build's default; NULL with a reason.
const echo_driver* echo_driver_select(char* reason, size_t size);
// The bottoms that have a device here; returns how many.
int echo_driver_list(const echo_driver* usable[ECHO_NPU_BACKENDS]);
// Why the bottoms other than `chosen` cannot be used, one clause each.
void echo_driver_list_missing(const echo_driver* chosen, char* text, size_t size);

#endif  // ECHO_DRIVER_H
