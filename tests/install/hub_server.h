// A model hub on this machine, over TLS with a certificate authority of its own: it serves a
// snapshot the way the real one does (resolve, redirects to another host for large files, linked
// headers, byte ranges) and misbehaves on demand. Or a simple mirror of one, over plain HTTP.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace mference::testing {

enum class HubStyle {
  kLinked,       // large files on another host, named by their SHA-256
  kXet,          // the same, and named by a content hash as the newer storage does
  kPlainMirror,  // http, and everything on one host
};

// How one answer goes wrong.
enum class Fault {
  kNone,
  kStatus,         // `status`, with `retry_after` if not empty
  kDropMidBody,    // the connection goes after `after_bytes` of the body
  kShortBody,      // a smaller Content-Length, and a body to match
  kWrongRange,     // 206 with another Content-Range
  kWrongTotal,     // 206 with another total size
  kWholeFile,      // 200 and everything
  kNoRangeHeader,  // 206 without Content-Range
  kCompressed,     // claims Content-Encoding: gzip
  kCorruptByte,    // one byte of the body is flipped
  kOtherTag,       // another ETag than before
  kWeakTag,        // a weak ETag
  kSlow,           // one byte, then nothing for a long time
  kRedirectLoop,   // redirects to itself
  kPlainRedirect,  // redirects to http
  kBounce,         // redirects away and back to the hub
  kNoCommit,       // leaves X-Repo-Commit out
  kOtherCommit,    // another X-Repo-Commit
  kHangUp,         // closes without an answer
  kLongBody,       // more bytes than Content-Length says
};

struct HubRequest {
  bool cdn = false;  // arrived at the host that the large files are on
  std::string method;
  std::string target;  // path and query
  std::string range;   // of the Range header; may be empty
  bool authorized = false;
  std::string file;  // the snapshot file it is about
  int number = 0;    // how many requests for this file, method and host came before
};

struct HubFault {
  Fault fault = Fault::kNone;
  int status = 500;
  std::string retry_after{};
  uint64_t after_bytes = 1000;
};

class HubServer {
 public:
  static constexpr const char* kRepository = "tiny/model";
  static constexpr const char* kToken = "hf_test_token";

  // Serves the files of `snapshot`.
  explicit HubServer(const std::filesystem::path& snapshot, HubStyle style = HubStyle::kLinked);
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  std::string base_url() const;  // https://localhost:PORT, or http
  std::filesystem::path ca_file() const;
  std::string commit() const { return std::string(40, 'c'); }

  // Decides about every request, from the serving threads, one at a time.
  void set_misbehave(std::function<HubFault(const HubRequest&)> misbehave);
  void set_require_token(bool require);
  void Remove(const std::string& file);
  void Replace(const std::string& file, std::string content);

  std::vector<HubRequest> requests() const;
  // Range requests that the file host answered (or began to), as "FILE bytes=A-B".
  std::vector<std::string> ranges_served() const;
  int connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mference::testing
