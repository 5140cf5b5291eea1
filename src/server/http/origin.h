// Who may talk to the server: hosts it answers to, web origins, bearer keys.
//
// A server on a loopback address can be reached from every web page its user opens. A page of
// another origin gives itself away by the Origin header, and one that has its own name resolve to
// 127.0.0.1 (DNS rebinding) by the Host header.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_error.h"
#include "server/http/message.h"

namespace mference::server {

class AccessPolicy {
 public:
  struct Options {
    std::string bound_address = "127.0.0.1";
    std::vector<std::string> cors_origins;  // exact; see `CheckCorsOrigin`
    std::string api_key;                    // empty: none is asked for
  };
  explicit AccessPolicy(Options options) : options_(std::move(options)) {}

  // Whether the request comes from where it may. Adds the CORS headers of its answer.
  std::optional<ApiError> CheckOrigin(const HttpRequest& head,
                                      std::vector<HttpHeader>* headers) const;
  // Whether it shows the key; always, where there is none.
  std::optional<ApiError> CheckKey(const HttpRequest& head) const;

  // The answer to a preflight, for origins that passed.
  HttpResponse Preflight(const HttpRequest& head) const;
  bool cors() const { return !options_.cors_origins.empty(); }

 private:
  bool IsOwnHost(std::string_view host) const;

  Options options_;
};

// Throws kInvalidArgument unless `origin` is an exact web origin: scheme, host and perhaps a port.
void CheckCorsOrigin(const std::string& origin);

}  // namespace mference::server
