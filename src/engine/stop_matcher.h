// Finds stop strings in a stream of text without ever showing part of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mference {

// Compares bytes of UTF-8. Holds back at most (longest stop - 1) bytes. Not thread-safe.
class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Adds text and returns what may be shown. Once a stop has been seen, always "".
  std::string Push(std::string_view text);
  // The end of the stream: returns what was held back.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace mference
