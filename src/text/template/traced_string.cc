#include "text/template/traced_string.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace mference::jinja {

TracedString::TracedString(std::string text, Origin origin) : text_(std::move(text)) {
  if (!text_.empty()) runs_.push_back({text_.size(), origin});
}

size_t TracedString::RunIndex(size_t position) const {
  const auto run = std::upper_bound(runs_.begin(), runs_.end(), position,
                                    [](size_t p, const Run& r) { return p < r.end; });
  return static_cast<size_t>(run - runs_.begin());
}

Origin TracedString::OriginAt(size_t position) const { return runs_[RunIndex(position)].origin; }

bool TracedString::HasData() const {
  return std::any_of(runs_.begin(), runs_.end(),
                     [](const Run& run) { return run.origin == Origin::kData; });
}

void TracedString::ExtendLastRun(size_t bytes, Origin origin) {
  if (bytes == 0) return;
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end += bytes;
  } else {
    runs_.push_back({(runs_.empty() ? 0 : runs_.back().end) + bytes, origin});
  }
}

void TracedString::Append(std::string_view text, Origin origin) {
  text_.append(text);
  ExtendLastRun(text.size(), origin);
}

void TracedString::AppendSlice(const TracedString& other, size_t begin, size_t end) {
  Check(begin <= end && end <= other.size() && &other != this, "slice outside of its string");
  text_.append(other.text_, begin, end - begin);
  for (size_t i = begin < end ? other.RunIndex(begin) : 0; begin < end; ++i) {
    const size_t stop = std::min(end, other.runs_[i].end);
    ExtendLastRun(stop - begin, other.runs_[i].origin);
    begin = stop;
  }
}

TracedString TracedString::Slice(size_t begin, size_t end) const {
  TracedString slice;
  slice.AppendSlice(*this, begin, end);
  return slice;
}

}  // namespace mference::jinja
