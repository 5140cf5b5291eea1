#include "install/remote_source.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <ctime>

#include "base/sha256.h"
#include "base/units.h"
#include "format/path_rules.h"
#include "install/hub_token.h"
#include "install/rate_limiter.h"
#include "install/transfer_pool.h"

namespace mference {
namespace {

constexpr int kMaxRedirects = 5;
constexpr size_t kCommitDigits = 40;
// A broken transfer that got this much further earns its attempts back.
constexpr uint64_t kProgressBytes = 256 * kKiB;

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isxdigit(c) != 0;
         });
}

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Strong tags only: a weak one says nothing about bytes.
std::optional<std::string> StrongTag(std::string_view etag) {
  if (etag.size() < 2 || etag.front() != '"' || etag.back() != '"') return std::nullopt;
  return AsciiLower(etag.substr(1, etag.size() - 2));
}

std::optional<uint64_t> ParseSize(std::string_view text) {
  if (text.empty() || text.size() > 19 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  return std::stoull(std::string(text));
}

[[noreturn]] void FailProtocol(const std::string& url, const std::string& problem) {
  throw TransferError(ErrorCode::kSourceInvalid, fmt::format("{}: {}", RedactUrl(url), problem),
                      false);
}

// What HEAD says about one file.
struct FileFacts {
  uint64_t bytes = 0;
  std::string sha256;    // of large files; else empty
  std::string git_sha1;  // of small files: the id of the git blob; else empty
  std::string xet_hash;  // lower case; else empty
};

// SHA-256 and git blob id of a small file on its way in.
class ContentCheck {
 public:
  explicit ContentCheck(const FileFacts& facts) : facts_(facts), sha1_(EVP_MD_CTX_new()) {
    const std::string head = fmt::format("blob {}", facts.bytes);
    EVP_DigestInit_ex(sha1_.get(), EVP_sha1(), nullptr);
    EVP_DigestUpdate(sha1_.get(), head.c_str(), head.size() + 1);
  }
  void Update(std::span<const std::byte> bytes) {
    sha256_.Update(bytes);
    EVP_DigestUpdate(sha1_.get(), bytes.data(), bytes.size());
  }
  bool Matches() {
    std::array<unsigned char, 20> digest{};
    EVP_DigestFinal_ex(sha1_.get(), digest.data(), nullptr);
    std::string git_sha1;
    for (const unsigned char byte : digest) git_sha1 += fmt::format("{:02x}", byte);
    const std::string sha256 = sha256_.FinishHex();
    return (facts_.sha256.empty() || facts_.sha256 == sha256) &&
           (facts_.git_sha1.empty() || facts_.git_sha1 == git_sha1);
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  const FileFacts& facts_;
  Sha256 sha256_;
  std::unique_ptr<EVP_MD_CTX, Free> sha1_;
};

}  // namespace

struct RemoteSource::Impl {
  struct ByteRange {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  using BodySink = std::function<void(std::span<const std::byte>)>;

  const RemoteOptions options;
  const UrlOrigin origin;
  RateLimiter limiter;
  std::unique_ptr<TransferPool> transfers;  // null before there is a work directory

  mutable std::mutex mutex;  // of everything below
  std::string commit;        // resolved; empty before the first answer
  std::map<std::string, std::optional<FileFacts>> facts;
  std::map<std::string, std::string> range_tags;  // by shard: the ETag its ranges came with
  std::vector<RetryNotice> retries;
  std::vector<std::unique_ptr<HttpConnection>> idle;

  explicit Impl(RemoteOptions chosen)
      : options(std::move(chosen)),
        origin(OriginOf(options.base_url)),
        limiter(options.rate_limit_bytes_per_s) {
    if (origin.scheme != "https" && origin.scheme != "http") {
      Fail(ErrorCode::kInvalidArgument, "{} is not an http(s) address",
           RedactUrl(options.base_url));
    }
  }

  // --- Connections -------------------------------------------------------------------------

  // A connection for the length of one exchange.
  class Lease {
   public:
    explicit Lease(Impl& impl) : impl_(impl) {
      const std::lock_guard lock(impl.mutex);
      if (impl.idle.empty()) {
        connection_ = std::make_unique<HttpConnection>(impl.options.http);
      } else {
        connection_ = std::move(impl.idle.back());
        impl.idle.pop_back();
      }
    }
    ~Lease() {
      const std::lock_guard lock(impl_.mutex);
      impl_.idle.push_back(std::move(connection_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    HttpConnection& operator*() const { return *connection_; }

   private:
    Impl& impl_;
    std::unique_ptr<HttpConnection> connection_;
  };

  std::function<bool()> Abandoned(std::function<bool()> also = {}) const {
    return [this, also = std::move(also)] {
      return (options.cancelled != nullptr && options.cancelled->load()) || (also && also());
    };
  }

  void Retry(const std::string& label, const std::function<bool()>& abandoned,
             const std::function<void(const std::function<void()>&)>& attempt) {
    WithRetries(
        options.retry, label, abandoned,
        [this](const RetryNotice& notice) {
          const std::lock_guard lock(mutex);
          retries.push_back(notice);
          if (options.on_retry) options.on_retry(notice);
        },
        attempt);
  }

  // --- Requests ----------------------------------------------------------------------------

  std::string UrlOf(const std::string& name) const {
    if (!PathProblem(name).empty() || name.find_first_of("/?#%") != std::string::npos) {
      Fail(ErrorCode::kSourceInvalid, "'{}' is not a plain file name", name);
    }
    std::string at;
    {
      const std::lock_guard lock(mutex);
      at = commit.empty() ? options.revision : commit;
    }
    std::string encoded;
    for (const char c : at) encoded += c == '/' ? std::string("%2F") : std::string(1, c);
    return fmt::format("{}/{}/resolve/{}/{}", options.base_url, options.repository, encoded, name);
  }

  std::vector<std::string> Headers(const std::string& url, bool may_authorize) const {
    std::vector<std::string> headers = {"Accept-Encoding: identity"};
    if (may_authorize && !options.token.empty() && OriginOf(url) == origin && IsConfidential()) {
      headers.push_back("Authorization: Bearer " + options.token);
    }
    return headers;
  }

  // A token never crosses a network in the clear.
  bool IsConfidential() const {
    return origin.scheme == "https" || origin.host == "localhost" || origin.host == "127.0.0.1";
  }

  [[noreturn]] void FailStatus(const std::string& url, const HttpResponse& response) const {
    std::optional<std::chrono::seconds> retry_after;
    if (const std::string_view value = response.Header("retry-after"); !value.empty()) {
      retry_after = ParseRetryAfter(value, std::time(nullptr), options.retry);
    }
    std::string advice;
    if (response.status == 401 || response.status == 403) {
      advice = options.token.empty()
                   ? ": the repository wants a token; set HF_TOKEN"
                   : ": the token does not open it; its licence may have to be accepted on the web";
    } else if (response.status == 416) {
      advice = ": the file is not as long as it was said to be";
    }
    throw TransferError(ErrorCode::kNetwork,
                        fmt::format("{} answered {}{}", RedactUrl(url), response.status, advice),
                        IsRetryableStatus(response.status), retry_after);
  }

  std::string RedirectTarget(const std::string& url, const HttpResponse& response) const {
    const std::string location(response.Header("location"));
    if (location.empty()) FailProtocol(url, "a redirect without a target");
    return ResolveUrl(url, location);
  }

  // Follows only the hub's own redirects: what it says about a file is on the answer that points
  // away.
  std::optional<FileFacts> HeadOnce(const std::string& name) {
    const Lease connection(*this);
    std::string url = UrlOf(name);
    HttpResponse response;
    std::map<std::string, std::string, std::less<>> seen;  // of every hop, the last wins
    for (int hop = 0;; ++hop) {
      response = (*connection)
                     .Perform({.url = url,
                               .head = true,
                               .headers = Headers(url, true),
                               .abandoned = Abandoned()});
      for (const char* header : {"x-repo-commit", "x-linked-size", "x-linked-etag", "x-xet-hash"}) {
        if (const auto value = response.Header(header); !value.empty()) seen[header] = value;
      }
      if (!IsRedirect(response.status)) break;
      const std::string target = RedirectTarget(url, response);
      const UrlOrigin target_origin = OriginOf(target);
      if (target_origin != origin || target_origin.scheme != "https") break;
      if (hop == kMaxRedirects) FailProtocol(url, "redirected more than five times");
      url = target;
    }
    if (response.status == 404) return std::nullopt;
    if (response.status < 200 || response.status >= 400) FailStatus(url, response);
    NoteCommit(url, seen["x-repo-commit"]);
    return ReadFacts(url, response, seen["x-linked-size"], seen["x-linked-etag"],
                     seen["x-xet-hash"]);
  }

  void NoteCommit(const std::string& url, const std::string& found) {
    if (!IsHex(found, kCommitDigits)) FailProtocol(url, "no commit in X-Repo-Commit");
    const std::string lower = AsciiLower(found);
    const std::lock_guard lock(mutex);
    if (commit.empty() && IsHex(options.revision, kCommitDigits)) {
      commit = AsciiLower(options.revision);
    }
    if (commit.empty()) commit = lower;
    if (commit != lower) {
      FailProtocol(url, fmt::format("is at commit {}, not {}", lower, commit));
    }
  }

  static FileFacts ReadFacts(const std::string& url, const HttpResponse& response,
                             const std::string& linked_size, const std::string& linked_etag,
                             const std::string& xet_hash) {
    FileFacts facts;
    std::optional<uint64_t> bytes = ParseSize(linked_size);
    if (!bytes && response.status < 300) bytes = ParseSize(response.Header("content-length"));
    if (!bytes) FailProtocol(url, "does not say how long the file is");
    facts.bytes = *bytes;
    facts.xet_hash = AsciiLower(xet_hash);
    const std::string etag =
        linked_etag.empty() ? std::string(response.Header("etag")) : linked_etag;
    if (const auto tag = StrongTag(etag)) {
      if (IsHex(*tag, 64) && *tag != facts.xet_hash) facts.sha256 = *tag;
      if (IsHex(*tag, kCommitDigits)) facts.git_sha1 = *tag;
    }
    return facts;
  }

  // A GET with redirects. `accept` sees the head of the final answer before any of its body.
  void GetOnce(const std::string& first_url, std::vector<std::string> extra_headers,
               const std::function<void(const std::string& url, const HttpResponse&)>& accept,
               const BodySink& sink, const std::function<bool()>& abandoned) {
    const Lease connection(*this);
    std::string url = first_url;
    bool may_authorize = true;
    for (int hop = 0;; ++hop) {
      std::vector<std::string> headers = Headers(url, may_authorize);
      headers.insert(headers.end(), extra_headers.begin(), extra_headers.end());
      bool redirected = false;
      const HttpResponse response = (*connection)
                                        .Perform({.url = url,
                                                  .headers = std::move(headers),
                                                  .on_headers =
                                                      [&](const HttpResponse& head) {
                                                        redirected = IsRedirect(head.status);
                                                        if (!redirected) accept(url, head);
                                                      },
                                                  .on_body =
                                                      [&](std::span<const std::byte> piece) {
                                                        if (redirected) return;
                                                        limiter.Take(piece.size());
                                                        sink(piece);
                                                      },
                                                  .abandoned = abandoned});
      if (!redirected) return;
      const std::string target = RedirectTarget(url, response);
      if (OriginOf(target).scheme != "https") {
        FailProtocol(target, "redirect rejected: it is not https");
      }
      if (hop == kMaxRedirects) FailProtocol(url, "redirected more than five times");
      // Once away from the hub the token is not shown again, wherever later hops lead.
      if (OriginOf(target) != origin) may_authorize = false;
      url = target;
    }
  }

  static void RequireIdentity(const std::string& url, const HttpResponse& head) {
    const std::string_view encoding = head.Header("content-encoding");
    if (!encoding.empty() && AsciiLower(encoding) != "identity") {
      FailProtocol(url, fmt::format("came encoded as {}", encoding));
    }
  }

  void RequireRange(const std::string& url, const HttpResponse& head, const std::string& shard,
                    const FileFacts& file, const ByteRange& range) {
    if (head.status != 206) {
      if (head.status == 200) FailProtocol(url, "ignored the byte range (200 instead of 206)");
      FailStatus(url, head);
    }
    RequireIdentity(url, head);
    if (ParseSize(head.Header("content-length")) != range.bytes) {
      FailProtocol(url, fmt::format("announced '{}' bytes where {} were asked for",
                                    head.Header("content-length"), range.bytes));
    }
    const std::string expected =
        fmt::format("bytes {}-{}/{}", range.offset, range.offset + range.bytes - 1, file.bytes);
    if (head.Header("content-range") != expected) {
      FailProtocol(url, fmt::format("sent range '{}' where '{}' was asked for",
                                    head.Header("content-range"), expected));
    }
    const std::optional<std::string> tag = StrongTag(head.Header("etag"));
    if (!file.xet_hash.empty() && tag != file.xet_hash) {
      FailProtocol(url, "does not carry the content hash that was announced");
    }
    if (!tag) return;
    const std::lock_guard lock(mutex);
    const auto [known, first] = range_tags.emplace(shard, *tag);
    if (!first && known->second != *tag) {
      FailProtocol(url, "changed while it was being downloaded (another ETag)");
    }
  }

  void GetRange(const std::string& shard, const ByteRange& range, const BodySink& sink,
                const std::function<bool()>& abandoned) {
    const FileFacts file = Require(shard);
    uint64_t received = 0;
    GetOnce(
        UrlOf(shard),
        {fmt::format("Range: bytes={}-{}", range.offset, range.offset + range.bytes - 1)},
        [&](const std::string& url, const HttpResponse& head) {
          RequireRange(url, head, shard, file, range);
        },
        [&](std::span<const std::byte> piece) {
          received += piece.size();
          if (received > range.bytes) FailProtocol(shard, "sent more than was asked for");
          sink(piece);
        },
        abandoned);
    if (received < range.bytes) {
      throw TransferError(
          ErrorCode::kNetwork,
          fmt::format("{}: truncated after {} of {} bytes", shard, received, range.bytes), true);
    }
  }

  // A whole small file. `restart` runs before each attempt.
  void GetFile(const std::string& name, const FileFacts& file, const std::function<void()>& restart,
               const BodySink& sink) {
    Retry(name, Abandoned(), [&](const std::function<void()>&) {
      restart();
      ContentCheck check(file);
      uint64_t received = 0;
      GetOnce(
          UrlOf(name), {},
          [&](const std::string& url, const HttpResponse& head) {
            if (head.status != 200) FailStatus(url, head);
            RequireIdentity(url, head);
            const std::string_view length = head.Header("content-length");
            if (!length.empty() && ParseSize(length) != file.bytes) {
              FailProtocol(url, fmt::format("announced '{}' bytes, has {}", length, file.bytes));
            }
          },
          [&](std::span<const std::byte> piece) {
            received += piece.size();
            if (received > file.bytes) FailProtocol(name, "sent more than it has");
            check.Update(piece);
            sink(piece);
          },
          Abandoned());
      if (received < file.bytes) {
        throw TransferError(
            ErrorCode::kNetwork,
            fmt::format("{}: truncated after {} of {} bytes", name, received, file.bytes), true);
      }
      if (!check.Matches()) {
        throw TransferError(ErrorCode::kSourceInvalid,
                            fmt::format("{}: the content is not what its ETag names", name), true);
      }
    });
  }

  // --- Facts -------------------------------------------------------------------------------

  std::optional<FileFacts> Find(const std::string& name) {
    {
      const std::lock_guard lock(mutex);
      if (const auto known = facts.find(name); known != facts.end()) return known->second;
    }
    std::optional<FileFacts> found;
    Retry("HEAD " + name, Abandoned(),
          [&](const std::function<void()>&) { found = HeadOnce(name); });
    const std::lock_guard lock(mutex);
    facts.insert_or_assign(name, found);
    return found;
  }

  FileFacts Require(const std::string& name) {
    std::optional<FileFacts> found = Find(name);
    if (!found) {
      Fail(ErrorCode::kNotFound, "{} has no {} at {} (or needs a token)", options.repository, name,
           options.revision);
    }
    return *found;
  }

  std::optional<FileFacts> FindBounded(const std::string& name, uint64_t max_bytes) {
    std::optional<FileFacts> found = Find(name);
    if (found && found->bytes > max_bytes) {
      Fail(ErrorCode::kMetadataTooLarge, "{} of {} has {} bytes, more than the {} allowed", name,
           options.repository, found->bytes, max_bytes);
    }
    return found;
  }

  std::unique_ptr<PooledTransfer> NewTransfer() const {
    Check(transfers != nullptr, "no work directory for transfers");
    return std::make_unique<PooledTransfer>(*transfers);
  }
};

RemoteSource::RemoteSource(RemoteOptions options) {
  const std::string& repository = options.repository;
  const size_t slash = repository.find('/');
  const auto plain = [](std::string_view text, std::string_view extra) {
    return !text.empty() && text.find("..") == std::string_view::npos &&
           std::all_of(text.begin(), text.end(), [&](unsigned char c) {
             return std::isalnum(c) != 0 || extra.find(static_cast<char>(c)) != extra.npos;
           });
  };
  if (slash == std::string::npos || !plain(repository.substr(0, slash), "._-") ||
      !plain(repository.substr(slash + 1), "._-")) {
    Fail(ErrorCode::kInvalidArgument, "'{}' is not a repository: expected ORG/REPO", repository);
  }
  if (!plain(options.revision, "._-/")) {
    Fail(ErrorCode::kInvalidArgument, "'{}' is not a revision: expected a branch, tag or commit",
         options.revision);
  }
  while (options.base_url.ends_with('/')) options.base_url.pop_back();
  impl_ = std::make_unique<Impl>(std::move(options));
}
RemoteSource::~RemoteSource() = default;

SourceIdentity RemoteSource::identity() const {
  const std::lock_guard lock(impl_->mutex);
  return {.repository = impl_->options.repository,
          .requested_revision = impl_->options.revision,
          .commit = impl_->commit};
}

void RemoteSource::UseCommit(const std::string& commit) {
  const std::lock_guard lock(impl_->mutex);
  impl_->commit = AsciiLower(commit);
}

void RemoteSource::UseWorkDirectory(FileSystem& files, const std::filesystem::path& directory) {
  impl_->transfers = std::make_unique<TransferPool>(files, directory);
}

std::optional<std::string> RemoteSource::ReadFile(const std::string& name, uint64_t max_bytes) {
  const std::optional<FileFacts> file = impl_->FindBounded(name, max_bytes);
  if (!file) return std::nullopt;
  std::string text;
  impl_->GetFile(
      name, *file, [&] { text.clear(); },
      [&](std::span<const std::byte> piece) {
        text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      });
  return text;
}

std::unique_ptr<FetchedRange> RemoteSource::FetchFile(const std::string& name, uint64_t max_bytes) {
  const std::optional<FileFacts> file = impl_->FindBounded(name, max_bytes);
  if (!file) return nullptr;
  auto fetched = impl_->NewTransfer();
  impl_->GetFile(
      name, *file, [&] { fetched->Restart(); },
      [&](std::span<const std::byte> piece) { fetched->Append(piece); });
  return fetched;
}

bool RemoteSource::HasFile(const std::string& name) { return impl_->Find(name).has_value(); }

ShardInfo RemoteSource::Examine(const std::string& shard) {
  const FileFacts file = impl_->Require(shard);
  return {.bytes = file.bytes, .sha256 = file.sha256};
}

std::string RemoteSource::ReadBytes(const std::string& shard, uint64_t offset, uint64_t bytes) {
  std::string text;
  impl_->Retry(fmt::format("{} header", shard), impl_->Abandoned(),
               [&](const std::function<void()>&) {
                 text.clear();
                 impl_->GetRange(
                     shard, {.offset = offset, .bytes = bytes},
                     [&](std::span<const std::byte> piece) {
                       text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
                     },
                     impl_->Abandoned());
               });
  return text;
}

void RemoteSource::StreamBytes(const std::string& shard, uint64_t offset, uint64_t bytes,
                               const std::function<void(std::span<const std::byte>)>& sink) {
  uint64_t done = 0;
  impl_->Retry(fmt::format("{} at {}", shard, offset), impl_->Abandoned(),
               [&](const std::function<void()>& made_progress) {
                 const uint64_t had = done;
                 if (had == bytes) return;
                 impl_->GetRange(
                     shard, {.offset = offset + had, .bytes = bytes - had},
                     [&](std::span<const std::byte> piece) {
                       sink(piece);
                       done += piece.size();
                       if (done - had >= kProgressBytes) made_progress();
                     },
                     impl_->Abandoned());
               });
}

std::unique_ptr<FetchedRange> RemoteSource::Fetch(const RangeRequest& request) {
  auto fetched = impl_->NewTransfer();
  const std::function<bool()> abandoned = impl_->Abandoned(request.abandoned);
  impl_->Retry(request.label, abandoned, [&](const std::function<void()>& made_progress) {
    // What arrived before a break is kept: only the rest is asked for.
    const uint64_t had = fetched->bytes();
    if (had == request.bytes) return;
    impl_->GetRange(
        request.shard, {.offset = request.offset + had, .bytes = request.bytes - had},
        [&](std::span<const std::byte> piece) {
          fetched->Append(piece);
          if (request.on_progress) request.on_progress(fetched->bytes());
          if (fetched->bytes() - had >= kProgressBytes) made_progress();
        },
        abandoned);
  });
  return fetched;
}

std::vector<RetryNotice> RemoteSource::retries() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->retries;
}

}  // namespace mference
