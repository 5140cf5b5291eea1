// Refusals as API clients read them.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/json.h"
#include "server/http/message.h"

namespace mference::server {

// A request that is refused, or a reply that failed. what() is the message for the client.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string code, const std::string& message, std::string param = "")
      : std::runtime_error(message),
        status_(status),
        code_(std::move(code)),
        param_(std::move(param)) {}

  int status() const { return status_; }
  const std::string& code() const { return code_; }
  const std::string& param() const { return param_; }  // empty: none

  // invalid_request_error, rate_limit_error or server_error.
  const char* type() const;

  // Members beside the usual four, e.g. token counts.
  OrderedJson details = OrderedJson::object();

 private:
  int status_;
  std::string code_;
  std::string param_;
};

// {"error": {"message", "type", "param", "code"}}
std::string ErrorBody(const ApiError& error);
// The whole answer, with Retry-After, Allow and x-should-retry where they belong.
HttpResponse ErrorResponse(const ApiError& error);

// `This model's maximum context length is ...`: clients search for the words and the code.
ApiError ContextLengthExceeded(int64_t context, int64_t prompt_tokens, const std::string& param);

}  // namespace mference::server
