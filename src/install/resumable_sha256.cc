// The one-shot interface of the library hides its state; the older one shows it.
#define OPENSSL_SUPPRESS_DEPRECATED

#include "install/resumable_sha256.h"

#include <openssl/sha.h>

#include <array>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace mference {
namespace {

constexpr size_t kStateDigits = 64;
constexpr size_t kLengthDigits = 16;

std::optional<uint64_t> ParseHex(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

struct ResumableSha256::State {
  SHA256_CTX context{};
  uint64_t bytes = 0;
};

ResumableSha256::ResumableSha256() : state_(std::make_unique<State>()) {
  Check(SHA256_Init(&state_->context) == 1, "SHA-256 unavailable");
}
ResumableSha256::~ResumableSha256() = default;
ResumableSha256::ResumableSha256(ResumableSha256&&) noexcept = default;
ResumableSha256& ResumableSha256::operator=(ResumableSha256&&) noexcept = default;

void ResumableSha256::Update(std::span<const std::byte> bytes) {
  SHA256_Update(&state_->context, bytes.data(), bytes.size());
  state_->bytes += bytes.size();
}

uint64_t ResumableSha256::bytes() const { return state_->bytes; }

std::string ResumableSha256::FinishHex() {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256_Final(digest.data(), &state_->context);
  std::string hex;
  for (const unsigned char byte : digest) fmt::format_to(std::back_inserter(hex), "{:02x}", byte);
  return hex;
}

// The eight words of the state, the length, and the bytes of the unfinished block.
std::string ResumableSha256::Save() const {
  std::string text;
  const auto out = std::back_inserter(text);
  for (const SHA_LONG word : state_->context.h) fmt::format_to(out, "{:08x}", word);
  fmt::format_to(out, "{:016x}", state_->bytes);
  const auto* pending = reinterpret_cast<const unsigned char*>(state_->context.data);
  for (unsigned i = 0; i < state_->context.num; ++i) fmt::format_to(out, "{:02x}", pending[i]);
  return text;
}

std::optional<ResumableSha256> ResumableSha256::Load(std::string_view saved) {
  if (saved.size() < kStateDigits + kLengthDigits) return std::nullopt;
  ResumableSha256 hash;
  SHA256_CTX& context = hash.state_->context;
  for (size_t i = 0; i < 8; ++i) {
    const auto word = ParseHex(saved.substr(8 * i, 8));
    if (!word) return std::nullopt;
    context.h[i] = static_cast<SHA_LONG>(*word);
  }
  const auto bytes = ParseHex(saved.substr(kStateDigits, kLengthDigits));
  saved.remove_prefix(kStateDigits + kLengthDigits);
  if (!bytes || saved.size() != 2 * (*bytes % SHA256_CBLOCK)) return std::nullopt;
  hash.state_->bytes = *bytes;
  context.Nl = static_cast<SHA_LONG>(*bytes << 3);
  context.Nh = static_cast<SHA_LONG>(*bytes >> 29);
  context.num = static_cast<unsigned>(*bytes % SHA256_CBLOCK);
  auto* pending = reinterpret_cast<unsigned char*>(context.data);
  for (unsigned i = 0; i < context.num; ++i) {
    const auto byte = ParseHex(saved.substr(size_t{2} * i, 2));
    if (!byte) return std::nullopt;
    pending[i] = static_cast<unsigned char>(*byte);
  }
  return hash;
}

}  // namespace mference
