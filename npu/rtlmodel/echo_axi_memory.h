// echo_axi_memory.h - the memory side of the simulated bus: answers AXI4 bursts from an echo_ram
// after a latency, one beat a cycle in each direction, in order; and watches that the device keeps
// the rules of AXI4.
#ifndef ECHO_AXI_MEMORY_H
#define ECHO_AXI_MEMORY_H

#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "Vecho_npu_top.h"
#include "echo_rtlmodel.h"

class EchoAxiMemory {
 public:
  EchoAxiMemory(Vecho_npu_top* top, const echo_ram* ram) : top_(top), ram_(ram) {}

  void set_bus(const echo_rtl_bus& bus) {
    bus_ = bus;
    random_ = bus.seed * 2 + 1;
  }

  // Once a block has been told, beats outside all blocks are answered with DECERR; the ring may be
  // read. From any thread.
  void track(uint64_t addr, uint64_t bytes, bool allocated) {
    std::lock_guard<std::mutex> hold(lock_);
    tracked_ = true;
    if (allocated)
      blocks_[addr] = bytes;
    else
      blocks_.erase(addr);
  }
  void set_ring(uint64_t base, uint64_t bytes) {
    ring_base_ = base;
    ring_bytes_ = bytes;
  }

  // The first rule that was broken; nullptr: none.
  const char* violation() const { return violation_; }

  // Before the clock edge of `cycle`: looks at what the device drives, decides what the memory
  // drives.
  void drive(uint64_t cycle) {
    watch();
    answer(cycle);
    remember();
  }

 private:
  void answer(uint64_t cycle) {
    if (bus_.freeze_at && cycle >= bus_.freeze_at) {
      top_->m_axi_arready = top_->m_axi_awready = top_->m_axi_wready = 0;
      top_->m_axi_rvalid = top_->m_axi_bvalid = 0;
      return;
    }
    top_->m_axi_rvalid = 0;
    const bool open_write = bus_.serial && !writes_.empty();
    if (!reads_.empty() && reads_.front().ready <= cycle && !open_write && moves()) {
      Burst& burst = reads_.front();
      top_->m_axi_rvalid = 1;
      top_->m_axi_rresp = load(burst.addr);
      burst.addr += kBeat;
      if (--burst.beats == 0) reads_.pop_front();
    }
    top_->m_axi_bvalid = 0;
    if (!answers_.empty() && answers_.front().ready <= cycle && moves()) {
      top_->m_axi_bvalid = 1;
      top_->m_axi_bresp = answers_.front().response;
      answers_.pop_front();
    }
    top_->m_axi_wready = !writes_.empty() && moves();
    if (top_->m_axi_wready && top_->m_axi_wvalid) {
      Burst& burst = writes_.front();
      burst.response |= store(burst.addr);
      burst.addr += kBeat;
      expect(top_->m_axi_wlast == (burst.beats == 1),
             "WLAST is with the last beat, and only there");
      if (--burst.beats == 0) {
        burst.ready = cycle + bus_.latency;
        answers_.push_back(burst);
        writes_.pop_front();
      }
    }
    top_->m_axi_arready = moves();
    if (top_->m_axi_arready && top_->m_axi_arvalid)
      reads_.push_back({top_->m_axi_araddr, top_->m_axi_arlen + 1u, cycle + bus_.latency, 0});
    top_->m_axi_awready = moves();
    if (top_->m_axi_awready && top_->m_axi_awvalid)
      writes_.push_back({top_->m_axi_awaddr, top_->m_axi_awlen + 1u, 0, 0});
  }

  static constexpr uint64_t kBeat = sizeof(Vecho_npu_top::m_axi_rdata);
  static constexpr uint8_t kSlaveError = 2, kDecodeError = 3;
  struct Burst {
    uint64_t addr;
    uint32_t beats;
    uint64_t ready;
    uint8_t response;
  };

  // What a channel showed in the cycle before, where it was not taken: it must show the same again.
  struct Held {
    bool waits;
    uint64_t addr;    // or the strobes
    uint32_t length;  // or WLAST
  };

  void expect(bool kept, const char* rule) {
    if (!kept && !violation_) violation_ = rule;
  }

  void watch_address(bool valid, uint64_t addr, uint32_t length, const Held& held) {
    if (held.waits)
      expect(valid && addr == held.addr && length == held.length,
             "an address stays until it is taken");
    if (valid)
      expect(addr / 4096 == (addr + (length + 1) * kBeat - 1) / 4096, "a burst stays inside 4 KiB");
  }

  // A device in reset shows nothing.
  void watch() {
    if (!top_->resetn) {
      read_ = write_ = data_ = {};
      return;
    }
    watch_address(top_->m_axi_arvalid, top_->m_axi_araddr, top_->m_axi_arlen, read_);
    watch_address(top_->m_axi_awvalid, top_->m_axi_awaddr, top_->m_axi_awlen, write_);
    if (data_.waits)
      expect(top_->m_axi_wvalid && top_->m_axi_wstrb == data_.addr &&
                 top_->m_axi_wlast == data_.length &&
                 !memcmp(&top_->m_axi_wdata, held_data_, kBeat),
             "data stays until it is taken");
  }

  void remember() {
    read_ = {top_->m_axi_arvalid && !top_->m_axi_arready, top_->m_axi_araddr, top_->m_axi_arlen};
    write_ = {top_->m_axi_awvalid && !top_->m_axi_awready, top_->m_axi_awaddr, top_->m_axi_awlen};
    data_ = {top_->m_axi_wvalid && !top_->m_axi_wready, top_->m_axi_wstrb, top_->m_axi_wlast};
    if (data_.waits) memcpy(held_data_, &top_->m_axi_wdata, kBeat);
  }

  bool moves() {
    if (!bus_.stall_percent) return true;
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return (random_ >> 20) % 100 >= bus_.stall_percent;
  }
  bool injected(uint64_t addr) const {
    return addr < bus_.error_limit && addr + kBeat > bus_.error_base;
  }

  // Blocks are aligned to beats, so that a beat is in one or in none.
  bool allocated(uint64_t addr) {
    std::lock_guard<std::mutex> hold(lock_);
    if (!tracked_) return true;
    auto after = blocks_.upper_bound(addr);
    if (after == blocks_.begin()) return false;
    --after;
    return addr - after->first < after->second;
  }

  uint8_t load(uint64_t addr) {
    const bool mine = addr - ring_base_ < ring_bytes_ || allocated(addr);
    const void* from = mine ? echo_ram_at(ram_, addr, kBeat) : nullptr;
    if (!from || injected(addr)) {
      memset(&top_->m_axi_rdata, 0xee, kBeat);
      return from ? kSlaveError : kDecodeError;
    }
    memcpy(&top_->m_axi_rdata, from, kBeat);
    return 0;
  }

  uint8_t store(uint64_t addr) {
    uint64_t strobes = top_->m_axi_wstrb;
    if (!strobes) return 0;
    uint8_t* to = allocated(addr) ? static_cast<uint8_t*>(echo_ram_at(ram_, addr, kBeat)) : nullptr;
    if (!to || injected(addr)) return to ? kSlaveError : kDecodeError;
    const uint8_t* from = reinterpret_cast<const uint8_t*>(&top_->m_axi_wdata);
    if (strobes == ~uint64_t{0} >> (64 - kBeat))
      memcpy(to, from, kBeat);
    else
      for (uint64_t i = 0; i < kBeat; ++i)
        if (strobes >> i & 1) to[i] = from[i];
    return 0;
  }

  Vecho_npu_top* top_;
  const echo_ram* ram_;
  echo_rtl_bus bus_{40, 0, 0, 0, 0, 0, 0};
  const char* violation_ = nullptr;
  Held read_ = {}, write_ = {}, data_ = {};
  uint8_t held_data_[kBeat];
  uint64_t random_ = 1;
  uint64_t ring_base_ = 0, ring_bytes_ = 0;
  std::mutex lock_;  // guards the next two
  bool tracked_ = false;
  std::map<uint64_t, uint64_t> blocks_;
  std::deque<Burst> reads_, writes_, answers_;
};

#endif  // ECHO_AXI_MEMORY_H
