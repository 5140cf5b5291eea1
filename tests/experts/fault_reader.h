// A reader whose every misfortune is written down beforehand: a deterministic simulation of a disk.
//
// Time is counted in ticks: each Poll advances it by one, Wait to the next landing. Every read
// takes a delay from a seeded generator, so that reads overtake each other in a reproducible order;
// errors and early ends of file are scripted per file offset or drawn at a rate. From submission to
// landing the target holds garbage: whoever looks early, or still looks at what was there, sees it.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "experts/blob_reader.h"
#include "experts/pread_reader.h"

namespace mference {

struct FaultPlan {
  // What happens to the reads of one offset, first to last; afterwards they succeed.
  struct Fault {
    int error = 0;            // errno, or 0 for an early end of the file
    uint64_t bytes_read = 0;  // delivered before that
  };
  std::map<uint64_t, std::deque<Fault>> faults;
  std::map<uint64_t, int> delays;  // ticks, by offset; others are drawn from [0, max_delay]
  int max_delay = 0;
  double error_rate = 0;  // of reads that fail with EIO
  uint32_t seed = 1;
  int capacity = 64;
};

class FaultReader : public BlobReader {
 public:
  explicit FaultReader(FaultPlan plan) : plan_(std::move(plan)), random_(plan_.seed) {}

  int capacity() const override { return plan_.capacity; }

  void Submit(std::span<const BlobRead> reads) override {
    for (const BlobRead& read : reads) {
      Check(in_flight_.size() < static_cast<size_t>(plan_.capacity), "too many reads in flight");
      std::memset(read.target, 0xEE, read.bytes);
      const auto delay = plan_.delays.find(read.offset);
      const int ticks = delay != plan_.delays.end()
                            ? delay->second
                            : std::uniform_int_distribution<int>(0, plan_.max_delay)(random_);
      in_flight_.push_back({.read = read, .due = now_ + ticks});
      submitted_.push_back(read.offset);
    }
  }

  size_t Poll(std::span<ReadCompletion> completions) override {
    ++now_;
    return Land(completions);
  }

  size_t Wait(std::span<ReadCompletion> completions) override {
    Check(!in_flight_.empty(), "waiting for a read that nobody started");
    int64_t earliest = in_flight_.front().due;
    for (const Flight& flight : in_flight_) earliest = std::min(earliest, flight.due);
    now_ = std::max(now_, earliest);
    return Land(completions);
  }

  std::string Describe() const override { return "simulated disk"; }

  // Offsets of all reads submitted so far, in order.
  const std::vector<uint64_t>& submitted() const { return submitted_; }

 private:
  struct Flight {
    BlobRead read;
    int64_t due = 0;
  };

  size_t Land(std::span<ReadCompletion> completions) {
    size_t count = 0;
    // Later reads first among those due: the opposite of what a caller might hope for.
    for (size_t i = in_flight_.size(); i-- > 0 && count < completions.size();) {
      if (in_flight_[i].due > now_) continue;
      completions[count++] = Complete(in_flight_[i].read);
      in_flight_.erase(in_flight_.begin() + static_cast<ptrdiff_t>(i));
    }
    return count;
  }

  ReadCompletion Complete(const BlobRead& read) {
    const auto scripted = plan_.faults.find(read.offset);
    if (scripted != plan_.faults.end() && !scripted->second.empty()) {
      const FaultPlan::Fault fault = scripted->second.front();
      scripted->second.pop_front();
      return {.id = read.id, .error = fault.error, .bytes_read = fault.bytes_read};
    }
    if (std::uniform_real_distribution<double>(0, 1)(random_) < plan_.error_rate) {
      return {.id = read.id, .error = EIO};
    }
    return ReadBlob(read);
  }

  FaultPlan plan_;
  std::mt19937 random_;
  int64_t now_ = 0;
  std::vector<Flight> in_flight_;
  std::vector<uint64_t> submitted_;
};

}  // namespace mference
