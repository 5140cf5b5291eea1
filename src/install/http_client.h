// One HTTP request at a time over libcurl, with everything about it decided here.
//
// Redirects are not followed (the hub client does, by its own rules), bodies are handed on as they
// arrive, and whatever goes wrong says whether trying again could help.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace mference {

// kNetwork, or kSourceInvalid for an answer that breaks the protocol.
class TransferError : public Error {
 public:
  TransferError(ErrorCode code, const std::string& message, bool retryable,
                std::optional<std::chrono::seconds> retry_after = std::nullopt)
      : Error(code, message), retryable_(retryable), retry_after_(retry_after) {}
  bool retryable() const { return retryable_; }
  std::optional<std::chrono::seconds> retry_after() const { return retry_after_; }

 private:
  bool retryable_;
  std::optional<std::chrono::seconds> retry_after_;
};

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case; the last wins

  // Empty when there is none.
  std::string_view Header(std::string_view lower_case_name) const;
};

struct HttpRequest {
  std::string url;
  bool head = false;                 // HEAD, else GET
  std::vector<std::string> headers;  // "Name: value"
  // Before the first byte of the body; may throw to refuse it. Not called for HEAD.
  std::function<void(const HttpResponse&)> on_headers{};
  // The body in pieces; may throw to end the transfer. Null: the body is not wanted.
  std::function<void(std::span<const std::byte>)> on_body{};
  // Polled about once a second; true ends the transfer with kCancelled.
  std::function<bool()> abandoned{};
};

struct HttpSettings {
  std::filesystem::path ca_file;  // trusted certificates; empty: the system's
  std::chrono::seconds connect_timeout{60};
  std::chrono::seconds stall_timeout{300};  // without a byte
};

// Keeps its connection alive between requests. Proxies come from the environment the way every
// program reads them (https_proxy, no_proxy, ...). Not thread-safe.
class HttpConnection {
 public:
  explicit HttpConnection(const HttpSettings& settings);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Any status is an answer. Throws TransferError when there is none, Error(kCancelled), or what a
  // callback threw.
  HttpResponse Perform(const HttpRequest& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The parts of a URL that decisions are made by. Throws kInvalidArgument.
struct UrlOrigin {
  std::string scheme;
  std::string host;  // lower case
  std::string port;

  bool operator==(const UrlOrigin&) const = default;
};
UrlOrigin OriginOf(const std::string& url);
// `location` of a redirect, relative or not, made absolute.
std::string ResolveUrl(const std::string& base, const std::string& location);
// Without query, fragment and credentials: signed addresses carry secrets there.
std::string RedactUrl(const std::string& url);

}  // namespace mference
