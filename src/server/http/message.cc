#include "server/http/message.h"

#include <fmt/format.h>

#include <algorithm>

namespace mference::server {
namespace {

char LowerCase(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return LowerCase(x) == LowerCase(y); });
}

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (EqualsIgnoringCase(header.name, name)) return header.value;
  }
  return {};
}

size_t HttpRequest::CountHeader(std::string_view name) const {
  return static_cast<size_t>(std::count_if(
      headers.begin(), headers.end(),
      [name](const HttpHeader& header) { return EqualsIgnoringCase(header.name, name); }));
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

std::string FormatHead(int status, const std::vector<HttpHeader>& headers, std::string_view framing,
                       bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", status, ReasonPhrase(status));
  for (const HttpHeader& header : headers) {
    head += fmt::format("{}: {}\r\n", header.name, header.value);
  }
  head += framing;
  head += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

}  // namespace mference::server
