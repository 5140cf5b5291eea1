// How to reach the hub: flags of the commands that download.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "cli/command_line.h"
#include "install/remote_source.h"

namespace mference::cli {

struct HubFlags {
  std::string base_url;
  std::filesystem::path ca_file;
  uint64_t rate_limit_bytes_per_s = 0;

  void Declare(CLI::App& command);
  // Whether any of them was given.
  bool any() const;
  // The environment's settings with the flags above them; SIGINT ends the transfers. Throws
  // kInvalidArgument and kNotFound.
  RemoteOptions Options(const std::string& repository, const std::string& revision) const;
};

// What of the environment matters to a download, for help texts.
inline constexpr const char* kHubEnvironmentHelp =
    "Environment: HF_TOKEN or the hub's token file (HF_TOKEN_PATH, HF_HOME), HF_ENDPOINT, "
    "https_proxy and no_proxy, SSL_CERT_FILE";

}  // namespace mference::cli
