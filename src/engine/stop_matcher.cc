#include "engine/stop_matcher.h"

#include <algorithm>

namespace mference {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string StopMatcher::Push(std::string_view text) {
  if (stopped_) return "";
  pending_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    std::string shown = pending_.substr(0, first);
    pending_.clear();
    return shown;
  }
  // The longest tail that could still become a stop.
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > held; --n) {
      if (pending_.compare(pending_.size() - n, n, stop, 0, n) == 0) held = n;
    }
  }
  std::string shown = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::Finish() {
  std::string rest;
  if (!stopped_) rest.swap(pending_);
  return rest;
}

}  // namespace mference
