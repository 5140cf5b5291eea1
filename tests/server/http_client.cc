#include "server/http_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace mference::testing_support {
namespace {

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

HttpReply ParseHead(const std::string& head) {
  HttpReply reply;
  const size_t space = head.find(' ');
  reply.status = space == std::string::npos ? 0 : std::stoi(head.substr(space + 1, 3));
  size_t at = head.find("\r\n");
  while (at != std::string::npos && at + 2 < head.size()) {
    const size_t end = head.find("\r\n", at + 2);
    const std::string line = head.substr(at + 2, end - at - 2);
    if (const size_t colon = line.find(": "); colon != std::string::npos) {
      reply.headers[Lower(line.substr(0, colon))] = line.substr(colon + 2);
    }
    at = end;
  }
  return reply;
}

}  // namespace

std::vector<std::string> SseEvents(const std::string& body) {
  std::vector<std::string> events;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    const std::string event = body.substr(at, end - at);
    if (event.starts_with("data: ")) events.push_back(event.substr(6));
    if (end == std::string::npos) break;
    at = end + 2;
  }
  return events;
}

std::vector<Json> SseChunks(const std::string& body) {
  std::vector<Json> chunks;
  for (const std::string& event : SseEvents(body)) {
    if (event != "[DONE]") chunks.push_back(Json::parse(event));
  }
  return chunks;
}

HttpClient::HttpClient(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("the test server does not accept connections");
  }
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

HttpClient::~HttpClient() { Close(); }

bool HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool HttpClient::Fill(std::chrono::milliseconds timeout) {
  pollfd entry{fd_, POLLIN, 0};
  if (::poll(&entry, 1, static_cast<int>(timeout.count())) <= 0) return false;
  char bytes[16384];
  const ssize_t got = ::recv(fd_, bytes, sizeof(bytes), 0);
  if (got <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(got));
  return true;
}

HttpReply HttpClient::Read(std::chrono::milliseconds timeout) {
  size_t head_end = 0;
  while ((head_end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!Fill(timeout)) return {};
  }
  HttpReply reply = ParseHead(buffer_.substr(0, head_end + 2));
  buffer_.erase(0, head_end + 4);
  if (reply.status == 100) return Read(timeout);
  if (reply.headers.count("content-length") > 0) {
    const size_t length = std::stoul(reply.headers["content-length"]);
    while (buffer_.size() < length) {
      if (!Fill(timeout)) break;
    }
    reply.complete = buffer_.size() >= length;
    reply.body = buffer_.substr(0, length);
    buffer_.erase(0, std::min(length, buffer_.size()));
    return reply;
  }
  if (reply.headers.count("transfer-encoding") == 0) {
    reply.complete = reply.status == 204;
    if (reply.complete) return reply;
    while (Fill(timeout)) {
    }
    reply.body.swap(buffer_);
    reply.complete = true;
    return reply;
  }
  while (true) {
    size_t line = 0;
    while ((line = buffer_.find("\r\n")) == std::string::npos) {
      if (!Fill(timeout)) return reply;
    }
    const size_t length = std::stoul(buffer_.substr(0, line), nullptr, 16);
    while (buffer_.size() < line + 2 + length + 2) {
      if (!Fill(timeout)) return reply;
    }
    reply.body += buffer_.substr(line + 2, length);
    buffer_.erase(0, line + 2 + length + 2);
    if (length == 0) {
      reply.complete = true;
      return reply;
    }
  }
}

std::string HttpClient::ReadUntil(std::string_view text, std::chrono::milliseconds timeout) {
  while (buffer_.find(text) == std::string::npos) {
    if (!Fill(timeout)) break;
  }
  return buffer_;
}

void HttpClient::ReadBytes(size_t count) {
  while (buffer_.size() < count && Fill(std::chrono::seconds(60))) {
  }
}

bool HttpClient::WaitForClose(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < end) {
    pollfd entry{fd_, POLLIN, 0};
    if (::poll(&entry, 1, 50) <= 0) continue;
    char bytes[4096];
    if (::recv(fd_, bytes, sizeof(bytes), 0) <= 0) return true;
  }
  return false;
}

void HttpClient::FinishSending() { ::shutdown(fd_, SHUT_WR); }

void HttpClient::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void HttpClient::Abort() {
  const linger now{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  Close();
}

std::string FormatRequest(std::string_view method, std::string_view path,
                          const std::vector<std::string>& headers, std::string_view body) {
  std::string request = fmt::format("{} {} HTTP/1.1\r\n", method, path);
  const bool has_host = std::any_of(headers.begin(), headers.end(), [](const std::string& header) {
    return Lower(header).starts_with("host:");
  });
  if (!has_host) request += "Host: 127.0.0.1\r\n";
  for (const std::string& header : headers) request += header + "\r\n";
  if (!body.empty()) request += fmt::format("Content-Length: {}\r\n", body.size());
  request += "\r\n";
  return request.append(body);
}

std::string FormatPost(std::string_view path, std::string_view body,
                       const std::vector<std::string>& headers) {
  std::vector<std::string> all = headers;
  all.insert(all.begin(), "Content-Type: application/json");
  return FormatRequest("POST", path, all, body);
}

HttpReply Get(uint16_t port, std::string_view path, const std::vector<std::string>& headers) {
  HttpClient client(port);
  client.Send(FormatRequest("GET", path, headers));
  return client.Read();
}

HttpReply Post(uint16_t port, std::string_view path, const Json& body,
               const std::vector<std::string>& headers) {
  HttpClient client(port);
  client.Send(FormatPost(path, body.dump(), headers));
  return client.Read();
}

}  // namespace mference::testing_support
