// SHA-256 that can be put aside and continued in another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mference {

// Not thread-safe.
class ResumableSha256 {
 public:
  ResumableSha256();
  ~ResumableSha256();
  ResumableSha256(ResumableSha256&&) noexcept;
  ResumableSha256& operator=(ResumableSha256&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  uint64_t bytes() const;  // so far
  // 64 hex digits; the object must not be used afterwards.
  std::string FinishHex();

  // Everything that is known after `bytes()` bytes, as hex text.
  std::string Save() const;
  // Empty for a text that `Save` did not write.
  static std::optional<ResumableSha256> Load(std::string_view saved);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mference
