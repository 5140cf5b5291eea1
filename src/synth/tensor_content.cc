#include "synth/tensor_content.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "synth/random.h"

namespace mference {
namespace {

// Writes elements of type T from byte `offset` of their array on; the first and the last may be
// cut. `value(index)` gives element `index`.
template <typename T, typename Value>
void FillElements(uint64_t offset, std::span<std::byte> out, const Value& value) {
  uint64_t index = offset / sizeof(T);
  const size_t skipped = offset % sizeof(T);
  if (skipped != 0) {
    const T element = value(index++);
    const size_t bytes = std::min(sizeof(T) - skipped, out.size());
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(&element) + skipped, bytes);
    out = out.subspan(bytes);
  }
  for (; out.size() >= sizeof(T); out = out.subspan(sizeof(T))) {
    const T element = value(index++);
    std::memcpy(out.data(), &element, sizeof(T));
  }
  if (!out.empty()) {
    const T element = value(index);
    std::memcpy(out.data(), &element, out.size());
  }
}

class Codes final : public TensorContent {
 public:
  explicit Codes(uint64_t stream) : stream_(stream) {}
  void Fill(uint64_t offset, std::span<std::byte> out) const override {
    FillElements<uint64_t>(offset, out,
                           [stream = stream_](uint64_t i) { return RandomWord(stream, i); });
  }

 private:
  const uint64_t stream_;
};

// Scale and bias of a group come from one random word, so that either can be had alone.
class GroupValues {
 public:
  explicit GroupValues(const AffineStatistics& statistics)
      : stream_(RandomStream(statistics.stream, "groups")),
        groups_per_row_(statistics.columns / kSynthGroup),
        row_offsets_(statistics.row_offsets),
        direction_(statistics.direction) {
    const double codes = std::exp2(statistics.bits);
    middle_ = static_cast<float>((codes - 1) / 2);
    const double code_rms = std::sqrt((codes * codes - 1) / 12);
    // Of a magnitude that is uniform between 1/2 and 3/2.
    const double magnitude_rms = std::sqrt(13.0 / 12.0);
    scale_ = static_cast<float>(statistics.value_rms / (code_rms * magnitude_rms));
    // A twentieth of a code's spread: real biases are not centred either.
    bias_noise_ = static_cast<float>(code_rms / 20);
  }

  uint16_t Scale(uint64_t group) const {
    const uint64_t random = RandomWord(stream_, group);
    const float magnitude = scale_ * (0.5f + Fraction(random >> 1));
    return Bf16FromFloat((random & 1) != 0 ? -magnitude : magnitude);
  }
  uint16_t Bias(uint64_t group) const {
    const uint64_t random = RandomWord(stream_, group);
    const float noise = (Fraction(random >> 17) * 2 - 1) * bias_noise_;
    const float bias = -FloatFromBf16(Scale(group)) * (middle_ + noise);
    return Bf16FromFloat(bias + Offset(group));
  }

 private:
  static float Fraction(uint64_t random) { return static_cast<float>(random & 0xffff) * 0x1p-16f; }
  float Offset(uint64_t group) const {
    if (row_offsets_.empty()) return 0;
    const uint64_t row = row_offsets_.size() == 1 ? 0 : group / groups_per_row_;
    return row_offsets_[row] * direction_[group % groups_per_row_];
  }

  const uint64_t stream_;
  const uint64_t groups_per_row_;
  const std::vector<float> row_offsets_;
  const std::vector<float> direction_;
  float middle_ = 0;
  float scale_ = 0;
  float bias_noise_ = 0;
};

class Scales final : public TensorContent {
 public:
  explicit Scales(const AffineStatistics& statistics) : values_(statistics) {}
  void Fill(uint64_t offset, std::span<std::byte> out) const override {
    FillElements<uint16_t>(offset, out, [this](uint64_t i) { return values_.Scale(i); });
  }

 private:
  const GroupValues values_;
};

class Biases final : public TensorContent {
 public:
  explicit Biases(const AffineStatistics& statistics) : values_(statistics) {}
  void Fill(uint64_t offset, std::span<std::byte> out) const override {
    FillElements<uint16_t>(offset, out, [this](uint64_t i) { return values_.Bias(i); });
  }

 private:
  const GroupValues values_;
};

class Stored final : public TensorContent {
 public:
  explicit Stored(std::vector<uint16_t> values) : values_(std::move(values)) {}
  void Fill(uint64_t offset, std::span<std::byte> out) const override {
    std::memcpy(out.data(), std::as_bytes(std::span(values_)).data() + offset, out.size());
  }

 private:
  const std::vector<uint16_t> values_;
};

}  // namespace

std::unique_ptr<TensorContent> AffineCodes(const AffineStatistics& statistics) {
  return std::make_unique<Codes>(RandomStream(statistics.stream, "codes"));
}
std::unique_ptr<TensorContent> AffineScales(const AffineStatistics& statistics) {
  return std::make_unique<Scales>(statistics);
}
std::unique_ptr<TensorContent> AffineBiases(const AffineStatistics& statistics) {
  return std::make_unique<Biases>(statistics);
}

std::unique_ptr<TensorContent> Bf16Vector(std::span<const double> values) {
  std::vector<uint16_t> stored;
  stored.reserve(values.size());
  for (const double value : values) stored.push_back(Bf16FromFloat(static_cast<float>(value)));
  return std::make_unique<Stored>(std::move(stored));
}

}  // namespace mference
