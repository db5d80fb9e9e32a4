// echo_program.h - random packet programs, for comparing two implementations bit for bit.
//
// A program works on one block of memory at ECHO_PROGRAM_BASE: load the image there, put the
// packets in a ring anywhere else, run, and compare the block and the fault registers. The same
// seed gives the same program for ever.
#ifndef ECHO_PROGRAM_H
#define ECHO_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "echo_npu_hw.h"

#define ECHO_PROGRAM_BASE 0x10010000u
#define ECHO_PROGRAM_REGION 0x30000u  // 192 KiB, one operand of up to 200 x 240 words
#define ECHO_PROGRAM_REGIONS 6
#define ECHO_PROGRAM_INDEX 0x1000u  // two tables of indices after the regions: I32, then I64
#define ECHO_PROGRAM_BYTES (ECHO_PROGRAM_REGION * ECHO_PROGRAM_REGIONS + 2 * ECHO_PROGRAM_INDEX)
#define ECHO_PROGRAM_PACKETS 32

typedef struct echo_program {
  uint64_t seed;
  size_t count;
  echo_npu_packet packets[ECHO_PROGRAM_PACKETS];
} echo_program;

// `limit` bounds rows, columns and depth (1..200). One program in ten ends with a packet that
// faults.
void echo_program_generate(echo_program* program, uint64_t seed, uint32_t limit);
// Fills `image` (ECHO_PROGRAM_BYTES) with the memory the program starts from.
void echo_program_image(uint64_t seed, uint8_t* image);
// One line of text for a packet, for reports.
void echo_program_describe(const echo_npu_packet* packet, char* text, size_t size);

#endif  // ECHO_PROGRAM_H
