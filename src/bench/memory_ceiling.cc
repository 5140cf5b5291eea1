#include "bench/memory_ceiling.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/ledger.h"
#include "base/slab.h"
#include "base/units.h"
#include "bench/together.h"

namespace mference::bench {
namespace {

constexpr int kPasses = 10;

// Four times the last-level cache, where the system says how large that is.
uint64_t BufferBytes() {
  long cache = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
  cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
  return std::clamp<uint64_t>(4 * static_cast<uint64_t>(std::max(cache, 0L)), 256 * kMiB, kGiB);
}

// Reads all of it, with enough independent chains that additions never wait for each other. Lines
// are asked for ahead, as the matrix products do: hardware alone starts anew at every page.
uint64_t ReadAll(const std::byte* data, uint64_t bytes) {
  using Lanes = uint64_t __attribute__((vector_size(32)));
  constexpr uint64_t kChains = 4;
  constexpr uint64_t kAheadBytes = 8192;
  constexpr uint64_t kLineBytes = 64;
  Lanes sums[kChains] = {};
  for (uint64_t at = 0; at + kChains * sizeof(Lanes) <= bytes; at += kChains * sizeof(Lanes)) {
    for (uint64_t line = 0; line < kChains * sizeof(Lanes); line += kLineBytes) {
      __builtin_prefetch(data + at + kAheadBytes + line);
    }
    for (uint64_t chain = 0; chain < kChains; ++chain) {
      Lanes lanes;
      std::memcpy(&lanes, data + at + chain * sizeof(Lanes), sizeof(Lanes));
      sums[chain] ^= lanes;
    }
  }
  const Lanes all = (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
  return all[0] ^ all[1] ^ all[2] ^ all[3];
}

}  // namespace

double MeasureMemoryRate(int threads) {
  const uint64_t bytes = BufferBytes();
  MemoryLedger ledger(bytes);
  Slab memory(ledger, "measurement", bytes);
  std::memset(memory.data(), 1, bytes);
  return MeasureMemoryRate(threads, memory.bytes(), kPasses);
}

double MeasureMemoryRate(int threads, std::span<const std::byte> memory, int passes) {
  const uint64_t share =
      memory.size() / static_cast<uint64_t>(threads) / Slab::kAlignment * Slab::kAlignment;
  volatile uint64_t sink = 0;
  const std::vector<double> rates = RatesTogether(threads, passes, [&](int thread) {
    const uint64_t sum = ReadAll(memory.data() + share * static_cast<uint64_t>(thread), share);
    sink = sum;
    return static_cast<double>(share);
  });
  return *std::max_element(rates.begin(), rates.end());
}

}  // namespace mference::bench
