#include "experts/routing_trace.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"

namespace mference {
namespace {

constexpr std::string_view kMagic = "MFROUTE1";
// Bounds of what is believed of a file: far beyond every model and recording.
constexpr uint32_t kMostLayers = 4096;
constexpr uint32_t kMostExperts = 65535;
constexpr uint32_t kMostRows = 1 << 20;
constexpr uint64_t kMostBytes = 4 * kGiB;

bool IsWide(int32_t experts_per_layer) { return experts_per_layer > 256; }

void Append(std::string& bytes, uint64_t value, int width) {
  for (int i = 0; i < width; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
}

class TraceReader {
 public:
  TraceReader(std::string bytes, std::string name)
      : bytes_(std::move(bytes)), name_(std::move(name)) {}

  bool AtEnd() const { return at_ == bytes_.size(); }
  [[noreturn]] void FailHere(const std::string& problem) const {
    Fail(ErrorCode::kInvalidArgument, "{} is not a routing trace: at offset {}, {}", name_, at_,
         problem);
  }
  std::string_view Take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      FailHere(fmt::format("expected {} more bytes, found {}", count, bytes_.size() - at_));
    }
    const std::string_view taken = std::string_view(bytes_).substr(at_, count);
    at_ += count;
    return taken;
  }
  uint64_t Number(int width) {
    uint64_t value = 0;
    const std::string_view taken = Take(static_cast<uint64_t>(width));
    for (int i = width; i-- > 0;)
      value = value << 8 | static_cast<uint8_t>(taken[static_cast<size_t>(i)]);
    return value;
  }
  // A number from 1 to `most`.
  int32_t Count(const char* what, int width, uint32_t most) {
    const uint64_t value = Number(width);
    if (value < 1 || value > most) {
      FailHere(fmt::format("{} is {}, expected 1 to {}", what, value, most));
    }
    return static_cast<int32_t>(value);
  }

 private:
  std::string bytes_;
  std::string name_;
  uint64_t at_ = 0;
};

}  // namespace

int64_t RoutingTrace::tokens() const {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

void WriteTrace(const std::filesystem::path& path, const RoutingTrace& trace) {
  std::string bytes(kMagic);
  for (const int32_t value : {trace.layers, trace.experts_per_layer, trace.top_k,
                              static_cast<int32_t>(trace.routed_layers.size())}) {
    Append(bytes, static_cast<uint64_t>(value), 4);
  }
  Append(bytes, trace.blob_bytes, 8);
  for (const int32_t layer : trace.routed_layers) Append(bytes, static_cast<uint64_t>(layer), 2);
  size_t at = 0;
  for (const int32_t rows : trace.rows) {
    const size_t entries = trace.EntriesOf(rows);
    Append(bytes, static_cast<uint64_t>(rows), 4);
    for (size_t i = at; i < at + entries; ++i) {
      Append(bytes, trace.experts[i], IsWide(trace.experts_per_layer) ? 2 : 1);
    }
    for (size_t i = at; i < at + entries; ++i) Append(bytes, trace.shares[i], 1);
    at += entries;
  }
  WriteFileAtomically(path, bytes);
}

RoutingTrace ReadTrace(const std::filesystem::path& path) {
  TraceReader reader(ReadTextFile(path, kMostBytes), path.string());
  if (reader.Take(kMagic.size()) != kMagic) {
    Fail(ErrorCode::kInvalidArgument, "{} is not a routing trace: it does not begin with {}",
         path.string(), kMagic);
  }
  RoutingTrace trace;
  trace.layers = reader.Count("the number of layers", 4, kMostLayers);
  trace.experts_per_layer = reader.Count("the number of experts", 4, kMostExperts);
  trace.top_k = reader.Count("top_k", 4, static_cast<uint32_t>(trace.experts_per_layer));
  const int32_t routed =
      reader.Count("the number of routed layers", 4, static_cast<uint32_t>(trace.layers));
  trace.blob_bytes = reader.Number(8);
  for (int32_t i = 0; i < routed; ++i) {
    const auto layer = static_cast<int32_t>(reader.Number(2));
    if (layer >= trace.layers || (i > 0 && layer <= trace.routed_layers.back())) {
      reader.FailHere(fmt::format("routed layer {} is out of order or range", layer));
    }
    trace.routed_layers.push_back(layer);
  }
  const int width = IsWide(trace.experts_per_layer) ? 2 : 1;
  while (!reader.AtEnd()) {
    const int32_t rows = reader.Count("the number of rows", 4, kMostRows);
    const size_t entries = trace.EntriesOf(rows);
    trace.rows.push_back(rows);
    for (size_t i = 0; i < entries; ++i) {
      const uint64_t expert = reader.Number(width);
      const bool first_of_row = i % static_cast<size_t>(trace.top_k) == 0;
      if (expert >= static_cast<uint64_t>(trace.experts_per_layer) ||
          (!first_of_row && expert <= trace.experts.back())) {
        reader.FailHere(fmt::format("expert {} is out of order or range", expert));
      }
      trace.experts.push_back(static_cast<uint16_t>(expert));
    }
    const std::string_view shares = reader.Take(entries);
    trace.shares.insert(trace.shares.end(), shares.begin(), shares.end());
  }
  return trace;
}

TraceBuilder::TraceBuilder(int32_t layers, int32_t experts_per_layer, uint64_t blob_bytes) {
  trace_.layers = layers;
  trace_.experts_per_layer = experts_per_layer;
  trace_.blob_bytes = blob_bytes;
}

void TraceBuilder::Add(int32_t layer, int32_t top_k, std::span<const int32_t> experts,
                       std::span<const float> weights) {
  if (!step_layers_.empty() && layer <= step_layers_.back()) CloseStep();
  const auto rows = static_cast<int32_t>(experts.size() / static_cast<size_t>(top_k));
  if (step_layers_.empty()) step_rows_ = rows;
  trace_.top_k = top_k;
  Check(rows == step_rows_ && weights.size() == experts.size(),
        "layers of one step have equally many rows");
  step_layers_.push_back(layer);
  for (size_t begin = 0; begin < experts.size(); begin += static_cast<size_t>(top_k)) {
    const std::span<const float> row = weights.subspan(begin, static_cast<size_t>(top_k));
    const float largest = *std::max_element(row.begin(), row.end());
    for (size_t k = 0; k < row.size(); ++k) {
      const float share = largest > 0 ? std::max(row[k], 0.0f) / largest : 0.0f;
      trace_.experts.push_back(static_cast<uint16_t>(experts[begin + k]));
      trace_.shares.push_back(static_cast<uint8_t>(std::lround(share * 255)));
    }
  }
}

// Keeps the open step if it has all layers: the first complete step says which those are.
void TraceBuilder::CloseStep() {
  if (trace_.routed_layers.empty()) trace_.routed_layers = step_layers_;
  if (step_layers_ == trace_.routed_layers) {
    trace_.rows.push_back(step_rows_);
    step_begin_ = trace_.experts.size();
  } else {
    trace_.experts.resize(step_begin_);
    trace_.shares.resize(step_begin_);
  }
  step_layers_.clear();
}

RoutingTrace TraceBuilder::Finish() {
  if (!step_layers_.empty()) CloseStep();
  return trace_;
}

}  // namespace mference
