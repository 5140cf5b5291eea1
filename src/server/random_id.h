// Ids for requests, replies and tool calls.
#pragma once

#include <string>
#include <string_view>

namespace mference::server {

// `prefix` and `digits` random lower-case hex digits. Thread-safe; not a secret.
std::string RandomId(std::string_view prefix, int digits);

}  // namespace mference::server
