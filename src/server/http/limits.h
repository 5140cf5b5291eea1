// What one client, and all of them together, may take of the server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace mference::server {

struct HttpLimits {
  size_t connections = 64;
  size_t request_line_bytes = 8 * kKiB;
  size_t head_bytes = 40 * kKiB;  // request line and headers
  size_t headers = 100;
  uint64_t body_bytes = 8 * kMiB;
  uint64_t all_bodies_bytes = 16 * kMiB;  // of requests not parsed yet, together
  size_t unsent_bytes = 16 * kMiB;        // of a stream that its client does not read

  std::chrono::milliseconds head_timeout{10'000};   // for a whole head
  std::chrono::milliseconds body_timeout{60'000};   // without progress
  std::chrono::milliseconds write_timeout{60'000};  // without progress
  std::chrono::milliseconds idle_timeout{120'000};  // between two requests
  // How a refused client's rest is taken in, so that it can read why.
  std::chrono::milliseconds linger_timeout{5'000};
  uint64_t linger_bytes = 64 * kMiB;

  std::chrono::milliseconds heartbeat{5'000};
};

}  // namespace mference::server
