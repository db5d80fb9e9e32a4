// HIP over CUDA, for tests: a libamdhip64.so whose entry points call NVIDIA's driver and NVRTC, so
// that the hip backend runs on an NVIDIA GPU, or on the emulated one (tests/gpu_emulator). It has
// what src/backends/hip uses and no more; its signatures are HIP's, written by hand.
//
// Environment: HIP_ON_CUDA_TARGET, the gfx name of the devices, gfx1100 where it is not set: a
// target for which kernels use no matrix cores, whose instructions differ between the two makers.
// HIP_ON_CUDA_NAME, their name. HIP_ON_CUDA_NVRTC, the file of NVRTC. The emulated compiler knows
// the gfx names; a real one is told its own target.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default"))) int
enum { OK = 0, BAD_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, BAD_DEVICE = 101 };
enum { MAX_DEVICES = 64 };

// ---- the libraries below ----

static void* driver(const char* name) {
  static void* library;
  if (!library) library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* symbol = library ? dlsym(library, name) : NULL;
  if (!symbol) {
    fprintf(stderr, "hip on cuda: there is no %s\n", name);
    abort();
  }
  return symbol;
}

static void* compiler(const char* name) {
  static void* library;
  const char* file = getenv("HIP_ON_CUDA_NVRTC");
  if (!library) library = dlopen(file ? file : "libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL);
  if (!library && !file) library = dlopen("libnvrtc.so.12", RTLD_NOW | RTLD_LOCAL);
  void* symbol = library ? dlsym(library, name) : NULL;
  if (!symbol) {
    fprintf(stderr, "hip on cuda: there is no %s\n", name);
    abort();
  }
  return symbol;
}

#define CALL(symbol, parameters, ...) (((int(*) parameters)driver(symbol))(__VA_ARGS__))
#define COMPILE(symbol, parameters, ...) (((int(*) parameters)compiler(symbol))(__VA_ARGS__))

// ---- devices: HIP's current device is CUDA's current context ----

static void* contexts[MAX_DEVICES];
static _Thread_local int current;

static int retain(int device) {
  if (device < 0 || device >= MAX_DEVICES) return BAD_DEVICE;
  return contexts[device]
             ? OK
             : CALL("cuDevicePrimaryCtxRetain", (void**, int), &contexts[device], device);
}

static int enter(void) {
  int error = retain(current);
  return error ? error : CALL("cuCtxSetCurrent", (void*), contexts[current]);
}

#define ENTERED(...)           \
  do {                         \
    int error_ = enter();      \
    if (error_) return error_; \
    return __VA_ARGS__;        \
  } while (0)

API hipInit(unsigned flags) {
  return CALL("cuInit", (unsigned), flags);
}
API hipRuntimeGetVersion(int* version) {
  *version = 60200000;
  return OK;
}
API hipGetDeviceCount(int* count) {
  return CALL("cuDeviceGetCount", (int*), count);
}
API hipGetDevice(int* device) {
  *device = current;
  return OK;
}
API hipSetDevice(int device) {
  int count = 0, error = hipGetDeviceCount(&count);
  if (error) return error;
  if (device < 0 || device >= count) return BAD_DEVICE;
  current = device;
  return enter();
}
API hipDeviceGet(int* device, int ordinal) {
  return CALL("cuDeviceGet", (int*, int), device, ordinal);
}

static int cuda_name(char* name, int size, int device) {
  return CALL("cuDeviceGetName", (char*, int, int), name, size, device);
}
static int is_emulated(void) {
  char name[64] = "";
  cuda_name(name, sizeof name, 0);
  return !strcmp(name, "Emulated GPU");
}

API hipDeviceGetName(char* name, int size, int device) {
  const char* given = getenv("HIP_ON_CUDA_NAME");
  if (!given) return cuda_name(name, size, device);
  snprintf(name, (size_t)size, "%s", given);
  return OK;
}
API hipDeviceTotalMem(size_t* bytes, int device) {
  return CALL("cuDeviceTotalMem_v2", (size_t*, int), bytes, device);
}
API hipDeviceGetPCIBusId(char* text, int size, int device) {
  return CALL("cuDeviceGetPCIBusId", (char*, int, int), text, size, device);
}
API hipDeviceGetAttribute(int* value, int attribute, int device) {
  static const short cuda[][2] = {{56, 1},  {87, 10}, {63, 16}, {67, 33}, {68, 34}, {69, 50},
                                  {60, 36}, {59, 37}, {19, 38}, {23, 75}, {61, 76}};
  enum { SHARED_BYTES = 74 };
  if (attribute == SHARED_BYTES) {
    *value = 64 << 10;
    return OK;
  }
  for (size_t i = 0; i < sizeof cuda / sizeof cuda[0]; i++)
    if (cuda[i][0] == attribute)
      return CALL("cuDeviceGetAttribute", (int*, int, int), value, cuda[i][1], device);
  return BAD_VALUE;
}

// hipDeviceProp_t of HIP 6: 1472 bytes, the target's name at 1160.
API hipGetDevicePropertiesR0600(void* properties, int device) {
  const char* target = getenv("HIP_ON_CUDA_TARGET");
  memset(properties, 0, 1472);
  snprintf((char*)properties + 1160, 256, "%s:sramecc+:xnack-", target ? target : "gfx1100");
  return hipDeviceGetName(properties, 256, device);
}

API hipDeviceSynchronize(void) {
  ENTERED(CALL("cuCtxSynchronize", (void), ));
}

static const char* text_of(const char* symbol, int error) {
  const char* text = "unknown";
  CALL(symbol, (int, const char**), error, &text);
  return text;
}
__attribute__((visibility("default"))) const char* hipGetErrorName(int error) {
  return text_of("cuGetErrorName", error);
}
__attribute__((visibility("default"))) const char* hipGetErrorString(int error) {
  return text_of("cuGetErrorString", error);
}

// ---- memory ----

API hipMemGetInfo(size_t* available, size_t* total) {
  ENTERED(CALL("cuMemGetInfo_v2", (size_t*, size_t*), available, total));
}
API hipMalloc(void** address, size_t bytes) {
  ENTERED(CALL("cuMemAlloc_v2", (void**, size_t), address, bytes));
}
API hipFree(void* address) {
  ENTERED(CALL("cuMemFree_v2", (void*), address));
}
API hipHostMalloc(void** address, size_t bytes, unsigned flags) {
  ENTERED(CALL("cuMemHostAlloc", (void**, size_t, unsigned), address, bytes, flags));
}
API hipHostFree(void* address) {
  ENTERED(CALL("cuMemFreeHost", (void*), address));
}
API hipHostGetDevicePointer(void** address, void* host, unsigned flags) {
  ENTERED(CALL("cuMemHostGetDevicePointer_v2", (void**, void*, unsigned), address, host, flags));
}
API hipMemcpyHtoDAsync(void* dst, void* src, size_t bytes, void* stream) {
  ENTERED(CALL("cuMemcpyHtoDAsync_v2", (void*, void*, size_t, void*), dst, src, bytes, stream));
}
API hipMemcpyDtoHAsync(void* dst, void* src, size_t bytes, void* stream) {
  ENTERED(CALL("cuMemcpyDtoHAsync_v2", (void*, void*, size_t, void*), dst, src, bytes, stream));
}
API hipMemcpyDtoDAsync(void* dst, void* src, size_t bytes, void* stream) {
  ENTERED(CALL("cuMemcpyDtoDAsync_v2", (void*, void*, size_t, void*), dst, src, bytes, stream));
}
API hipMemsetD8Async(void* dst, unsigned char value, size_t count, void* stream) {
  ENTERED(
      CALL("cuMemsetD8Async", (void*, unsigned char, size_t, void*), dst, value, count, stream));
}
API hipDeviceCanAccessPeer(int* can, int device, int peer) {
  return CALL("cuDeviceCanAccessPeer", (int*, int, int), can, device, peer);
}
API hipMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device, size_t bytes,
                       void* stream) {
  int error = retain(dst_device);
  if (!error) error = retain(src_device);
  if (error) return error;
  ENTERED(CALL("cuMemcpyPeerAsync", (void*, void*, const void*, void*, size_t, void*), dst,
               contexts[dst_device], src, contexts[src_device], bytes, stream));
}
API hipPointerGetAttribute(void* value, int attribute, void* address) {
  return CALL("cuPointerGetAttribute", (void*, int, void*), value, attribute, address);
}

// ---- streams and events ----

API hipStreamCreateWithFlags(void** stream, unsigned flags) {
  ENTERED(CALL("cuStreamCreate", (void**, unsigned), stream, flags));
}
API hipStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  ENTERED(CALL("cuStreamCreateWithPriority", (void**, unsigned, int), stream, flags, priority));
}
API hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  ENTERED(CALL("cuCtxGetStreamPriorityRange", (int*, int*), least, greatest));
}
API hipStreamDestroy(void* stream) {
  ENTERED(CALL("cuStreamDestroy_v2", (void*), stream));
}
API hipStreamSynchronize(void* stream) {
  ENTERED(CALL("cuStreamSynchronize", (void*), stream));
}
API hipStreamQuery(void* stream) {
  ENTERED(CALL("cuStreamQuery", (void*), stream));
}
API hipStreamWaitEvent(void* stream, void* event, unsigned flags) {
  ENTERED(CALL("cuStreamWaitEvent", (void*, void*, unsigned), stream, event, flags));
}
API hipEventCreateWithFlags(void** event, unsigned flags) {
  ENTERED(CALL("cuEventCreate", (void**, unsigned), event, flags));
}
API hipEventDestroy(void* event) {
  ENTERED(CALL("cuEventDestroy_v2", (void*), event));
}
API hipEventRecord(void* event, void* stream) {
  ENTERED(CALL("cuEventRecord", (void*, void*), event, stream));
}
API hipEventQuery(void* event) {
  ENTERED(CALL("cuEventQuery", (void*), event));
}
API hipEventSynchronize(void* event) {
  ENTERED(CALL("cuEventSynchronize", (void*), event));
}
API hipEventElapsedTime(float* milliseconds, void* start, void* stop) {
  ENTERED(CALL("cuEventElapsedTime", (float*, void*, void*), milliseconds, start, stop));
}

// ---- modules, launches, graphs ----

API hipModuleLoadData(void** module, const void* image) {
  ENTERED(CALL("cuModuleLoadData", (void**, const void*), module, image));
}
API hipModuleUnload(void* module) {
  ENTERED(CALL("cuModuleUnload", (void*), module));
}
API hipModuleGetFunction(void** function, void* module, const char* name) {
  ENTERED(CALL("cuModuleGetFunction", (void**, void*, const char*), function, module, name));
}
API hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void* stream, void** arguments,
                          void** extra) {
  enum { MAX_DYNAMIC_SHARED = 8, USUAL = 48 << 10, MOST = 64 << 10 };
  int error = enter();
  // On AMD's GPUs shared memory needs no asking, and there is no more.
  if (shared > MOST) return BAD_VALUE;
  if (!error && shared > USUAL)
    error =
        CALL("cuFuncSetAttribute", (void*, int, int), function, MAX_DYNAMIC_SHARED, (int)shared);
  if (error) return error;
  return CALL("cuLaunchKernel",
              (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
               void**, void**),
              function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);
}
API hipStreamBeginCapture(void* stream, int mode) {
  ENTERED(CALL("cuStreamBeginCapture_v2", (void*, int), stream, mode));
}
API hipStreamEndCapture(void* stream, void** graph) {
  ENTERED(CALL("cuStreamEndCapture", (void*, void**), stream, graph));
}
API hipGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
  ENTERED(CALL("cuGraphInstantiateWithFlags", (void**, void*, unsigned long long), executable,
               graph, flags));
}
API hipGraphLaunch(void* executable, void* stream) {
  ENTERED(CALL("cuGraphLaunch", (void*, void*), executable, stream));
}
API hipGraphDestroy(void* graph) {
  ENTERED(CALL("cuGraphDestroy", (void*), graph));
}
API hipGraphExecDestroy(void* executable) {
  ENTERED(CALL("cuGraphExecDestroy", (void*), executable));
}

// ---- hiprtc ----

API hiprtcVersion(int* major, int* minor) {
  return COMPILE("nvrtcVersion", (int*, int*), major, minor);
}
API hiprtcCreateProgram(void** program, const char* source, const char* name, int count,
                        const char** headers, const char** names) {
  return COMPILE("nvrtcCreateProgram",
                 (void**, const char*, const char*, int, const char**, const char**), program,
                 source, name, count, headers, names);
}
API hiprtcDestroyProgram(void** program) {
  return COMPILE("nvrtcDestroyProgram", (void**), program);
}
API hiprtcCompileProgram(void* program, int count, const char** options) {
  const char* list[64];
  char own[64];
  int major = 0, minor = 0, device = 0;
  if (count > 64) return BAD_VALUE;
  hipDeviceGet(&device, current);
  hipDeviceGetAttribute(&major, 23, device);
  hipDeviceGetAttribute(&minor, 61, device);
  snprintf(own, sizeof own, "--gpu-architecture=sm_%d%d%s", major, minor, major == 9 ? "a" : "");
  for (int i = 0; i < count; i++) {
    int is_target = !strncmp(options[i], "--offload-arch=", 15);
    list[i] = is_target && !is_emulated() ? own : options[i];
  }
  return COMPILE("nvrtcCompileProgram", (void*, int, const char**), program, count, list);
}
API hiprtcGetProgramLogSize(void* program, size_t* bytes) {
  return COMPILE("nvrtcGetProgramLogSize", (void*, size_t*), program, bytes);
}
API hiprtcGetProgramLog(void* program, char* text) {
  return COMPILE("nvrtcGetProgramLog", (void*, char*), program, text);
}
API hiprtcGetCodeSize(void* program, size_t* bytes) {
  return COMPILE("nvrtcGetCUBINSize", (void*, size_t*), program, bytes);
}
API hiprtcGetCode(void* program, char* image) {
  return COMPILE("nvrtcGetCUBIN", (void*, char*), program, image);
}
