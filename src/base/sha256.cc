#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/error.h"

namespace mference {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  Check(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1, "SHA-256 unavailable");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::span<const std::byte> bytes) {
  Check(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "SHA-256 update");
}

void Sha256::Update(std::string_view text) { Update(std::as_bytes(std::span(text))); }

std::string Sha256::FinishHex() {
  std::array<unsigned char, 32> digest{};
  unsigned int size = 0;
  Check(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1 && size == digest.size(),
        "SHA-256 finish");
  std::string hex;
  for (const unsigned char byte : digest) fmt::format_to(std::back_inserter(hex), "{:02x}", byte);
  return hex;
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.FinishHex();
}

}  // namespace mference
