// Test vendors: the ranks of a collectives library. They are those of the guarded device
// (tests/backends/guarded/comm*.c: threads or processes that meet in shared memory, with an answer
// for every way of disagreeing), run by a vendor's queues.
#ifndef HALYARD_TESTS_VENDORS_RANKS_H_
#define HALYARD_TESTS_VENDORS_RANKS_H_

#include "backends/guarded/comm.h"
#include "vendor.h"

// One rank, which a vendor's handle of a communicator points to.
typedef struct ranks_comm {
  guarded_comm* rank;
  int device;
} ranks_comm;

// What breaks a queue whose collective fails: the vendor's, defined by the library.
extern const int ranks_broken_code;

// An id of that size: what names it is at its end, so that a part of it is none.
void ranks_make_id(char* id, size_t bytes);
// HY_OK, or why not (guarded_host->last_error): INVALID_ARGUMENT where the id was not made here, or
// not all of it has come.
hy_status ranks_join(ranks_comm* comm, int device, int n_ranks, int rank, const char* id,
                     size_t bytes);
void ranks_leave(ranks_comm* comm);        // after its work
bool ranks_are_working(ranks_comm* comm);  // something is under way
// Every communicator of this process fails, as when a link is lost.
VENDOR_API void ranks_lose_link(void);
// For the functions of comm.h, which take it for their device.
void* ranks_device(int device);

#endif  // HALYARD_TESTS_VENDORS_RANKS_H_
