#include "install/hub_token.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "install/remote_source.h"

namespace mference {
namespace {

constexpr uint64_t kMaxTokenBytes = 4096;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

std::filesystem::path TokenFile() {
  if (const std::string path = Environment("HF_TOKEN_PATH"); !path.empty()) return path;
  if (const std::string home = Environment("HF_HOME"); !home.empty()) {
    return std::filesystem::path(home) / "token";
  }
  if (const std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty()) {
    return std::filesystem::path(cache) / "huggingface" / "token";
  }
  if (const std::string home = Environment("HOME"); !home.empty()) {
    return std::filesystem::path(home) / ".cache" / "huggingface" / "token";
  }
  return {};
}

// A token is one printable word; anything else would forge headers, and a longer one is refused by
// servers with anything but a clear answer.
std::string RequireToken(std::string text, const std::string& where) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && space(text.back())) text.pop_back();
  while (!text.empty() && space(text.front())) text.erase(0, 1);
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!printable || text.size() > kMaxTokenBytes) {
    Fail(ErrorCode::kInvalidArgument,
         "{} does not hold a token: expected one printable word of at most {} bytes", where,
         kMaxTokenBytes);
  }
  return text;
}

}  // namespace

std::string FindHubToken() {
  if (std::string token = Environment("HF_TOKEN"); !token.empty()) {
    return RequireToken(std::move(token), "HF_TOKEN");
  }
  const std::filesystem::path file = TokenFile();
  std::error_code error;
  if (file.empty() || !std::filesystem::is_regular_file(file, error)) return "";
  return RequireToken(ReadTextFile(file, kMaxTokenBytes), file.string());
}

RemoteOptions RemoteOptionsFromEnvironment(std::string repository, std::string revision) {
  RemoteOptions options;
  options.repository = std::move(repository);
  options.revision = std::move(revision);
  if (std::string endpoint = Environment("HF_ENDPOINT"); !endpoint.empty()) {
    options.base_url = std::move(endpoint);
  }
  options.token = FindHubToken();
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    if (std::string file = Environment(name); !file.empty()) options.http.ca_file = file;
  }
  return options;
}

}  // namespace mference
