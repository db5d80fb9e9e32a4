// A GPU of fibers: libcuda.so.1 and libnvrtc.so.13 in one file, on host memory. Told a target of
// AMD's, the compiler speaks HIP, with MFMA over wavefronts of 64 lanes. The compiler is the
// host's C++ compiler, a module is a shared library, a launch runs every block to its end before it
// returns. For tests of kernels and of the host side where there is no GPU; time means nothing here.
//
// Environment: GPU_EMULATOR_HOME, the folder of device.h; GPU_EMULATOR_DEVICES, how many devices
// there are, 1 by default; GPU_EMULATOR_REVERSE=1 runs the threads of a block in the opposite order,
// which shows races that the usual order hides.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <regex>
#include <string>
#include <vector>

#define EMU_MACHINE 1
#include "device.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

// ---- fibers ----

namespace {

const size_t STACK = 256 << 10;
const int MOST_THREADS = 1024;

enum state { READY, AT_BLOCK, AT_WARP, DONE };

struct copy {
  void* to;
  size_t size;
  unsigned char bytes[16];
};

struct fiber {
  emu_thread self;
  void* stack_pointer;
  state now;
  uint64_t mask;  // whom it waits for, of the 64 lanes of two warps
  int vote;
  std::vector<copy> open;                // copies of the group that is not committed
  std::vector<std::vector<copy>> groups;  // committed, not waited for
};

fiber* fibers;
unsigned char (*slots)[32][EMU_SLOT];
char* stacks;
void* scheduler;
void (*entry)(void**);
void** entry_arguments;
int block_vote;

// Saves the callee-saved registers on this stack, its pointer in *from, and goes on at `to`.
extern "C" void emu_switch(void** from, void* to);
asm(R"(
.globl emu_switch
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

void yield(state s);

void fiber_main() {
  entry(entry_arguments);
  yield(DONE);
}

fiber* current() { return (fiber*)emu_now; }

void yield(state s) {
  fiber* f = current();
  f->now = s;
  emu_switch(&f->stack_pointer, scheduler);
}

void prepare(fiber* f, int id, const dim3& block) {
  f->self.id = (unsigned)id;
  f->self.thread = {id % block.x, id / block.x % block.y, id / (block.x * block.y)};
  f->self.lane = (unsigned)id % 32;
  f->self.warp = (unsigned)id / 32;
  f->self.slots = slots[id / 32];
  f->self.wave = slots[id / 64 * 2];
  f->now = READY;
  f->open.clear();
  f->groups.clear();
  void** top = (void**)(stacks + (size_t)(id + 1) * STACK);
  *--top = nullptr;  // keeps the stack aligned as after a call
  *--top = (void*)fiber_main;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  f->stack_pointer = top;
}

void run_fiber(fiber* f) {
  emu_now = &f->self;
  emu_switch(&scheduler, f->stack_pointer);
}

// A warp's barrier opens when all lanes of its mask that still run are there. A wavefront of 64
// lanes has barriers of its own, which a half that waits for itself has not reached.
bool open_warp_barriers(int n) {
  bool opened = false;
  for (int base = 0; base < n; base += 64) {
    for (int l = 0; l < 64 && base + l < n; l++) {
      fiber* f = &fibers[base + l];
      if (f->now != AT_WARP) continue;
      bool all = true, whole = f->mask == ~(uint64_t)0;
      for (int o = 0; o < 64 && base + o < n; o++) {
        fiber* other = &fibers[base + o];
        bool there = other->now == AT_WARP && (other->mask == ~(uint64_t)0) == whole;
        if (f->mask >> o & 1) all = all && (there || other->now == DONE);
      }
      if (!all) continue;
      uint64_t mask = f->mask;
      for (int o = 0; o < 64 && base + o < n; o++) {
        if ((mask >> o & 1) && fibers[base + o].now == AT_WARP) fibers[base + o].now = READY;
      }
      opened = true;
    }
  }
  return opened;
}

void run_block(int n, bool reverse) {
  for (;;) {
    bool ran = false;
    int done = 0;
    for (int i = 0; i < n; i++) {
      fiber* f = &fibers[reverse ? n - 1 - i : i];
      if (f->now == READY) {
        run_fiber(f);
        ran = true;
      }
    }
    if (open_warp_barriers(n) || ran) continue;
    int waiting = 0;
    for (int i = 0; i < n; i++) {
      done += fibers[i].now == DONE;
      waiting += fibers[i].now == AT_BLOCK;
    }
    if (done == n) return;
    if (waiting + done != n) {
      fprintf(stderr, "gpu emulator: deadlock: a warp's barrier is not reached by all its lanes\n");
      abort();
    }
    block_vote = 0;
    for (int i = 0; i < n; i++) {
      if (fibers[i].now == AT_BLOCK) block_vote += fibers[i].vote;
    }
    for (int i = 0; i < n; i++) {
      if (fibers[i].now == AT_BLOCK) fibers[i].now = READY;
    }
  }
}

std::mutex machine;
unsigned char* shared_memory;

void ready_machine() {
  if (fibers) return;
  fibers = new fiber[MOST_THREADS];
  slots = (decltype(slots))calloc(MOST_THREADS / 32, sizeof *slots);  // neighbours, as emu_thread says
  stacks = (char*)mmap(nullptr, STACK * MOST_THREADS, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  shared_memory = (unsigned char*)aligned_alloc(1024, 256 << 10);
}

}  // namespace

extern "C" {
emu_thread* emu_now;
emu_grid emu_launch;

void emu_barrier_block(void) {
  current()->vote = 0;
  yield(AT_BLOCK);
}

int emu_count(int predicate) {
  current()->vote = predicate;
  yield(AT_BLOCK);
  return block_vote;
}

void emu_barrier_warp(unsigned mask) {
  current()->mask = (uint64_t)mask << (current()->self.id & 32);
  yield(AT_WARP);
}

void emu_barrier_wave(void) {
  current()->mask = ~(uint64_t)0;
  yield(AT_WARP);
}

static void copy_async(void* to, const void* from, int bytes, size_t size) {
  if (((size_t)to | (bytes ? (size_t)from : 0)) % size) {
    fprintf(stderr, "gpu emulator: cp.async of a misaligned address\n");
    abort();
  }
  copy c = {to, size, {0}};
  if (bytes > 0) memcpy(c.bytes, from, (size_t)bytes);
  memset(to, 0xff, size);  // NaN until it is there
  current()->open.push_back(c);
}

void emu_copy_async(void* to, const void* from, int bytes) { copy_async(to, from, bytes, 16); }
void emu_copy_async_4(void* to, const void* from, int bytes) { copy_async(to, from, bytes, 4); }

void emu_copy_commit(void) {
  fiber* f = current();
  f->groups.push_back(f->open);
  f->open.clear();
}

void emu_copy_wait(int pending) {
  fiber* f = current();
  while ((int)f->groups.size() > pending) {
    for (const copy& c : f->groups.front()) memcpy(c.to, c.bytes, c.size);
    f->groups.erase(f->groups.begin());
  }
}

// ---- the driver ----

enum { OK = 0, BAD_VALUE = 1, NO_MEMORY = 2, NOT_FOUND = 500, NOT_CAPTURING = 902 };

// Work of a capturing stream is kept; any other runs at once.
struct emu_graph {
  std::vector<std::function<void()>> nodes;
};
struct emu_stream {
  emu_graph* capturing;
};
static int give(void* stream, std::function<void()> work) {
  emu_graph* graph = stream ? ((emu_stream*)stream)->capturing : nullptr;
  if (graph)
    graph->nodes.push_back(work);
  else
    work();
  return OK;
}
static int may_wait(void* stream) {
  return stream && ((emu_stream*)stream)->capturing ? 900 : OK;
}
#define API __attribute__((visibility("default"))) int

// For the libraries over the emulator: work of theirs that a capture keeps. `context` is freed with
// the process.
API emu_enqueue(void* stream, void (*work)(void*), void* context) {
  return give(stream, [=] { work(context); });
}

API cuInit(unsigned) { return OK; }
API cuDriverGetVersion(int* v) { return *v = 13000, OK; }
API cuGetErrorName(int e, const char** name) {
  return *name = e == OK ? "CUDA_SUCCESS" : "CUDA_ERROR_EMULATED", OK;
}
API cuGetErrorString(int, const char** text) { return *text = "an error of the emulator", OK; }
API cuDeviceGetCount(int* n) {
  const char* asked = getenv("GPU_EMULATOR_DEVICES");
  return *n = asked ? atoi(asked) : 1, OK;
}
API cuDeviceGet(int* device, int index) { return *device = index, OK; }
API cuDeviceGetName(char* name, int size, int) {
  return snprintf(name, (size_t)size, "Emulated GPU"), OK;
}
API cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = (size_t)8 << 30, OK; }
API cuDeviceGetPCIBusId(char* id, int size, int device) {
  return snprintf(id, (size_t)size, "0000:%02x:00.0", device & 255), OK;
}
API cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 1: *value = 1024; break;          // threads a block
    case 8: *value = 48 << 10; break;      // shared memory a block
    case 10: *value = 32; break;           // warp
    case 16: *value = 4; break;            // multiprocessors
    case 38: *value = 4 << 20; break;      // second cache
    case 39: *value = 2048; break;         // threads a multiprocessor
    case 75: *value = 8; break;            // compute capability
    case 76: *value = 0; break;
    case 97: *value = 160 << 10; break;    // shared memory a block can ask for
    default: *value = 0;
  }
  return OK;
}
// One machine is behind all devices; contexts tell them apart.
static char contexts[64];
static thread_local void* current_contexts[16];
static thread_local int n_current;
API cuDevicePrimaryCtxRetain(void** context, int device) {
  return *context = &contexts[device & 63], OK;
}
API cuDevicePrimaryCtxRelease_v2(int) { return OK; }
API cuDevicePrimaryCtxRelease(int) { return OK; }
API cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  return *flags = 0, *active = 1, OK;
}
API cuCtxGetCurrent(void** context) {
  return *context = n_current ? current_contexts[n_current - 1] : nullptr, OK;
}
API cuCtxSetCurrent(void* context) {
  if (n_current == 0) n_current = 1;
  return current_contexts[n_current - 1] = context, OK;
}
API cuCtxPushCurrent_v2(void* context) {
  if (n_current == 16) return NO_MEMORY;
  return current_contexts[n_current++] = context, OK;
}
API cuCtxPopCurrent_v2(void** context) {
  if (n_current == 0) return 201;  // no context
  return *context = current_contexts[--n_current], OK;
}
API cuCtxGetDevice(int* device) {
  if (n_current == 0) return 201;
  return *device = (int)((char*)current_contexts[n_current - 1] - contexts), OK;
}
API cuCtxSynchronize(void) { return OK; }
API cuMemGetInfo_v2(size_t* available, size_t* total) {
  return *available = (size_t)6 << 30, *total = (size_t)8 << 30, OK;
}
API cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  void* p = bytes > (size_t)8 << 30 ? nullptr : aligned_alloc(256, (bytes + 255) / 256 * 256);
  *address = (uint64_t)p;
  if (p) memset(p, 0xff, bytes);
  return p ? OK : NO_MEMORY;
}
API cuMemFree_v2(uint64_t address) { return free((void*)address), OK; }
API cuMemHostAlloc(void** p, size_t bytes, unsigned) {
  return *p = aligned_alloc(256, (bytes + 255) / 256 * 256), *p ? OK : NO_MEMORY;
}
API cuMemFreeHost(void* p) { return free(p), OK; }
API cuMemHostGetDevicePointer_v2(uint64_t* address, void* p, unsigned) {
  return *address = (uint64_t)p, OK;
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t n, void*) {
  return memmove((void*)to, from, n), OK;
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t n, void*) {
  return memmove(to, (void*)from, n), OK;
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void* stream) {
  return give(stream, [=] { memmove((void*)to, (void*)from, n); });
}
API cuMemcpyPeerAsync(uint64_t to, void*, uint64_t from, void*, size_t n, void* stream) {
  return cuMemcpyDtoDAsync_v2(to, from, n, stream);
}
API cuDeviceCanAccessPeer(int* can, int, int) { return *can = 0, OK; }
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t n, void* stream) {
  return give(stream, [=] { memset((void*)to, value, n); });
}
API cuStreamCreate(void** stream, unsigned) { return *stream = new emu_stream{nullptr}, OK; }
API cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}
API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -5, OK;
}
API cuStreamDestroy_v2(void* stream) { return delete (emu_stream*)stream, OK; }
API cuStreamSynchronize(void* stream) { return may_wait(stream); }
API cuStreamQuery(void* stream) { return may_wait(stream); }
API cuStreamWaitEvent(void*, void*, unsigned) { return OK; }

API cuStreamBeginCapture_v2(void* stream, int) {
  return ((emu_stream*)stream)->capturing = new emu_graph, OK;
}
API cuStreamEndCapture(void* stream, void** graph) {
  *graph = ((emu_stream*)stream)->capturing;
  ((emu_stream*)stream)->capturing = nullptr;
  return *graph ? OK : NOT_CAPTURING;
}
API cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  return *executable = new emu_graph(*(emu_graph*)graph), OK;
}
API cuGraphLaunch(void* executable, void*) {
  for (const auto& node : ((emu_graph*)executable)->nodes) node();
  return OK;
}
API cuGraphDestroy(void* graph) { return delete (emu_graph*)graph, OK; }
API cuGraphExecDestroy(void* graph) { return delete (emu_graph*)graph, OK; }

API cuEventCreate(void** event, unsigned) { return *event = calloc(1, sizeof(double)), OK; }
API cuEventDestroy_v2(void* event) { return free(event), OK; }
API cuEventRecord(void* event, void*) {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return *(double*)event = std::chrono::duration<double, std::milli>(now).count(), OK;
}
API cuEventQuery(void*) { return OK; }
API cuEventSynchronize(void*) { return OK; }
API cuEventElapsedTime(float* ms, void* a, void* b) {
  return *ms = (float)(*(double*)b - *(double*)a), OK;
}
API cuEventElapsedTime_v2(float* ms, void* a, void* b) { return cuEventElapsedTime(ms, a, b); }

// An image is the path of a shared library behind a mark.
static const char MARK[] = "gpu-emulator:";
API cuModuleLoadData(void** module, const void* image) {
  if (memcmp(image, MARK, sizeof MARK - 1) != 0) return BAD_VALUE;
  *module = dlopen((const char*)image + sizeof MARK - 1, RTLD_NOW | RTLD_LOCAL);
  if (!*module) fprintf(stderr, "gpu emulator: %s\n", dlerror());
  return *module ? OK : BAD_VALUE;
}
API cuModuleUnload(void* module) { return dlclose(module), OK; }
struct emu_function {
  void (*enter)(void**);
  void** (*keep)(void**);
  // Dynamic shared memory a launch may have. 48 KiB need no asking on a GPU, less what the kernel
  // has of static shared memory, which is unknown here: 1 KiB stands for it.
  unsigned shared = 47 << 10;
};
API cuModuleGetFunction(void** function, void* module, const char* name) {
  void* enter = dlsym(module, (std::string("emu_entry_") + name).c_str());
  void* keep = dlsym(module, (std::string("emu_keep_") + name).c_str());
  if (!enter || !keep) return NOT_FOUND;
  return *function = new emu_function{(void (*)(void**))enter, (void** (*)(void**))keep}, OK;
}
API cuFuncSetAttribute(void* function, int attribute, int value) {
  enum { MAX_DYNAMIC_SHARED = 8 };
  if (attribute == MAX_DYNAMIC_SHARED) ((emu_function*)function)->shared = (unsigned)value;
  return OK;
}

static void run_grid(const emu_function* function, const emu_grid& grid, unsigned shared_bytes,
                     void** arguments) {
  std::lock_guard<std::mutex> lock(machine);
  ready_machine();
  const char* order = getenv("GPU_EMULATOR_REVERSE");
  unsigned n = grid.block.x * grid.block.y * grid.block.z;
  entry = function->enter;
  entry_arguments = arguments;
  emu_launch = grid;
  emu_launch.shared = shared_memory;
  for (unsigned z = 0; z < grid.grid.z; z++) {
    for (unsigned y = 0; y < grid.grid.y; y++) {
      for (unsigned x = 0; x < grid.grid.x; x++) {
        emu_launch.index = {x, y, z};
        memset(shared_memory, 0xff, shared_bytes);
        for (unsigned i = 0; i < n; i++) prepare(&fibers[i], (int)i, emu_launch.block);
        run_block((int)n, order && *order == '1');
      }
    }
  }
}

API cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared_bytes, void* stream, void** arguments, void**) {
  unsigned n = bx * by * bz;
  const emu_function* f = (const emu_function*)function;
  if (n == 0 || n > MOST_THREADS || gx == 0 || gy == 0 || gz == 0 || gy > 65535 || gz > 65535 ||
      shared_bytes > f->shared || shared_bytes > 160 << 10)
    return BAD_VALUE;
  emu_grid grid = {{gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, nullptr};
  if (stream && ((emu_stream*)stream)->capturing) arguments = f->keep(arguments);
  return give(stream, [=] { run_grid(f, grid, shared_bytes, arguments); });
}

// A kernel that may start early starts when it may at the latest.
struct emu_configuration {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
};
API cuLaunchKernelEx(const void* how, void* function, void** arguments, void** extra) {
  const emu_configuration* c = (const emu_configuration*)how;
  return cuLaunchKernel(function, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
                        c->block[2], c->shared_bytes, c->stream, arguments, extra);
}

// ---- the compiler ----

struct program {
  std::string source, name, log, image;
  std::vector<std::string> headers, header_names;
};

API nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, OK; }
API nvrtcCreateProgram(void** p, const char* source, const char* name, int n,
                       const char* const* headers, const char* const* names) {
  program* made = new program{source, name ? name : "kernel", "", "", {}, {}};
  for (int i = 0; i < n; i++) {
    made->headers.push_back(headers[i]);
    made->header_names.push_back(names[i]);
  }
  return *p = made, OK;
}
API nvrtcDestroyProgram(void** p) { return delete (program*)*p, *p = nullptr, OK; }

static std::string read_file(const std::string& path) {
  std::string text;
  if (FILE* f = fopen(path.c_str(), "r")) {
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;) text.append(buffer, n);
    fclose(f);
  }
  return text;
}

static void write_file(const std::string& path, const std::string& text) {
  if (FILE* f = fopen(path.c_str(), "w")) {
    fwrite(text.data(), 1, text.size(), f);
    fclose(f);
  }
}

static std::string translate(std::string text) {
  static const std::regex dynamic_array(
      "extern\\s+__shared__\\s+((?:alignas|__align__)\\s*\\(\\d+\\)\\s+)?([\\w ]+?)\\s+(\\w+)\\s*\\[\\s*\\]\\s*;");
  return std::regex_replace(text, dynamic_array, "$2* $3 = ($2*)emu_launch.shared;");
}

// After preprocessing, an entry is a function with the mark that device.h gives __global__.
static std::string entries_of(const std::string& text) {
  static const std::regex entry_line(
      "extern\\s+\"C\"\\s+__attribute__\\(\\(used\\)\\)\\s+void\\s+(\\w+)\\s*\\(");
  std::string all;
  for (std::sregex_iterator i(text.begin(), text.end(), entry_line), end; i != end; ++i)
    all += "extern \"C\" void emu_entry_" + (*i)[1].str() + "(void** a) { emu_enter(" +
           (*i)[1].str() + ", a); }\nextern \"C\" void** emu_keep_" + (*i)[1].str() +
           "(void** a) { return emu_keep(" + (*i)[1].str() + ", a); }\n";
  return all;
}

API nvrtcCompileProgram(void* handle, int n, const char* const* options) {
  program* p = (program*)handle;
  const char* home = getenv("GPU_EMULATOR_HOME");
  std::string folder = "/tmp/gpu-emulator-XXXXXX", flags;
  if (!home || !mkdtemp(&folder[0])) return 11;
  bool hip = false;
  for (int i = 0; i < n; i++) {
    if (strncmp(options[i], "-D", 2) == 0) flags += std::string(" '") + options[i] + "'";
    if (strncmp(options[i], "--offload-arch=", 15) == 0) {
      flags += std::string(" -DEMU_HIP=1 '-D__") + (options[i] + 15) + "__=1'";
      hip = true;
    }
  }
  for (size_t i = 0; i < p->headers.size(); i++) {
    std::string own = read_file(std::string(home) + "/" + p->header_names[i]);
    bool replaced = p->header_names[i] == "tensor_core.cuh" && !own.empty() && !hip;
    write_file(folder + "/" + p->header_names[i], replaced ? own : translate(p->headers[i]));
  }
  Dl_info own;
  dladdr((void*)&emu_now, &own);
  std::string source = folder + "/kernel.cc", text = folder + "/kernel.ii";
  std::string library = folder + "/kernel.so", log = " 2>>" + folder + "/log";
  write_file(source,
             "#include \"device.h\"\n#line 1 \"" + p->name + "\"\n" + translate(p->source) + "\n");
  std::string preprocess =
      "g++ -std=c++17 -w -E -I" + folder + " -I" + home + flags + " -o " + text + " " + source + log;
  int failed = system(preprocess.c_str());
  std::string plain = read_file(text);
  write_file(text, plain + "\n" + entries_of(plain));
  // Shared memory of a template is a unique symbol, which kernels of other types would have too.
  std::string compile =
      "g++ -std=c++17 -O1 -w -fPIC -shared -fno-gnu-unique -fno-strict-aliasing -ffp-contract=off -o " + library +
      " " + text + " " + own.dli_fname + log;
  if (!failed) failed = system(compile.c_str());
  p->log = read_file(folder + "/log");
  p->image = std::string(MARK) + library;
  return failed ? 6 : OK;
}
API nvrtcGetProgramLogSize(void* p, size_t* n) { return *n = ((program*)p)->log.size() + 1, OK; }
API nvrtcGetProgramLog(void* p, char* text) {
  return strcpy(text, ((program*)p)->log.c_str()), OK;
}
API nvrtcGetCUBINSize(void* p, size_t* n) { return *n = ((program*)p)->image.size() + 1, OK; }
API nvrtcGetCUBIN(void* p, char* image) { return strcpy(image, ((program*)p)->image.c_str()), OK; }
API nvrtcGetPTXSize(void* p, size_t* n) { return nvrtcGetCUBINSize(p, n); }
API nvrtcGetPTX(void* p, char* image) { return nvrtcGetCUBIN(p, image); }
API nvrtcGetErrorString(int) { return 0; }
}
