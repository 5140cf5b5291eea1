// A small blocking HTTP client over a raw socket, so that tests see and choose every byte.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace mference::testing_support {

struct HttpReply {
  int status = 0;                              // 0: the connection ended before a whole head
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without chunk framing
  bool complete = false;                       // the body ended as its framing says

  Json json() const { return Json::parse(body); }
  // error.code of an error body.
  std::string code() const { return json().at("error").at("code"); }
};

// The events of a stream: what follows "data: ".
std::vector<std::string> SseEvents(const std::string& body);
// Their JSON, without the final [DONE].
std::vector<Json> SseChunks(const std::string& body);

class HttpClient {
 public:
  explicit HttpClient(uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // False when the server has closed the connection.
  bool Send(std::string_view bytes);
  // One whole answer; gives up, with what there is, after `timeout` without a byte.
  HttpReply Read(std::chrono::milliseconds timeout = std::chrono::seconds(60));
  // Reads until `text` has come, or the end; everything so far.
  std::string ReadUntil(std::string_view text,
                        std::chrono::milliseconds timeout = std::chrono::seconds(60));
  // Reads until so many bytes have come, or the end.
  void ReadBytes(size_t count);
  // Waits for the server to close; false if it does not in time.
  bool WaitForClose(std::chrono::milliseconds timeout = std::chrono::seconds(30));
  void FinishSending();  // half-closes
  void Close();
  // Closes with a reset instead of an end of file.
  void Abort();

 private:
  // More bytes; false at the end or after the timeout.
  bool Fill(std::chrono::milliseconds timeout);

  int fd_ = -1;
  std::string buffer_;
};

// The text of a request with a Host header, and Content-Length where there is a body.
std::string FormatRequest(std::string_view method, std::string_view path,
                          const std::vector<std::string>& headers = {}, std::string_view body = "");
std::string FormatPost(std::string_view path, std::string_view body,
                       const std::vector<std::string>& headers = {});

// On a connection of its own.
HttpReply Get(uint16_t port, std::string_view path, const std::vector<std::string>& headers = {});
HttpReply Post(uint16_t port, std::string_view path, const Json& body,
               const std::vector<std::string>& headers = {});

}  // namespace mference::testing_support
