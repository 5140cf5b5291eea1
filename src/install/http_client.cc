#include "install/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <mutex>

namespace mference {
namespace {

constexpr long kReceiveBufferBytes = 65536;

struct UrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, UrlDeleter>;

struct CurlStringDeleter {
  void operator()(char* text) const { curl_free(text); }
};

Url ParseUrl(const std::string& text) {
  Url url(curl_url());
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    Fail(ErrorCode::kInvalidArgument, "not a valid address: {}", text.substr(0, text.find('?')));
  }
  return url;
}

std::string Part(const Url& url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, flags) != CURLUE_OK) return "";
  const std::unique_ptr<char, CurlStringDeleter> owned(text);
  return text;
}

std::string_view Trim(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// Failures that another attempt may not meet: the connection, not the answer.
bool IsRetryable(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_UNSUPPORTED_PROTOCOL:  // junk where an answer should begin
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_AGAIN:
      return true;
    default:
      return false;
  }
}

const char* AdviceFor(CURLcode code) {
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
      return "; a mirror or proxy with a certificate authority of its own needs --ca-file";
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
      return "; is there a network, does it want a proxy, is the one that is set right "
             "(https_proxy, http_proxy, all_proxy)?";
    case CURLE_COULDNT_RESOLVE_PROXY:
      return "; is https_proxy, http_proxy or all_proxy set to one that exists?";
    default:
      return "";
  }
}

// What the callbacks of one request share. Exceptions must not cross libcurl: they are kept here.
struct Exchange {
  const HttpRequest& request;
  HttpResponse response;
  bool headers_accepted = false;
  std::exception_ptr failure;
};

size_t OnHeader(const char* data, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view line = Trim({data, size * count});
  if (line.starts_with("HTTP/")) {
    exchange.response.headers.clear();  // an interim answer came before
    return size * count;
  }
  if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
    exchange.response.headers.insert_or_assign(LowerCase(line.substr(0, colon)),
                                               std::string(Trim(line.substr(colon + 1))));
  }
  return size * count;
}

}  // namespace

struct HttpConnection::State {
  CURL* curl = nullptr;
  HttpSettings settings;

  explicit State(const HttpSettings& chosen) : settings(chosen) {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    curl = curl_easy_init();
    Check(curl != nullptr, "libcurl cannot start");
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { curl_easy_cleanup(curl); }

  // Asks the caller's permission before the first byte.
  void AcceptHeaders(Exchange& exchange) const {
    if (exchange.headers_accepted) return;
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    exchange.response.status = static_cast<int>(status);
    exchange.headers_accepted = true;
    if (exchange.request.on_headers) exchange.request.on_headers(exchange.response);
  }
};

namespace {

struct BodyContext {
  Exchange& exchange;
  std::function<void()> accept_headers;
};

size_t OnBody(const char* data, size_t size, size_t count, void* user) {
  auto& context = *static_cast<BodyContext*>(user);
  try {
    context.accept_headers();
    if (context.exchange.request.on_body) {
      context.exchange.request.on_body(std::as_bytes(std::span(data, size * count)));
    }
    return size * count;
  } catch (...) {
    context.exchange.failure = std::current_exception();
    return 0;  // libcurl takes it as a write error and stops
  }
}

int OnProgress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& exchange = *static_cast<const Exchange*>(user);
  return exchange.request.abandoned && exchange.request.abandoned() ? 1 : 0;
}

struct ListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

}  // namespace

HttpConnection::HttpConnection(const HttpSettings& settings)
    : state_(std::make_unique<State>(settings)) {}
HttpConnection::~HttpConnection() = default;

HttpResponse HttpConnection::Perform(const HttpRequest& request) {
  CURL* curl = state_->curl;
  curl_easy_reset(curl);  // keeps the connection
  Exchange exchange{.request = request, .response = {}, .failure = nullptr};
  BodyContext body{exchange, [&] { state_->AcceptHeaders(exchange); }};

  std::unique_ptr<curl_slist, ListDeleter> headers;
  for (const std::string& header : request.headers) {
    curl_slist* longer = curl_slist_append(headers.get(), header.c_str());
    Check(longer != nullptr, "out of memory for a header");
    static_cast<void>(headers.release());
    headers.reset(longer);
  }
  const HttpSettings& settings = state_->settings;
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_NOBODY, request.head ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "mference");
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT,
                   static_cast<long>(settings.connect_timeout.count()));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings.stall_timeout.count()));
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kReceiveBufferBytes);
  if (!settings.ca_file.empty()) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, settings.ca_file.c_str());
  }
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, OnProgress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &exchange);

  const CURLcode code = curl_easy_perform(curl);
  if (exchange.failure != nullptr) std::rethrow_exception(exchange.failure);
  if (code == CURLE_ABORTED_BY_CALLBACK) Fail(ErrorCode::kCancelled, "the transfer was stopped");
  if (code != CURLE_OK) {
    throw TransferError(
        ErrorCode::kNetwork,
        fmt::format("{}: {}{}", RedactUrl(request.url), curl_easy_strerror(code), AdviceFor(code)),
        IsRetryable(code));
  }
  // Without a body nothing has asked yet.
  if (!request.head) state_->AcceptHeaders(exchange);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  exchange.response.status = static_cast<int>(status);
  return std::move(exchange.response);
}

std::string_view HttpResponse::Header(std::string_view lower_case_name) const {
  const auto found = headers.find(lower_case_name);
  return found == headers.end() ? std::string_view() : std::string_view(found->second);
}

UrlOrigin OriginOf(const std::string& url) {
  const Url parsed = ParseUrl(url);
  return {.scheme = LowerCase(Part(parsed, CURLUPART_SCHEME)),
          .host = LowerCase(Part(parsed, CURLUPART_HOST)),
          .port = Part(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT)};
}

std::string ResolveUrl(const std::string& base, const std::string& location) {
  const Url url = ParseUrl(base);
  if (curl_url_set(url.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK) {
    throw TransferError(
        ErrorCode::kSourceInvalid,
        fmt::format("{} redirects to something that is no address", RedactUrl(base)), false);
  }
  return Part(url, CURLUPART_URL);
}

std::string RedactUrl(const std::string& url) {
  std::string_view text = url;
  text = text.substr(0, text.find_first_of("?#"));
  const size_t scheme = text.find("://");
  const size_t authority = scheme == std::string_view::npos ? 0 : scheme + 3;
  const size_t slash = text.find('/', authority);
  const size_t at = text.substr(0, slash).rfind('@');
  if (at == std::string_view::npos || at < authority) return std::string(text);
  return std::string(text.substr(0, authority)) + std::string(text.substr(at + 1));
}

}  // namespace mference
