// A checkpoint in a repository on a model hub, read by byte ranges.
//
// The protocol is installer-and-streaming A3: metadata by HEAD, everything else at the commit it
// resolved to, ranged GETs that must be answered exactly, redirects followed by our own rules, and
// the token shown to the hub alone.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "install/http_client.h"
#include "install/retry.h"
#include "install/source.h"

namespace mference {

struct RemoteOptions {
  std::string repository;         // "org/repo"
  std::string revision = "main";  // branch, tag or commit
  std::string base_url = "https://huggingface.co";
  std::string token;  // empty: anonymous
  HttpSettings http;
  RetryPolicy retry;
  uint64_t rate_limit_bytes_per_s = 0;               // 0: none
  const std::atomic<bool>* cancelled = nullptr;      // ends every transfer with kCancelled
  std::function<void(const RetryNotice&)> on_retry;  // one at a time, from any fetching thread
};

// What the hub's own tools use, so that a machine set up for them is set up for us: HF_ENDPOINT;
// HF_TOKEN, else the token file (HF_TOKEN_PATH, HF_HOME/token, ~/.cache/huggingface/token);
// SSL_CERT_FILE or CURL_CA_BUNDLE. Never logs the token.
RemoteOptions RemoteOptionsFromEnvironment(std::string repository, std::string revision);

class RemoteSource final : public SnapshotSource {
 public:
  // kInvalidArgument for a repository or an address that cannot be.
  explicit RemoteSource(RemoteOptions options);
  ~RemoteSource() override;

  SourceIdentity identity() const override;
  bool is_remote() const override { return true; }
  void UseCommit(const std::string& commit) override;
  void UseWorkDirectory(FileSystem& files, const std::filesystem::path& directory) override;

  std::optional<std::string> ReadFile(const std::string& name, uint64_t max_bytes) override;
  std::unique_ptr<FetchedRange> FetchFile(const std::string& name, uint64_t max_bytes) override;
  bool HasFile(const std::string& name) override;
  ShardInfo Examine(const std::string& shard) override;
  std::string ReadBytes(const std::string& shard, uint64_t offset, uint64_t bytes) override;
  void StreamBytes(const std::string& shard, uint64_t offset, uint64_t bytes,
                   const std::function<void(std::span<const std::byte>)>& sink) override;
  std::unique_ptr<FetchedRange> Fetch(const RangeRequest& request) override;

  // Everything that had to be tried again so far.
  std::vector<RetryNotice> retries() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mference
