// What the tests of remote installs share.
#pragma once

#include <filesystem>
#include <string>

#include "install/hub_server.h"
#include "install/remote_install.h"

namespace mference::testing {

constexpr uint64_t kRemoteChunk = 131072;

// Trusts the hub's authority and does not wait long before it tries again.
RemoteOptions FastOptions(const HubServer& hub);
// Ranges of at most kRemoteChunk bytes.
InstallOptions SmallRanges(const std::filesystem::path& output);
// The repository of every test hub.
RemoteTarget Target();
// Byte for byte what an undisturbed local install of the golden snapshot gives.
void ExpectIntact(const std::filesystem::path& directory, const std::string& folder);

}  // namespace mference::testing
