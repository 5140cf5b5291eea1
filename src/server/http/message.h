// HTTP messages as the rest of the server sees them: no sockets, no parser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http/byte_budget.h"

namespace mference::server {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;
  std::string path;  // the target without its query
  std::vector<HttpHeader> headers;
  std::string body;
  HeldBytes held;  // of the budget for bodies

  // The first header of that name in any case; empty where there is none.
  std::string_view Header(std::string_view name) const;
  size_t CountHeader(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::vector<HttpHeader> headers = {};
  std::string content_type = "application/json";
  std::string body = {};
};

// "Not Found"
std::string_view ReasonPhrase(int status);

// Compares ASCII without case.
bool EqualsIgnoringCase(std::string_view a, std::string_view b);

// Status line and headers with the blank line. `framing` is a whole header line for the length, or
// empty.
std::string FormatHead(int status, const std::vector<HttpHeader>& headers, std::string_view framing,
                       bool keep_alive);

}  // namespace mference::server
