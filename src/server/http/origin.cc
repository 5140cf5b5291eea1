#include "server/http/origin.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>

#include "base/error.h"

namespace mference::server {
namespace {

bool AllDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The host without its port; a port that is none spoils it.
std::string_view WithoutPort(std::string_view host) {
  const size_t end = host.starts_with('[') ? host.find(']') : 0;
  if (end == std::string_view::npos) return {};
  const size_t colon = host.find(':', end);
  if (colon == std::string_view::npos) return host;
  return AllDigits(host.substr(colon + 1)) ? host.substr(0, colon) : std::string_view();
}

ApiError Forbidden(const std::string& message) { return {403, "forbidden_origin", message}; }

}  // namespace

bool AccessPolicy::IsOwnHost(std::string_view host) const {
  const std::string_view name = WithoutPort(host);
  return name == "127.0.0.1" || EqualsIgnoringCase(name, "localhost") || name == "[::1]" ||
         name == options_.bound_address;
}

std::optional<ApiError> AccessPolicy::CheckOrigin(const HttpRequest& head,
                                                  std::vector<HttpHeader>* headers) const {
  if (cors()) headers->push_back({"Vary", "Origin"});
  const std::string_view host = head.Header("Host");
  // HTTP/1.0 knows no Host; browsers do not speak it.
  if (!host.empty() && !IsOwnHost(host)) {
    return Forbidden("the Host header is not an address of this server");
  }
  const size_t origins = head.CountHeader("Origin");
  if (origins == 0) return std::nullopt;
  const std::string_view origin = head.Header("Origin");
  if (origins == 1 && std::find(options_.cors_origins.begin(), options_.cors_origins.end(),
                                origin) != options_.cors_origins.end()) {
    headers->push_back({"Access-Control-Allow-Origin", std::string(origin)});
    headers->push_back({"Access-Control-Expose-Headers", "x-request-id, x-mference-ignored"});
    return std::nullopt;
  }
  if (origins == 1 && origin == fmt::format("http://{}", host)) return std::nullopt;
  return Forbidden("this web origin may not use the server; --cors-origin would allow it");
}

std::optional<ApiError> AccessPolicy::CheckKey(const HttpRequest& head) const {
  if (options_.api_key.empty()) return std::nullopt;
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view shown = head.Header("Authorization");
  const bool bearer = shown.size() >= kScheme.size() &&
                      EqualsIgnoringCase(shown.substr(0, kScheme.size()), kScheme);
  const std::string_view key = bearer ? shown.substr(kScheme.size()) : std::string_view();
  if (key.size() == options_.api_key.size() &&
      CRYPTO_memcmp(key.data(), options_.api_key.data(), key.size()) == 0) {
    return std::nullopt;
  }
  return ApiError(401, "invalid_api_key",
                  "this server asks for a key: `Authorization: Bearer KEY` is missing or wrong");
}

HttpResponse AccessPolicy::Preflight(const HttpRequest& head) const {
  HttpResponse response{.status = 204};
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                      {"Access-Control-Max-Age", "600"}};
  const std::string_view asked = head.Header("Access-Control-Request-Headers");
  response.headers.push_back({"Access-Control-Allow-Headers",
                              asked.empty() ? "authorization, content-type" : std::string(asked)});
  return response;
}

void CheckCorsOrigin(const std::string& origin) {
  const size_t scheme = origin.find("://");
  const std::string_view host = scheme == std::string::npos
                                    ? std::string_view()
                                    : std::string_view(origin).substr(scheme + 3);
  if (host.empty() || host.find_first_of("/*?# ") != std::string_view::npos) {
    Fail(ErrorCode::kInvalidArgument,
         "expected one exact origin such as https://app.example, without a path or *");
  }
}

}  // namespace mference::server
