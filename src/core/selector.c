// From what a user writes to a device: "cuda:1", "mkl", "cuda,cpu". Names that are not known get
// near misses, devices that cannot be had get a reason, and both get the list of what there is.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/edit_distance.h"
#include "core/registry.h"

#define MAX_SELECTOR 64

typedef struct selection {
  char name[MAX_SELECTOR];
  int index;  // -1: not given
} selection;

// ---- Words for messages ----

typedef struct text {
  char* at;
  size_t left;
} text;

static void say(text* t, const char* format, ...) __attribute__((format(printf, 2, 3)));
static void say(text* t, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(t->at, t->left, format, arguments);
  va_end(arguments);
  if (n < 0) return;
  size_t used = (size_t)n < t->left ? (size_t)n : t->left - 1;
  t->at += used;
  t->left -= used;
}

// "cpu" or "cuda:0, cuda:1, cpu": what can be chosen.
static const char* available(char* buffer, size_t size) {
  text t = {buffer, size};
  buffer[0] = 0;
  hy__backend_entry* entry;
  const char* separator = "";
  for (int i = 0; (entry = hy__entry_at(i)); i++) {
    if (!hy__entry_available(entry)) continue;
    int count = entry->device_count;
    if (count == 1)
      say(&t, "%s%s", separator, entry->name);
    else
      say(&t, "%s%s:0 to %s:%d", separator, entry->name, entry->name, count - 1);
    separator = ", ";
  }
  if (!buffer[0]) say(&t, "nothing");
  return buffer;
}

// Names that start with what was written, else the nearest ones, each once.
typedef struct suggestions {
  const char* wanted;
  int distance;
  char names[160];
  text end;
} suggestions;

static void consider(suggestions* s, const char* name) {
  size_t length = strlen(s->wanted);
  int d = length >= 3 && !strncmp(s->wanted, name, length) ? 0 : hy__edit_distance(s->wanted, name);
  if (d > s->distance) return;
  if (d < s->distance) s->end = (text){s->names, sizeof s->names};
  s->distance = d;
  say(&s->end, "%s%s", s->end.at == s->names ? "" : " or ", name);
}

static hy_status not_found(const char* name) {
  char list[320];
  suggestions s = {.wanted = name, .distance = strlen(name) <= 3 ? 1 : 2};
  s.end = (text){s.names, sizeof s.names};
  hy__backend_entry* entry;
  for (int i = 0; (entry = hy__entry_at(i)); i++) consider(&s, entry->name);
  const hy__known_provider* known;
  for (int i = 0; (known = hy__known_provider_at(i)); i++)
    if (known == hy__known_provider_find(known->name)) consider(&s, known->name);
  return hy_fail(HY_NOT_FOUND, "there is no backend or provider called \"%s\"%s%s%savailable: %s",
                 name, s.names[0] ? "; did you mean " : "", s.names, s.names[0] ? "? " : "; ",
                 available(list, sizeof list));
}

static hy_status unavailable(const char* name, const hy_probe* probe) {
  char list[160];
  // Lack of memory and a setting that is wrong are nothing that the machine lacks.
  bool own = probe->status == HY_OUT_OF_MEMORY || probe->status == HY_INVALID_ARGUMENT;
  hy_status status = own ? probe->status : HY_UNAVAILABLE;
  return hy_fail(status, "%s is not available: %s%s%s; available: %s", name, probe->reason,
                 probe->remedy[0] ? "; " : "", probe->remedy, available(list, sizeof list));
}

// ---- Reading ----

static hy_status parse(const char* selector, size_t length, selection* s) {
  while (length && isspace((unsigned char)*selector)) selector++, length--;
  while (length && isspace((unsigned char)selector[length - 1])) length--;
  if (length == 0)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "a selector is empty; write a backend or provider, such as cpu or cuda:1");
  if (length >= MAX_SELECTOR)
    return hy_fail(HY_INVALID_ARGUMENT, "the selector \"%.40s...\" is too long", selector);
  memcpy(s->name, selector, length);
  s->name[length] = 0;
  s->index = -1;
  char* colon = strchr(s->name, ':');
  if (!colon) return HY_OK;
  *colon = 0;
  const char* digits = colon + 1;
  size_t n = strspn(digits, "0123456789");
  if (n == 0 || n > 6 || digits[n] || colon == s->name)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "the selector \"%s:%s\" is not a name and a number, such as cuda:1", s->name,
                   digits);
  s->index = 0;
  for (size_t i = 0; i < n; i++) s->index = s->index * 10 + (digits[i] - '0');
  return HY_OK;
}

// The backend that has a provider of that name, loading what has code and was not asked for yet.
static hy__backend_entry* backend_of_provider(const char* name, int* provider) {
  hy__backend_entry* entry;
  for (int i = 0; (entry = hy__entry_at(i)); i++) {
    hy__entry_available(entry);
    *provider = hy__entry_provider(entry, name);
    if (*provider >= 0) return entry;
  }
  return NULL;
}

// The known provider of that name; of several backends' the first that is available, else the
// first.
static const hy__known_provider* known_provider(const char* name) {
  const hy__known_provider *first = hy__known_provider_find(name), *known;
  for (int i = 0; first && (known = hy__known_provider_at(i)); i++) {
    if (known == first || strcmp(known->name, name) != 0) continue;
    if (hy__entry_available(hy__entry_find(first->backend))) return first;
    if (hy__entry_available(hy__entry_find(known->backend))) return known;
  }
  return first;
}

hy_status hy__backend_by_name(const char* name, hy__backend_entry** entry) {
  HY_TRY(hy_init());
  if (!name) return hy_fail(HY_INVALID_ARGUMENT, "the name of a backend is NULL");
  const hy__known_provider* provider = known_provider(name);
  *entry = hy__entry_find(provider ? provider->backend : name);
  int index;
  if (!*entry) *entry = backend_of_provider(name, &index);
  return *entry ? HY_OK : not_found(name);
}

static hy_status check_probed(hy__backend_entry* entry, int index) {
  pthread_mutex_lock(&entry->mutex);
  hy_backend_state state = entry->state;
  hy_probe probe = entry->probe;
  int count = entry->device_count;
  pthread_mutex_unlock(&entry->mutex);
  if (state != HY_BACKEND_AVAILABLE) return unavailable(entry->name, &probe);
  if (index < 0 || index >= count)
    return hy_fail(HY_NOT_FOUND, "there is no %s:%d; %s has %d device%s, numbered from 0",
                   entry->name, index, entry->name, count, count == 1 ? "" : "s");
  return HY_OK;
}

hy_status hy__entry_check_device(hy__backend_entry* entry, int index) {
  hy__entry_probe(entry);
  return check_probed(entry, index);
}

// The same for a device that is to be opened.
static hy_status check_loaded(hy__backend_entry* entry, int index) {
  hy__entry_load(entry);
  return check_probed(entry, index);
}

// The backend of a provider that can be used, and its index there; -1 for a planner.
static hy_status select_provider(const selection* s, hy__backend_entry** entry, int* provider) {
  const char* name = strcmp(s->name, "onednn") ? s->name : "mkldnn";
  const hy__known_provider* known = known_provider(name);
  if (known) {
    // Its backends alone are asked.
    *entry = hy__entry_find(known->backend);
    hy__entry_probe(*entry);
    *provider = hy__entry_provider(*entry, name);
  } else {
    *entry = backend_of_provider(name, provider);
    if (!*entry) return not_found(s->name);
  }
  bool is_planner = known && known->is_planner && !hy__is_left_out(name);
  if (*provider < 0 && !is_planner) {
    hy_probe probe;
    hy__probe_absent_provider(known, &probe);
    return unavailable(s->name, &probe);
  }
  HY_TRY(check_loaded(*entry, s->index < 0 ? 0 : s->index));
  if (is_planner) return HY_OK;
  pthread_mutex_lock(&(*entry)->mutex);
  hy__entry_probe_provider(*entry, *provider);
  hy_probe probe = (*entry)->providers[*provider].probe;
  pthread_mutex_unlock(&(*entry)->mutex);
  return probe.status == HY_OK ? HY_OK : unavailable(s->name, &probe);
}

bool hy_backend_is_available(const char* name) {
  if (!name || hy_init() != HY_OK) return false;
  hy__backend_entry* entry = hy__entry_find(name);
  if (entry) return hy__entry_available(entry);
  selection s;
  int provider;
  return parse(name, strlen(name), &s) == HY_OK && s.index < 0 &&
         select_provider(&s, &entry, &provider) == HY_OK;
}

// While hy__device_get_local looks: what is taken, round the backend's devices, where a name has no
// index.
static _Thread_local int unnamed;

static int unnamed_index(hy__backend_entry* entry) {
  if (unnamed == 0) return 0;
  hy__entry_load(entry);
  pthread_mutex_lock(&entry->mutex);
  int count = entry->device_count;
  pthread_mutex_unlock(&entry->mutex);
  return count > 1 ? unnamed % count : 0;
}

static hy_status get_one(const char* selector, size_t length, hy_device** device) {
  selection s;
  HY_TRY(parse(selector, length, &s));
  int index = s.index < 0 ? 0 : s.index, provider = -1;
  hy__backend_entry* entry = hy__entry_find(s.name);
  if (entry && s.index < 0) index = unnamed_index(entry);
  if (entry)
    HY_TRY(check_loaded(entry, index));
  else
    HY_TRY(select_provider(&s, &entry, &provider));
  return hy__device_open(entry, index, provider, device);
}

// The first of several that is available. The name of a plugin that is not installed here is passed
// over; one that looks like a known name mistyped is an error wherever it stands.
static hy_status get_list(const char* selectors, hy_device** device) {
  if (!strchr(selectors, ',')) return get_one(selectors, strlen(selectors), device);
  char why[640] = "";
  text t = {why, sizeof why};
  for (const char* at = selectors;;) {
    size_t length = strcspn(at, ",");
    hy_status status = get_one(at, length, device);
    if (status == HY_OK) {
      if (why[0]) hy__log(1, "using %s; passed over: %s", hy_device_selector(*device), why);
      return HY_OK;
    }
    const char* message = hy_last_error();
    bool not_installed = status == HY_NOT_FOUND && !strstr(message, "did you mean");
    if (status != HY_UNAVAILABLE && status != HY_DEVICE_FAILED && !not_installed) return status;
    const char* end = strstr(message, "; available: ");
    say(&t, "%s%.*s", why[0] ? ". " : "", end ? (int)(end - message) : (int)strlen(message),
        message);
    at += length;
    if (!*at++) break;
  }
  char list[160];
  return hy_fail(HY_UNAVAILABLE, "none of \"%s\" is available: %s; available: %s", selectors, why,
                 available(list, sizeof list));
}

// ---- The default ----

static struct {
  pthread_mutex_t mutex;  // guards `chosen`
  char* chosen;           // by hy_set_default
  hy_device* _Atomic device;
} choice = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static hy_status best(hy_device** device) {
  hy__backend_entry* entry;
  hy_status status = HY_OK;
  for (int i = 0; (entry = hy__entry_at(i)); i++) {
    if (!hy__entry_is_automatic(entry)) continue;
    int index = unnamed_index(entry);
    status = check_loaded(entry, index);
    if (status == HY_OK) status = hy__device_open(entry, index, -1, device);
    if (status != HY_DEVICE_FAILED && status != HY_UNAVAILABLE) return status;
    hy__log(1, "passed over: %s", hy_last_error());
  }
  // Not even the cpu: it says why.
  return status == HY_OK ? hy__entry_check_device(hy__entry_find("cpu"), 0) : status;
}

// With the mutex held.
static hy_status get_preferred(hy_device** device) {
  const char* selectors = choice.chosen ? choice.chosen : hy__env("HALYARD_BACKEND");
  return selectors ? get_list(selectors, device) : best(device);
}

static hy_status get_default(hy_device** device) {
  *device = atomic_load_explicit(&choice.device, memory_order_acquire);
  if (*device) return HY_OK;
  pthread_mutex_lock(&choice.mutex);
  hy_status status = get_preferred(device);
  if (status == HY_OK) atomic_store_explicit(&choice.device, *device, memory_order_release);
  pthread_mutex_unlock(&choice.mutex);
  return status;
}

hy_status hy_set_default(const char* selectors) {
  HY_TRY(hy_init());
  char* copy = NULL;
  hy_device* device = NULL;
  if (selectors && *selectors) {
    HY_TRY(get_list(selectors, &device));
    copy = hy__strdup(selectors);
    if (!copy) return hy_fail(HY_OUT_OF_MEMORY, "no memory to set the default to %s", selectors);
  }
  pthread_mutex_lock(&choice.mutex);
  hy__mfree(choice.chosen);
  choice.chosen = copy;
  atomic_store_explicit(&choice.device, device, memory_order_release);
  pthread_mutex_unlock(&choice.mutex);
  return HY_OK;
}

void hy__choice_changed(void) {
  pthread_mutex_lock(&choice.mutex);
  atomic_store(&choice.device, NULL);
  pthread_mutex_unlock(&choice.mutex);
}

void hy__choice_clear(void) {
  pthread_mutex_lock(&choice.mutex);
  hy__mfree(choice.chosen);
  choice.chosen = NULL;
  atomic_store(&choice.device, NULL);
  pthread_mutex_unlock(&choice.mutex);
}

hy_status hy_device_get(const char* selector, hy_device** device) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_device_get: device is NULL");
  *device = NULL;
  HY_TRY(hy_init());
  if (!selector || !*selector) return get_default(device);
  hy_device* found;
  HY_TRY(get_one(selector, strlen(selector), &found));
  *device = found;
  return HY_OK;
}

hy_status hy__device_get_local(const char* selectors, int local, hy_device** device) {
  hy_device* found = NULL;
  hy_status status;
  HY_TRY(hy_init());
  unnamed = local;
  if (selectors && *selectors) {
    status = get_list(selectors, &found);
  } else {
    pthread_mutex_lock(&choice.mutex);
    status = get_preferred(&found);
    pthread_mutex_unlock(&choice.mutex);
  }
  unnamed = 0;
  *device = status == HY_OK ? found : NULL;
  return status;
}

hy_status hy_device_get_by_type(hy_backend_type type, int index, hy_device** device) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_device_get_by_type: device is NULL");
  *device = NULL;
  const char* name = hy_backend_type_name(type);
  if (!name) return hy_fail(HY_NOT_FOUND, "%d is no type of backend", (int)type);
  if (index < 0) return hy_fail(HY_NOT_FOUND, "%s has no device number %d", name, index);
  char selector[MAX_SELECTOR];
  snprintf(selector, sizeof selector, "%s:%d", name, index);
  return hy_device_get(selector, device);
}

hy_status hy_device_get_first(const char* selectors, hy_device** device) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_device_get_first: device is NULL");
  *device = NULL;
  HY_TRY(hy_init());
  if (!selectors || !*selectors) return get_default(device);
  hy_device* found;
  HY_TRY(get_list(selectors, &found));
  *device = found;
  return HY_OK;
}
