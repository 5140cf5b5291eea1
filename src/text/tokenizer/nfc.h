// Unicode Normalization Form C (UAX #15): canonical decomposition, ordering and composition.
#pragma once

#include <string>
#include <string_view>

namespace mference {

// Whether `text` (valid UTF-8) is certainly in form C already. False may also mean "perhaps".
bool IsNfcQuick(std::string_view text);

// Appends `text` (valid UTF-8) in form C to `out`. O(n log n) in the longest run of combining
// marks.
void AppendNfc(std::string_view text, std::string* out);

}  // namespace mference
