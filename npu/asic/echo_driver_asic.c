// echo_driver_asic.c - a PCIe device driven from user space through VFIO.
//
// BAR 0 is the register file, BAR 2 a window on the device's whole memory, MSI-X vector 0 the
// interrupt. ECHO_NPU_ASIC_DEVICES lists PCI addresses (0000:03:00.0, comma-separated) bound to
// vfio-pci. When ECHO_NPU_ASIC_STANDIN names a directory, its files bar0, bar2 and irq take the
// place of what VFIO gives: a stand-in for tests, no silicon.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/vfio.h>
#endif

#include "echo_pcie.h"

typedef struct asic {
  echo_pcie pcie;  // first: the shared functions take it
  int container, group, device;
} asic;

static const char* standin(void) {
  const char* d = getenv("ECHO_NPU_ASIC_STANDIN");
  return d && *d ? d : NULL;
}

// The index-th PCI address of the list; 0 when there are fewer.
static int address_of(int index, char* address, size_t size) {
  const char* list = getenv("ECHO_NPU_ASIC_DEVICES");
  for (; list && *list; --index) {
    size_t n = strcspn(list, ",");
    if (index == 0 && n < size) {
      memcpy(address, list, n);
      address[n] = 0;
      return 1;
    }
    list += n + (list[n] == ',');
  }
  return 0;
}

static int count(char* reason, size_t size) {
  char address[32];
  int n = 0;
  if (standin()) return 1;
  while (address_of(n, address, sizeof address)) ++n;
  if (n == 0) snprintf(reason, size, "ECHO_NPU_ASIC_DEVICES names no PCI device");
  return n;
}

static void close_asic(void* device) {
  asic* d = device;
  if (d->pcie.registers) munmap((void*)(uintptr_t)d->pcie.registers, ECHO_NPU_REG_BYTES);
  if (d->pcie.window) munmap(d->pcie.window, d->pcie.window_bytes);
  if (d->pcie.interrupt >= 0) close(d->pcie.interrupt);
  if (d->device >= 0) close(d->device);
  if (d->group >= 0) close(d->group);
  if (d->container >= 0) close(d->container);
  free(d);
}

static int failed(char* reason, size_t size, const char* what) {
  snprintf(reason, size, "%s: %s", what, strerror(errno));
  return -1;
}

static int map(asic* d, int fd, off_t registers, off_t window, uint64_t window_bytes,
               int window_fd) {
  void* r = mmap(NULL, ECHO_NPU_REG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, registers);
  if (r == MAP_FAILED) return -1;
  d->pcie.registers = r;
  void* w = mmap(NULL, window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, window_fd, window);
  if (w == MAP_FAILED) return -1;
  d->pcie.window = w;
  d->pcie.window_bytes = window_bytes;
  return 0;
}

static int open_standin(asic* d, const char* directory, char* reason, size_t size) {
  char path[512];
  struct stat info;
  snprintf(path, sizeof path, "%s/bar0", directory);
  int bar0 = open(path, O_RDWR | O_CLOEXEC);
  snprintf(path, sizeof path, "%s/bar2", directory);
  int bar2 = open(path, O_RDWR | O_CLOEXEC);
  snprintf(path, sizeof path, "%s/irq", directory);
  d->pcie.interrupt = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  int result = -1;
  if (bar0 >= 0 && bar2 >= 0 && fstat(bar2, &info) == 0)
    result = map(d, bar0, 0, 0, (uint64_t)info.st_size, bar2);
  if (result != 0) failed(reason, size, directory);
  if (bar0 >= 0) close(bar0);
  if (bar2 >= 0) close(bar2);
  return result;
}

#if defined(__linux__)
static int group_of(const char* address) {
  char link[128], target[256];
  snprintf(link, sizeof link, "/sys/bus/pci/devices/%s/iommu_group", address);
  ssize_t n = readlink(link, target, sizeof target - 1);
  if (n < 0) return -1;
  target[n] = 0;
  const char* last = strrchr(target, '/');
  return last ? atoi(last + 1) : -1;
}

static int region(asic* d, uint32_t index, struct vfio_region_info* info) {
  *info = (struct vfio_region_info){.argsz = sizeof *info, .index = index};
  return ioctl(d->device, VFIO_DEVICE_GET_REGION_INFO, info);
}

static int connect_interrupt(asic* d) {
  // The structure ends in the file descriptor.
  union {
    struct vfio_irq_set set;
    char bytes[sizeof(struct vfio_irq_set) + sizeof(int32_t)];
  } request;
  memset(&request, 0, sizeof request);
  request.set.argsz = sizeof request.bytes;
  request.set.flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
  request.set.index = VFIO_PCI_MSIX_IRQ_INDEX;
  request.set.count = 1;
  d->pcie.interrupt = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (d->pcie.interrupt < 0) return -1;
  int32_t fd = d->pcie.interrupt;
  memcpy(request.set.data, &fd, sizeof fd);
  return ioctl(d->device, VFIO_DEVICE_SET_IRQS, &request.set);
}

static int open_vfio(asic* d, const char* address, char* reason, size_t size) {
  char path[64];
  int number = group_of(address);
  if (number < 0) {
    snprintf(reason, size, "%s: no such device, or the IOMMU is off", address);
    return -1;
  }
  d->container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
  if (d->container < 0) return failed(reason, size, "/dev/vfio/vfio");
  snprintf(path, sizeof path, "/dev/vfio/%d", number);
  d->group = open(path, O_RDWR | O_CLOEXEC);
  if (d->group < 0) return failed(reason, size, path);
  struct vfio_group_status status = {.argsz = sizeof status};
  if (ioctl(d->group, VFIO_GROUP_GET_STATUS, &status) != 0 ||
      !(status.flags & VFIO_GROUP_FLAGS_VIABLE)) {
    snprintf(reason, size, "%s: bind every device of IOMMU group %d to vfio-pci", address, number);
    return -1;
  }
  if (ioctl(d->group, VFIO_GROUP_SET_CONTAINER, &d->container) != 0 ||
      ioctl(d->container, VFIO_SET_IOMMU, VFIO_TYPE1_IOMMU) != 0)
    return failed(reason, size, "setting up the IOMMU");
  d->device = ioctl(d->group, VFIO_GROUP_GET_DEVICE_FD, address);
  if (d->device < 0) return failed(reason, size, address);
  struct vfio_region_info bar0, bar2;
  if (region(d, VFIO_PCI_BAR0_REGION_INDEX, &bar0) != 0 || bar0.size < ECHO_NPU_REG_BYTES ||
      region(d, VFIO_PCI_BAR2_REGION_INDEX, &bar2) != 0 || bar2.size == 0) {
    snprintf(reason, size, "%s: BAR 0 and BAR 2 are not those of an ECHO NPU", address);
    return -1;
  }
  if (map(d, d->device, (off_t)bar0.offset, (off_t)bar2.offset, bar2.size, d->device) != 0)
    return failed(reason, size, "mapping the BARs");
  if (connect_interrupt(d) != 0) return failed(reason, size, "connecting the interrupt");
  return 0;
}
#else
static int open_vfio(asic* d, const char* address, char* reason, size_t size) {
  (void)d;
  snprintf(reason, size, "%s: VFIO exists on Linux only", address);
  return -1;
}
#endif

static int open_asic(int index, echo_board* board, void** device, char* reason, size_t size) {
  char address[32];
  asic* d = calloc(1, sizeof *d);
  if (!d) {
    snprintf(reason, size, "no host memory");
    return -1;
  }
  d->container = d->group = d->device = -1;
  d->pcie.to_device = d->pcie.from_device = d->pcie.interrupt = -1;
  d->pcie.event_bytes = sizeof(uint64_t);  // an eventfd
  int result = -1;
  if (standin())
    result = open_standin(d, standin(), reason, size);
  else if (address_of(index, address, sizeof address))
    result = open_vfio(d, address, reason, size);
  if (result == 0) result = echo_pcie_identify(&d->pcie, board, reason, size);
  for (int i = 0; result == 0 && i < ECHO_NPU_AREAS; ++i)
    if (board->limit[i] > board->base[i] && board->limit[i] > d->pcie.window_bytes) {
      snprintf(reason, size, "BAR 2 does not reach area %d", i);
      result = -1;
    }
  if (result != 0) {
    close_asic(d);
    return -1;
  }
  *device = d;
  return 0;
}

const echo_driver echo_driver_asic = {
    "asic",
    "pcie vfio f32 bf16 int8 interrupts",
    count,
    open_asic,
    close_asic,
    echo_pcie_read,
    echo_pcie_write,
    echo_pcie_read_memory,
    echo_pcie_write_memory,
    echo_pcie_doorbell,
    echo_pcie_wait,
    NULL,
    10000,
};
