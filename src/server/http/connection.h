// One client's socket: a state machine from bytes to requests and from answers to bytes.
//
// Everything here runs on the I/O thread. There is always at most one read and one write under way.
// While a request is being answered reading goes on, which is how a client that leaves is noticed;
// pipelined requests wait in the input buffer meanwhile.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/http/handler.h"
#include "server/http/limits.h"

namespace mference::server {

// A timer whose action is certain not to run after it has been set again or cancelled.
class Alarm {
 public:
  explicit Alarm(boost::asio::io_context& io) : timer_(io) {}

  void After(std::chrono::milliseconds delay, std::function<void()> action);
  void Cancel();

 private:
  boost::asio::steady_timer timer_;
  uint64_t setting_ = 0;
};

class Connection;

// What connections share and report to.
struct ConnectionPool {
  boost::asio::io_context& io;
  const HttpLimits& limits;
  HttpHandler& handler;
  ByteBudget& bodies;
  std::function<void(Connection*)> on_closed;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionPool& pool, boost::asio::ip::tcp::socket socket);

  // Begins to serve; `refusal`: answers that and closes.
  void Start(const ApiError* refusal = nullptr);
  // No further request; closes now if none is in progress.
  void FinishUp();
  void Close();

 private:
  class AnsweringExchange;
  enum class State { kIdle, kHead, kBody, kAnswering, kLingering, kClosed };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // Input.
  void Receive();
  void OnReceived(const boost::system::error_code& error, size_t bytes);
  void Advance();
  void BeginRequest();
  bool ParseHead();
  std::optional<ApiError> CheckFraming(unsigned version) const;
  std::optional<ApiError> CheckHead();
  bool ParseBody();
  void Dispatch();
  void Refuse(const ApiError& error);
  void OnPeerClosed(bool reset);

  // The answer to request number `serial`; anything for another one comes too late.
  void DoSend(uint64_t serial, HttpResponse response);
  void DoBegin(uint64_t serial, std::function<std::string()> heartbeat);
  void DoWrite(uint64_t serial, std::string_view bytes);
  void DoEnd(uint64_t serial);
  void DoOnClosed(uint64_t serial, std::function<void()> closed);
  bool Current(uint64_t serial) const { return state_ == State::kAnswering && serial == serial_; }

  // Output.
  void ScheduleHeartbeat();
  void EnqueueChunk(std::string_view bytes);
  void Enqueue(std::string_view bytes);
  void WriteMore();
  void OnWritten(const boost::system::error_code& error, size_t bytes);
  void FinishAnswer();
  void Linger();

  ConnectionPool& pool_;
  boost::asio::ip::tcp::socket socket_;
  Alarm read_alarm_;
  Alarm write_alarm_;
  Alarm heartbeat_alarm_;
  Alarm watch_alarm_;
  State state_ = State::kIdle;

  std::array<char, 16 * kKiB> chunk_;  // where a read puts its bytes
  bool receiving_ = false;
  std::string input_;  // received, not parsed
  bool first_request_ = true;
  uint64_t lingered_bytes_ = 0;

  std::optional<Parser> parser_;
  HttpRequest request_;
  std::vector<HttpHeader> headers_;  // of every answer to it
  std::optional<ApiError> refusal_;  // to be sent once its body is in
  bool head_only_ = false;           // a HEAD request
  bool chunked_answer_ = true;
  bool keep_alive_ = true;
  bool peer_finished_ = false;  // sent its end of file
  std::string request_id_;
  std::string path_;

  uint64_t serial_ = 0;
  std::function<void()> on_closed_;
  std::function<std::string()> heartbeat_;
  bool streaming_ = false;
  bool answered_ = false;  // the whole answer is in the output

  std::string unsent_;
  std::string sending_;
  size_t sent_ = 0;
  bool writing_ = false;
};

}  // namespace mference::server
