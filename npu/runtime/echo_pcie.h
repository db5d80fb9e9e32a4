// echo_pcie.h - what the PCIe bottoms share: registers behind a mapped BAR, memory behind a DMA
// channel or a mapped window, an interrupt behind a file descriptor.
#ifndef ECHO_PCIE_H
#define ECHO_PCIE_H

#include "echo_driver.h"

typedef struct echo_pcie {
  volatile uint32_t* registers;  // ECHO_NPU_REG_BYTES
  int to_device, from_device;    // DMA channels, address = offset; -1 when there is a window
  uint8_t* window;               // the device's memory, address = offset; NULL when there is DMA
  uint64_t window_bytes;
  int interrupt;       // readable when the device has raised its interrupt; -1: poll the registers
  size_t event_bytes;  // what a read of it takes and gives, at most 8; other lengths are refused
  uint32_t tail;       // of the last doorbell
} echo_pcie;

uint32_t echo_pcie_read(void* device, uint32_t offset);
void echo_pcie_write(void* device, uint32_t offset, uint32_t value);
int echo_pcie_read_memory(void* device, uint64_t address, void* to, uint64_t bytes);
int echo_pcie_write_memory(void* device, uint64_t address, const void* from, uint64_t bytes);
void echo_pcie_doorbell(void* device, uint32_t tail);
echo_wait echo_pcie_wait(void* device, uint32_t milliseconds);

// Reads the board's areas from the AREA registers, which firmware has set; -1 with a reason when
// the device is not an ECHO NPU or has no memory.
int echo_pcie_identify(echo_pcie* device, echo_board* board, char* reason, size_t size);

#endif  // ECHO_PCIE_H
