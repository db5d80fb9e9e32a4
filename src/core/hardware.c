// Accelerators on the PCI bus, read from sysfs: works with no vendor library, for those that are
// missing one.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/registry.h"

static const struct {
  uint16_t id;
  const char *vendor, *device;
} vendors[] = {
#define HY_PCI_VENDOR(id, vendor, device) {id, vendor, device},
#include "halyard/known_backends.def"
};

// One number as sysfs writes it, "0x10de\n"; false when the file cannot be read.
static bool read_number(const char* folder, const char* file, unsigned* value) {
  char path[640], text[32];
  if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, file) >= sizeof path) return false;
  FILE* f = fopen(path, "re");
  if (!f) return false;
  bool ok = fgets(text, sizeof text, f);
  fclose(f);
  char* end;
  if (!ok) return false;
  *value = (unsigned)strtoul(text, &end, 16);
  return end != text;
}

// Vendors that also make network cards and bridges are told apart by the class; AWS gives its
// accelerators a class of their own making.
static bool is_accelerator(unsigned class, unsigned vendor, unsigned device) {
  unsigned base = class >> 16, sub = class >> 8;
  if (base == 0x03 || base == 0x12 || sub == 0x0b40) return true;
  if (vendor == 0xcabc) return base != 0x06;
  return vendor == 0x1d0f && (device & 0xf0ff) == 0x7064;
}

static void describe(hy_hardware* h) {
  const char *vendor = NULL, *device = "device";
  for (size_t i = 0; i < sizeof vendors / sizeof vendors[0]; i++) {
    if (vendors[i].id != h->vendor_id) continue;
    vendor = vendors[i].vendor;
    device = vendors[i].device;
  }
  if (vendor)
    snprintf(h->vendor, sizeof h->vendor, "%s", vendor);
  else
    snprintf(h->vendor, sizeof h->vendor, "vendor %04x", h->vendor_id);
  if (!hy__pci_name(h->vendor_id, h->device_id, h->name, sizeof h->name))
    snprintf(h->name, sizeof h->name, "%s %04x:%04x", device, h->vendor_id, h->device_id);
}

static int compare(const void* a, const void* b) {
  return strcmp(((const hy_hardware*)a)->pci, ((const hy_hardware*)b)->pci);
}

int hy__list_hardware(const char* sysfs, hy_hardware* list, int capacity) {
  char bus[512];
  if ((size_t)snprintf(bus, sizeof bus, "%s/bus/pci/devices", sysfs) >= sizeof bus) return 0;
  DIR* folder = opendir(bus);
  if (!folder) return 0;
  int n = 0;
  struct dirent* item;
  while ((item = readdir(folder))) {
    hy_hardware h = {0};
    if (item->d_name[0] == '.' || strlen(item->d_name) >= sizeof h.pci) continue;
    char path[800];
    unsigned class, vendor, device;
    snprintf(path, sizeof path, "%s/%s", bus, item->d_name);
    if (!read_number(path, "class", &class) || !read_number(path, "vendor", &vendor) ||
        !read_number(path, "device", &device) || !is_accelerator(class, vendor, device))
      continue;
    if (n < capacity) {
      memcpy(h.pci, item->d_name, strlen(item->d_name));
      h.vendor_id = (uint16_t)vendor;
      h.device_id = (uint16_t)device;
      describe(&h);
      list[n] = h;
    }
    n++;
  }
  closedir(folder);
  int filled = n < capacity ? n : capacity;
  if (filled > 0) qsort(list, (size_t)filled, sizeof *list, compare);
  return n;
}

int hy_list_hardware(hy_hardware* list, int capacity) {
  const char* sysfs = hy__env("HALYARD_SYSFS");  // for tests
  return hy__list_hardware(sysfs ? sysfs : "/sys", list, list ? capacity : 0);
}
