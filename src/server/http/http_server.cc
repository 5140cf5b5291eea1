#include "server/http/http_server.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "server/http/connection.h"

namespace mference::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Connections beyond the limit that may be told so at the same time; further ones just close.
constexpr size_t kRefusedConnections = 16;
// After accepting failed: usually no file descriptor is left.
constexpr std::chrono::milliseconds kAcceptPause{100};

[[noreturn]] void FailToListen(const std::string& address, uint16_t port,
                               const boost::system::error_code& error) {
  Fail(ErrorCode::kIo, "cannot listen on {} port {}: {}; choose another with --port", address, port,
       error.message());
}

int Duplicate(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) FailErrno("cannot duplicate a socket", errno);
  return copy;
}

tcp::endpoint EndpointOf(const FileDescriptor& bound) {
  tcp::endpoint endpoint;
  auto size = static_cast<socklen_t>(endpoint.capacity());
  if (getsockname(bound.get(), endpoint.data(), &size) != 0) {
    FailErrno("cannot examine a socket", errno);
  }
  endpoint.resize(size);
  return endpoint;
}

}  // namespace

FileDescriptor BindAddress(const std::string& address, uint16_t port) {
  asio::io_context io;
  tcp::acceptor acceptor(io);
  boost::system::error_code error;
  const tcp::endpoint endpoint(asio::ip::make_address(address, error), port);
  if (!error) acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (error) FailToListen(address, port, error);
  return FileDescriptor(Duplicate(acceptor.native_handle()));
}

class HttpServer::Impl {
 public:
  Impl(const HttpLimits& limits, HttpHandler& handler)
      : limits_(limits),
        bodies_(limits.all_bodies_bytes),
        acceptor_(io_),
        accept_alarm_(io_),
        pool_{io_, limits_, handler, bodies_, [this](Connection* closed) { Forget(closed); }} {}

  ~Impl() { Stop(std::chrono::milliseconds(0)); }

  // The acceptor's copy of the socket is the only one left afterwards, so that closing it counts.
  uint16_t Start(const FileDescriptor bound) {
    const tcp::endpoint endpoint = EndpointOf(bound);
    boost::system::error_code error;
    acceptor_.assign(endpoint.protocol(), Duplicate(bound.get()), error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) FailToListen(endpoint.address().to_string(), endpoint.port(), error);
    Accept();
    thread_ = std::thread([this] { io_.run(); });
    return endpoint.port();
  }

  void StopAccepting() {
    asio::post(io_, [this] { DoStopAccepting(); });
  }

  void Stop(std::chrono::milliseconds grace) {
    if (!thread_.joinable()) return;
    StopAccepting();
    {
      std::unique_lock lock(mutex_);
      all_closed_.wait_for(lock, grace, [this] { return stopping_ && open_ == 0; });
    }
    asio::post(io_, [this] {
      for (const auto& connection : Snapshot()) connection->Close();
      work_.reset();
    });
    thread_.join();
  }

  size_t connections() const { return open_.load(); }

 private:
  void Accept() {
    acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (error) {
        accept_alarm_.After(kAcceptPause, [this] { Accept(); });
        return;
      }
      Admit(std::move(socket));
      Accept();
    });
  }

  void Admit(tcp::socket socket) {
    const bool full = connections_.size() - refused_ >= limits_.connections;
    if (full && refused_ >= kRefusedConnections) return;
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const auto connection = std::make_shared<Connection>(pool_, std::move(socket));
    connections_.emplace(connection.get(), Entry{connection, full});
    refused_ += full ? 1 : 0;
    open_ = connections_.size();
    const ApiError refusal(503, "too_many_connections",
                           "the server has as many connections as it can serve");
    connection->Start(full ? &refusal : nullptr);
  }

  void Forget(Connection* closed) {
    const auto entry = connections_.find(closed);
    if (entry == connections_.end()) return;
    refused_ -= entry->second.refused ? 1 : 0;
    connections_.erase(entry);
    const std::lock_guard lock(mutex_);
    open_ = connections_.size();
    all_closed_.notify_all();
  }

  void DoStopAccepting() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    accept_alarm_.Cancel();
    for (const auto& connection : Snapshot()) connection->FinishUp();
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    all_closed_.notify_all();
  }

  std::vector<std::shared_ptr<Connection>> Snapshot() const {
    std::vector<std::shared_ptr<Connection>> all;
    all.reserve(connections_.size());
    for (const auto& [key, entry] : connections_) all.push_back(entry.connection);
    return all;
  }

  struct Entry {
    std::shared_ptr<Connection> connection;
    bool refused = false;  // beyond the limit, only there to be told
  };

  const HttpLimits limits_;
  ByteBudget bodies_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  tcp::acceptor acceptor_;
  Alarm accept_alarm_;
  ConnectionPool pool_;
  std::unordered_map<Connection*, Entry> connections_;
  size_t refused_ = 0;
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable all_closed_;
  bool stopping_ = false;
  std::atomic<size_t> open_{0};
};

HttpServer::HttpServer(const HttpLimits& limits, HttpHandler& handler)
    : impl_(std::make_unique<Impl>(limits, handler)) {}
HttpServer::~HttpServer() = default;

uint16_t HttpServer::Start(FileDescriptor bound) { return impl_->Start(std::move(bound)); }
void HttpServer::StopAccepting() { impl_->StopAccepting(); }
void HttpServer::Stop(std::chrono::milliseconds grace) { impl_->Stop(grace); }
size_t HttpServer::connections() const { return impl_->connections(); }

}  // namespace mference::server
