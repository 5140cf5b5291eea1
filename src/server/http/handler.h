// What the HTTP layer asks of the server above it.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "server/api/api_error.h"
#include "server/http/exchange.h"
#include "server/http/message.h"

namespace mference::server {

// Called on the I/O thread, so never slow.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Judges a request by its head, before any of its body is taken in. `headers` receives what every
  // answer to it carries, refusals included.
  virtual std::optional<ApiError> CheckHead(const HttpRequest& head,
                                            std::vector<HttpHeader>* headers) = 0;

  // Answers a complete request, now or later and from any thread.
  virtual void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) = 0;

  // An answer goes out; `path` is that of its request, empty where none was understood.
  virtual void OnAnswer(std::string_view path, int status) = 0;
};

}  // namespace mference::server
