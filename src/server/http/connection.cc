#include "server/http/connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>

#include "server/random_id.h"

namespace mference::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// Pipelined requests beyond this wait in the socket.
constexpr size_t kMaxInputBytes = 64 * kKiB;
// The body of a request refused by its head is taken in up to this, so that the connection lives.
constexpr uint64_t kSmallBodyBytes = 64 * kKiB;
// How often a client is looked at whose pipelined bytes fill the input.
constexpr std::chrono::milliseconds kWatchInterval{250};

HttpRequest ToRequest(const http::header<true>& head) {
  HttpRequest request;
  request.method = std::string(head.method_string());
  for (const auto& field : head) {
    request.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  const std::string target(head.target());
  request.path = target.substr(0, target.find_first_of("?#"));
  return request;
}

ApiError BadRequest(const std::string& message) { return {400, "invalid_http", message}; }

// Whether the peer has shut its side down, whatever still waits to be read.
bool HasHungUp(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

void Alarm::After(std::chrono::milliseconds delay, std::function<void()> action) {
  const uint64_t setting = ++setting_;
  timer_.expires_after(delay);
  timer_.async_wait(
      [this, setting, action = std::move(action)](const boost::system::error_code& error) {
        // An aborted wait may outlive the alarm: then nothing of it may be touched.
        if (!error && setting == setting_) action();
      });
}

void Alarm::Cancel() {
  ++setting_;
  timer_.cancel();
}

// The connection's side of `Exchange`: everything moves to the I/O thread.
class Connection::AnsweringExchange : public Exchange {
 public:
  AnsweringExchange(std::shared_ptr<Connection> connection, uint64_t serial, std::string id)
      : connection_(std::move(connection)), serial_(serial), id_(std::move(id)) {}
  // An exchange that is dropped without an answer would hold its client for ever.
  ~AnsweringExchange() override {
    Post([](Connection& connection, uint64_t serial) {
      if (connection.Current(serial) && !connection.answered_) connection.Close();
    });
  }

  const std::string& id() const override { return id_; }
  void AddHeader(HttpHeader header) override {
    Post([header = std::move(header)](Connection& connection, uint64_t serial) {
      if (connection.Current(serial)) connection.headers_.push_back(header);
    });
  }
  void Send(HttpResponse response) override {
    Post([response = std::move(response)](Connection& connection, uint64_t serial) mutable {
      connection.DoSend(serial, std::move(response));
    });
  }
  void BeginStream(std::function<std::string()> heartbeat) override {
    Post([heartbeat = std::move(heartbeat)](Connection& connection, uint64_t serial) mutable {
      connection.DoBegin(serial, std::move(heartbeat));
    });
  }
  void Write(std::string bytes) override {
    Post([bytes = std::move(bytes)](Connection& connection, uint64_t serial) {
      connection.DoWrite(serial, bytes);
    });
  }
  void EndStream() override {
    Post([](Connection& connection, uint64_t serial) { connection.DoEnd(serial); });
  }
  void OnClosed(std::function<void()> closed) override {
    Post([closed = std::move(closed)](Connection& connection, uint64_t serial) mutable {
      connection.DoOnClosed(serial, std::move(closed));
    });
  }

 private:
  template <typename Action>
  void Post(Action&& action) {
    asio::post(connection_->pool_.io,
               [connection = connection_, serial = serial_,
                action = std::forward<Action>(action)]() mutable { action(*connection, serial); });
  }

  const std::shared_ptr<Connection> connection_;
  const uint64_t serial_;
  const std::string id_;
};

Connection::Connection(ConnectionPool& pool, asio::ip::tcp::socket socket)
    : pool_(pool),
      socket_(std::move(socket)),
      read_alarm_(pool.io),
      write_alarm_(pool.io),
      heartbeat_alarm_(pool.io),
      watch_alarm_(pool.io) {}

void Connection::Start(const ApiError* refusal) {
  if (refusal != nullptr) {
    Refuse(*refusal);
  } else {
    Advance();
  }
}

void Connection::FinishUp() {
  keep_alive_ = false;
  if (state_ != State::kAnswering && state_ != State::kLingering) Close();
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  const std::shared_ptr<Connection> keep = shared_from_this();
  state_ = State::kClosed;
  boost::system::error_code ignored;
  socket_.close(ignored);
  for (Alarm* alarm : {&read_alarm_, &write_alarm_, &heartbeat_alarm_, &watch_alarm_}) {
    alarm->Cancel();
  }
  heartbeat_ = nullptr;
  request_ = {};
  if (on_closed_) std::exchange(on_closed_, nullptr)();
  pool_.on_closed(this);
}

// ---- input

void Connection::Receive() {
  if (receiving_ || peer_finished_ || state_ == State::kClosed) return;
  if (input_.size() >= kMaxInputBytes) {
    watch_alarm_.After(kWatchInterval, [self = shared_from_this()] {
      if (HasHungUp(self->socket_.native_handle())) {
        self->OnPeerClosed(false);
      } else {
        self->Receive();
      }
    });
    return;
  }
  receiving_ = true;
  socket_.async_read_some(
      asio::buffer(chunk_),
      [self = shared_from_this()](const boost::system::error_code& error, size_t bytes) {
        self->OnReceived(error, bytes);
      });
}

void Connection::OnReceived(const boost::system::error_code& error, size_t bytes) {
  receiving_ = false;
  if (state_ == State::kClosed) return;
  if (error) return OnPeerClosed(error != asio::error::eof);
  if (state_ == State::kLingering) {
    lingered_bytes_ += bytes;
    if (lingered_bytes_ > pool_.limits.linger_bytes) return Close();
    return Receive();
  }
  input_.append(chunk_.data(), bytes);
  if (state_ == State::kAnswering) return Receive();
  Advance();
}

void Connection::OnPeerClosed(bool reset) {
  // A client may finish sending and still read. What is being computed for it is given up all the
  // same: nobody can tell it from one that has gone.
  peer_finished_ = true;
  keep_alive_ = false;
  const bool owes_answer =
      (state_ == State::kAnswering && !on_closed_) || (state_ == State::kLingering && writing_);
  if (reset || !owes_answer) Close();
}

void Connection::Advance() {
  while (true) {
    switch (state_) {
      case State::kIdle:
        // Robust clients and not so robust ones send an empty line between requests.
        while (input_.starts_with("\r\n")) input_.erase(0, 2);
        if (input_.empty() || input_ == "\r") {
          read_alarm_.After(first_request_ ? pool_.limits.head_timeout : pool_.limits.idle_timeout,
                            [self = shared_from_this()] { self->Close(); });
          return Receive();
        }
        BeginRequest();
        break;
      case State::kHead:
        if (!ParseHead()) return;
        break;
      case State::kBody:
        if (!ParseBody()) return;
        break;
      case State::kAnswering:
      case State::kLingering:
      case State::kClosed:
        return;
    }
  }
}

void Connection::BeginRequest() {
  state_ = State::kHead;
  first_request_ = false;
  ++serial_;
  path_.clear();
  request_id_ = RandomId("req_", 16);
  request_ = {};
  headers_ = {{"x-request-id", request_id_}};
  refusal_.reset();
  head_only_ = false;
  chunked_answer_ = true;
  parser_.emplace();
  parser_->body_limit(boost::none);
  parser_->header_limit(static_cast<uint32_t>(pool_.limits.head_bytes));
  read_alarm_.After(pool_.limits.head_timeout, [self = shared_from_this()] {
    self->Refuse({408, "timeout", "the request's head did not arrive in time"});
  });
}

// True when there may be more to do with what has been received.
bool Connection::ParseHead() {
  boost::system::error_code error;
  const bool line_known = !parser_->get().target().empty();
  if (!line_known &&
      std::min(input_.find("\r\n"), input_.size()) > pool_.limits.request_line_bytes) {
    Refuse(
        {414, "uri_too_long",
         fmt::format("the request line is longer than {} bytes", pool_.limits.request_line_bytes)});
    return false;
  }
  const size_t used = parser_->put(asio::buffer(input_), error);
  input_.erase(0, used);
  if (error == http::error::header_limit) {
    Refuse({431, "headers_too_large",
            fmt::format("the headers are longer than {} bytes", pool_.limits.head_bytes)});
    return false;
  }
  if (error && error != http::error::need_more) {
    Refuse(BadRequest(fmt::format("not an HTTP request: {}", error.message())));
    return false;
  }
  if (!parser_->is_header_done()) {
    Receive();
    return false;
  }
  if (std::optional<ApiError> refusal = CheckHead()) {
    const boost::optional<uint64_t> length = parser_->content_length();
    const bool small = parser_->is_done() || (length && *length <= kSmallBodyBytes);
    if (!small || refusal->code() == "invalid_http") {
      Refuse(*refusal);
      return false;
    }
    refusal_ = std::move(refusal);
  }
  state_ = State::kBody;
  parser_->eager(true);
  read_alarm_.Cancel();
  if (!parser_->is_done() && EqualsIgnoringCase(request_.Header("Expect"), "100-continue")) {
    Enqueue("HTTP/1.1 100 Continue\r\n\r\n");
  }
  return true;
}

// What two readers could take for different lengths is refused.
std::optional<ApiError> Connection::CheckFraming(unsigned version) const {
  const size_t lengths = request_.CountHeader("Content-Length");
  const size_t codings = request_.CountHeader("Transfer-Encoding");
  const std::string_view length = request_.Header("Content-Length");
  const bool chunked = EqualsIgnoringCase(request_.Header("Transfer-Encoding"), "chunked");
  if (lengths + codings > 1 || length.find_first_not_of("0123456789") != std::string_view::npos ||
      (codings > 0 && (!chunked || version < 11))) {
    return BadRequest("the length of the body is stated twice, or in a way that is not supported");
  }
  const std::string_view coding = request_.Header("Content-Encoding");
  if (!coding.empty() && !EqualsIgnoringCase(coding, "identity")) {
    return ApiError(415, "unsupported_media_type", "compressed bodies are not supported");
  }
  return std::nullopt;
}

std::optional<ApiError> Connection::CheckHead() {
  const auto& message = parser_->get();
  request_ = ToRequest(message.base());
  request_.held = HeldBytes(pool_.bodies);
  keep_alive_ = keep_alive_ && parser_->keep_alive();
  chunked_answer_ = message.version() >= 11;
  const HttpLimits& limits = pool_.limits;
  if (std::optional<ApiError> refusal = CheckFraming(message.version())) return refusal;
  if (message.version() >= 11 && request_.CountHeader("Host") != 1) {
    return BadRequest("there must be one Host header");
  }
  // Proxies write the whole URL.
  constexpr std::string_view kScheme = "http://";
  if (request_.path.starts_with(kScheme)) {
    const size_t slash = request_.path.find('/', kScheme.size());
    const size_t host_end = std::min(slash, request_.path.size());
    const std::string_view host = request_.Header("Host");
    if (!host.empty() && request_.path.substr(kScheme.size(), host_end - kScheme.size()) != host) {
      return BadRequest("the request's target and its Host header name different hosts");
    }
    request_.path = slash == std::string::npos ? "/" : request_.path.substr(slash);
  }
  path_ = request_.path;
  if (!request_.path.starts_with('/') && request_.path != "*") {
    return BadRequest("the request's target is not a path");
  }
  if (request_.headers.size() > limits.headers) {
    return ApiError(431, "headers_too_large",
                    fmt::format("there are more than {} headers", limits.headers));
  }
  head_only_ = request_.method == "HEAD";
  if (head_only_) request_.method = "GET";
  if (std::optional<ApiError> refusal = pool_.handler.CheckHead(request_, &headers_)) {
    return refusal;
  }
  const uint64_t length = parser_->content_length().value_or(0);
  if (length > limits.body_bytes) {
    return ApiError(413, "request_too_large",
                    fmt::format("the body has {} bytes, but at most {} are accepted", length,
                                limits.body_bytes));
  }
  if (!request_.held.Grow(length)) {
    return ApiError(429, "queue_full", "too many large requests are being received");
  }
  return std::nullopt;
}

// True when there may be more to do with what has been received.
bool Connection::ParseBody() {
  while (!parser_->is_done()) {
    boost::system::error_code error;
    size_t used = 0;
    if (!input_.empty()) {
      used = parser_->put(asio::buffer(input_), error);
      input_.erase(0, used);
    }
    if (error && error != http::error::need_more) {
      Refuse(BadRequest(fmt::format("the body is malformed: {}", error.message())));
      return false;
    }
    const uint64_t length = parser_->get().body().size();
    if (length > pool_.limits.body_bytes) {
      Refuse({413, "request_too_large",
              fmt::format("the body has more than the {} bytes that are accepted",
                          pool_.limits.body_bytes)});
      return false;
    }
    if (!request_.held.Grow(length)) {
      Refuse({429, "queue_full", "too many large requests are being received"});
      return false;
    }
    if (parser_->is_done()) break;
    if (used == 0) {
      if (input_.size() >= kMaxInputBytes) {
        Refuse(BadRequest("a chunk of the body has no end to its head"));
        return false;
      }
      read_alarm_.After(pool_.limits.body_timeout, [self = shared_from_this()] {
        self->Refuse({408, "timeout", "the request's body stopped arriving"});
      });
      Receive();
      return false;
    }
  }
  Dispatch();
  return true;
}

void Connection::Dispatch() {
  read_alarm_.Cancel();
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  state_ = State::kAnswering;
  answered_ = false;
  Receive();
  if (refusal_) return DoSend(serial_, ErrorResponse(*refusal_));
  pool_.handler.Handle(std::exchange(request_, {}), std::make_shared<AnsweringExchange>(
                                                        shared_from_this(), serial_, request_id_));
}

void Connection::Refuse(const ApiError& error) {
  if (state_ == State::kClosed || state_ == State::kLingering) return;
  keep_alive_ = false;
  answered_ = true;
  state_ = State::kAnswering;
  read_alarm_.Cancel();
  request_ = {};
  const HttpResponse response = ErrorResponse(error);
  pool_.handler.OnAnswer(path_, response.status);
  std::vector<HttpHeader> headers = headers_;
  headers.insert(headers.end(), response.headers.begin(), response.headers.end());
  headers.push_back({"Content-Type", response.content_type});
  Enqueue(FormatHead(response.status, headers,
                     fmt::format("Content-Length: {}\r\n", response.body.size()), false) +
          response.body);
  Receive();
}

// ---- the answer

void Connection::DoSend(uint64_t serial, HttpResponse response) {
  if (!Current(serial) || answered_) return;
  answered_ = true;
  on_closed_ = nullptr;
  pool_.handler.OnAnswer(path_, response.status);
  headers_.insert(headers_.end(), response.headers.begin(), response.headers.end());
  std::string framing;
  if (response.status != 204) {
    headers_.push_back({"Content-Type", response.content_type});
    framing = fmt::format("Content-Length: {}\r\n", response.body.size());
  }
  std::string bytes = FormatHead(response.status, headers_, framing, keep_alive_);
  if (!head_only_) bytes += response.body;
  Enqueue(bytes);
}

void Connection::DoBegin(uint64_t serial, std::function<std::string()> heartbeat) {
  if (!Current(serial) || answered_ || streaming_) return;
  streaming_ = true;
  pool_.handler.OnAnswer(path_, 200);
  heartbeat_ = std::move(heartbeat);
  for (const auto& [name, value] : {std::pair{"Content-Type", "text/event-stream"},
                                    {"Cache-Control", "no-cache"},
                                    {"X-Accel-Buffering", "no"}}) {
    headers_.push_back({name, value});
  }
  // Without chunks the end of the answer is the end of the connection.
  if (!chunked_answer_) keep_alive_ = false;
  Enqueue(FormatHead(200, headers_, chunked_answer_ ? "Transfer-Encoding: chunked\r\n" : "",
                     keep_alive_));
  ScheduleHeartbeat();
}

void Connection::ScheduleHeartbeat() {
  heartbeat_alarm_.After(pool_.limits.heartbeat, [self = shared_from_this()] {
    if (!self->heartbeat_) return;
    self->EnqueueChunk(self->heartbeat_());
    if (self->heartbeat_) self->ScheduleHeartbeat();
  });
}

void Connection::DoWrite(uint64_t serial, std::string_view bytes) {
  if (Current(serial) && streaming_ && !answered_) EnqueueChunk(bytes);
}

void Connection::EnqueueChunk(std::string_view bytes) {
  if (unsent_.size() + bytes.size() > pool_.limits.unsent_bytes) return Close();
  Enqueue(chunked_answer_ ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes)
                          : std::string(bytes));
}

void Connection::DoEnd(uint64_t serial) {
  if (!Current(serial) || !streaming_ || answered_) return;
  answered_ = true;
  on_closed_ = nullptr;
  heartbeat_ = nullptr;
  heartbeat_alarm_.Cancel();
  Enqueue(chunked_answer_ ? "0\r\n\r\n" : "");
}

void Connection::DoOnClosed(uint64_t serial, std::function<void()> closed) {
  if (answered_ && serial == serial_) return;
  if (!Current(serial) || peer_finished_) {
    closed();
    if (Current(serial)) Close();
    return;
  }
  on_closed_ = std::move(closed);
}

// ---- output

void Connection::Enqueue(std::string_view bytes) {
  if (state_ == State::kClosed) return;
  unsent_ += bytes;
  if (!writing_) WriteMore();
}

void Connection::WriteMore() {
  if (sent_ == sending_.size()) {
    sending_.clear();
    sent_ = 0;
    sending_.swap(unsent_);
  }
  if (sending_.empty()) {
    if (state_ == State::kAnswering && answered_) FinishAnswer();
    return;
  }
  writing_ = true;
  write_alarm_.After(pool_.limits.write_timeout, [self = shared_from_this()] { self->Close(); });
  socket_.async_write_some(
      asio::buffer(sending_) + sent_,
      [self = shared_from_this()](const boost::system::error_code& error, size_t bytes) {
        self->OnWritten(error, bytes);
      });
}

void Connection::OnWritten(const boost::system::error_code& error, size_t bytes) {
  writing_ = false;
  write_alarm_.Cancel();
  if (state_ == State::kClosed) return;
  if (error) return Close();
  sent_ += bytes;
  WriteMore();
}

void Connection::FinishAnswer() {
  streaming_ = false;
  headers_.clear();
  if (!keep_alive_) return Linger();
  state_ = State::kIdle;
  // Not from here: the caller may be in the middle of something.
  asio::post(pool_.io, [self = shared_from_this()] {
    if (self->state_ == State::kIdle) self->Advance();
  });
}

void Connection::Linger() {
  if (peer_finished_) return Close();
  state_ = State::kLingering;
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  read_alarm_.After(pool_.limits.linger_timeout, [self = shared_from_this()] { self->Close(); });
  input_.clear();
  Receive();
}

}  // namespace mference::server
