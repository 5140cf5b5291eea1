// The one address of this machine in its Tailnet.
#pragma once

#include <string>
#include <string_view>

namespace mference::server {

// The address in the output of `tailscale ip -4`: exactly one, inside 100.64.0.0/10. Throws
// kInvalidArgument with the reason and at most 64 characters of the output.
std::string ParseTailnetAddress(std::string_view output);

// Runs `tailscale ip -4`. Throws kNotFound, kIo or what parsing throws; there is no fallback.
std::string FindTailnetAddress();

}  // namespace mference::server
