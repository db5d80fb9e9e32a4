// The backends that are known: what the library knows by name, what is compiled in, what plugins
// and the program add. In order of priority; each is loaded and probed when first asked for.
#include "core/registry.h"

#include <stdio.h>
#include <string.h>

#include "base/printable.h"

static struct {
  pthread_mutex_t mutex;  // guards the list, not what the entries hold
  hy__backend_entry* entries[HY__MAX_BACKENDS];
  int count;
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER};

hy__backend_entry* hy__entry_at(int index) {
  pthread_mutex_lock(&registry.mutex);
  hy__backend_entry* entry = index >= 0 && index < registry.count ? registry.entries[index] : NULL;
  pthread_mutex_unlock(&registry.mutex);
  return entry;
}

static hy__backend_entry* find_locked(const char* name) {
  for (int i = 0; i < registry.count; i++)
    if (!strcmp(registry.entries[i]->name, name)) return registry.entries[i];
  return NULL;
}

hy__backend_entry* hy__entry_find(const char* name) {
  pthread_mutex_lock(&registry.mutex);
  hy__backend_entry* entry = find_locked(name);
  pthread_mutex_unlock(&registry.mutex);
  return entry;
}

// The entry of that name, made where there is none.
static hy_status obtain(const char* name, hy__backend_entry** out) {
  hy_status status = HY_OK;
  pthread_mutex_lock(&registry.mutex);
  hy__backend_entry* entry = find_locked(name);
  if (entry) goto done;
  if (registry.count == HY__MAX_BACKENDS) {
    status =
        hy_fail(HY_UNSUPPORTED, "backend %s: there are already %d backends, which is the limit",
                name, HY__MAX_BACKENDS);
    goto done;
  }
  entry = hy__calloc(1, sizeof *entry);
  if (!entry) {
    status = hy_fail(HY_OUT_OF_MEMORY, "no memory to register backend %s", name);
    goto done;
  }
  snprintf(entry->name, sizeof entry->name, "%s", name);
  entry->known = hy__known_backend_find(name);
  entry->priority = entry->known ? entry->known->priority : HY__OTHER_PRIORITY;
  pthread_mutex_init(&entry->mutex, NULL);
  int at = registry.count++;
  for (; at > 0 && registry.entries[at - 1]->priority < entry->priority; at--)
    registry.entries[at] = registry.entries[at - 1];
  registry.entries[at] = entry;
done:
  pthread_mutex_unlock(&registry.mutex);
  *out = entry;
  return status;
}

static void copy_text(char* to, size_t size, const char* from) {
  snprintf(to, size, "%s", from ? from : "");
  hy__make_printable(to);
}

// Gives the entry its code, and takes `providers` over. The entry is locked.
static void install(hy__backend_entry* entry, const hy_backend* table,
                    hy__provider_entry* providers) {
  entry->table = *table;
  copy_text(entry->version, sizeof entry->version, table->version);
  copy_text(entry->description, sizeof entry->description, table->description);
  for (int i = 0; i < table->n_providers; i++)
    copy_text(providers[i].version, sizeof providers[i].version, providers[i].table.version);
  entry->providers = providers;
  entry->probed = false;
  hy__mfree(entry->plugin);
  entry->plugin = NULL;
  atomic_store(&entry->has_code, true);
}

static hy_status add(const hy_backend* backend) {
  hy_backend table;
  hy__provider_entry* providers;
  HY_TRY(hy__backend_import(backend, &table, &providers));
  hy__backend_entry* entry;
  hy_status status = obtain(table.name, &entry);
  if (status == HY_OK) {
    pthread_mutex_lock(&entry->mutex);
    if (entry->table.size) {
      status = hy_fail(HY_INVALID_ARGUMENT, "there is already a backend called %s", entry->name);
    } else {
      install(entry, &table, providers);
      providers = NULL;
    }
    pthread_mutex_unlock(&entry->mutex);
  }
  hy__mfree(providers);
  if (status == HY_OK) hy__choice_changed();
  return status;
}

hy_status hy_register_backend(const hy_backend* backend) {
  HY_TRY(hy_init());
  return add(backend);
}

hy_status hy_load_plugin(const char* path) {
  HY_TRY(hy_init());
  char name[HY__MAX_NAME];
  if (!path || path[0] != '/')
    return hy_fail(HY_INVALID_ARGUMENT, "plugin %s: give the absolute path of the file",
                   path ? path : "NULL");
  if (!hy__plugin_name(path, name))
    return hy_fail(HY_INVALID_ARGUMENT, "plugin %s: a plugin's file is called libhalyard_<name>.so",
                   path);
  const hy_backend* backend;
  HY_TRY(hy__plugin_open(path, name, &backend));
  hy_status status = add(backend);
  return status == HY_OK ? HY_OK : hy_fail(status, "plugin %s: %s", path, hy_last_error());
}

hy_status hy__registry_add_plugin(const char* name, const char* path) {
  hy__backend_entry* entry;
  HY_TRY(obtain(name, &entry));
  hy_status status = HY_OK;
  pthread_mutex_lock(&entry->mutex);
  if (atomic_load(&entry->has_code)) {
    hy__log(1, "plugin %s is not used: there is already a backend called %s", path, name);
  } else {
    entry->plugin = hy__strdup(path);
    if (entry->plugin)
      atomic_store(&entry->has_code, true);
    else
      status = hy_fail(HY_OUT_OF_MEMORY, "no memory to register plugin %s", path);
  }
  pthread_mutex_unlock(&entry->mutex);
  return status;
}

hy_status hy__registry_add_broken(const char* name, hy_status why, const char* reason) {
  hy__log(1, "%s", reason);
  hy__backend_entry* entry;
  HY_TRY(obtain(name, &entry));
  pthread_mutex_lock(&entry->mutex);
  if (!atomic_load(&entry->has_code) && !entry->probed) {
    hy__probe_begin(&entry->probe);
    entry->probe.status = why;
    snprintf(entry->probe.reason, sizeof entry->probe.reason, "%s", reason);
    snprintf(entry->probe.remedy, sizeof entry->probe.remedy,
             "correct HALYARD_PLUGIN_PATH, or what is there");
    entry->state = HY_BACKEND_FAILED;
    entry->probed = true;
  }
  pthread_mutex_unlock(&entry->mutex);
  return HY_OK;
}

hy_status hy__registry_init(void) {
  hy_status status = HY_OK;
  const hy__known_backend* known;
  for (int i = 0; status == HY_OK && (known = hy__known_backend_at(i)); i++) {
    hy__backend_entry* entry;
    status = obtain(known->name, &entry);
  }
  const hy__builtin* builtin;
  for (int i = 0; status == HY_OK && (builtin = hy__builtin_at(i)); i++) {
    const hy_backend* backend = NULL;
    status = builtin->query(HY_ABI_VERSION, hy__host(), &backend);
    if (status == HY_OK) status = add(backend);
  }
  if (status != HY_OK) hy__registry_clear();
  return status;
}

void hy__registry_clear(void) {
  pthread_mutex_lock(&registry.mutex);
  for (int i = 0; i < registry.count; i++) {
    hy__backend_entry* entry = registry.entries[i];
    hy__mfree(entry->devices);
    hy__mfree(entry->providers);
    hy__mfree(entry->plugin);
    hy__trial_release(entry);
    pthread_mutex_destroy(&entry->mutex);
    hy__mfree(entry);
  }
  registry.count = 0;
  pthread_mutex_unlock(&registry.mutex);
}

// ---- Probing ----

// Fills what the code that was called may have left out of its report.
static void conclude(hy_probe* probe, hy_status status, const char* what) {
  hy__make_array_printable(probe->library, sizeof probe->library);
  hy__make_array_printable(probe->reason, sizeof probe->reason);
  hy__make_array_printable(probe->remedy, sizeof probe->remedy);
  if (status == HY_OK && probe->stage != HY_STAGE_READY) {
    status = hy_fail(HY_INTERNAL, "%s: the probe succeeded without reaching \"ready\"", what);
    snprintf(probe->remedy, sizeof probe->remedy,
             "set report->stage = HY_STAGE_READY at the end of probe: plugin tutorial, step 6");
  }
  probe->status = status;
  if (status == HY_OK) {
    probe->reason[0] = probe->remedy[0] = 0;
  } else {
    if (probe->stage == HY_STAGE_READY) probe->stage = HY_STAGE_DEVICES;
    if (!probe->reason[0]) snprintf(probe->reason, sizeof probe->reason, "%s", hy_last_error());
  }
}

static hy_backend_state state_of(hy_status status) {
  if (status == HY_OK) return HY_BACKEND_AVAILABLE;
  return status == HY_UNAVAILABLE || status == HY_NOT_FOUND ? HY_BACKEND_MISSING
                                                            : HY_BACKEND_FAILED;
}

static hy_status load(hy__backend_entry* entry) {
  const hy_backend* backend;
  hy_backend table;
  hy__provider_entry* providers;
  snprintf(entry->probe.library, sizeof entry->probe.library, "%s", entry->plugin);
  snprintf(
      entry->probe.remedy, sizeof entry->probe.remedy,
      "step 1 of the plugin tutorial says what a plugin has; rebuild it against halyard %s, or "
      "take it out of the plugin folder",
      hy_version());
  entry->probe.stage = HY_STAGE_FOUND;
  HY_TRY(hy__plugin_open(entry->plugin, entry->name, &backend));
  hy_status status = hy__backend_import(backend, &table, &providers);
  if (status != HY_OK) return hy_fail(status, "plugin %s: %s", entry->plugin, hy_last_error());
  install(entry, &table, providers);
  entry->probe.stage = HY_STAGE_LOADED;
  entry->probe.remedy[0] = 0;
  return HY_OK;
}

static hy_status probe_code(hy__backend_entry* entry) {
  if (!entry->table.size) HY_TRY(load(entry));
  int count = 0;
  hy_fail(HY_OK, "it gave no reason");
  HY_TRY(entry->table.probe(&entry->probe, &count));
  if (count < 1) return hy_fail(HY_UNAVAILABLE, "%s has no device", entry->name);
  if (count > HY__MAX_DEVICES) count = HY__MAX_DEVICES;
  entry->devices = hy__calloc((size_t)count, sizeof *entry->devices);
  if (!entry->devices)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for the devices of %s", entry->name);
  entry->device_count = count;
  return HY_OK;
}

// What lack of memory or a wrong setting says is not for ever.
static bool is_lasting(hy_status status) {
  return status != HY_OUT_OF_MEMORY && status != HY_INVALID_ARGUMENT;
}

void hy__entry_probe_here(hy__backend_entry* entry) {
  hy__trial_release(entry);
  entry->device_count = 0;
  hy__probe_begin(&entry->probe);
  if (atomic_load(&entry->has_code))
    conclude(&entry->probe, probe_code(entry), entry->name);
  else
    hy__probe_absent(entry->known, entry->name, &entry->probe);
  entry->state = state_of(entry->probe.status);
  entry->probed = is_lasting(entry->probe.status);
  if (entry->state == HY_BACKEND_AVAILABLE) {
    hy__log(2, "%s: %d device%s", entry->name, entry->device_count,
            entry->device_count == 1 ? "" : "s");
  } else {
    hy__mfree(entry->devices);
    entry->devices = NULL;
    entry->device_count = 0;
    hy__log(2, "%s: %s", entry->name, entry->probe.reason);
  }
}

void hy__entry_probe(hy__backend_entry* entry) {
  pthread_mutex_lock(&entry->mutex);
  bool foreign = entry->plugin && !entry->table.size;
  if (!entry->probed && foreign && hy__probe_in_child(entry))
    entry->probed = is_lasting(entry->probe.status);
  else if (!entry->probed)
    hy__entry_probe_here(entry);
  pthread_mutex_unlock(&entry->mutex);
}

void hy__entry_load(hy__backend_entry* entry) {
  pthread_mutex_lock(&entry->mutex);
  if (!entry->probed || (entry->trial && entry->state == HY_BACKEND_AVAILABLE))
    hy__entry_probe_here(entry);
  pthread_mutex_unlock(&entry->mutex);
}

void hy__entry_probe_provider(hy__backend_entry* entry, int index) {
  hy__provider_entry* provider = &entry->providers[index];
  if (provider->probed) return;
  hy_probe* probe = &provider->probe;
  hy__probe_begin(probe);
  hy_status status = HY_OK;
  hy_fail(HY_OK, "it gave no reason");
  if (provider->table.probe)
    status = provider->table.probe(probe);
  else
    probe->stage = HY_STAGE_READY;
  conclude(probe, status, provider->table.name);
  provider->probed = true;
}

// ---- Reports ----

static hy_status report_on(hy__backend_entry* entry, hy_backend_report* report) {
  hy__entry_probe(entry);
  pthread_mutex_lock(&entry->mutex);
  *report = (hy_backend_report){
      .name = entry->name,
      .type = hy_backend_type_of(entry->name),
      .version = entry->trial           ? entry->trial->version
                 : entry->table.version ? entry->version
                                        : NULL,
      .description = entry->trial               ? entry->trial->description
                     : entry->table.description ? entry->description
                                                : NULL,
      .state = entry->state,
      .priority = entry->priority,
      .device_count = entry->device_count,
      .probe = entry->probe,
  };
  if (!report->description || !report->description[0])
    report->description = entry->known ? strchr(entry->known->device, ' ') + 1 : "";
  pthread_mutex_unlock(&entry->mutex);
  return HY_OK;
}

static hy_status need(const char* what, const void* argument) {
  return argument ? HY_OK : hy_fail(HY_INVALID_ARGUMENT, "%s: an argument is NULL", what);
}

hy_status hy_backend_at(int index, hy_backend_report* report) {
  HY_TRY(need("hy_backend_at", report));
  HY_TRY(hy_init());
  hy__backend_entry* entry = hy__entry_at(index);
  if (!entry) return hy_fail(HY_NOT_FOUND, "there is no backend number %d", index);
  return report_on(entry, report);
}

hy_status hy_backend_find(const char* name, hy_backend_report* report) {
  HY_TRY(need("hy_backend_find", report));
  hy__backend_entry* entry;
  HY_TRY(hy__backend_by_name(name, &entry));
  return report_on(entry, report);
}

hy_status hy_backend_find_by_type(hy_backend_type type, hy_backend_report* report) {
  const char* name = hy_backend_type_name(type);
  if (!name) return hy_fail(HY_NOT_FOUND, "%d is no type of backend", (int)type);
  return hy_backend_find(name, report);
}

bool hy__entry_available(hy__backend_entry* entry) {
  if (!atomic_load(&entry->has_code)) return false;
  hy__entry_probe(entry);
  pthread_mutex_lock(&entry->mutex);
  bool available = entry->state == HY_BACKEND_AVAILABLE;
  pthread_mutex_unlock(&entry->mutex);
  return available;
}

static bool is_simulated(hy__backend_entry* entry) {
  pthread_mutex_lock(&entry->mutex);
  uint32_t flags = entry->trial ? entry->trial->flags : entry->table.flags;
  bool simulated = flags & HY_BACKEND_SIMULATED;
  pthread_mutex_unlock(&entry->mutex);
  return simulated;
}

// A plugin says what it is once it is loaded; a simulator that is loaded need not be probed.
bool hy__entry_is_automatic(hy__backend_entry* entry) {
  return !is_simulated(entry) && hy__entry_available(entry) && !is_simulated(entry);
}

hy_status hy__entry_device_info(hy__backend_entry* entry, int index, hy_device_info* info) {
  const hy__trial* trial = entry->trial;
  if (!trial) return hy__backend_device_info(&entry->table, index, info);
  if (index >= HY__TRIAL_DEVICES)
    return hy_fail(HY_UNSUPPORTED, "%s:%d is not described before it is used", entry->name, index);
  if (trial->described[index] != HY_OK)
    return hy_fail(trial->described[index], "%s", trial->refusal);
  *info = trial->devices[index];
  return HY_OK;
}

hy_status hy__backend_device_info(const hy_backend* backend, int index, hy_device_info* info) {
  memset(info, 0, sizeof *info);
  info->size = sizeof *info;
  hy_status status = backend->device_info(index, info);
  hy__make_array_printable(info->name, sizeof info->name);
  hy__make_array_printable(info->driver_version, sizeof info->driver_version);
  hy__make_array_printable(info->sdk_version, sizeof info->sdk_version);
  hy__make_array_printable(info->pci, sizeof info->pci);
  hy__make_array_printable(info->properties, sizeof info->properties);
  return status;
}

hy_status hy_backend_device_info(const char* name, int index, hy_device_info* info) {
  HY_TRY(need("hy_backend_device_info", info));
  hy__backend_entry* entry;
  HY_TRY(hy__backend_by_name(name, &entry));
  HY_TRY(hy__entry_check_device(entry, index));
  return hy__entry_device_info(entry, index, info);
}

hy_status hy_backend_provider_at(const char* name, int index, hy_provider_report* report) {
  HY_TRY(need("hy_backend_provider_at", report));
  hy__backend_entry* entry;
  HY_TRY(hy__backend_by_name(name, &entry));
  hy__entry_probe(entry);
  if (index < 0) return hy_fail(HY_NOT_FOUND, "%s has no provider number %d", name, index);
  memset(report, 0, sizeof *report);
  pthread_mutex_lock(&entry->mutex);
  int own = entry->trial ? entry->trial->n_providers : entry->table.n_providers;
  if (index < own && entry->trial) {
    const hy__trial_provider* provider = &entry->trial->providers[index];
    report->name = provider->name;
    report->version = provider->version;
    report->probe = provider->probe;
    report->available = provider->probe.status == HY_OK;
  } else if (index < own) {
    hy__provider_entry* provider = &entry->providers[index];
    report->name = provider->table.name;
    report->version = provider->table.version ? provider->version : NULL;
    if (entry->state == HY_BACKEND_AVAILABLE) {
      hy__entry_probe_provider(entry, index);
      report->probe = provider->probe;
      report->available = provider->probe.status == HY_OK;
    } else {
      report->probe = entry->probe;
    }
  }
  pthread_mutex_unlock(&entry->mutex);
  if (report->name) return HY_OK;

  int left = index - own;
  const hy__known_provider* known;
  for (int i = 0; (known = hy__known_provider_at(i)); i++) {
    if (strcmp(known->backend, entry->name) || hy__entry_provider(entry, known->name) >= 0)
      continue;
    if (left-- > 0) continue;
    report->name = known->name;
    hy__probe_absent_provider(known, &report->probe);
    if (known->is_planner && !hy__is_left_out(known->name)) {
      report->version = hy_version();
      report->available = true;
      hy__probe_begin(&report->probe);
      report->probe.stage = HY_STAGE_READY;
    }
    return HY_OK;
  }
  return hy_fail(HY_NOT_FOUND, "%s has no provider number %d", name, index);
}

int hy__entry_provider(hy__backend_entry* entry, const char* name) {
  int found = -1;
  pthread_mutex_lock(&entry->mutex);
  const hy__trial* trial = entry->trial;
  for (int i = 0; trial && i < trial->n_providers && found < 0; i++)
    if (!strcmp(trial->providers[i].name, name)) found = i;
  for (int i = 0; i < entry->table.n_providers && found < 0; i++)
    if (!strcmp(entry->providers[i].table.name, name)) found = i;
  pthread_mutex_unlock(&entry->mutex);
  return found;
}
