#include "base/work_counts.h"

namespace mference {
namespace {

WorkCounts (*the_counter)() = nullptr;

}  // namespace

std::optional<WorkCounts> CountedWork() {
  if (the_counter == nullptr) return std::nullopt;
  return the_counter();
}

void SetWorkCounter(WorkCounts (*counter)()) { the_counter = counter; }

}  // namespace mference
