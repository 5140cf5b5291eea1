// Measuring all ceilings, and how near a phase comes to them.
#include <algorithm>

#include "bench/memory_ceiling.h"
#include "bench/report.h"

namespace mference::bench {

double Ceilings::arithmetic_rate(const std::string& type) const {
  double best = 0;
  for (const ArithmeticCeiling& ceiling : arithmetic) {
    if (ceiling.type == type) best = std::max(best, ceiling.per_second);
  }
  return best;
}

Ceilings MeasureCeilings(int threads, const DiskRequest& disk) {
  Ceilings ceilings;
  ceilings.blob_bytes = disk.blob_bytes;
  for (int count = 1; count < 2 * threads; count *= 2) {
    const int clipped = std::min(count, threads);
    ceilings.memory.push_back({clipped, MeasureMemoryRate(clipped)});
  }
  ceilings.arithmetic = MeasureArithmetic(1);
  if (threads > 1) {
    const std::vector<ArithmeticCeiling> all = MeasureArithmetic(threads);
    ceilings.arithmetic.insert(ceilings.arithmetic.end(), all.begin(), all.end());
  }
  ceilings.disk = MeasureDisk(disk);
  return ceilings;
}

Walls WallsOf(const Phase& phase, const Ceilings& ceilings) {
  const auto at = [](double work, double rate) { return rate > 0 ? work / rate : 0; };
  const auto or_else = [](double rate, double otherwise) { return rate > 0 ? rate : otherwise; };
  const double peak = std::max(ceilings.arithmetic_rate("int8"), ceilings.arithmetic_rate("fp32"));
  const auto tokens = static_cast<double>(phase.tokens);
  std::vector<Walls> runs;
  for (const SpeedSample& sample : phase.samples) {
    Walls walls;
    walls.memory_seconds = at(
        phase.memory_bytes, or_else(sample.rates.memory_bytes_per_second, ceilings.memory_rate()));
    walls.disk_seconds = at(static_cast<double>(sample.bytes_read) / tokens,
                            or_else(sample.rates.disk_bytes_per_second, ceilings.disk.best()));
    walls.arithmetic_seconds = at(phase.operations, peak);
    const double compute = phase.decode ? walls.memory_seconds : walls.arithmetic_seconds;
    walls.highest_seconds = std::max(compute, walls.disk_seconds);
    walls.highest = walls.disk_seconds > compute ? "disk" : phase.decode ? "memory" : "arithmetic";
    walls.share = at(walls.highest_seconds * tokens, sample.seconds);
    runs.push_back(walls);
  }
  if (runs.empty()) return {};
  const auto middle = runs.begin() + static_cast<ptrdiff_t>((runs.size() - 1) / 2);
  std::nth_element(runs.begin(), middle, runs.end(),
                   [](const Walls& a, const Walls& b) { return a.share < b.share; });
  return *middle;
}

}  // namespace mference::bench
