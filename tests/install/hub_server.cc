#include "install/hub_server.h"

#include <openssl/evp.h>
#include <sys/sendfile.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <condition_variable>
#include <list>
#include <thread>

#include "base/file.h"
#include "base/sha256.h"
#include "fmt/format.h"
#include "format/hash_file.h"
#include "install/test_certificates.h"
#include "install/test_support.h"

namespace mference::testing {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr const char* kSecretQuery = "?X-Signature=secret";

std::string GitBlobId(const std::string& content) {
  const std::string blob = fmt::format("blob {}", content.size()) + '\0' + content;
  std::array<unsigned char, 20> digest{};
  EVP_Digest(blob.data(), blob.size(), digest.data(), nullptr, EVP_sha1(), nullptr);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

// Small files and replaced ones are in memory, large ones stay on the disk.
struct ServedFile {
  std::filesystem::path path;
  std::string content;
  uint64_t bytes = 0;
  std::string sha256;
  std::string git_sha1;
  bool large = false;
};

ServedFile Serve(std::string content, const std::string& name) {
  ServedFile file;
  file.bytes = content.size();
  file.sha256 = Sha256Hex(content);
  file.git_sha1 = GitBlobId(content);
  file.large = name.ends_with(".safetensors") || name == "tokenizer.json";
  file.content = std::move(content);
  return file;
}

ServedFile ServeFromDisk(const std::filesystem::path& path) {
  const FileDescriptor descriptor = OpenForReading(path);
  ServedFile file;
  file.path = path;
  file.bytes = FileSize(descriptor, path.string());
  file.sha256 = HashFile(descriptor, file.bytes, path.string());
  file.large = true;
  return file;
}

std::string Slice(const ServedFile& file, uint64_t offset, uint64_t bytes) {
  if (file.path.empty()) return file.content.substr(offset, bytes);
  std::string slice(bytes, '\0');
  ReadExactly(OpenForReading(file.path), offset, std::as_writable_bytes(std::span(slice)),
              file.path.string());
  return slice;
}

// A large body, sent from the disk piece by piece.
struct DiskBody {
  std::filesystem::path path;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
constexpr uint64_t kLargeBody = uint64_t{8} << 20;

struct Answer {
  int status = 200;
  std::vector<std::string> headers;
  std::string body;
  std::optional<DiskBody> disk_body;  // instead
  bool send_body = true;
  std::optional<uint64_t> content_length;  // when not the body's size
  std::optional<uint64_t> drop_after;      // bytes of the body
  bool stall = false;                      // after one byte of the body
  bool hang_up = false;                    // no answer at all
};

}  // namespace

struct HubServer::Impl {
  const HubStyle style;
  TempDirectory directory;  // the authority's certificate
  asio::io_context io;
  asio::ssl::context tls{asio::ssl::context::tls_server};
  tcp::acceptor hub{io, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0)};
  tcp::acceptor cdn{io, tcp::endpoint(asio::ip::make_address("127.0.0.1"), 0)};

  mutable std::mutex mutex;
  std::condition_variable stopping;
  bool stopped = false;
  bool require_token = false;
  std::map<std::string, ServedFile> files;
  std::function<HubFault(const HubRequest&)> misbehave;
  std::vector<HubRequest> requests;
  std::vector<std::string> ranges_served;
  std::map<std::string, int> counts;
  int connections = 0;

  std::list<std::thread> threads;
  std::list<tcp::socket*> open;

  explicit Impl(HubStyle chosen) : style(chosen) {}

  unsigned short HubPort() const { return hub.local_endpoint().port(); }
  unsigned short CdnPort() const { return cdn.local_endpoint().port(); }

  void Accept(tcp::acceptor& acceptor, bool is_cdn) {
    while (true) {
      boost::system::error_code error;
      tcp::socket socket(io);
      acceptor.accept(socket, error);
      const std::lock_guard lock(mutex);
      if (error || stopped) return;
      ++connections;
      threads.emplace_back(
          [this, is_cdn, moved = std::make_shared<tcp::socket>(std::move(socket))] {
            Talk(std::move(*moved), is_cdn);
          });
    }
  }

  void Talk(tcp::socket socket, bool is_cdn) {
    {
      const std::lock_guard lock(mutex);
      if (stopped) return;
      open.push_back(&socket);
    }
    boost::system::error_code error;
    socket.set_option(tcp::no_delay(true), error);
    if (style == HubStyle::kPlainMirror) {
      AnswerAll(socket, is_cdn);
    } else {
      asio::ssl::stream<tcp::socket&> stream(socket, tls);
      stream.handshake(asio::ssl::stream_base::server, error);
      if (!error) AnswerAll(stream, is_cdn);
    }
    const std::lock_guard lock(mutex);
    open.remove(&socket);
    // Without a TLS goodbye, as many real servers do.
    socket.close(error);
  }

  template <typename Stream>
  void AnswerAll(Stream& stream, bool is_cdn) {
    boost::system::error_code error;
    boost::beast::flat_buffer buffer;
    while (true) {
      http::request<http::empty_body> request;
      http::read(stream, buffer, request, error);
      if (error || !Send(stream, Decide(request, is_cdn))) return;
    }
  }

  template <typename Stream>
  bool Send(Stream& stream, const Answer& answer) {
    if (answer.hang_up) return false;
    std::string head = fmt::format("HTTP/1.1 {} X\r\n", answer.status);
    for (const std::string& header : answer.headers) head += header + "\r\n";
    head += fmt::format("Content-Length: {}\r\n\r\n",
                        answer.content_length.value_or(answer.disk_body ? answer.disk_body->bytes
                                                                        : answer.body.size()));
    boost::system::error_code error;
    asio::write(stream, asio::buffer(head), error);
    if (error || !answer.send_body) return !error;
    if (answer.disk_body) return SendFromDisk(stream, *answer.disk_body);
    if (answer.stall) {
      asio::write(stream, asio::buffer(answer.body.data(), 1), error);
      std::unique_lock lock(mutex);
      stopping.wait_for(lock, std::chrono::seconds(30), [&] { return stopped; });
      return false;
    }
    const uint64_t bytes =
        std::min<uint64_t>(answer.drop_after.value_or(answer.body.size()), answer.body.size());
    asio::write(stream, asio::buffer(answer.body.data(), bytes), error);
    return !error && !answer.drop_after;
  }

  static bool SendFromDisk(asio::ssl::stream<tcp::socket&>& stream, const DiskBody& body) {
    const FileDescriptor file = OpenForReading(body.path);
    std::vector<std::byte> piece(size_t{1} << 18);
    boost::system::error_code error;
    for (uint64_t done = 0; done < body.bytes && !error; done += piece.size()) {
      const auto part = std::span(piece).first(std::min<uint64_t>(piece.size(), body.bytes - done));
      ReadExactly(file, body.offset + done, part, body.path.string());
      asio::write(stream, asio::buffer(part.data(), part.size()), error);
    }
    return !error;
  }

  // As real file servers do it: no byte passes through this process.
  static bool SendFromDisk(tcp::socket& socket, const DiskBody& body) {
    const FileDescriptor file = OpenForReading(body.path);
    auto offset = static_cast<off_t>(body.offset);
    const auto end = static_cast<off_t>(body.offset + body.bytes);
    while (offset < end) {
      const auto left = static_cast<size_t>(end - offset);
      if (sendfile(socket.native_handle(), file.get(), &offset, left) <= 0) return false;
    }
    return true;
  }

  static std::string FileOf(const std::string& target) {
    const std::string path = target.substr(0, target.find('?'));
    return path.substr(path.rfind('/') + 1);
  }

  Answer Decide(const http::request<http::empty_body>& request, bool is_cdn) {
    HubRequest seen;
    seen.cdn = is_cdn;
    seen.method = std::string(request.method_string());
    seen.target = std::string(request.target());
    seen.range = std::string(request[http::field::range]);
    seen.authorized = request[http::field::authorization] == std::string("Bearer ") + kToken;
    seen.file = FileOf(seen.target);
    const std::lock_guard lock(mutex);
    seen.number = counts[fmt::format("{} {} {}", is_cdn, seen.method, seen.file)]++;
    requests.push_back(seen);
    const HubFault fault = misbehave ? misbehave(seen) : HubFault{};
    const auto found = files.find(seen.file);
    Answer answer;
    if (found == files.end()) {
      answer.status = 404;
    } else if (is_cdn) {
      answer = AnswerRange(seen, found->second);
      ranges_served.push_back(seen.file + " " + seen.range);
    } else {
      answer = AnswerResolve(seen, found->second);
      if (answer.status == 206) ranges_served.push_back(seen.file + " " + seen.range);
    }
    Apply(fault, seen, answer);
    if (seen.method == "HEAD") answer.send_body = false;
    if (!answer.send_body && !answer.content_length) answer.content_length = answer.body.size();
    return answer;
  }

  Answer AnswerResolve(const HubRequest& request, const ServedFile& file) const {
    Answer answer;
    if (require_token && !request.authorized) {
      answer.status = 401;
      return answer;
    }
    answer.headers.push_back("X-Repo-Commit: " + std::string(40, 'c'));
    if (style == HubStyle::kPlainMirror) return AnswerDirectly(request, file, std::move(answer));
    if (file.large) {
      answer.status = 302;
      answer.headers.push_back(fmt::format("X-Linked-Size: {}", file.bytes));
      answer.headers.push_back(fmt::format("X-Linked-ETag: \"{}\"", file.sha256));
      if (style == HubStyle::kXet) answer.headers.push_back("X-Xet-Hash: " + XetHash(file));
      answer.headers.emplace_back("Accept-Ranges: bytes");
      answer.headers.push_back(fmt::format("Location: https://127.0.0.1:{}/blobs/{}/{}{}",
                                           CdnPort(), file.sha256, request.file, kSecretQuery));
    } else if (request.target.starts_with("/api/resolve-cache/")) {
      answer.headers.push_back(fmt::format("ETag: \"{}\"", file.git_sha1));
      answer.body = file.content;
    } else {
      answer.status = 307;
      answer.headers.push_back("Location: /api/resolve-cache/models" + request.target);
    }
    return answer;
  }

  // A mirror sends nobody elsewhere.
  Answer AnswerDirectly(const HubRequest& request, const ServedFile& file, Answer answer) const {
    if (file.large && !request.range.empty()) return AnswerRange(request, file);
    answer.headers.push_back(fmt::format("ETag: \"{}\"", file.large ? file.sha256 : file.git_sha1));
    answer.headers.emplace_back("Accept-Ranges: bytes");
    answer.content_length = file.bytes;
    if (request.method != "HEAD") answer.body = Slice(file, 0, file.bytes);
    return answer;
  }

  // Stands for the content hash of chunked storage: any string that belongs to the content.
  static std::string XetHash(const ServedFile& file) { return Sha256Hex("xet" + file.sha256); }

  Answer AnswerRange(const HubRequest& request, const ServedFile& file) const {
    Answer answer;
    const std::string tag =
        style == HubStyle::kXet ? XetHash(file) : "s3-" + file.sha256.substr(0, 20);
    answer.headers.push_back(fmt::format("ETag: \"{}\"", tag));
    unsigned long long first = 0;
    unsigned long long last = 0;
    if (std::sscanf(request.range.c_str(), "bytes=%llu-%llu", &first, &last) != 2) {
      answer.body = Slice(file, 0, file.bytes);
      return answer;
    }
    if (last >= file.bytes || first > last) {
      answer.status = 416;
      return answer;
    }
    answer.status = 206;
    answer.headers.push_back(fmt::format("Content-Range: bytes {}-{}/{}", first, last, file.bytes));
    if (const uint64_t bytes = last - first + 1; bytes > kLargeBody && !file.path.empty()) {
      answer.disk_body = DiskBody{.path = file.path, .offset = first, .bytes = bytes};
    } else {
      answer.body = Slice(file, first, bytes);
    }
    return answer;
  }

  static void SetHeader(Answer& answer, const std::string& name, const std::string& value) {
    std::erase_if(answer.headers,
                  [&](const std::string& header) { return header.starts_with(name + ":"); });
    if (!value.empty()) answer.headers.push_back(name + ": " + value);
  }

  void Apply(const HubFault& fault, const HubRequest& request, Answer& answer) const {
    switch (fault.fault) {
      case Fault::kNone:
        return;
      case Fault::kStatus:
        answer = Answer{};
        answer.status = fault.status;
        if (!fault.retry_after.empty()) answer.headers = {"Retry-After: " + fault.retry_after};
        return;
      case Fault::kDropMidBody:
        answer.drop_after = fault.after_bytes;
        return;
      case Fault::kShortBody:
        answer.body.resize(answer.body.size() / 2);
        return;
      case Fault::kWrongRange:
        SetHeader(answer, "Content-Range", "bytes 1-2/3");
        return;
      case Fault::kWrongTotal: {
        const auto range = std::find_if(answer.headers.begin(), answer.headers.end(),
                                        [](auto& h) { return h.starts_with("Content-Range:"); });
        if (range != answer.headers.end()) *range += "0";
        return;
      }
      case Fault::kWholeFile:
        answer.status = 200;
        answer.body = Slice(files.at(request.file), 0, files.at(request.file).bytes);
        SetHeader(answer, "Content-Range", "");
        return;
      case Fault::kNoRangeHeader:
        SetHeader(answer, "Content-Range", "");
        return;
      case Fault::kCompressed:
        SetHeader(answer, "Content-Encoding", "gzip");
        return;
      case Fault::kCorruptByte:
        if (!answer.body.empty()) answer.body[answer.body.size() / 2] ^= 0x10;
        return;
      case Fault::kOtherTag:
        SetHeader(answer, "ETag", "\"something-else\"");
        return;
      case Fault::kWeakTag:
        SetHeader(answer, "ETag", "W/\"whatever\"");
        return;
      case Fault::kSlow:
        answer.stall = true;
        return;
      case Fault::kRedirectLoop:
        answer.status = 302;
        SetHeader(answer, "Location", request.target);
        return;
      case Fault::kPlainRedirect:
        answer.status = 302;
        SetHeader(answer, "Location", "http://127.0.0.1:1/stolen" + std::string(kSecretQuery));
        return;
      case Fault::kBounce:
        answer.status = 302;
        SetHeader(answer, "Location",
                  fmt::format("https://localhost:{}{}", HubPort(),
                              "/tiny/model/resolve/x/" + request.file));
        return;
      case Fault::kNoCommit:
        SetHeader(answer, "X-Repo-Commit", "");
        return;
      case Fault::kOtherCommit:
        SetHeader(answer, "X-Repo-Commit", std::string(40, 'd'));
        return;
      case Fault::kHangUp:
        answer.hang_up = true;
        return;
      case Fault::kLongBody:
        answer.content_length = answer.body.size();
        answer.body += std::string(100, 'x');
        return;
    }
  }
};

HubServer::HubServer(const std::filesystem::path& snapshot, HubStyle style)
    : impl_(std::make_unique<Impl>(style)) {
  for (const auto& entry : std::filesystem::directory_iterator(snapshot)) {
    const std::string name = entry.path().filename().string();
    impl_->files.emplace(name, name.ends_with(".safetensors") ? ServeFromDisk(entry.path())
                                                              : Serve(ReadAll(entry.path()), name));
  }
  const TestCertificates& certificates = Certificates();
  WriteAll(ca_file(), certificates.authority_pem);
  impl_->tls.use_certificate_chain(asio::buffer(certificates.server_pem));
  impl_->tls.use_private_key(asio::buffer(certificates.server_key_pem), asio::ssl::context::pem);
  const std::lock_guard lock(impl_->mutex);
  impl_->threads.emplace_back([this] { impl_->Accept(impl_->hub, false); });
  impl_->threads.emplace_back([this] { impl_->Accept(impl_->cdn, true); });
}

HubServer::~HubServer() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopped = true;
    for (tcp::socket* socket : impl_->open) {
      boost::system::error_code error;
      socket->shutdown(tcp::socket::shutdown_both, error);
    }
  }
  impl_->stopping.notify_all();
  // Wake the accepting threads: closing under them is not portable.
  for (const unsigned short port : {impl_->HubPort(), impl_->CdnPort()}) {
    boost::system::error_code error;
    tcp::socket wake(impl_->io);
    wake.connect(tcp::endpoint(asio::ip::make_address("127.0.0.1"), port), error);
  }
  while (true) {
    std::thread thread;
    {
      const std::lock_guard lock(impl_->mutex);
      if (impl_->threads.empty()) break;
      thread = std::move(impl_->threads.front());
      impl_->threads.pop_front();
    }
    thread.join();
  }
}

std::string HubServer::base_url() const {
  return fmt::format("{}://localhost:{}", impl_->style == HubStyle::kPlainMirror ? "http" : "https",
                     impl_->HubPort());
}
std::filesystem::path HubServer::ca_file() const { return impl_->directory / "ca.pem"; }

void HubServer::set_misbehave(std::function<HubFault(const HubRequest&)> misbehave) {
  const std::lock_guard lock(impl_->mutex);
  impl_->misbehave = std::move(misbehave);
}
void HubServer::set_require_token(bool require) {
  const std::lock_guard lock(impl_->mutex);
  impl_->require_token = require;
}
void HubServer::Remove(const std::string& file) {
  const std::lock_guard lock(impl_->mutex);
  impl_->files.erase(file);
}
void HubServer::Replace(const std::string& file, std::string content) {
  const std::lock_guard lock(impl_->mutex);
  impl_->files.insert_or_assign(file, Serve(std::move(content), file));
}
std::vector<HubRequest> HubServer::requests() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->requests;
}
std::vector<std::string> HubServer::ranges_served() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->ranges_served;
}
int HubServer::connections() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->connections;
}

}  // namespace mference::testing
