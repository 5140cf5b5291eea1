// Heap allocations and mutex acquisitions of the whole program, where it counts them.
//
// The token loop is meant to need neither. Programs linked with `mference_counted_work` (the tests;
// `mference` itself with -DMFERENCE_COUNT_WORK=ON) count every call on every thread; others report
// nothing.
#pragma once

#include <cstdint>
#include <optional>

namespace mference {

struct WorkCounts {
  int64_t allocations = 0;
  int64_t mutex_locks = 0;
};

// Since the program began; nothing if this program does not count.
std::optional<WorkCounts> CountedWork();

// Installs the counter, before main.
void SetWorkCounter(WorkCounts (*counter)());

}  // namespace mference
