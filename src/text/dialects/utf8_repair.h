// Text from anywhere, made into whole Unicode scalars: an incomplete tail waits for its rest, and
// what can never become a scalar turns into U+FFFD. Every parser behind it sees valid UTF-8 only,
// whatever the pieces the text came in.
#pragma once

#include <string>
#include <string_view>

namespace mference {

class Utf8Repair {
 public:
  // The whole scalars that `bytes` completes.
  std::string Push(std::string_view bytes);
  // The end of the text: U+FFFD if a scalar was left incomplete.
  std::string Flush();

 private:
  std::string tail_;  // an incomplete scalar, at most 3 bytes
};

// `text[0, length)` cut back to a scalar border. `text` is valid UTF-8.
std::string_view CutAtScalar(std::string_view text, size_t length);

}  // namespace mference
