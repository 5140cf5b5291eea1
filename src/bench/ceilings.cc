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
  Walls walls;
  const auto at = [](double work, double rate) { return rate > 0 ? work / rate : 0; };
  walls.memory_seconds = at(phase.memory_bytes, ceilings.memory_rate());
  walls.disk_seconds = at(phase.BytesReadPerToken(), ceilings.disk.best());
  const double peak = std::max(ceilings.arithmetic_rate("int8"), ceilings.arithmetic_rate("fp32"));
  walls.arithmetic_seconds = at(phase.operations, peak);
  const double compute = phase.decode ? walls.memory_seconds : walls.arithmetic_seconds;
  walls.highest_seconds = std::max(compute, walls.disk_seconds);
  walls.highest = walls.disk_seconds > compute ? "disk" : phase.decode ? "memory" : "arithmetic";
  walls.share = walls.highest_seconds * phase.Rate();
  return walls;
}

}  // namespace mference::bench
