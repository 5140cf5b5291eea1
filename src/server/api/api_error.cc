#include "server/api/api_error.h"

#include <fmt/format.h>

namespace mference::server {
namespace {

constexpr const char* kRetryAfterSeconds = "5";

}  // namespace

const char* ApiError::type() const {
  if (status_ == 429) return "rate_limit_error";
  return status_ >= 500 ? "server_error" : "invalid_request_error";
}

std::string ErrorBody(const ApiError& error) {
  OrderedJson body = {{"message", error.what()},
                      {"type", error.type()},
                      {"param", error.param().empty() ? OrderedJson() : OrderedJson(error.param())},
                      {"code", error.code()}};
  body.update(error.details);
  return OrderedJson{{"error", std::move(body)}}.dump(-1, ' ', false,
                                                      OrderedJson::error_handler_t::replace);
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response{.status = error.status(), .body = ErrorBody(error)};
  if (error.status() == 429) response.headers.push_back({"Retry-After", kRetryAfterSeconds});
  // What would only fail again, after minutes. Client libraries repeat a 500 by themselves.
  if (error.status() == 500 || error.code() == "context_length_exceeded") {
    response.headers.push_back({"x-should-retry", "false"});
  }
  if (error.status() == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

ApiError ContextLengthExceeded(int64_t context, int64_t prompt_tokens, const std::string& param) {
  ApiError error(
      400, "context_length_exceeded",
      fmt::format("This model's maximum context length is {} tokens. However, your messages "
                  "resulted in {} tokens. Please reduce the length of the messages.",
                  context, prompt_tokens),
      param);
  error.details = {{"n_prompt_tokens", prompt_tokens}, {"n_ctx", context}};
  return error;
}

}  // namespace mference::server
