#include "cli/hub_flags.h"

#include "base/units.h"
#include "cli/interrupts.h"

namespace mference::cli {

void HubFlags::Declare(CLI::App& command) {
  AddParsed(command, "--base-url", "URL", "Another hub or a mirror of it, instead of HF_ENDPOINT",
            [this](const std::string& text) {
              const size_t scheme = text.starts_with("https://") ? 8 : 7;
              if ((scheme == 7 && !text.starts_with("http://")) || text.size() == scheme ||
                  text[scheme] == '/') {
                Fail(ErrorCode::kInvalidArgument,
                     "expected an address that begins with https:// and a host");
              }
              base_url = text;
            });
  AddPath(command, "--ca-file", "FILE", "Certificate authorities to trust, instead of the system's",
          ca_file);
  AddParsed(command, "--rate-limit", "SIZE", "Most bytes to download per second, e.g. 5M",
            [this](const std::string& text) {
              rate_limit_bytes_per_s = ParseByteCount(text);
              if (rate_limit_bytes_per_s == 0) {
                Fail(ErrorCode::kInvalidArgument, "expected at least one byte per second");
              }
            });
  command.footer(kHubEnvironmentHelp);
}

bool HubFlags::any() const {
  return !base_url.empty() || !ca_file.empty() || rate_limit_bytes_per_s > 0;
}

RemoteOptions HubFlags::Options(const std::string& repository, const std::string& revision) const {
  RemoteOptions options = RemoteOptionsFromEnvironment(repository, revision);
  if (!base_url.empty()) options.base_url = base_url;
  if (!ca_file.empty()) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(ca_file, error)) {
      Fail(ErrorCode::kNotFound, "--ca-file: there is no file {}", ca_file.string());
    }
    options.http.ca_file = ca_file;
  }
  options.rate_limit_bytes_per_s = rate_limit_bytes_per_s;
  options.cancelled = &CancelRequested();
  return options;
}

}  // namespace mference::cli
