// The OpenAI-compatible server over one loaded model.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "engine/loaded_model.h"
#include "server/http/limits.h"
#include "server/request_log.h"

namespace mference::server {

struct ServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 8080;  // 0: a free one
  std::string model_id;
  size_t queue_limit = 4;  // requests that may wait beside the running one
  std::vector<std::string> cors_origins;
  std::string api_key;    // empty: none is asked for
  bool thinking = false;  // where a request does not say
  HttpLimits http;
  LogLevel log_level = LogLevel::kInfo;
  std::function<void(std::string_view)> log;  // lines; default: standard error
};

// Runs from construction to `Stop`, on threads of its own.
class Server {
 public:
  // Only the server may use `model` while it exists. Throws kIo when the address cannot be had.
  Server(LoadedModel& model, const ServerOptions& options);
  // On a socket of BindAddress with the options' address, whose port counts instead of theirs.
  Server(LoadedModel& model, const ServerOptions& options, FileDescriptor bound);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const { return port_; }

  // Ends everything: no new requests, those that wait fail, the running one is cancelled, open
  // streams are told and get up to `grace` to take it in. More calls do nothing.
  void Stop(std::chrono::milliseconds grace = std::chrono::seconds(2));

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  uint16_t port_ = 0;
};

}  // namespace mference::server
