// The listening socket, its connections and the I/O thread that serves them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/file.h"
#include "server/http/handler.h"
#include "server/http/limits.h"

namespace mference::server {

// A socket that holds the address, but where nothing answers yet: connections are refused until a
// server is started on it. Port 0 picks a free one. Throws kIo when the address cannot be had.
FileDescriptor BindAddress(const std::string& address, uint16_t port);

// HTTP/1.1 and 1.0 with keep-alive and pipelining, no TLS. One I/O thread accepts, reads, writes
// and watches for clients that go away; it never waits for anything else.
class HttpServer {
 public:
  // `handler` must outlive it.
  HttpServer(const HttpLimits& limits, HttpHandler& handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Listens on a socket of BindAddress and starts the I/O thread. Returns the port; throws kIo when
  // another process was faster.
  uint16_t Start(FileDescriptor bound);

  // Accepts no more and closes connections without a request in progress. Others close after their
  // answer.
  void StopAccepting();
  // Waits up to `grace` for the answers in progress, closes everything and ends the I/O thread.
  void Stop(std::chrono::milliseconds grace);

  size_t connections() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mference::server
