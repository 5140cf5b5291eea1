// One request and its answer, as the code that answers sees it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/http/message.h"

namespace mference::server {

// The way back to one client. Safe to use from any thread; calls after the client has gone do
// nothing. Exactly one answer: `Send`, or `BeginStream`, `Write`..., `EndStream`.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Unique in this process; appears in logs and in the header x-request-id.
  virtual const std::string& id() const = 0;

  // A header for the answer, added before it begins.
  virtual void AddHeader(HttpHeader header) = 0;

  virtual void Send(HttpResponse response) = 0;

  // Begins an event stream. From now on what `heartbeat` returns is written at regular intervals
  // (HttpLimits); it is called on the I/O thread.
  virtual void BeginStream(std::function<std::string()> heartbeat) = 0;
  virtual void Write(std::string bytes) = 0;
  virtual void EndStream() = 0;

  // `closed` is called once, on the I/O thread, if the client goes away before its answer is
  // complete (at once if it has already gone). Never called after `Send` or `EndStream`.
  virtual void OnClosed(std::function<void()> closed) = 0;
};

}  // namespace mference::server
