// Whether bytes are well-formed UTF-8 (RFC 3629): no overlong forms, surrogates or values above
// U+10FFFF.
#pragma once

#include <string_view>

namespace mference {

bool IsUtf8(std::string_view bytes);

}  // namespace mference
